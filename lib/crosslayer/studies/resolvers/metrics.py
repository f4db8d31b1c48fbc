"""Selects queries as IMC 2022, section 3.1 does: only resolvers that support all transports of the paper count."""

from __future__ import annotations

import polars as pl

from crosslayer.vocabulary import PAPER_SERIES, CacheUse, QueryState, Role

_CLEAR = ("DoUDP", "DoTCP")


def single_queries(table: pl.LazyFrame) -> pl.LazyFrame:
    """Successful queries on new connections, answered from the cache; over encrypted transports, with resumption.

    As in the paper, a resolver (an address) counts at a vantage point only if it answered there over each of the
    paper's transports.

    Parameters
    ----------
    table
        `resolver_queries`.

    Returns
    -------
    polars.LazyFrame
        The columns of `table`, `series` (the transport) and `pair` (vantage point and address; the claims use it as
        link).
    """
    clear = pl.col("protocol").is_in(_CLEAR)
    new = pl.when(clear).then(pl.lit(QueryState.COLD.value)).otherwise(pl.lit(QueryState.RESUMED.value))
    resumed = clear | pl.col("session_resumed").fill_null(True)  # null if not recorded (imported campaign)
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
