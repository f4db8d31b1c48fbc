"""Browsers and curl on a path that blocks packets: one round in virtual time, with their attempts from packets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.studies.fallback.cases import CASES, LATE_MS
from crosslayer.studies.fallback.timers import delays
from tests.integration.conftest import CROSSLAYER

PLAN = """
study = "fallback"
links = ["4g"]
pages = ["example.org"]
rounds = 1
[options]
clients = {clients}
cases = {cases}
"""
FIREFOX_CASES = ("first", "first-udp-dropped", "first-ipv6-no-record-late-a", "return-udp-dropped")
HAPPY_EYEBALLS = "firefox-happy-eyeballs"
NEVER = {"first-both-dropped", "first-ech-dropped", "first-ech-rejected", "first-dns-dropped"}
NEVER_CURL = {"first-both-dropped", "first-dns-dropped"}
RTT_MS = 91.85
TIMER_MS = 1.3
"""Maximum delay of a 300 ms timer, ms: clients round up to 1 ms, and the kernel's slack is 0.1 %."""
SLACK = 1.001
"""A wait in `epoll_wait` may take 0.1 % longer, because the kernel may merge timers (`fs/select.c` of Linux)."""


def measured(folder: Path, virtual_clock: list[str], *clients: str, cases: Sequence[str] = ()) -> Dataset:
    plan = folder / "plan.toml"
    plan.write_text(PLAN.format(clients=json.dumps(clients), cases=json.dumps(cases)), encoding="utf-8")
    done = subprocess.run(
        [*CROSSLAYER, "measure", "--plan", str(plan), *virtual_clock, "--out", str(folder / "data")],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Dataset.open(folder / "data")


@pytest.fixture(scope="module")
def campaign(browser_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A campaign with every case in Chromium, and in curl if the case is for curl."""
    return measured(tmp_path_factory.mktemp("fallback"), virtual_clock, "chromium", "curl")


@pytest.fixture(scope="module")
def in_firefox(browser_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A campaign with some cases in Firefox, with default settings and with Happy Eyeballs v3."""
    folder = tmp_path_factory.mktemp("firefox")
    return measured(folder, virtual_clock, "firefox", HAPPY_EYEBALLS, cases=FIREFOX_CASES)


def load(campaign: Dataset, case: str, browser: str = "chromium") -> dict[str, Any]:
    return campaign.table("page_loads").filter(condition=case, browser=browser).collect().row(0, named=True)


def attempts(campaign: Dataset, case: str, kind: str, browser: str = "chromium") -> list[dict[str, Any]]:
    rows = campaign.table("attempts").filter(condition=case, kind=kind, browser=browser)
    return rows.sort("number").collect().to_dicts()


def waited_ms(campaign: Dataset, timer: str) -> float:
    rows = delays(campaign.table("attempts")).filter(series=timer).collect()
    return float(rows["value"].item())


def test_every_case_is_a_row_and_those_that_never_end_are_ended(campaign: Dataset) -> None:
    loads = campaign.table("page_loads").collect()
    chromium, of_curl = (loads.filter(browser=browser) for browser in ("chromium", "curl"))
    assert sorted(chromium["condition"]) == sorted(CASES)
    assert set(chromium.filter(pl.col("error").is_not_null())["condition"]) == NEVER
    assert "did not load in time" in load(campaign, "first-both-dropped")["error"]
    assert sorted(of_curl["condition"]) == sorted(name for name, case in CASES.items() if case.for_curl)
    assert set(of_curl.filter(pl.col("error").is_not_null())["condition"]) == NEVER_CURL


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
    assert tcp["started_ms"] - quic["started_ms"] == pytest.approx(300, abs=TIMER_MS)


def test_tcp_follows_a_rejected_initial_at_once(campaign: Dataset) -> None:
    (quic,), (tcp,) = (attempts(campaign, "first-udp-rejected", kind) for kind in ("quic", "tcp"))
    assert quic["refused_ms"] - quic["started_ms"] < 1
    assert tcp["started_ms"] - quic["refused_ms"] < 1


def test_early_data_that_is_dropped_delays_tcp_by_four_seconds(campaign: Dataset) -> None:
    quic, (tcp,) = (attempts(campaign, "return-udp-dropped", kind) for kind in ("quic", "tcp"))
    assert all(attempt["answered_ms"] is None for attempt in quic)
    waited = tcp["started_ms"] - quic[0]["started_ms"]
    assert 4000 <= waited <= 4000 * SLACK + 1


def test_a_second_visit_waits_for_the_quic_attempt_of_the_first(campaign: Dataset) -> None:
    """The attempt ends four seconds after its start; until then, the visit waits. Then Chromium uses TCP at once."""
    waits = load(campaign, "second-udp-dropped")["response_start_ms"]
    at_once = load(campaign, "second-udp-rejected")["response_start_ms"]
    later = load(campaign, "second-later-udp-dropped")["response_start_ms"]
    assert waits - at_once == pytest.approx(300, abs=3)
    assert later == pytest.approx(at_once, abs=1)
    assert attempts(campaign, "second-later-udp-dropped", "quic") == []


def test_truncated_dns_costs_a_further_round_trip(campaign: Dataset) -> None:
    later_ms = load(campaign, "first-dns-truncated")["response_start_ms"] - load(campaign, "first")["response_start_ms"]
    assert later_ms == pytest.approx(RTT_MS, abs=3)


@pytest.mark.parametrize(
    ("timer", "expected_ms"),
    [
        ("chromium quic-tcp", 300),
        ("chromium syn-syn", 250),
        ("chromium ipv6-ipv4", 300),
        ("chromium quic-ipv6-tcp-ipv4", 600),
        ("chromium late-a", LATE_MS),
        ("chromium late-aaaa", LATE_MS),
        ("curl ipv6-ipv4", 200),
        ("curl tcp-ipv6-quic-ipv4", 200),
        ("curl late-a", 0),
        ("curl late-aaaa", 0),
        ("curl lookup-tcp", 126),
    ],
)
def test_a_client_waits_as_long_as_its_timer(campaign: Dataset, timer: str, expected_ms: float) -> None:
    timers = 2 if timer == "chromium quic-ipv6-tcp-ipv4" else 1
    assert waited_ms(campaign, timer) == pytest.approx(expected_ms, abs=timers * TIMER_MS)


def test_an_https_answer_is_waited_for_a_fifth_of_the_lookup(campaign: Dataset) -> None:
    assert waited_ms(campaign, "chromium late-https") == pytest.approx(RTT_MS / 5, abs=1.5)


@pytest.mark.parametrize(
    ("browser", "case", "kind", "family"),
    [
        ("chromium", "first-ipv6", "quic", 6),
        ("chromium", "first-ipv6-no-record", "tcp", 6),
        ("chromium", "first-ipv6-no-record-rejected", "tcp", 4),
        ("curl", "first-ipv6", "quic", 6),
        ("curl", "first-ipv6-no-record-dropped", "tcp", 4),
    ],
)
def test_the_family_that_answers_is_a_column(
    campaign: Dataset, browser: str, case: str, kind: str, family: int
) -> None:
    answered = [row["family"] for row in attempts(campaign, case, kind, browser) if row["answered_ms"] is not None]
    assert answered == [family]


@pytest.mark.parametrize(
    ("case", "protocol"),
    [("first", "h3"), ("first-syn-dropped", "h3"), ("first-udp-dropped", "h2"), ("first-no-record", "h2")],
)
def test_curl_uses_what_the_path_allows(campaign: Dataset, case: str, protocol: str) -> None:
    assert load(campaign, case, "curl")["document_protocol"] == protocol


def test_curl_remembers_http3_by_its_alt_svc_cache(campaign: Dataset) -> None:
    assert load(campaign, "first-no-record", "curl")["document_protocol"] == "h2"
    assert load(campaign, "return-alt-svc", "curl")["document_protocol"] == "h3"
    assert load(campaign, "return-alt-svc-udp-dropped", "curl")["document_protocol"] == "h2"


@pytest.mark.parametrize("browser", ["firefox", HAPPY_EYEBALLS])
def test_every_case_of_firefox_has_a_page(in_firefox: Dataset, browser: str) -> None:
    """One process loads all cases; its knowledge of the host is deleted between them."""
    protocols = {case: load(in_firefox, case, browser)["document_protocol"] for case in FIREFOX_CASES}
    assert protocols == {
        "first": "h3",
        "first-udp-dropped": "h2",
        "first-ipv6-no-record-late-a": "h2",
        "return-udp-dropped": "h2",
    }


@pytest.mark.parametrize(
    ("timer", "expected_ms"),
    [("firefox quic-tcp", 50), (f"{HAPPY_EYEBALLS} quic-tcp", 250), ("firefox late-a", LATE_MS)],
)
def test_firefox_waits_as_long_as_its_timer(in_firefox: Dataset, timer: str, expected_ms: float) -> None:
    assert waited_ms(in_firefox, timer) == pytest.approx(expected_ms, abs=TIMER_MS)
