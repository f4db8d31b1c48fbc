"""Claims of this study: its conclusions as falsifiable statements, judged on its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_EXCHANGE, VALID_LOAD, Source, observed_from
from crosslayer.claims.rules import Ordering, by_id, claim, within
from crosslayer.metrics import EQUAL_PERCENT

_PROTOCOLS = {"DoUDP": "none", "DoH": "ticket", "DoQ": "ticket"}
"""Resumption of the exchange, by DNS transport. The browser's own lookup uses the same resumption."""
_TIMES = {"first byte": "response_start_ms", "PLT": "plt_ms"}
SOURCES = {
    f"{protocol} exchange": Source(
        "dns_exchanges",
        VALID_EXCHANGE & (pl.col("protocol") == protocol) & (pl.col("resumption") == resumption),
        pl.col("total_ms"),
    )
    for protocol, resumption in _PROTOCOLS.items()
} | {
    f"{how}, {what}": Source(
        "page_loads",
        VALID_LOAD
        & (
            (pl.col("coupling") == "decoupled")
            if how == "alone"
            else (pl.col("coupling") == "coupled") & (pl.col("dns_protocol") == how)
        ),
        pl.col(column),
    )
    for how, (what, column) in product(("alone", *_PROTOCOLS), _TIMES.items())
}


def observed(dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Times of exchanges, decoupled loads and coupled loads, ms."""
    tables = {"dns_exchanges": dns_exchanges, "page_loads": page_loads}
    return observed_from(SOURCES, tables, metrics.nominal_rtts(link_checks))


def difference(protocol: str, what: str) -> Measure:
    """Exchange plus decoupled load minus coupled load, in percent of the median of the coupled loads.

    The value is the median of the differences within rounds.
    """
    terms = {f"{protocol} exchange": 1.0, f"alone, {what}": 1.0, f"{protocol}, {what}": -1.0}
    return 100 * (median(terms) / median(f"{protocol}, {what}"))


CLAIMS = Claims(
    checks=by_id(
        *(
            claim(
                identifier,
                f"With the browser's own lookup, the {what} takes as long as a DNS exchange plus the {what} without a "
                "lookup (all links and pages together)",
                within({protocol: difference(protocol, what) for protocol in _PROTOCOLS}, 0.0, EQUAL_PERCENT),
                Ordering(unit="%", criterion=f"95 % interval of each difference within {EQUAL_PERCENT:g} %"),
            )
            for identifier, what in {"COMPOSE1": "first byte", "COMPOSE2": "PLT"}.items()
        )
    ),
    observed=observed,
    tables=("dns_exchanges", "page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
