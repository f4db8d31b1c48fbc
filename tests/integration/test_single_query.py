"""A small campaign of the study `single-query` in virtual time: evidence, round-trips and bytes of its rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.studies.single_query.measure import CONDITIONS, LARGE_CERTIFICATE_BYTES
from crosslayer.vocabulary import Role
from tests.integration.conftest import CROSSLAYER

RTT_MS = {"rtt-20": 20.0, "rtt-60": 60.0}
ROUNDS = 2
ROUND_TRIPS = {"DoUDP": 0, "DoTCP": 1, "DoQ": 1, "DoH3": 1, "DoT": 2, "DoH": 2}


@pytest.fixture(scope="module")
def campaign(virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign") / "single-query"
    options = ["--study", "single-query", "--links", ",".join(RTT_MS), "--rounds", str(ROUNDS), "--out", str(folder)]
    command = [*CROSSLAYER, "measure", *options, *virtual_clock]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def rows(campaign: Path) -> pl.DataFrame:
    """The measured exchanges, all of which succeeded."""
    table = Dataset.open(campaign, every_round=True).table("dns_exchanges").collect()
    assert table["error"].drop_nulls().to_list() == []
    assert table.filter(pl.col("role") == Role.PRIMING, pl.col("resumption") != "none").is_empty()
    return table.filter(pl.col("role") == Role.MEASURED)


def kind(rows: pl.DataFrame, condition: str, resumption: str, *protocols: str) -> pl.DataFrame:
    actual = rows.filter(pl.col("protocol").is_in(protocols), condition=condition, resumption=resumption)
    assert actual.height == len(protocols) * len(RTT_MS) * ROUNDS
    return actual


def test_every_condition_is_there_once_in_each_round(rows: pl.DataFrame) -> None:
    counts = rows.group_by("protocol", "resumption", "condition").len()
    assert counts.height == len(CONDITIONS)
    assert set(counts["len"]) == {len(RTT_MS) * ROUNDS}


def test_every_condition_is_what_it_says(rows: pl.DataFrame) -> None:
    for (protocol, resumption, condition), group in rows.group_by("protocol", "resumption", "condition"):
        if protocol not in ("DoUDP", "DoTCP"):
            assert (group["session_resumed"] == (resumption != "none")).all()
            assert set(group["tls_version"]) == {"TLSv1.2" if condition == "tls-1.2" else "TLSv1.3"}
        if protocol in ("DoQ", "DoH3"):
            assert (group["early_data_accepted"] == (resumption == "early-data")).all()
            assert (group["address_validated"] == (resumption != "none" or condition == "retry")).all()
            # A token from the priming connection makes another Retry unnecessary.
            assert (group["retry_received"] == (condition == "retry" and resumption == "none")).all()


def test_no_handshake_beats_its_round_trips(rows: pl.DataFrame) -> None:
    for row in rows.iter_rows(named=True):
        trips, full = ROUND_TRIPS[row["protocol"]], row["resumption"] == "none"
        trips += full and row["condition"] in ("tls-1.2", "retry", "large-certificate")
        rtt = RTT_MS[row["link"]]
        if trips == 0 or row["resumption"] == "early-data":
            assert row["handshake_ms"] == 0
        else:
            assert row["handshake_ms"] > 0.97 * trips * rtt
        assert row["query_ms"] > 0.97 * rtt


def test_bytes_that_the_protocols_fix_are_the_published_ones(rows: pl.DataFrame) -> None:
    """Compared with IMC22 Table 1: unencrypted transports are exact; DoQ's padded datagrams differ by at most 5 %."""
    columns = ["handshake_sent_bytes", "handshake_received_bytes", "query_sent_bytes", "query_received_bytes"]
    assert set(kind(rows, "main", "none", "DoUDP").select(columns).rows()) == {(0, 0, 59, 63)}
    assert set(kind(rows, "main", "none", "DoTCP").select(columns).rows()) == {(72, 40, 149, 121)}
    sent, received = kind(rows, "main", "ticket", "DoQ").select(columns[:2]).median().row(0)
    assert sent == pytest.approx(2564, rel=0.05)
    assert received == pytest.approx(1304, rel=0.05)


def test_a_large_certificate_is_sent_unless_a_session_is_resumed(rows: pl.DataFrame) -> None:
    full = kind(rows, "large-certificate", "none", "DoQ")["handshake_received_bytes"]
    resumed = kind(rows, "large-certificate", "ticket", "DoQ")["handshake_received_bytes"]
    assert full.min() > LARGE_CERTIFICATE_BYTES  # type: ignore[operator]
    assert resumed.max() < 3 * 1200  # type: ignore[operator]
