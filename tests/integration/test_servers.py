"""`crosslayer servers` with the real servers: transports and behaviour of each installed server."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crosslayer import resources
from crosslayer.discover.behaviour import CHECKS
from crosslayer.discover.emulated import IMPLEMENTATIONS
from crosslayer.discover.servers import FILES, SERVERS
from crosslayer.errors import CrosslayerError
from crosslayer.guest import find_kernel
from tests.integration.conftest import run_here

THINGS = {kind.name: kind.resource for kind in IMPLEMENTATIONS}
DO53 = {"DoUDP", "DoTCP"}
OVER_TCP = {"DoT", "DoH"}
QUIC = {"DoH3", "DoQ"}
TRUTH = {
    "coalesce": DO53 | OVER_TCP | QUIC,
    "coredns": DO53 | OVER_TCP | QUIC,
    "dnsproxy": DO53 | OVER_TCP | QUIC,
    "knot": DO53,
    "knot-resolver": DO53 | OVER_TCP,
    "unbound": DO53 | {"DoT"},
    "dnsdist": DO53 | OVER_TCP,
    "bind9": DO53 | OVER_TCP,
}
"""Transports that all versions of a server support; some versions support more."""
RTTS = {"DoUDP": 1, "DoTCP": 2, "DoT": 3, "DoH": 3, "DoH3": 2, "DoQ": 2}
"""Round-trips of an exchange with a full handshake."""


@dataclass(frozen=True)
class ServerResults:
    """Output of one run of the command."""

    folder: Path
    stdout: str
    virtual: bool
    cells: dict[tuple[str, str, str], dict[str, str]]
    """Rows of servers.csv by server, check, transport."""

    def result(self, server: str, check: str, transport: str) -> str:
        return self.cells[server, check, transport]["result"]

    def rtts(self, server: str, check: str, transport: str) -> float:
        assert self.cells[server, check, transport]["unit"] == "RTT"
        return float(self.cells[server, check, transport]["value"])


@pytest.fixture(scope="module")
def servers(testbed_machine: None, tmp_path_factory: pytest.TempPathFactory) -> ServerResults:
    """All servers on one link. Virtual time is used if possible, because its times are exact and it skips waits."""
    try:
        find_kernel()
        clock = "virtual"
    except CrosslayerError:
        clock = "wall"
    folder = tmp_path_factory.mktemp("servers")
    done = run_here("servers", "--clock", clock, "--link", "fiber", "--rounds", "1", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    with (folder / "servers.csv").open(encoding="utf-8", newline="") as lines:
        cells = {(row["server"], row["check"], row["transport"]): row for row in csv.DictReader(lines)}
    return ServerResults(folder, done.stdout, clock == "virtual", cells)


def here(server: str) -> None:
    """Skip, with the next step, if a server is not installed."""
    try:
        resources.locate(THINGS[server])
    except resources.ResourceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("server", TRUTH)
def test_each_installed_server_answers_over_its_transports(servers: ServerResults, server: str) -> None:
    here(server)
    spoken = {transport for transport in RTTS if servers.cells[server, "answer", transport]["value"]}
    assert spoken >= TRUTH[server]
    assert servers.cells[server, "answer", "DoUDP"]["version"][0].isdigit()
    checked = {(check, transport) for name, check, transport in servers.cells if name == server}
    assert checked == {(check.name, str(protocol)) for check in CHECKS for protocol in check.transports}


@pytest.mark.parametrize("server", TRUTH)
def test_a_server_that_is_not_installed_is_a_row_that_says_how_to_get_it(servers: ServerResults, server: str) -> None:
    way = ""
    try:
        resources.locate(THINGS[server])
    except resources.ResourceError as error:
        way = error.next_step
    row = servers.cells.get((server, "installed", ""))
    assert (row is not None) is bool(way)
    if row is not None:
        assert row["result"] == "unsupported"
        assert way in row["detail"]
        assert row["detail"] in servers.stdout


def test_ours_does_what_it_is_there_for(servers: ServerResults) -> None:
    for check in ("early", "early-answer", "ticket-once", "replay", "token", "versions", "padding"):
        for transport in QUIC:
            if check != "early-answer" or servers.virtual:
                assert servers.result("coalesce", check, transport) == "succeeded", (check, transport)
    asked = {check.name for check in CHECKS if check.asked_by.startswith("RFC 9250")}
    assert len(asked) == 12
    if not servers.virtual:
        asked.remove("early-update")  # decided by the time of the answer
    assert {check for check in asked if servers.result("coalesce", check, "DoQ") != "succeeded"} == set()


def test_replayed_early_data_is_answered_by_a_server_without_defence(servers: ServerResults) -> None:
    # Go's TLS has no defence. CoreDNS's own DoH3 answers before the handshake ends; its DoQ waits for the end.
    assert servers.result("coredns", "replay", "DoH3") == "failed"
    assert servers.result("coredns", "replay", "DoQ") == "succeeded"


def test_by_the_virtual_clock_times_are_those_of_the_handshakes(servers: ServerResults) -> None:
    if not servers.virtual:
        pytest.skip("times are judged by the virtual clock: `make guest`")
    for server in ("coalesce", "coredns"):
        for transport, rtts in RTTS.items():
            assert servers.rtts(server, "answer", transport) == pytest.approx(rtts, abs=0.1)
    assert servers.rtts("coalesce", "early", "DoQ") == pytest.approx(1, abs=0.1)
    assert servers.rtts("coredns", "early", "DoQ") == pytest.approx(2, abs=0.1)
    assert servers.result("coredns", "early-answer", "DoQ") == "failed"


def test_the_files_agree(servers: ServerResults) -> None:
    assert sorted(entry.name for entry in servers.folder.iterdir()) == sorted(FILES)
    assert pq.read_table(servers.folder / "servers.parquet").num_rows == len(servers.cells)
    reported = json.loads((servers.folder / "servers.json").read_text(encoding="utf-8"))
    assert reported["servers"] == list(SERVERS)
    of_ours = {result["abbr"]: result["result"] for result in reported["results"][0]}
    assert of_ours["QY"] == servers.result("coalesce", "replay", "DoQ")
    page = (servers.folder / "servers.html").read_text(encoding="utf-8")
    assert all(f">{server}<" in page for server in SERVERS)
