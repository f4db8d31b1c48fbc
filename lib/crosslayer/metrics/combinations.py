"""Combinations of DNS protocol and HTTP/3 handshake: PLT of a decoupled load, and its increase against a baseline."""

from __future__ import annotations

import polars as pl

from crosslayer.metrics import rows
from crosslayer.metrics.rows import CELL, ROUND
from crosslayer.vocabulary import Role

BASELINE = "DoUDP + H3 1-RTT"
"""Baseline of all increases in TNSM24."""

SHOWN = (("DoUDP", "1-rtt"), ("DoQ", "0-rtt"), ("DoQ", "1-rtt"), ("DoH", "1-rtt"))
"""DNS protocol and HTTP/3 handshake of each pair that TNSM24 shows, the baseline first."""


def combination(protocol: str, h3: str) -> str:
    """Name of a combination, e.g. `DoQ + H3 0-RTT` for `DoQ` and `0-rtt`."""
    return f"{protocol} + H3 {h3.upper()}"


COMBINATIONS = tuple(combination(*pair) for pair in SHOWN)
"""The combinations that TNSM24 shows, the baseline first; coalescing is emulated by DoQ + H3 0-RTT."""

# Null for a pair that TNSM24 does not show.
_ASSHOWN = pl.coalesce(
    pl.when(pl.col("protocol") == protocol, pl.col("h3") == h3).then(pl.lit(combination(protocol, h3)))
    for protocol, h3 in SHOWN
)

_NAME = pl.format("{} + H3 {}", pl.col("protocol"), pl.col("h3").str.to_uppercase()).alias("combination")


def combine(exchanges: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
    """PLT of the combinations that TNSM24 shows: DNS exchange plus browser PLT of the same round and cell.

    Takes the rows of `rows.exchanges` and `rows.page_loads`.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, combination, exchange_ms, browser_plt_ms, plt_ms. A round that lacks the exchange
        or the load has no row (see `exclusions`).
    """
    return (
        exchanges.select(*ROUND, "protocol", exchange_ms="total_ms")
        .join(page_loads.select(*ROUND, "h3", browser_plt_ms="plt_ms"), on=ROUND)
        .with_columns(combination=_ASSHOWN)
        .filter(pl.col("combination").is_not_null())
        .select(
            *ROUND,
            "combination",
            "exchange_ms",
            "browser_plt_ms",
            (pl.col("exchange_ms") + pl.col("browser_plt_ms")).alias("plt_ms"),
        )
    )


def exclusions(dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
    """For each combination, the number of complete rounds, and the number of incomplete rounds by reason.

    The arguments are tables that still contain their failed rows.

    Returns
    -------
    polars.LazyFrame
        link, page, combination, rounds, complete, without_exchange, without_load (counts of rounds). A round without
        exchange and without load is included in both without_exchange and without_load.
    """
    key = [*ROUND, "protocol", "h3"]
    asked = (
        dns_exchanges.filter(resumption="none", role=Role.MEASURED)
        .select(*ROUND, "protocol")
        .join(
            page_loads.filter(condition="main", role=Role.MEASURED).select(*ROUND, "h3"),
            on=ROUND,
        )
        .select(key)
    )
    has_exchange = rows.exchanges(dns_exchanges).select(*ROUND, "protocol", exchanged=True)
    has_load = rows.page_loads(page_loads).select(*ROUND, "h3", loaded=True)
    exchanged, loaded = pl.col("exchanged").is_not_null(), pl.col("loaded").is_not_null()
    return (
        asked.join(has_exchange, on=[*ROUND, "protocol"], how="left")
        .join(has_load, on=[*ROUND, "h3"], how="left")
        .group_by(*CELL, _NAME)
        .agg(
            rounds=pl.len(),
            complete=(exchanged & loaded).sum(),
            without_exchange=(~exchanged).sum(),
            without_load=(~loaded).sum(),
        )
        .sort(*CELL, "combination")
    )


def relative_increase(combinations: pl.LazyFrame, *, baseline: str = BASELINE) -> pl.LazyFrame:
    """PLT of every observation of `combine` relative to the baseline's median in its cell (TNSM24 section IV-C).

    Returns
    -------
    polars.LazyFrame
        The given rows with the further columns `baseline_ms` (the baseline's median in the cell) and
        `increase_percent`. A cell without the baseline has no rows.
    """
    of_baseline = pl.col("plt_ms").filter(pl.col("combination") == baseline)
    return (
        combinations.with_columns(baseline_ms=of_baseline.median().over(CELL))
        .filter(pl.col("baseline_ms").is_not_null())
        .with_columns(increase_percent=(pl.col("plt_ms") / pl.col("baseline_ms") - 1) * 100)
    )
