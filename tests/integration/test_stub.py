"""The stub with the real server on an emulated link: transports, resumption, resets, restarts, loss, large answers.

This file is also the program that measures once in a guest in virtual time, which skips waits; the tests read its
output.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.query
import dns.rcode
import pytest

from crosslayer import pages, resources
from crosslayer.dns import DEFAULT_PORTS, Protocol, Resolver, Resumption
from crosslayer.errors import CrosslayerError
from crosslayer.guest import inside, run_attached
from crosslayer.links import Profile
from crosslayer.stub import Stub, StubSettings
from crosslayer.testbed import namespaces, network
from crosslayer.testbed import server as testbed_server
from crosslayer.testbed.server import ConnectionEvent, QueryEvent
from crosslayer.testbed.testbed import Testbed
from tests.integration.conftest import Run

COMMAND = [sys.executable, "-m", "tests.integration.test_stub"]
NAME = "www.example.org"
LARGE = "large.example.org"
RTT_MS = 20.0
CONDITIONS = [(protocol, resumption) for protocol in Protocol for resumption in protocol.transport.resumptions]
CONNECTED = [protocol for protocol in Protocol if protocol is not Protocol.DOUDP]
ENCRYPTED = [protocol for protocol in Protocol if protocol not in (Protocol.DOUDP, Protocol.DOTCP)]
QUIC = (Protocol.DOH3, Protocol.DOQ)
CONCURRENT = 40
LOSSY_QUERIES = 40
HANDSHAKES = {Protocol.DOUDP: 0, Protocol.DOTCP: 1, Protocol.DOT: 2, Protocol.DOH: 2, Protocol.DOH3: 1, Protocol.DOQ: 1}
"""Round-trips of a full handshake (TLS 1.3)."""

Row = dict[str, Any]


# Inside the namespaces


def ask(name: str = NAME, kind: str = "A", *, tcp: bool = False, payload: int | None = None) -> Row:
    """Query the stub with dnspython; returns properties of the answer."""
    options: dict[str, Any] = {} if payload is None else {"use_edns": 0, "payload": payload}
    query = dns.message.make_query(name, kind, **options)
    if tcp:
        answer = dns.query.tcp(query, "127.0.0.1", timeout=60)
    else:  # the server may still send packets for an earlier connection with the same port
        answer = dns.query.udp(query, "127.0.0.1", timeout=60, ignore_unexpected=True)
    records = [rdata.to_text() for rrset in answer.answer for rdata in rrset]
    return {
        "rcode": dns.rcode.to_text(answer.rcode()),
        "records": records,
        "truncated": bool(answer.flags & dns.flags.TC),
        "edns": answer.edns >= 0,
    }


def measured(stub: Stub, **query: Any) -> Row:
    """Query once; returns the row of metrics with the answer."""
    stub.metrics()
    answer = ask(**query)
    (row,) = stub.metrics()
    return asdict(row) | {"answer": answer}


class Upstream:
    """The server's program, started with the files of the testbed's server, so certificate and zone stay the same."""

    def __init__(self, server: testbed_server.Server) -> None:
        self._server = server
        self._process: subprocess.Popen[Any] | None = None

    def start(self) -> None:
        corefile = self._server.control_path.with_name("Corefile")
        log = self._server.control_path.with_name("again.log").open("ab")
        with log:
            self._process = network.spawn(
                network.SERVER,
                [str(resources.locate("server").path), "-conf", str(corefile)],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as control:
                control.connect(str(self._server.control_path))
                control.sendall(b'{"command": "ready"}\n')
                if b'"ok":true' in control.recv(65536):
                    return
            time.sleep(0.01)
        raise TimeoutError("the server did not start again")

    def kill(self) -> None:
        """Kill the server like a crash, without closing its connections."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


def large_record() -> str:
    """A TXT record with 4,000 bytes of text, as a line of a zone."""
    return f"{LARGE}. IN TXT " + " ".join(f'"{"x" * 200}"' for _ in range(20)) + "\n"


def measure() -> dict[str, Any]:
    specs = pages.load_pages(pages.find_spec_dir())
    folder = Path(tempfile.mkdtemp())
    results: dict[str, Any] = {}
    with Testbed() as testbed, testbed.serve(specs) as (server, _):
        testbed.set_link(Profile("delayed", RTT_MS, "delayed"))
        towards = Resolver(network.SERVER_ADDRESS, NAME, server.ca_file)

        @contextlib.contextmanager
        def stub_for(protocol: Protocol, resumption: Resumption | None = None, **options: Any) -> Iterator[Stub]:
            settings = StubSettings.towards(towards, protocol, resumption, **options)
            with Stub.start(subprocess.Popen, settings, folder / "stub") as stub:
                yield stub

        for protocol, resumption in CONDITIONS:
            with stub_for(protocol, resumption) as stub:
                server.events()
                row: Row = {
                    "first": measured(stub),
                    "kept": measured(stub, tcp=True),
                    "closed": [stub.reset_sessions()],
                }
                row["resumed"] = measured(stub)
                row["closed"].append(stub.forget())
                row["ticket"] = stub.stats().ticket
                row["forgotten"] = measured(stub)
                row["stats"] = asdict(stub.stats())
                events = server.events()
                port = f":{row['resumed']['local_port']}"
                row["server"] = [asdict(e) for e in events if isinstance(e, QueryEvent) and e.remote.endswith(port)]
                row["connections"] = [
                    asdict(e) for e in events if isinstance(e, ConnectionEvent) and e.remote.endswith(port)
                ]
                results[f"{protocol} {resumption}"] = row

        for protocol in Protocol:
            with stub_for(protocol, timeout_s=20) as stub, ThreadPoolExecutor(CONCURRENT) as pool:
                answers = list(pool.map(lambda number: ask(f"n{number}.example.org"), range(CONCURRENT)))
                results[f"{protocol} concurrent"] = {
                    "answers": [answer["rcode"] for answer in answers],
                    "rows": [asdict(row) for row in stub.metrics()],
                    "stats": asdict(stub.stats()),
                }

        namespaces.use_resolver("127.0.0.1")
        for protocol in Protocol:
            with stub_for(protocol) as stub:
                results[f"{protocol} clients"] = other_clients()
                results[f"{protocol} clients rows"] = [asdict(row) for row in stub.metrics()]

        server.stop()
        with server.zone.open("a", encoding="utf-8") as zone:
            zone.write(large_record())
        upstream = Upstream(server)
        for protocol in Protocol:
            upstream.start()
            with stub_for(protocol, timeout_s=4, udp_retransmit_s=0.2) as stub:
                row = {"before": measured(stub)}
                for size in (None, 1232, 8192):
                    row[f"large {size}"] = measured(stub, name=LARGE, kind="TXT", payload=size)
                row["large tcp"] = measured(stub, name=LARGE, kind="TXT", tcp=True)
                upstream.kill()
                upstream.start()
                row["restarted"] = measured(stub)
                upstream.kill()
                row["down"] = measured(stub)
                upstream.start()
                row["up"] = measured(stub)
                upstream.kill()
                results[f"{protocol} restarts"] = row

        upstream.start()
        testbed.set_link(Profile("lossy", RTT_MS, "lossy", loss_percent=10))
        for protocol in Protocol:
            with stub_for(protocol, timeout_s=30, udp_retransmit_s=0.1) as stub:
                results[f"{protocol} lossy"] = [measured(stub) for _ in range(LOSSY_QUERIES)]
        upstream.kill()
    return results


def other_clients() -> dict[str, str]:
    """Outputs of other programs that query the stub."""
    outputs = {}
    for client, command in {
        "kdig": ["kdig", "@127.0.0.1", NAME, "A"],
        "kdig +tcp": ["kdig", "+tcp", "@127.0.0.1", NAME, "A"],
        "kdig +dnssec": ["kdig", "+dnssec", "@127.0.0.1", NAME, "A"],
        "getent": ["getent", "ahostsv4", NAME],
    }.items():
        if shutil.which(command[0]):
            outputs[client] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return outputs


# The tests


@pytest.fixture(scope="module")
def results(virtual_clock: list[str]) -> dict[str, Any]:
    try:
        resources.locate("stub")
    except CrosslayerError as error:
        pytest.skip(str(error))
    done = subprocess.run(
        COMMAND, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    measured_in_there: dict[str, Any] = json.loads(done.stdout)
    return measured_in_there


def assert_good(row: Row) -> None:
    assert row["error"] == ""
    assert row["answer"]["rcode"] == row["rcode"] == "NOERROR"
    assert len(row["answer"]["records"]) == 1


@pytest.mark.parametrize(("protocol", "resumption"), CONDITIONS)
def test_sessions_are_kept_reset_resumed_and_forgotten(
    results: dict[str, Any], protocol: Protocol, resumption: Resumption
) -> None:
    actual = results[f"{protocol} {resumption}"]
    connected, encrypted = protocol in CONNECTED, protocol in ENCRYPTED
    for name in ("first", "kept", "resumed", "forgotten"):
        assert_good(actual[name])
    assert [actual[name]["new_connection"] for name in ("first", "kept", "resumed", "forgotten")] == [
        connected, False, connected, connected
    ]  # fmt: skip
    assert actual["kept"]["handshake_ms"] == 0
    assert (actual["first"]["client_protocol"], actual["kept"]["client_protocol"]) == ("udp", "tcp")
    assert actual["closed"] == [int(connected)] * 2
    assert actual["ticket"] is False
    assert actual["stats"]["connections"] == (3 if connected else 0)
    assert (actual["stats"]["queries"], actual["stats"]["failures"]) == (4, 0)
    resumed = resumption is not Resumption.NONE
    assert [actual[name]["resumed"] for name in ("first", "resumed", "forgotten")] == (
        [False, resumed, False] if encrypted else [None] * 3
    )
    early = resumption is Resumption.EARLY_DATA
    assert [actual[name]["early_data"] for name in ("first", "resumed", "forgotten")] == [False, early, False]
    assert actual["resumed"]["early_data_accepted"] is (True if early else None)


@pytest.mark.parametrize(("protocol", "resumption"), CONDITIONS)
def test_the_server_agrees(results: dict[str, Any], protocol: Protocol, resumption: Resumption) -> None:
    actual = results[f"{protocol} {resumption}"]
    (query,) = actual["server"]
    assert query["name"] == f"{NAME}."
    assert query["handshake_complete"] is (resumption is not Resumption.EARLY_DATA)
    if protocol in ENCRYPTED:
        (connection,) = actual["connections"]
        assert connection["resumed"] is (resumption is not Resumption.NONE)
        assert connection["server_name"] == NAME
        assert connection["early_data"] is (resumption is Resumption.EARLY_DATA)


@pytest.mark.parametrize(("protocol", "resumption"), CONDITIONS)
def test_phases_take_their_round_trips(results: dict[str, Any], protocol: Protocol, resumption: Resumption) -> None:
    actual = results[f"{protocol} {resumption}"]
    for name in ("first", "forgotten"):
        row = actual[name]
        assert row["handshake_ms"] >= 0.99 * HANDSHAKES[protocol] * RTT_MS
        assert row["query_ms"] >= 0.99 * RTT_MS
        assert row["total_ms"] >= row["handshake_ms"] + row["query_ms"]
    assert actual["kept"]["query_ms"] >= 0.99 * RTT_MS
    if resumption is Resumption.EARLY_DATA:
        assert actual["resumed"]["handshake_ms"] == 0


@pytest.mark.parametrize("protocol", Protocol)
def test_queries_are_padded_where_they_are_encrypted(results: dict[str, Any], protocol: Protocol) -> None:
    row = results[f"{protocol} none"]["first"]
    assert (row["query_bytes"] % 128 == 0) is (protocol in ENCRYPTED)
    assert (row["answer_bytes"] % 468 == 0) is (protocol in ENCRYPTED)


@pytest.mark.parametrize("protocol", Protocol)
def test_concurrent_queries_share_one_connection(results: dict[str, Any], protocol: Protocol) -> None:
    actual = results[f"{protocol} concurrent"]
    assert Counter(actual["answers"]) == {"NXDOMAIN": CONCURRENT}
    assert len(actual["rows"]) == CONCURRENT
    assert all(row["error"] == "" for row in actual["rows"])
    connected = protocol in CONNECTED
    assert actual["stats"]["connections"] == int(connected)
    assert sum(row["new_connection"] for row in actual["rows"]) == int(connected)
    assert {row["connection"] for row in actual["rows"]} == {int(connected)}
    # Because of the link's delay, further queries arrive during the handshake.
    assert (sum(row["handshake_ms"] > 0 for row in actual["rows"]) > 1) is connected


@pytest.mark.parametrize("protocol", Protocol)
def test_other_clients_resolve_through_it(results: dict[str, Any], protocol: Protocol) -> None:
    outputs = results[f"{protocol} clients"]
    for client in ("kdig", "kdig +tcp", "kdig +dnssec"):
        if client in outputs:
            assert "status: NOERROR" in outputs[client]
            assert "10.53.1." in outputs[client]
    assert "10.53.1." in outputs["getent"]
    rows = results[f"{protocol} clients rows"]
    assert {row["client_protocol"] for row in rows} == ({"udp", "tcp"} if "kdig" in outputs else {"udp"})
    assert not any(row["error"] for row in rows)


@pytest.mark.parametrize("protocol", Protocol)
def test_large_answers_come_over_tcp(results: dict[str, Any], protocol: Protocol) -> None:
    actual = results[f"{protocol} restarts"]
    for size in (None, 1232):
        answer = actual[f"large {size}"]["answer"]
        assert (answer["truncated"], answer["records"]) == (True, [])
        assert answer["edns"] is (size is not None)
    for name in ("large 8192", "large tcp"):
        row = actual[name]
        assert row["error"] == ""
        assert not row["answer"]["truncated"]
        assert len(row["answer"]["records"][0]) > 4000
        assert row["tcp_fallback"] is (protocol is Protocol.DOUDP)


@pytest.mark.parametrize("protocol", Protocol)
def test_a_server_that_crashes_and_comes_back(results: dict[str, Any], protocol: Protocol) -> None:
    actual = results[f"{protocol} restarts"]
    assert_good(actual["restarted"])
    assert actual["restarted"]["new_connection"] is (protocol in CONNECTED)
    # Over TCP the kernel reports that the server is gone; over QUIC only the next query shows it.
    assert actual["restarted"]["retries"] == int(protocol in QUIC)
    assert actual["down"]["answer"]["rcode"] == actual["down"]["rcode"] == "SERVFAIL"
    refused = "timeout" if protocol in QUIC else "connection refused"
    if protocol not in QUIC:
        assert actual["down"]["error"] == refused
    else:
        assert actual["down"]["error"] in (refused, "no sign of life from the upstream")
    assert_good(actual["up"])


@pytest.mark.parametrize("protocol", Protocol)
def test_lost_packets_are_made_good(results: dict[str, Any], protocol: Protocol) -> None:
    rows = results[f"{protocol} lossy"]
    for row in rows:
        assert_good(row)
    if protocol is Protocol.DOUDP:
        # With 10 % loss in each direction, 81 % of the first datagrams get an answer.
        assert sum(row["retries"] > 0 for row in rows) > 0


def test_the_command_runs_a_client_on_every_transport(crosslayer: Run) -> None:
    trust = dict.fromkeys(ENCRYPTED, f"--ca $CROSSLAYER_CA --server-name {NAME} ")
    loop = "; ".join(
        f"crosslayer stub --upstream {protocol.transport.url_scheme}://$CROSSLAYER_SERVER:{DEFAULT_PORTS[protocol]} "
        f"{trust.get(protocol, '')}-- sh -c 'getent ahostsv4 {NAME} && exit 7'; echo status $?"
        for protocol in Protocol
    )
    here = str(Path(sys.executable).parent)
    point = "echo nameserver 127.0.0.1 > /run/crosslayer/resolv.conf"
    done = crosslayer("link", "local", "--", "sh", "-c", f"PATH={here}:$PATH; {point}; {loop}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("status 7") == len(Protocol), done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {row["protocol"] for row in rows if row["type"] == "A" and row["rcode"] == "NOERROR"} == set(Protocol)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "doq://127.0.0.1"], "unknown transport; use one of udp://"),
        (["--upstream", "udp://127.0.0.1", "--resumption", "ticket"], "DoUDP has none"),
        (["--upstream", "quic://127.0.0.1", "--ca", "/nowhere"], "no such file"),
        (["--upstream", "quic://127.0.0.1", "--listen", "192.0.2.77:53"], "choose another address or port"),
    ],
)
@pytest.mark.parametrize("command", [[], ["--", "true"]], ids=["forever", "command"])
def test_a_bad_call_is_one_line(arguments: list[str], message: str, command: list[str]) -> None:
    try:
        resources.locate("stub")
    except CrosslayerError as error:
        pytest.skip(str(error))
    call = [sys.executable, "-m", "crosslayer", "stub", *arguments, *command]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


if __name__ == "__main__":
    if inside():
        namespaces.enter(COMMAND)
        print(json.dumps(measure()))
    else:
        sys.exit(run_attached(COMMAND, clock="virtual"))
