"""Queries at a fixed rate: their valid rows, and means and variances with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.intervals import estimates_frame, groups, rounds_of
from crosslayer.metrics.resampling import ROUNDS_OF_MOMENTS, Counts, Estimate, Reals, weighted_sums
from crosslayer.metrics.rows import CLUSTER
from crosslayer.vocabulary import Role

STATISTICS = ("mean", "variance")


def paced(table: pl.LazyFrame, connection: str = "kept") -> pl.LazyFrame:
    """Valid rows of `paced_queries` of one connection mode, i.e. rows whose evidence confirms the mode.

    The modes are: `kept`, queries on a kept connection or, if it was lost, on its successor, as in BATENBURG22; `new`,
    each query on a new connection; `0-rtt`, queries that the server accepted as early data.

    `net_ms` is the response time without the processing time of BIND. `between_ms` is the part of `net_ms` between the
    client's DNS proxy and the server's (BATENBURG22, section 4.3), including a wait for a connection. dnsproxy reports
    no times, so its `between_ms` equals `net_ms`.
    """
    proof = {
        "kept": pl.lit(True),
        "new": pl.col("new_connection"),
        "0-rtt": pl.col("early_data_accepted"),
    }
    between = pl.coalesce(pl.col("handshake_ms") + pl.col("query_ms"), "response_ms")
    return table.filter(
        pl.col("connection_mode") == connection,
        pl.col("role") == Role.MEASURED,
        pl.col("error").is_null(),
        proof[connection].fill_null(False),
    ).with_columns(net_ms=pl.col("response_ms") - pl.col("authority_ms"), between_ms=between - pl.col("authority_ms"))


def estimate(
    values: NDArray[np.float64], clusters: NDArray[np.intp], statistic: str, weights: Counts | None
) -> Estimate:
    """Mean or unbiased variance of observations, with draws, i.e. values for the resamples of the rounds.

    A variance is in the square of the observations' unit. Draws are studentised: a draw is `V - (v - V) / e * E`. `V`
    is the statistic of the observations, and `E` its standard error; `v` and `e` are those of the resample. The
    quantiles of draws are then the bootstrap-t interval (Efron and Tibshirani 1993, chapter 12), also in derived
    statistics. For a variance, all this applies to its logarithm. Without the logarithm, intervals lie too low, because
    few rounds seldom contain observations of a long tail.

    Parameters
    ----------
    clusters
        Number of each observation's round.
    weights
        How often each round was drawn, shape (resamples, rounds); None gives no interval.
    """
    rounds = len(np.unique(clusters))
    value = float(np.mean(values) if statistic == "mean" else np.var(values, ddof=1) if len(values) > 1 else np.nan)
    draws = None
    if weights is not None and rounds >= ROUNDS_OF_MOMENTS:
        draws = _studentised(values, clusters, statistic, value, weights)
    return Estimate(value, len(values), rounds, draws, needed=ROUNDS_OF_MOMENTS, in_logarithm=statistic == "variance")


def _studentised(
    values: NDArray[np.float64], clusters: NDArray[np.intp], statistic: str, value: float, weights: Counts
) -> Reals:
    # Sums around the mean avoid the subtraction of large and nearly equal squares.
    centre = float(np.mean(values))
    sums = [np.bincount(clusters, (values - centre) ** power, minlength=weights.shape[1]) for power in (0, 1, 2)]

    def of(drawn: NDArray[Any]) -> tuple[Reals, Reals]:
        """The statistic for each row of `drawn`, and its standard error from the influence of each round.

        For a variance, both are those of its logarithm.
        """
        n = weighted_sums(drawn, sums[0])
        mean = weighted_sums(drawn, sums[1]) / n
        if statistic == "mean":
            factors = [-mean, np.ones_like(mean)]
            result = mean
        else:
            result = weighted_sums(drawn, sums[2]) / n - mean**2
            factors = [mean**2 - result, -2 * mean, np.ones_like(mean)]
        square = sum(
            (
                one * other * weighted_sums(drawn, sums[i] * sums[j])
                for i, one in enumerate(factors)
                for j, other in enumerate(factors)
            ),
            start=np.zeros_like(mean),
        )
        error = np.sqrt(np.maximum(square, 0)) / n
        # Polars uses the C library. NumPy's logarithm and exponential have different last bits with AVX-512.
        return (result, error) if statistic == "mean" else (pl.Series(result).log().to_numpy(), error / result)

    with np.errstate(invalid="ignore", divide="ignore"):
        [centred], [error] = of(np.ones((1, weights.shape[1])))
        result, errors = of(weights)
        away = (result - centred) / errors * error
        # Equal observations have no scatter, so 0 / 0 counts as 0.
        away[~np.isfinite(away)] = 0.0 if error == 0 else np.nan
        draws: Reals = value - away if statistic == "mean" else value * pl.Series(-away).exp().to_numpy()
    return draws


def moments(frame: pl.LazyFrame, value: str, by: Sequence[str], statistic: str) -> pl.DataFrame:
    """Mean or variance of each group with its 95 % interval; `statistic` is one of `STATISTICS`.

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, value, low, high. The interval comes from resampled rounds; it is null below
        `ROUNDS_OF_MOMENTS` rounds.
    """
    rows: list[tuple[Any, ...]] = []
    for key, group in groups(frame, [value], by):
        ordered = group.sort(*CLUSTER, value)  # sums of floating-point numbers depend on their order
        rounds = rounds_of(ordered)
        drawings = list(rounds.drawn())
        weights = np.concatenate(drawings) if drawings else None
        result = estimate(ordered[value].to_numpy(), rounds.blocks[rounds.numbers], statistic, weights)
        result = replace(result, rounds=rounds.count)
        rows.append((*key, result.n, result.rounds, result.value, *(result.interval or (None, None))))
    return estimates_frame(frame, by, rows, "value")
