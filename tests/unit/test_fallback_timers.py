"""Delays between packets of a load, from rows of `attempts`."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from crosslayer.claims.measures import SeriesStatistic
from crosslayer.studies.fallback.cases import IN_EVERY_ROUND
from crosslayer.studies.fallback.claims import CLAIMS
from crosslayer.studies.fallback.timers import TIMERS, delays
from crosslayer.vocabulary import Browser

NO_RECORD, LATE_A = "first-ipv6-no-record-dropped", "first-ipv6-no-record-late-a"


def attempt(condition: str, number: int, kind: str, started_ms: float, **columns: Any) -> dict[str, Any]:
    """A row of `attempts` of Chromium."""
    row = {"campaign": "c", "round": 0, "host": "h", "link": "4g", "page": "p", "browser": "chromium"}
    row |= {"condition": condition, "number": number, "kind": kind, "started_ms": started_ms}
    return row | {"family": 4, "answered_ms": None} | columns


def medians(*rows: dict[str, Any]) -> dict[str, float]:
    frame = pl.DataFrame(rows, schema_overrides={"answered_ms": pl.Float64, "family": pl.Int64})
    return dict(delays(frame.lazy()).select("series", "value").collect().iter_rows())


def test_a_delay_is_between_the_first_attempts_of_two_families() -> None:
    rows = [
        attempt(NO_RECORD, 0, "tcp", 92.0, family=6),
        attempt(NO_RECORD, 1, "tcp", 342.2, family=6),
        attempt(NO_RECORD, 2, "tcp", 392.25, family=4),
        attempt(NO_RECORD, 3, "tcp", 643.0, family=4),
    ]
    assert medians(*reversed(rows)) == {"chromium ipv6-ipv4": pytest.approx(300.25)}


def test_a_delay_of_another_client_or_case_is_not_counted() -> None:
    others = [
        attempt(NO_RECORD, 0, "tcp", 92.0, family=6, browser="curl"),
        attempt(NO_RECORD, 1, "tcp", 292.0, family=4, browser="curl"),
        attempt("first", 0, "quic", 92.0),
        attempt("first", 1, "tcp", 392.0),
    ]
    assert medians(*others) == {"curl ipv6-ipv4": 200.0}


def test_a_delay_begins_with_an_answer_and_ends_with_either_kind_of_connection() -> None:
    lookups = [
        attempt(LATE_A, 0, "AAAA", 0.0, answered_ms=92.0),
        attempt(LATE_A, 1, "A", 0.0, answered_ms=692.0),
    ]
    assert medians(*lookups, attempt(LATE_A, 2, "quic", 692.5)) == {"chromium late-a": 600.5}
    assert medians(*lookups, attempt(LATE_A, 2, "tcp", 142.0)) == {"chromium late-a": 50.0}


def test_a_delay_without_one_of_its_packets_is_no_row() -> None:
    assert medians(attempt(NO_RECORD, 0, "tcp", 92.0, family=6)) == {}
    assert medians(attempt(LATE_A, 0, "AAAA", 0.0), attempt(LATE_A, 1, "tcp", 142.0)) == {}


def test_the_second_attempt_of_a_kind_is_counted_from_0() -> None:
    rows = [attempt("first-both-dropped", number, "tcp", 100.0 + 250 * number) for number in range(2)]
    assert medians(*rows) == {"chromium syn-syn": 250.0}


def test_a_packet_before_the_begin_does_not_end_a_wait() -> None:
    rows = [
        attempt(LATE_A, 0, "AAAA", 0.0, answered_ms=92.0),
        attempt(LATE_A, 1, "quic", 10.0, family=6),
        attempt(LATE_A, 2, "tcp", 142.0),
    ]
    assert medians(*rows) == {"chromium late-a": 50.0}


def test_every_timer_has_its_client_in_its_name() -> None:
    assert all(name.startswith(f"{timer.client} ") for name, timer in TIMERS.items())


def test_every_case_that_a_claim_needs_is_in_every_round() -> None:
    needed = set()
    for check in CLAIMS.checks.values():
        assert isinstance(check.of, SeriesStatistic)
        for series, _ in check.of.series.terms:
            client, _, case = series.rpartition(" ")
            timer = TIMERS.get(series)
            needed.add((timer.client, timer.condition) if timer else (client or "chromium", case))
    assert {(client, case) for client, case in needed if case not in IN_EVERY_ROUND[Browser(client)]} == set()
