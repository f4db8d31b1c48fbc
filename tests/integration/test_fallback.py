"""Chromium on a path that blocks packets: one round in virtual time, and what it tried by its packets."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.studies.fallback.cases import CASES
from tests.integration.conftest import CROSSLAYER

MEASURE = ["measure", "--study", "fallback", "--size", "smoke"]
NEVER = {"first-both-dropped", "first-ech-dropped", "first-ech-rejected", "first-dns-dropped"}
RTT_MS = 91.85


@pytest.fixture(scope="module")
def campaign(browser_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder: Path = tmp_path_factory.mktemp("fallback") / "data"
    done = subprocess.run(
        [*CROSSLAYER, *MEASURE, *virtual_clock, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Dataset.open(folder)


def load(campaign: Dataset, case: str) -> dict[str, Any]:
    return campaign.table("page_loads").filter(condition=case).collect().row(0, named=True)


def attempts(campaign: Dataset, case: str, kind: str) -> list[dict[str, Any]]:
    return campaign.table("attempts").filter(condition=case, kind=kind).sort("number").collect().to_dicts()


def test_every_case_is_a_row_and_those_that_never_end_are_ended(campaign: Dataset) -> None:
    loads = campaign.table("page_loads").collect()
    assert sorted(loads["condition"]) == sorted(CASES)
    assert set(loads.filter(pl.col("error").is_not_null())["condition"]) == NEVER
    assert "did not load in time" in load(campaign, "first-both-dropped")["error"]


@pytest.mark.parametrize("case", sorted(NEVER))
def test_a_load_without_a_response_has_no_times(campaign: Dataset, case: str) -> None:
    row = load(campaign, case)
    times = ("response_start_ms", "response_end_ms", "request_start_ms", "connect_ms", "plt_ms", "fcp_ms")
    assert [row[name] for name in times] == [None] * len(times)


@pytest.mark.parametrize(
    ("case", "protocol"),
    [
        ("first", "h3"),
        ("first-syn-dropped", "h3"),
        ("return-0-rtt-dropped", "h3"),
        ("return-alt-svc", "h3"),
        ("first-udp-dropped", "h2"),
        ("first-udp-rejected", "h2"),
        ("first-initial-dropped", "h2"),
        ("first-version-dropped", "h2"),
        ("second-udp-dropped", "h2"),
        ("return-udp-dropped", "h2"),
    ],
)
def test_the_page_comes_over_what_the_path_allows(campaign: Dataset, case: str, protocol: str) -> None:
    assert load(campaign, case)["document_protocol"] == protocol


@pytest.mark.parametrize("case", ["first-udp-dropped", "first-initial-dropped", "first-version-dropped"])
def test_tcp_follows_a_dropped_initial_after_300_ms(campaign: Dataset, case: str) -> None:
    (quic,), (tcp,) = attempts(campaign, case, "quic"), attempts(campaign, case, "tcp")
    assert quic["answered_ms"] is None
    assert tcp["started_ms"] - quic["started_ms"] == pytest.approx(300, abs=1)


def test_tcp_follows_a_rejected_initial_at_once(campaign: Dataset) -> None:
    (quic,), (tcp,) = (attempts(campaign, "first-udp-rejected", kind) for kind in ("quic", "tcp"))
    assert quic["refused_ms"] - quic["started_ms"] < 1
    assert tcp["started_ms"] - quic["refused_ms"] < 1


def test_early_data_that_is_dropped_delays_tcp_by_four_seconds(campaign: Dataset) -> None:
    quic, (tcp,) = (attempts(campaign, "return-udp-dropped", kind) for kind in ("quic", "tcp"))
    assert all(attempt["answered_ms"] is None for attempt in quic)
    assert tcp["started_ms"] - quic[0]["started_ms"] == pytest.approx(4000, abs=20)


def test_a_second_visit_waits_again(campaign: Dataset) -> None:
    waits = load(campaign, "second-udp-dropped")["response_start_ms"]
    at_once = load(campaign, "second-udp-rejected")["response_start_ms"]
    assert waits - at_once == pytest.approx(300, abs=3)


def test_truncated_dns_costs_a_further_round_trip(campaign: Dataset) -> None:
    later_ms = load(campaign, "first-dns-truncated")["response_start_ms"] - load(campaign, "first")["response_start_ms"]
    assert later_ms == pytest.approx(RTT_MS, abs=3)
