"""Claims of this study: its conclusions as falsifiable statements, judged on its campaigns."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, median
from crosslayer.claims.rows import VALID_LOAD, Source, observed_from
from crosslayer.claims.rules import Bound, Number, by_id, claim
from crosslayer.claims.tolerances import IN_RTTS

_KINDS = {
    "full handshake": ("1-rtt", "main"),
    "early data": ("0-rtt", "main"),
    "answered late": ("0-rtt", "late"),
    "resumed": ("1-rtt", "resumed"),
}
_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
SOURCES = {
    kind: Source(
        "page_loads",
        VALID_LOAD & (pl.col("h3") == h3) & (pl.col("condition") == condition),
        pl.col("response_start_ms"),
    )
    for kind, (h3, condition) in _KINDS.items()
}


def observed(page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Start of the response by kind of load, ms."""
    return observed_from(SOURCES, {"page_loads": page_loads}, metrics.nominal_rtts(link_checks))


def spared(kind: str) -> Measure:
    """How much earlier the response starts with `kind` than with a full handshake, in multiples of the RTT.

    The value is the median of the differences within rounds.
    """
    return median({"full handshake": 1.0, kind: -1.0}, in_rtts=True)


CLAIMS = Claims(
    checks=by_id(
        claim(
            "EARLY1",
            "Early data that is answered on arrival saves one round-trip",
            spared("early data"),
            Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
        ),
        claim(
            "EARLY2",
            "Early data that is answered after the handshake saves less than half a round-trip on every link",
            maximum(spared("answered late").on(link) for link in _LINKS),
            Bound(below=0.5, unit="RTT"),
        ),
        claim(
            "EARLY3",
            "A resumed session without early data saves less than half a round-trip on every link",
            maximum(spared("resumed").on(link) for link in _LINKS),
            Bound(below=0.5, unit="RTT"),
        ),
    ),
    observed=observed,
    tables=("page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
