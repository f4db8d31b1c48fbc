"""Queries at a steady pace: which rows count, and means and variances with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, drawn

STATISTICS = ("mean", "variance")


def paced(table: pl.LazyFrame, connection: str = "kept") -> pl.LazyFrame:
    """Queries that count as what they were meant to be.

    Parameters
    ----------
    table
        `paced_queries`.
    connection
        `kept`: the connection stood; `new`: the query paid for one; `0-rtt`: the server took it as early data.

    Returns
    -------
    polars.LazyFrame
        The same columns and `net_ms`, the response time without what BIND takes.
    """
    proof = {
        "kept": ~pl.col("new_connection"),
        "new": pl.col("new_connection"),
        "0-rtt": pl.col("early_data_accepted"),
    }
    return table.filter(
        pl.col("connection") == connection,
        ~pl.col("warming").fill_null(False),
        pl.col("error").is_null(),
        proof[connection].fill_null(False),
    ).with_columns(net_ms=pl.col("response_ms") - pl.col("authority_ms"))


def estimate(
    values: NDArray[np.float64], clusters: NDArray[np.intp], statistic: str, weights: Counts | None
) -> Estimate:
    """Mean or variance of observations, and in every resample of the rounds.

    Parameters
    ----------
    values
        Observations.
    clusters
        Number of the round each of them belongs to.
    statistic
        `mean`, or `variance` (unbiased; in the square of the unit).
    weights
        How often each round was drawn, shape (resamples, rounds); None gives no interval.
    """
    rounds = len(np.unique(clusters))
    value = float(np.mean(values) if statistic == "mean" else np.var(values, ddof=1) if len(values) > 1 else np.nan)
    draws = None
    if weights is not None and rounds >= MIN_ROUNDS:
        # Around the mean, so that squares of large and nearly equal numbers are not subtracted.
        centre = float(np.mean(values))
        sums = [
            weights @ np.bincount(clusters, (values - centre) ** power, minlength=weights.shape[1])
            for power in (0, 1, 2)
        ]
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = sums[1] / sums[0]
            draws = centre + mean if statistic == "mean" else (sums[2] - sums[0] * mean**2) / (sums[0] - 1)
    return Estimate(value, len(values), rounds, draws)


def moments(frame: pl.LazyFrame, value: str, by: Sequence[str], statistic: str) -> pl.DataFrame:
    """Mean or variance of each group with its 95 % interval.

    Parameters
    ----------
    frame
        Observations with `campaign` and `round`.
    value
        Column, e.g. `net_ms`.
    by
        Columns that name a group.
    statistic
        One of `STATISTICS`.

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, value, low, high. The interval (rounds resampled) is null under `MIN_ROUNDS`.
    """
    rows: list[tuple[Any, ...]] = []
    wanted = frame.filter(pl.col(value).is_not_null()).select(*by, "campaign", "round", value)
    for key, group in (
        wanted.collect(engine="streaming").sort(*by, "campaign", "round", value).group_by(by, maintain_order=True)
    ):
        numbers = group.select(pl.struct("campaign", "round").rank("dense") - 1).to_series().to_numpy().astype(np.intp)
        drawings = list(drawn(int(numbers.max()) + 1, group.height))
        weights = np.concatenate(drawings) if drawings else None
        found = estimate(group[value].to_numpy(), numbers, statistic, weights)
        rows.append((*key, found.n, found.rounds, found.value, *(found.interval or (None, None))))
    kinds = frame.collect_schema()
    schema: dict[str, Any] = {name: kinds[name] for name in by} | {"n": pl.Int64(), "rounds": pl.Int64()}
    return pl.DataFrame(rows, schema=schema | dict.fromkeys(("value", "low", "high"), pl.Float64()), orient="row")
