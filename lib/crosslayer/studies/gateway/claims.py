"""Falsifiable claims of this study, judged on the data of its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_LOAD, Source, observed_from, with_columns
from crosslayer.claims.rules import Cause, Ordering, by_id, claim, within
from crosslayer.claims.tolerances import IN_RTTS
from crosslayer.studies.gateway.kinds import KINDS, NONE, ONE, TWO

_LINKS, _PAGES = ("fiber", "dsl", "4g"), ("example.org", "wikipedia.org")
SOURCES = {
    name: Source(
        "page_loads",
        VALID_LOAD & with_columns(kind.columns),
        pl.col("plt_ms"),
    )
    for name, kind in KINDS.items()
}


def observed(page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """PLT by kind of load, ms."""
    return observed_from(SOURCES, {"page_loads": page_loads}, metrics.nominal_rtts(link_checks))


def later(kind: str, other: str, link: str, page: str) -> Measure:
    """PLT of `kind` minus PLT of `other`: median of the differences within rounds, in multiples of the RTT."""
    return median({kind: 1.0, other: -1.0}, page, in_rtts=True).on(link)


def in_cells(kind: str, other: str, *links: str) -> dict[str, Measure]:
    """`later` for each of these links (default: all) and each page."""
    return {f"{page} on {link}": later(kind, other, link, page) for link, page in product(links or _LINKS, _PAGES)}


_ADDED = Cause(
    "The gateway delays example.org by {0} RTT on DSL, whose uplink is slow, by {1} RTT on fiber and {2} RTT on "
    "4G. So on DSL, the difference between two connections and one is larger than what one connection saves.",
    tuple(later(TWO, NONE, link, "example.org") for link in ("dsl", "fiber", "4g")),
)

CLAIMS = Claims(
    checks=by_id(
        claim(
            "GATEWAY1",
            "With one connection for DNS and page, every page loads faster than without a gateway",
            in_cells(NONE, ONE),
            Ordering(unit="RTT"),
        ),
        claim(
            "GATEWAY2",
            "On fiber and 4G one connection saves one round-trip compared with two connections of the same gateway",
            within(in_cells(TWO, ONE, "fiber", "4g"), 1.0, IN_RTTS.at_least),
            Ordering(unit="RTT", criterion=f"95 % interval of each difference within {IN_RTTS.at_least} RTT of one"),
        ),
        claim(
            "GATEWAY3",
            "The gateway itself costs nothing: with two connections, a page loads as fast as without a gateway",
            within(in_cells(TWO, NONE), 0.0, IN_RTTS.at_least),
            Ordering(unit="RTT", criterion=f"95 % interval of each difference within {IN_RTTS.at_least} RTT"),
        ),
        causes={_ADDED: "GATEWAY3"},
    ),
    observed=observed,
    tables=("page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
