"""The exchanges of the study `single-query` as the paper groups them: by transport and vantage point."""

from __future__ import annotations

import polars as pl

from crosslayer.metrics.rows import exchanges
from crosslayer.vocabulary import SIZES_BY_PART, VANTAGE_POINTS

STUDY = "single-query"

FURTHER_SERIES = ("DoH3", "DoQ 0-RTT", "DoH3 0-RTT")
"""What it could not have: DoH3 with session resumption, and queries as early data."""

SPLIT = "parted"
"""1 where they are split; 0 in a campaign that knew only the handshake's end: its columns have what lies before."""


def single_queries(table: pl.LazyFrame) -> pl.LazyFrame:
    """Successful measured exchanges of the study.

    Parameters
    ----------
    table
        `dns_exchanges`.

    Returns
    -------
    polars.LazyFrame
        The same columns, `SPLIT`, and `series` (one of those above; null for exchanges that are not in the paper's
        figures: full TLS handshakes, and resolvers with other options), `vantage` (`eu` of link `eu-1`; the
        name of other links).
    """
    rows = pl.concat(exchanges(table, resumption=name) for name in ("none", "ticket", "early-data"))
    main, early = (pl.col("condition") == name for name in ("main", "early-data"))
    clear = pl.col("protocol").is_in(["DoUDP", "DoTCP"])
    resumed = pl.col("resumption") == "ticket"
    point = pl.col("link").str.split("-").list.first()
    by_time = [pl.coalesce(name, name.removesuffix("_by_record")).alias(name) for name in SIZES_BY_PART.values()]
    return rows.with_columns(
        pl.col(SIZES_BY_PART["query"]).is_not_null().cast(pl.Int64).alias(SPLIT), *by_time
    ).with_columns(
        series=pl.when(main & (clear | resumed))
        .then(pl.col("protocol"))
        .when(early & (pl.col("resumption") == "early-data"))
        .then(pl.format("{} 0-RTT", "protocol")),
        vantage=pl.when(point.is_in(list(VANTAGE_POINTS))).then(point).otherwise(pl.col("link")),
    )
