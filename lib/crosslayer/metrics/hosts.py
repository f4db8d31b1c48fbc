"""Comparison of the hosts of a campaign: their measured PLTs should be equal."""

from __future__ import annotations

import polars as pl

from crosslayer.metrics.intervals import medians

AGREED_PERCENT = 0.5
"""Tolerance between hosts in virtual time, percent.

It is the resolution of a browser's clock, 0.1 ms, as a share of the shortest PLT, 20 ms.
"""


def spread(loads: pl.LazyFrame) -> pl.DataFrame:
    """Deviation of each host's PLTs from the median PLT of all hosts in the same condition and cell.

    Returns
    -------
    polars.DataFrame
        host, n (loads), rounds, median, low, high: the median deviation of its PLTs from the median of their condition,
        percent, with its 95 % interval (rounds resampled; null under `MIN_ROUNDS`).
    """
    condition = ("link", "page", "h3", "coupling", "dns_protocol", "condition", "role")
    level = pl.col("plt_ms").median().over(condition)
    deviations = loads.filter(pl.col("error").is_null()).with_columns(percent=100 * (pl.col("plt_ms") / level - 1))
    return medians(deviations, "percent", ["host"]).with_columns(pl.col("host").cast(pl.String))


def disagreeing(spread: pl.DataFrame, *, within_percent: float = AGREED_PERCENT) -> list[str]:
    """Hosts whose whole interval in `spread` is above `within_percent` or below -`within_percent`."""
    away = (pl.col("low") > within_percent) | (pl.col("high") < -within_percent)
    return spread.filter(away)["host"].to_list()


def disagreement(loads: pl.LazyFrame) -> str:
    """A sentence that names the hosts that do not agree in virtual time; empty if all agree or there is only one."""
    spreads = spread(loads)
    if spreads.height < 2 or not (away := disagreeing(spreads)):
        return ""
    of = dict(spreads.select("host", "median").iter_rows())
    named = ", ".join(f"{host} ({of[host]:+.1f} %)" for host in away)
    return (
        f"In virtual time, all hosts should measure the same PLT, but these differ from the others: {named}. Check "
        "them before you use the data."
    )
