"""The queries of a comparison that IMC 2022, section 3.1, is about, over resolvers that have all its transports."""

from __future__ import annotations

import polars as pl

from crosslayer.vocabulary import PAPER_SERIES, CacheUse, QueryState, Role

_CLEAR = ("DoUDP", "DoTCP")


def single_queries(table: pl.LazyFrame) -> pl.LazyFrame:
    """Queries on a new connection for a name in the cache; encrypted transports resume a session.

    A resolver (an address) counts at a vantage point where it answered over each of the paper's transports, as in the
    paper.

    Parameters
    ----------
    table
        `resolver_queries`.

    Returns
    -------
    polars.LazyFrame
        The same columns, `series` (the transport) and `pair` (vantage point and address, the links of the checks);
        successful queries only.
    """
    clear = pl.col("protocol").is_in(_CLEAR)
    new = pl.when(clear).then(pl.lit(QueryState.COLD.value)).otherwise(pl.lit(QueryState.RESUMED.value))
    resumed = clear | pl.col("session_resumed").fill_null(True)  # null where nobody recorded it (an imported campaign)
    rows = table.filter(
        pl.col("error").is_null(), pl.col("state") == new, resumed, cache=CacheUse.HIT.value, role=Role.MEASURED.value
    )
    everything = (
        rows.filter(pl.col("protocol").is_in(PAPER_SERIES))
        .group_by("link", "address")
        .agg(whole=pl.col("protocol").n_unique() == len(PAPER_SERIES))
        .filter("whole")
    )
    return rows.join(everything, on=["link", "address"], how="semi").with_columns(
        series=pl.col("protocol"), pair=pl.format("{} {}", "link", "address")
    )
