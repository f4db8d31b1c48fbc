"""What this study claims itself, judged as the papers' results are: the same state on both sides."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Cause, Number, Ordering, by_id, claim
from crosslayer.claims.measures import Measure, greatest, median
from crosslayer.claims.observed import Observed
from crosslayer.claims.rules import IN_RTTS, RELATIVE
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.combinations.metrics import BEST, FULL, WITH, combination, combined
from crosslayer.words import Protocol


def observed(dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """PLT of every combination, ms."""
    rows = combined(dns_exchanges, page_loads).select(*metrics.ROUND, series="combination", value="plt_ms")
    return Observed(rows, rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


def _added(exchange: str, load: str, page: str) -> Measure:
    """What an exchange adds to DoUDP beside the same load, RTT."""
    return median({combination(exchange, load): 1.0, combination("DoUDP", load): -1.0}, page, in_rtts=True)


def _percent(exchange: str, load: str, page: str) -> Measure:
    """The same, percent of the PLT."""
    return median(combination(exchange, load), page).over(median(combination("DoUDP", load), page))


_PERCENT = "%"
_PADDED = {
    protocol: Cause(
        "The query leaves in a datagram of 1200 bytes (RFC 9000, section 14.1): on DSL, whose uplink is slow, "
        "example.org takes {0} % more, on 4G {1} %.",
        tuple(_percent(BEST[protocol], WITH, "example.org").on(link) for link in ("dsl", "4g")),
    )
    for protocol in (Protocol.DOQ, Protocol.DOH3)
}
CLAIMS = Claims(
    checks=by_id(
        claim(
            "F001",
            "On a returning visit DoQ costs no more than 3 % of the PLT over plain DNS in the same state",
            greatest(_percent(BEST[Protocol.DOQ], WITH, page) for page in PAGES),
            Bound(below=3.0, unit=_PERCENT),
        ),
        claim(
            "F002",
            "The same of DoH3",
            greatest(_percent(BEST[Protocol.DOH3], WITH, page) for page in PAGES),
            Bound(below=3.0, unit=_PERCENT),
        ),
        claim(
            "F003",
            "On a first visit DoQ costs one round-trip over plain DNS",
            greatest(_added("DoQ", FULL, page) for page in PAGES),
            Number(tolerance=IN_RTTS, unit="RTT", published=1.0),
        ),
        claim(
            "F004",
            "On a returning visit DoH still costs two round-trips over plain DNS",
            greatest(_added(BEST[Protocol.DOH], WITH, page) for page in PAGES),
            Number(tolerance=IN_RTTS, unit="RTT", published=2.0),
        ),
        claim(
            "F005",
            "With the same web ticket on both sides, DoQ costs more than where only it has one, as in the paper",
            {
                page: _percent("DoQ", WITH, page)
                - median(combination("DoQ", WITH), page).over(median(combination("DoUDP", FULL), page))
                for page in PAGES
            },
            Ordering(unit="points"),
        ),
        causes={_PADDED[Protocol.DOQ]: "F001", _PADDED[Protocol.DOH3]: "F002"},
    ),
    observed=observed,
    tables=("dns_exchanges", "page_loads", "link_checks"),
)
