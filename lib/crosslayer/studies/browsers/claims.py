"""Claims of this study: its conclusions as falsifiable statements, judged on its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_LOAD, Source, observed_from
from crosslayer.claims.rules import Number, Ordering, by_id, claim
from crosslayer.claims.tolerances import IN_RTTS, LOAD_RESOLUTION_MS

_PAGES = ("example.org", "wikipedia.org", "instagram.com")
_TIMES = {"response": "response_start_ms", "PLT": "plt_ms"}
SOURCES = {
    f"{browser}, {h3}, {what}": Source(
        "page_loads", VALID_LOAD & (pl.col("browser") == browser) & (pl.col("h3") == h3), pl.col(column)
    )
    for browser, h3, (what, column) in product(("chromium", "firefox"), ("1-rtt", "0-rtt"), _TIMES.items())
}


def observed(page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Start of the response and PLT by browser and handshake, ms."""
    return observed_from(SOURCES, {"page_loads": page_loads}, metrics.nominal_rtts(link_checks))


def spared(browser: str) -> Measure:
    """How much earlier the response starts with early data than with a full handshake, in multiples of the RTT.

    The value is the median of the differences within rounds, with all links and pages pooled.
    """
    terms = {f"{browser}, 1-rtt, response": 1.0, f"{browser}, 0-rtt, response": -1.0}
    return median(terms, *_PAGES, in_rtts=True)


def later(h3: str, page: str) -> Measure:
    """PLT in Firefox minus PLT in Chromium, ms: median of the differences within rounds, with all links pooled."""
    return median({f"firefox, {h3}, PLT": 1.0, f"chromium, {h3}, PLT": -1.0}, page)


one_round_trip = Number(published=1.0, tolerance=IN_RTTS, unit="RTT")

CLAIMS = Claims(
    checks=by_id(
        claim(
            "BROWSER1",
            "In Chromium the response starts one round-trip earlier with early data",
            spared("chromium"),
            one_round_trip,
        ),
        claim(
            "BROWSER2",
            "In Firefox the response starts one round-trip earlier with early data",
            spared("firefox"),
            one_round_trip,
        ),
        claim(
            "BROWSER3",
            "With a full handshake Chromium loads each of the three pages faster than Firefox (all links together)",
            {page: later("1-rtt", page) for page in _PAGES},
            Ordering(unit="ms", resolution=LOAD_RESOLUTION_MS),
        ),
        claim(
            "BROWSER4",
            "With early data Chromium loads each of the three pages faster than Firefox (all links together)",
            {page: later("0-rtt", page) for page in _PAGES},
            Ordering(unit="ms", resolution=LOAD_RESOLUTION_MS),
        ),
    ),
    observed=observed,
    tables=("page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
