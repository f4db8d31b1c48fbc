"""Claims of IMC22, section 3.1, judged on data of `crosslayer compare`.

The checks of times and sizes are those of the study `single-query`, which judges these claims on the testbed.

The bootstrap resamples vantage points and resolvers as clusters. An interval therefore also covers the choice of
vantage points and resolvers.
"""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Share, median
from crosslayer.claims.rules import Cause, Number, by_id, claim
from crosslayer.claims.single_queries import TABLE_1, Vantages, size
from crosslayer.claims.tolerances import SHARE
from crosslayer.studies.resolvers.metrics import single_queries
from crosslayer.vocabulary import DURATIONS_BY_PART, PAPER_SERIES, SIZES_BY_PART, CacheUse, QueryState, Role

_RESUMED = "session resumed"
VANTAGES = Vantages(lambda pair: pair.partition(" ")[0])
"""Vantage points of a campaign. The six of the paper have short names, e.g. `eu` for Europe."""


def observed(resolver_queries: pl.LazyFrame) -> Observed:
    """By vantage point and resolver: time and size of each part of an exchange, and whether a session was resumed.

    Series are e.g. `DoQ handshake` (ms), `DoQ response` (bytes) and `session resumed` (1 if resumed, else 0).
    """
    rows = single_queries(resolver_queries).filter(pl.col("series").is_in(PAPER_SERIES)).collect()
    resumable = resolver_queries.filter(
        state=QueryState.RESUMED.value, cache=CacheUse.HIT.value, role=Role.MEASURED.value
    ).with_columns(pair=pl.format("{} {}", "link", "address"))
    without_ticket = pl.col("error").str.contains("no session ticket", literal=True)
    resumed = resumable.select(
        *_ROUND,
        series=pl.lit(_RESUMED),
        value=pl.when(without_ticket).then(0.0).otherwise(pl.col("session_resumed").cast(pl.Float64)),
    )
    parts = [
        rows.lazy().select(*_ROUND, series=pl.format(f"{{}} {part}", "series"), value=pl.col(column).cast(pl.Float64))
        for part, column in (DURATIONS_BY_PART | SIZES_BY_PART).items()
    ]
    if any(rows[column].is_null().all() for column in SIZES_BY_PART.values()):
        parts = parts[: len(DURATIONS_BY_PART)]
    whole = [part.filter(pl.col("value").is_not_null()) for part in (*parts, resumed)]
    seen = pl.concat(part.select("host") for part in whole).unique().collect()["host"]
    pairs = {pair: (pair.partition(" ")[0], pair.partition(" ")[2]) for pair in seen}
    rtts = rows.group_by("pair").agg(pl.col("rtt_ms").median()).drop_nulls().sort("rtt_ms", "pair")
    return Observed(pl.concat(whole), rtts_ms=dict(rtts.iter_rows()), pairs=pairs)


_ROUND = (*metrics.ROUND[:2], pl.col("pair").alias("host"), pl.col("pair").alias("link"), "page")

_OWN_RTTS = Cause(
    "The RTTs of this campaign's paths are others: one round-trip, the handshake of DoTCP, takes {0} ms here and "
    "183 ms in the paper.",
    (median("DoTCP handshake"),),
)
_OWN_BYTES = Cause(
    "The bytes depend on the resolvers and on the client. Here, a query takes {0} bytes over DoUDP, {1} over "
    "DoTCP, {2} over DoQ, {3} over DoH and {4} over DoT.",
    tuple(size(series) for series in PAPER_SERIES),
)
CHECKS = by_id(
    claim(
        "I048",
        "Every resolver resumes sessions",
        median(_RESUMED).by(Share(lambda values: values > 0)),
        Number(tolerance=SHARE, unit="%"),
    ),
    *VANTAGES.checks(),
    causes={
        _OWN_RTTS: "I089 I090 I091 I092",
        _OWN_BYTES: " ".join((*TABLE_1.values(), "I100", "I101", "I102", "I106", "I133")),
    },
)
CLAIMS = Claims(CHECKS, observed, ("resolver_queries",))
