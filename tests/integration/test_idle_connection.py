"""The study of idle connections: recovery times of the clients, and a link that is unchanged afterwards."""

from __future__ import annotations

import polars as pl
import pytest

from crosslayer.errors import CrosslayerError
from crosslayer.guest import find_kernel
from crosslayer.links import load_profiles
from tests.integration.conftest import run_here

RTT_MS = load_profiles()["4g"].rtt_ms


@pytest.fixture(scope="module")
def rows(testbed_machine: None, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Rows of one round in virtual time. The link passed its check afterwards, with all path events undone."""
    try:
        find_kernel()
    except CrosslayerError as error:
        pytest.skip(f"{error.what}: {error.next_step}")
    folder = tmp_path_factory.mktemp("idle") / "data"
    done = run_here(
        "measure", "--study", "idle-connection", "--size", "smoke", "--clock", "virtual", "--out", str(folder)
    )
    assert done.returncode == 0, done.stderr
    checks = pl.read_parquet(folder / "link_checks/**/*.parquet", hive_partitioning=False)
    assert set(checks["verdict"]) == {"pass"}
    rows = pl.read_parquet(folder / "idle_recoveries/**/*.parquet", hive_partitioning=False)
    assert rows.height == (3 * 6 + 2) * 4
    assert rows["error"].null_count() == rows.height
    return rows


def rtts(rows: pl.DataFrame, **columns: str) -> dict[str, float]:
    """Time to the answer by transport, multiples of the RTT."""
    some = rows.filter(**columns)
    return {row["protocol"]: row["answer_ms"] / RTT_MS for row in some.iter_rows(named=True)}


def test_an_idle_connection_answers_in_a_round_trip(rows: pl.DataFrame) -> None:
    for client in ("stub", "stub-no-idle-probe", "library", "chromium"):
        actual = rtts(rows, client=client, path_event="none")
        assert actual == pytest.approx(dict.fromkeys(actual, 1.0), abs=0.02)
    assert not rows.filter(path_event="none")["new_connection"].any()


def test_an_expired_nat_mapping_costs_a_probe_timeout_and_a_new_connection(rows: pl.DataFrame) -> None:
    handshakes = {"DoUDP": 1, "DoTCP": 2, "DoT": 3, "DoH": 3, "DoH3": 1, "DoQ": 1}
    for row in rows.filter(client="stub", path_event="nat-expired").iter_rows(named=True):
        beyond = (row["answer_ms"] - row["silence_ms"]) / RTT_MS
        assert beyond == pytest.approx(handshakes[row["protocol"]], abs=0.05), row
        assert (row["silence_ms"] > RTT_MS) == (row["protocol"] != "DoUDP")
    early = rows.filter(
        pl.col("protocol").is_in(["DoQ", "DoH3"]), pl.col("client") != "chromium", path_event="nat-expired"
    )
    assert early.height == 6
    assert early["early_data_accepted"].all()


def test_who_doubts_no_path_waits_for_half_of_the_timeout(rows: pl.DataFrame) -> None:
    waited = rows.filter(pl.col("protocol") != "DoUDP", client="stub-no-idle-probe", path_event="nat-expired")
    assert waited["answer_ms"].min() > 2500  # type: ignore[operator]
    assert set(waited["silence_ms"]) == {0.0}


def test_quic_moves_with_its_client_and_tcp_does_not(rows: pl.DataFrame) -> None:
    moved = {
        row["protocol"]: row for row in rows.filter(client="stub", path_event="client-migrated").iter_rows(named=True)
    }
    assert {name for name, row in moved.items() if row["new_connection"]} == {"DoTCP", "DoT", "DoH"}
    for name in ("DoQ", "DoH3"):  # the server first validates the new address (RFC 9000, section 9.3)
        assert moved[name]["answer_ms"] / RTT_MS == pytest.approx(2.0, abs=0.05)


def test_a_server_that_started_again_knows_no_ticket(rows: pl.DataFrame) -> None:
    again = rows.filter(pl.col("protocol") != "DoUDP", path_event="server-restarted")
    assert again["new_connection"].all()
    assert not again["session_resumed"].fill_null(False).any()
    assert not again["early_data_accepted"].fill_null(False).any()


def test_a_program_that_waits_for_an_answer_waits_for_all_of_its_patience(rows: pl.DataFrame) -> None:
    handshakes = {"DoUDP": 1, "DoTCP": 2, "DoT": 3, "DoH": 3, "DoH3": 1, "DoQ": 1}
    for row in rows.filter(client="library", path_event="nat-expired").iter_rows(named=True):
        assert (row["answer_ms"] - 5000) / RTT_MS == pytest.approx(handshakes[row["protocol"]], abs=0.1), row
        assert (row["asked"], row["new_connection"]) == (2, True)


def test_chromium_waits_for_a_ping_over_http_2_and_takes_another_port_over_http_3(rows: pl.DataFrame) -> None:
    """Chromium's netlog shows `Failed ping.` 10 s after the ping, and PATH_CHALLENGE from another port."""
    actual = {
        row["protocol"]: row for row in rows.filter(client="chromium", path_event="nat-expired").iter_rows(named=True)
    }
    assert actual["DoH"]["answer_ms"] > 10_000
    assert actual["DoH"]["new_connection"]
    assert 5 * RTT_MS < actual["DoH3"]["answer_ms"] < 20 * RTT_MS
    assert not actual["DoH3"]["new_connection"]
    restarted = rows.filter(client="chromium", path_event="server-restarted", protocol="DoH3")
    assert restarted["answer_ms"].item() > 5000
    moved = rows.filter(client="chromium", path_event="client-migrated", protocol="DoH3")
    assert moved["early_data_accepted"].item()
    assert moved["answer_ms"].item() / RTT_MS == pytest.approx(1.0, abs=0.05)
