"""Falsifiable claims of this study, judged on the data of its campaign."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, median
from crosslayer.claims.rows import VALID_LOAD, Source, observed_from
from crosslayer.claims.rules import Bound, Number, by_id, claim
from crosslayer.claims.tolerances import FRACTION, IN_RTTS
from crosslayer.studies.https_records.records import KINDS

_IGNORED = ("cut-short", "keys-unordered", "key-twice", "alpn-empty", "no-default-alone", "mandatory-unknown")
"""Kinds of records in claim HTTPS2; a client must reject or ignore them (RFC 9460, sections 2.2, 2.4.3 and 8)."""
SOURCES = {
    condition: Source("page_loads", VALID_LOAD & (pl.col("condition") == condition), pl.col("response_start_ms"))
    for condition in KINDS
}


def observed(page_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Start of the response by kind of record, ms."""
    return observed_from(SOURCES, {"page_loads": page_loads}, metrics.nominal_rtts(link_checks))


def later(condition: str, other: str) -> Measure:
    """How much later the response starts with `condition` than with `other`, in multiples of the RTT.

    The value is the median of the differences within rounds.
    """
    return median({condition: 1.0, other: -1.0}, in_rtts=True)


one_round_trip = Number(published=1.0, tolerance=IN_RTTS, unit="RTT")
nothing = Number(published=0.0, tolerance=FRACTION, unit="RTT")

CLAIMS = Claims(
    checks=by_id(
        claim(
            "HTTPS1",
            "A valid HTTPS record saves a first visit one round-trip, because the visit then starts with HTTP/3",
            later("none", "whole"),
            one_round_trip,
        ),
        claim(
            "HTTPS2",
            "A malformed record that a client must ignore or reject costs no more than no record",
            maximum(later(condition, "none") for condition in _IGNORED),
            Bound(below=FRACTION.at_least, unit="RTT"),
        ),
        claim("HTTPS3", "On a first visit Encrypted Client Hello costs nothing", later("ech", "whole"), nothing),
        claim(
            "HTTPS4",
            "On a second visit with early data Encrypted Client Hello costs nothing",
            later("ech-0-rtt", "whole-0-rtt"),
            nothing,
        ),
        claim(
            "HTTPS5",
            "A record whose key the server has replaced costs more than three round-trips",
            later("ech-replaced", "whole"),
            Bound(above=3.0, unit="RTT"),
        ),
    ),
    observed=observed,
    tables=("page_loads", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
