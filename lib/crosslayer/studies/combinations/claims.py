"""Claims of this study, judged like the papers' results.

Except in F005, the two page loads of a comparison have the same tickets and tokens.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import CustomMeasure, Measure, maximum, median, median_of
from crosslayer.claims.rows import VALID_EXCHANGE, VALID_LOAD, Source
from crosslayer.claims.rules import Bound, Cause, Number, Ordering, by_id, claim
from crosslayer.claims.tolerances import IN_RTTS, RELATIVE
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.combinations.metrics import (
    BEST,
    EXCHANGES,
    FULL,
    LOADS,
    WITH,
    WITHOUT,
    combination,
    combined,
    named,
)
from crosslayer.vocabulary import Protocol, Resumption


def observed(dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """PLT of every combination, ms."""
    rows = combined(dns_exchanges, page_loads).select(*metrics.ROUND, series="combination", value="plt_ms")
    return Observed(rows, rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


_EXCHANGE = {
    named(protocol, resumption): (
        Source(
            "dns_exchanges",
            VALID_EXCHANGE
            & (pl.col("condition") == "main")
            & (pl.col("protocol") == str(protocol))
            & (pl.col("resumption") == str(resumption)),
            pl.col("total_ms"),
        ),
    )
    for protocol, resumption in product(Protocol, Resumption)
}
_LOAD = {
    name: (
        Source("page_loads", VALID_LOAD & (pl.col("h3") == h3) & (pl.col("condition") == condition), pl.col("plt_ms")),
    )
    for name, h3, condition in ((FULL, "1-rtt", "main"), (WITH, "0-rtt", "main"), (WITHOUT, "0-rtt", "no-token"))
}


def _added(exchange: str, load: str, page: str) -> Measure:
    """PLT with an exchange minus PLT with DoUDP, both with the same load.

    The value is the median of the differences within rounds, in multiples of the RTT.
    """
    return median({combination(exchange, load): 1.0, combination("DoUDP", load): -1.0}, page, in_rtts=True)


def _percent(exchange: str, load: str, page: str) -> Measure:
    """Increase of the median PLT, in percent, if this exchange replaces DoUDP and the load stays the same."""
    return median(combination(exchange, load), page).over(median(combination("DoUDP", load), page))


def _of_links(exchange: str, load: str, page: str) -> Measure:
    """Median of the values of `_percent` on all links."""
    return CustomMeasure(lambda o: median_of(_percent(exchange, load, page).on(link) for link in o.links)(o))


_VISITS = {
    "first visit": lambda protocol: (named(protocol), FULL),
    "returning visit": lambda protocol: (BEST[protocol], WITH),
}
"""For each kind of visit: a function from a transport to two states, that of DNS and that of the page."""
_COSTS = {
    f"F{number:03}": row
    for number, row in enumerate(
        (
            *(("first visit", Protocol.DOQ, page, percent) for page, percent in zip(PAGES, (34, 24, 9), strict=True)),
            *(("first visit", Protocol.DOH, page, percent) for page, percent in zip(PAGES, (66, 44, 18), strict=True)),
            *(
                ("returning visit", Protocol.DOQ, page, percent)
                for page, percent in zip(PAGES, (1.3, 0.8, 0.3), strict=True)
            ),
            *(
                ("returning visit", Protocol.DOH, page, percent)
                for page, percent in zip(PAGES, (98, 60, 20), strict=True)
            ),
        ),
        start=6,
    )
}
"""Visit, transport, page, and the claimed cost in percent of the PLT; by claim."""
_PERCENT = "%"
_NEAR = replace(RELATIVE, at_least=0.2)
"""Tolerance of a cost below 2 %."""
_PADDED = {
    protocol: Cause(
        "The query leaves in a datagram of 1,200 bytes (RFC 9000, section 14.1). So example.org takes {0} % longer "
        "on DSL, whose uplink is slow, and {1} % longer on 4G.",
        tuple(_percent(BEST[protocol], WITH, "example.org").on(link) for link in ("dsl", "4g")),
    )
    for protocol in (Protocol.DOQ, Protocol.DOH3)
}
CLAIMS = Claims(
    checks=by_id(
        claim(
            "F001",
            "On a typical link, the PLT of a returning visit is at most 3 % longer with DoQ than with plain DNS",
            maximum(_of_links(BEST[Protocol.DOQ], WITH, page) for page in PAGES),
            Bound(below=3.0, unit=_PERCENT),
        ),
        claim(
            "F002",
            "On a typical link, the PLT of a returning visit is at most 3 % longer with DoH3 than with plain DNS",
            maximum(_of_links(BEST[Protocol.DOH3], WITH, page) for page in PAGES),
            Bound(below=3.0, unit=_PERCENT),
        ),
        claim(
            "F003",
            "A first visit takes one round-trip longer with DoQ than with plain DNS",
            maximum(_added("DoQ", FULL, page) for page in PAGES),
            Number(tolerance=IN_RTTS, unit="RTT", published=1.0),
        ),
        claim(
            "F004",
            "A returning visit still takes two round-trips longer with DoH than with plain DNS",
            maximum(_added(BEST[Protocol.DOH], WITH, page) for page in PAGES),
            Number(tolerance=IN_RTTS, unit="RTT", published=2.0),
        ),
        claim(
            "F005",
            "DoQ costs more if the visit with plain DNS also has a web ticket than if, as in the paper, it has none",
            {
                page: _percent("DoQ", WITH, page)
                - median(combination("DoQ", WITH), page).over(median(combination("DoUDP", FULL), page))
                for page in PAGES
            },
            Ordering(unit="points"),
        ),
        claim(
            "F018",
            "On DSL, whose uplink is slow, the PLT of a returning visit to example.org is more than 3 % longer with "
            "DoQ than with plain DNS",
            _percent(BEST[Protocol.DOQ], WITH, "example.org").on("dsl"),
            Bound(above=3.0, unit=_PERCENT),
        ),
        *(
            claim(
                identifier,
                f"The PLT of a {visit} to {page} is about {percent:g} % longer with {protocol} than with plain DNS",
                _of_links(exchange, load, page),
                Number(tolerance=_NEAR if percent < 2 else RELATIVE, unit=_PERCENT, published=percent),
                remark="The middle one of the links.",
            )
            for identifier, (visit, protocol, page, percent) in _COSTS.items()
            for exchange, load in [_VISITS[visit](protocol)]
        ),
        causes={_PADDED[Protocol.DOQ]: "F001", _PADDED[Protocol.DOH3]: "F002"},
    ),
    observed=observed,
    sources={combination(*pair): (*_EXCHANGE[pair[0]], *_LOAD[pair[1]]) for pair in product(EXCHANGES, LOADS)},
    tables=("dns_exchanges", "page_loads", "link_checks"),
)
