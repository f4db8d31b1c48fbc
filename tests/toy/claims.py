"""The one claim of the toy, its own: no paper prints it."""

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import median
from crosslayer.claims.rules import Number, by_id, claim
from crosslayer.claims.tolerances import IN_RTTS


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Exchanges, ms."""
    rows = metrics.exchanges(dns_exchanges).select(*metrics.ROUND, series="protocol", value="total_ms")
    return Observed(rows, rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


in_rtts = Number(tolerance=IN_RTTS, unit="RTT")

CLAIMS = Claims(
    by_id(claim("TOY1", "A toy takes one round-trip", median("DoUDP", in_rtts=True).on("fiber"), in_rtts.to(1.0))),
    observed,
    ("dns_exchanges", "link_checks"),
)
