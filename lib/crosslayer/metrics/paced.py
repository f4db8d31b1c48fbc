"""Queries at a steady pace: which rows count, and means and variances with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.intervals import clusters_of, estimates_frame, groups
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, drawn

STATISTICS = ("mean", "variance")


def paced(table: pl.LazyFrame, connection: str = "kept") -> pl.LazyFrame:
    """Rows of `paced_queries` that count as what they were meant to be.

    `kept`: the connection was to be kept, and where it was lost its new one counts too, as it does in the paper;
    `new`: the query paid for one; `0-rtt`: the server took it as early data. `net_ms` is the response time without what
    BIND takes, `between_ms` that part of it which passes between the proxies, as in section 4.3 of Batenburg 2022: from
    the stub, a wait for a connection included. A dnsproxy tells no times: there it is all of the response.
    """
    proof = {
        "kept": pl.lit(True),
        "new": pl.col("new_connection"),
        "0-rtt": pl.col("early_data_accepted"),
    }
    between = pl.coalesce(pl.col("handshake_ms") + pl.col("query_ms"), "response_ms")
    return table.filter(
        pl.col("connection") == connection,
        ~pl.col("warming").fill_null(False),
        pl.col("error").is_null(),
        proof[connection].fill_null(False),
    ).with_columns(net_ms=pl.col("response_ms") - pl.col("authority_ms"), between_ms=between - pl.col("authority_ms"))


def estimate(
    values: NDArray[np.float64], clusters: NDArray[np.intp], statistic: str, weights: Counts | None
) -> Estimate:
    """Mean or variance (unbiased; in the square of the unit) of observations, and in every resample of the rounds.

    Parameters
    ----------
    clusters
        Number of the round each observation belongs to.
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
    """Mean or variance of each group with its 95 % interval; `statistic` is one of `STATISTICS`.

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, value, low, high. The interval (rounds resampled) is null under `MIN_ROUNDS`.
    """
    rows: list[tuple[Any, ...]] = []
    for key, group in groups(frame, [value], by):
        clusters, rounds, hosts = clusters_of(group)
        drawings = list(drawn(rounds, group.height, hosts=hosts))
        weights = np.concatenate(drawings) if drawings else None
        found = estimate(group[value].to_numpy(), clusters, statistic, weights)
        rows.append((*key, found.n, found.rounds, found.value, *(found.interval or (None, None))))
    return estimates_frame(frame, by, rows, "value")
