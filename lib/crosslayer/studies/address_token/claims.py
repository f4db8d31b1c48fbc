"""Claims of this study: its conclusions as falsifiable statements, judged on its campaign."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_LOAD, Source, observed_from
from crosslayer.claims.rules import Number, by_id, claim
from crosslayer.claims.tolerances import FRACTION, IN_RTTS

_KINDS = {"full handshake": ("1-rtt", "main"), "token": ("0-rtt", "main"), "no token": ("0-rtt", "no-token")}
SOURCES = {
    f"{kind}, document": Source(
        "page_loads", VALID_LOAD & (pl.col("h3") == h3) & (pl.col("condition") == condition), pl.col("response_end_ms")
    )
    for kind, (h3, condition) in _KINDS.items()
}


def observed(page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Time until the document is complete, by kind of load, ms."""
    return observed_from(SOURCES, {"page_loads": page_loads}, metrics.nominal_rtts(link_checks))


def sooner(kind: str, other: str, *pages: str) -> Measure:
    """How much earlier the document is complete with `kind` than with `other`, in multiples of the RTT.

    The value is the median of the differences within rounds.
    """
    return median({f"{other}, document": 1.0, f"{kind}, document": -1.0}, *pages, in_rtts=True)


one_round_trip = Number(published=1.0, tolerance=IN_RTTS, unit="RTT")
nothing = Number(published=0.0, tolerance=FRACTION, unit="RTT")

CLAIMS = Claims(
    checks=by_id(
        claim(
            "TOKEN1",
            "With early data, the token completes the document of wikipedia.org one round-trip earlier",
            sooner("token", "no token", "wikipedia.org"),
            one_round_trip,
        ),
        claim(
            "TOKEN2",
            "The token saves example.org nothing: its document is below three times the bytes that the server received",
            sooner("token", "no token", "example.org"),
            nothing,
        ),
        claim(
            "TOKEN3",
            "The token saves the document of instagram.com nothing",
            sooner("token", "no token", "instagram.com"),
            nothing,
        ),
        claim(
            "TOKEN4",
            "With the token, early data saves example.org the round-trip of the handshake",
            sooner("token", "full handshake", "example.org"),
            one_round_trip,
        ),
    ),
    observed=observed,
    tables=("page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
