"""A complete campaign with the real server, browser and link: dataset, evidence, and resumption after SIGKILL."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.tables import TABLES
from tests.integration.conftest import CROSSLAYER, Run
from tests.integration.watching import Watch

pytestmark = pytest.mark.alone

SMOKE = ["measure", "--size", "smoke", "--rounds", "2", "--capture", "netlog"]


@pytest.fixture(scope="module")
def measured(testbed_machine: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watch]:
    """A smoke campaign, killed with SIGKILL after a round is stored, then resumed with the same command.

    Returns its folder, and the record of its effects on the host.
    """
    folder = tmp_path_factory.mktemp("campaign") / "smoke"
    watch = Watch(home := tmp_path_factory.mktemp("home"))
    command, environment = [*CROSSLAYER, *SMOKE, "--out", str(folder)], os.environ | {"HOME": str(home)}
    try:
        first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert first.stderr is not None
        output = b""
        while b" 1/4 " not in output and (more := os.read(first.stderr.fileno(), 4096)):
            output += more
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stderr.close()
        kept = _rounds(folder)
        assert 1 <= len(kept) < 4
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    finally:
        watch.stop()
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder)
    assert f"{4 - len(kept)} rounds of a cell to go" in done.stderr
    return folder, watch


@pytest.fixture(scope="module")
def campaign(measured: tuple[Path, Watch]) -> Path:
    return measured[0]


def _rounds(folder: Path) -> set[tuple[str, str, int]]:
    with contextlib.closing(sqlite3.connect(folder / "campaign.sqlite")) as db:
        return set(db.execute("SELECT link, page, round FROM rounds"))


def test_nothing_gets_out_or_in(measured: tuple[Path, Watch]) -> None:
    """A campaign puts no packet, socket or device on the host, and does not access browser profiles."""
    watch = measured[1]
    assert watch.escaped == []
    assert watch.bound == set()
    assert watch.devices == set()
    assert watch.touched == []
    assert not Path("/run/crosslayer").exists()  # keys, certificates and control sockets are gone with the namespaces


def test_a_watch_sees_what_a_campaign_may_not_do(tmp_path: Path) -> None:
    script = (
        "import pathlib, socket, time; end = socket.socket(type=socket.SOCK_DGRAM); end.bind(('127.0.0.1', 0))\n"
        f"pathlib.Path({str(tmp_path)!r}, '.pki/nssdb/Preferences').read_text()\n"
        "print(flush=True); input()"
    )
    watch = Watch(tmp_path)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        if watch.captured:
            with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as end:
                end.bind(("lo", 0))
                end.send(bytes(6) + bytes([2, 0, 0, 0, 0, 1, 0x88, 0xB5]) + bytes(50))
        watch.stop()
        process.stdin.write("\n")
        process.stdin.flush()
    assert watch.touched
    assert any(line.startswith("udp: ") for line in watch.bound)
    assert bool(watch.escaped) == watch.captured


def test_every_round_is_there_once(campaign: Path) -> None:
    loads = pl.read_parquet(campaign / "page_loads/**/*.parquet")
    keys = ["link", "page", "round", "h3", "condition", "role"]
    assert loads.height == loads.unique(keys).height
    main = loads.filter(condition="main", role="measured")
    assert main.group_by("link", "round", "h3").len()["len"].to_list() == [1] * 8
    exchanges = pl.read_parquet(campaign / "dns_exchanges/**/*.parquet")
    assert exchanges.group_by("link", "round", "protocol").len()["len"].to_list() == [1] * 12
    checks = metrics.in_force(pl.scan_parquet(campaign / "link_checks/**/*.parquet")).collect()
    assert checks.filter(pl.col("round") >= 0).group_by("link", "round").len()["len"].to_list() == [1] * 4


def test_a_handshake_is_read_from_the_netlog_where_it_is_captured(campaign: Path) -> None:
    """In the first round, the handshake takes at least a round-trip and ends before the response."""
    loads = pl.read_parquet(campaign / "page_loads/**/*.parquet").filter(pl.col("error").is_null())
    reported = loads.filter(pl.col("netlog_handshake_ms").is_not_null())
    assert reported.height == loads.filter(pl.col("round") == 0).height > 0
    assert set(reported["round"]) == {0}
    checks = metrics.in_force(pl.scan_parquet(campaign / "link_checks/**/*.parquet")).collect()
    rtts = dict(checks.group_by("link").agg(pl.col("nominal_rtt_ms").first()).iter_rows())
    for row in reported.filter(pl.col("h3") == "1-rtt").iter_rows(named=True):
        assert rtts[row["link"]] - 1 <= row["netlog_handshake_ms"] <= row["response_start_ms"] + 1


def test_the_dataset_opens_and_says_where_it_was_measured(campaign: Path) -> None:
    dataset = Dataset.open(campaign, every_round=True)
    assert dataset.campaign.backend in ("netem", "uml")
    assert dataset.campaign.ended
    programs = {"chromium", "server", "python", "openssl", "quic-go", "stub", "tcp_congestion_control"}
    assert programs <= set(dataset.campaign.versions)
    for table in TABLES:
        if table not in (
            "resources",
            "lookups",
            "attempts",
            "resolved_loads",
            "paced_queries",
            "idle_recoveries",
            "resolver_queries",
            "resolver_events",
            "resolver_locations",
        ):  # this study has no rows in these tables
            assert dataset.table(table).collect().height


def test_zero_rtt_is_what_the_server_saw(campaign: Path) -> None:
    loads = pl.read_parquet(campaign / "page_loads/**/*.parquet").filter(pl.col("error").is_null())
    assert loads.height >= 8
    assert (loads["early_data_accepted"] == (loads["h3"] == "0-rtt")).all()
    assert (loads["session_resumed"] == (loads["h3"] == "0-rtt")).all()


def test_zero_rtt_is_measured_with_the_token_and_without_it(campaign: Path) -> None:
    loads = pl.read_parquet(campaign / "page_loads/**/*.parquet").filter(pl.col("error").is_null())
    with_token, without = (loads.filter(h3="0-rtt", condition=condition) for condition in ("main", "no-token"))
    assert min(with_token.height, without.height) >= 3
    assert with_token["address_validated"].all()
    assert not loads.filter(pl.col("h3") == "1-rtt")["address_validated"].any()
    assert not without["address_validated"].any()
    assert loads["server_ms"].null_count() == 0


def test_times_are_in_the_order_of_the_protocols(campaign: Path) -> None:
    """Independent of noise, no exchange is faster than its round-trips, and the sizes fit the protocols."""
    nominal = {"fiber": 14.767, "4g": 91.852}
    round_trips = {"DoUDP": 1, "DoQ": 2, "DoH": 3}
    rows = pl.read_parquet(campaign / "dns_exchanges/**/*.parquet").filter(pl.col("error").is_null())
    assert rows.height >= 11
    for row in rows.iter_rows(named=True):
        assert row["total_ms"] > 0.97 * round_trips[row["protocol"]] * nominal[row["link"]]
        assert row["query_sent_bytes"] > 50
        if row["protocol"] == "DoQ":
            assert row["handshake_sent_bytes"] >= 1208  # RFC 9000, section 14.1: Initials are padded
        if row["protocol"] == "DoUDP":
            assert row["handshake_ms"] == 0


def test_the_order_of_conditions_is_shuffled(campaign: Path) -> None:
    loads = pl.read_parquet(campaign / "page_loads/**/*.parquet").filter(condition="main", role="measured")
    exchanges = pl.read_parquet(campaign / "dns_exchanges/**/*.parquet")
    keys = ["link", "page", "round"]
    positions = pl.concat([loads.select(*keys, "position"), exchanges.select(*keys, "position")])
    assert positions.unique([*keys, "position"]).height == positions.height
    orders = exchanges.sort("position").group_by(keys, maintain_order=True).agg("protocol")["protocol"].to_list()
    assert len({tuple(order) for order in orders}) > 1


def test_the_same_command_again_measures_nothing(campaign: Path, crosslayer: Run) -> None:
    before = _rounds(campaign)
    done = crosslayer(*SMOKE, "--out", str(campaign))
    assert done.returncode == 0
    assert "measured already" in done.stderr
    assert _rounds(campaign) == before


def test_another_plan_in_the_same_folder_is_refused(campaign: Path, crosslayer: Run) -> None:
    done = crosslayer(*SMOKE, "--seed", "9", "--out", str(campaign))
    assert done.returncode == 1
    assert "another plan (seed is 1 there and 9 now)" in done.stderr


def test_the_export_can_be_made_again(campaign: Path, crosslayer: Run) -> None:
    table = campaign / "tcp_rtts" / "link=fiber" / "part-0.parquet"
    before = pl.read_parquet(table)
    table.unlink()
    assert crosslayer("export", str(campaign)).returncode == 0
    assert pl.read_parquet(table).equals(before)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("CROSSLAYER_CHROMIUM", "/nonexistent/chromium", "no Chromium"),
        ("CROSSLAYER_CHROMEDRIVER", "/nonexistent/chromedriver", "no ChromeDriver"),
        ("CROSSLAYER_PROFILES", "/nonexistent/profiles.toml", "cannot be read"),
        ("CROSSLAYER_SITES", "/nonexistent/sites", "sites"),
    ],
)
def test_what_is_missing_is_named_with_the_next_step(
    crosslayer: Run, tmp_path: Path, variable: str, value: str, message: str
) -> None:
    done = crosslayer(*SMOKE, "--out", str(tmp_path / "x"), env=os.environ | {variable: value})
    assert done.returncode in (1, 3)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_chromedriver_of_another_version_is_refused(crosslayer: Run, tmp_path: Path) -> None:
    driver = tmp_path / "chromedriver"
    driver.write_text("#!/bin/sh\necho ChromeDriver 99.0.1\n", encoding="utf-8")
    driver.chmod(0o755)
    done = crosslayer(*SMOKE, "--out", str(tmp_path / "x"), env=os.environ | {"CROSSLAYER_CHROMEDRIVER": str(driver)})
    assert done.returncode == 1
    assert "ChromeDriver 99.0.1 does not match Chromium" in done.stderr


def test_no_namespaces_and_no_backend_are_exit_status_3(crosslayer: Run, tmp_path: Path) -> None:
    refusing = tmp_path / "unshare"
    refusing.write_text(
        "#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2; exit 1\n", encoding="utf-8"
    )
    refusing.chmod(0o755)
    done = crosslayer(
        *SMOKE, "--out", str(tmp_path / "x"), env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    assert done.returncode == 3
    assert "Operation not permitted" in done.stderr
    assert "doctor" in done.stderr
    done = crosslayer(
        *SMOKE, "--backend", "uml", "--out", str(tmp_path / "x"), env=os.environ | {"CROSSLAYER_UML": "/nonexistent"}
    )
    assert done.returncode == 3
    assert "user-mode-linux" in done.stderr
