"""Groups the exchanges of the study `single-query` by transport and vantage point, as the paper does."""

from __future__ import annotations

import polars as pl

from crosslayer.metrics.rows import exchanges
from crosslayer.vocabulary import SIZES_BY_PART, VANTAGE_POINTS

STUDY = "single-query"

FURTHER_SERIES = ("DoH3", "DoQ 0-RTT", "DoH3 0-RTT")
"""Series that the paper does not have: DoH3 on a resumed session, and DoQ and DoH3 with the query as early data."""

SPLIT = "parted"
"""Column with the method by which bytes are assigned to handshake or query.

1: by TLS record, as in the paper (`dns.handshake_bytes`). 0: by time; bytes before the query was sent belong
to the handshake.
"""


def single_queries(table: pl.LazyFrame) -> pl.LazyFrame:
    """Successful measured exchanges of the study.

    Parameters
    ----------
    table
        `dns_exchanges`.

    Returns
    -------
    polars.LazyFrame
        The columns of `table`, and in addition `SPLIT`, `series` and `vantage`. `series` is one of `PAPER_SERIES` and
        `FURTHER_SERIES`. It is null for full TLS handshakes and for resolvers with other options. `vantage` is `eu` for
        the link `eu-1`. For links outside the model, `vantage` is the link's name.
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
