"""Conclusions of this study as sentences that can be wrong, judged on its campaign."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Cause, Number, by_id, claim
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import Source, observed_from
from crosslayer.claims.rules import IN_RTTS, Tolerance
from crosslayer.studies.fallback.cases import CASES

_TIMER = Tolerance(at_least=1.0)
"""Of a timer that packets show, ms."""
_OF_BROWSER = Tolerance(at_least=2.0)
"""Of a timer that is seen in two times of the browser's clock, ms."""
_CHROMIUM = pl.col("browser") == "chromium"
_DELAYS = {"delay, first": "first-udp-dropped", "delay, return": "return-udp-dropped"}
"""From the first QUIC packet of a load to its first SYN, by case."""


def _delay(condition: str) -> tuple[Source, Source]:
    rows = _CHROMIUM & (pl.col("condition") == condition)
    first_quic = (pl.col("kind") == "quic") & (pl.col("started_ms") < 1000)
    return (
        Source("attempts", rows & (pl.col("kind") == "tcp"), pl.col("started_ms")),
        Source("attempts", rows & first_quic, -pl.col("started_ms")),
    )


SOURCES: dict[str, tuple[Source, ...]] = {
    condition: (
        Source(
            "page_loads",
            _CHROMIUM & pl.col("error").is_null() & (pl.col("condition") == condition),
            pl.col("response_start_ms"),
        ),
    )
    for condition in CASES
} | {series: _delay(condition) for series, condition in _DELAYS.items()}


def observed(page_loads: pl.LazyFrame, attempts: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Start of the response by case, and delays between attempts, ms."""
    terms = {series: sources for series, sources in SOURCES.items() if series not in _DELAYS}
    waits = [
        attempts.filter(source.rows).select(*metrics.ROUND, pl.lit(series).alias("series"), source.value.alias("value"))
        for series in _DELAYS
        for source in SOURCES[series]
    ]
    delays = pl.concat(waits).group_by(*metrics.ROUND, "series").agg(value=pl.col("value").sum())
    alone = {series: sources[0] for series, sources in terms.items()} | {
        series: Source("delays", pl.col("series") == series, pl.col("value")) for series in _DELAYS
    }
    tables = {"page_loads": page_loads, "delays": delays}
    return observed_from(alone, tables, metrics.nominal_rtts(link_checks))


def later(case: str, other: str, *, in_rtts: bool = False) -> Measure:
    """By how much the response starts later in a case than in another within a round, ms or RTT."""
    return median({case: 1.0, other: -1.0}, in_rtts=in_rtts)


_OWN_DELAY = Cause(
    "Chromium has an attempt delay of its own: its first SYN leaves {0} ms after its first QUIC packet (FALL1).",
    (median("delay, first"),),
)

CLAIMS = Claims(
    checks=by_id(
        claim(
            "FALL1",
            "On a first visit Chromium sends its first SYN 300 ms after its first QUIC packet",
            median("delay, first"),
            Number(published=300.0, tolerance=_TIMER, unit="ms"),
            remark="The attempt delay that arXiv 2412.00263 reports of Chrome.",
        ),
        claim(
            "FALL2",
            "Chromium waits for QUIC as long as draft-ietf-happy-happyeyeballs-v3 recommends, 250 ms",
            median("delay, first"),
            Number(published=250.0, tolerance=_TIMER, unit="ms"),
        ),
        claim(
            "FALL3",
            "Where the path rejects QUIC by ICMP, a first visit pays the further round-trip of TCP and TLS only",
            later("first-udp-rejected", "first", in_rtts=True),
            Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
        ),
        claim(
            "FALL4",
            "Where the path drops QUIC, a first visit pays 300 ms more than where it rejects QUIC",
            later("first-udp-dropped", "first-udp-rejected"),
            Number(published=300.0, tolerance=_OF_BROWSER, unit="ms"),
        ),
        claim(
            "FALL5",
            "A visitor who returns with early data pays four seconds where the path now drops QUIC",
            later("return-udp-dropped", "return-udp-rejected"),
            Bound(above=3900.0, unit="ms"),
        ),
        claim(
            "FALL6",
            "The second page on a path that drops QUIC pays 300 ms more than on a path that rejects it",
            later("second-udp-dropped", "second-udp-rejected"),
            Number(published=300.0, tolerance=_OF_BROWSER, unit="ms"),
        ),
        claim(
            "FALL7",
            "Dropped 0-RTT packets cost a returning visitor more than two round-trips",
            later("return-0-rtt-dropped", "return", in_rtts=True),
            Bound(above=2.0, unit="RTT"),
        ),
        causes={_OWN_DELAY: "FALL2"},
    ),
    observed=observed,
    tables=("page_loads", "attempts", "link_checks"),
    sources=SOURCES,
)
