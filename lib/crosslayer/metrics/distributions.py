"""Distributions reduced to few numbers for charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.grouping import Frames, gathered, schema_of
from crosslayer.metrics.resampling import MIN_ROUNDS, Reals

MAX_POINTS = 200
"""Maximum number of points of a curve. Vega-Lite cannot draw all observations of a campaign."""


def curves(frame: Frames, value: str, by: Sequence[str], *, points: int = MAX_POINTS) -> pl.DataFrame:
    """Empirical CDF of each group, reduced to some of its order statistics; nulls are left out.

    Returns
    -------
    polars.DataFrame
        by..., x (observations, ascending), cdf (share of observations at most x), n (observations of the curve). A
        curve has at most `points` points, including its smallest and greatest observation.
    """
    schema = schema_of(frame, by)
    parts = [pl.DataFrame(schema=schema | {"x": pl.Float64(), "cdf": pl.Float64(), "n": pl.Int64()})]
    for key, group in gathered(frame, by, [value]):
        x, cdf = curve(group[value].to_numpy(), points)
        keys = (pl.lit(word, schema[name]).alias(name) for name, word in zip(by, key, strict=True))
        of_group = pl.DataFrame({"x": x, "cdf": cdf})
        parts.append(of_group.select(*keys, "x", "cdf", n=pl.lit(group.height, pl.Int64())))
    return pl.concat(parts)


def curve(values: NDArray[Any], points: int = MAX_POINTS) -> tuple[Reals, Reals]:
    """Empirical CDF of observations, as two arrays: `x` and `cdf`, like the columns of `curves`."""
    ranks = _ranks(len(values), points)
    # Polars sorts twice as fast as numpy.
    return pl.Series(values).sort().gather(ranks - 1).cast(pl.Float64).to_numpy(), ranks / len(values)


def _ranks(n: int, points: int) -> NDArray[np.int64]:
    """Ranks, from 1, of the order statistics that represent n observations."""
    return np.unique(np.linspace(1, n, min(n, points)).round().astype(np.int64))


def summary(frame: pl.LazyFrame, value: str, by: Sequence[str]) -> pl.LazyFrame:
    """Quantiles of each group, and an interval of its median without bootstrap; nulls are left out.

    Returns
    -------
    polars.LazyFrame
        by..., n, min, p5, p25, median, p75, p95, max, low, high, in the unit of the value; quantiles are interpolated
        linearly. `low` and `high` are the order statistics that contain the median with 95 % confidence for any
        distribution (inverted sign test). They are null below `MIN_ROUNDS` observations. The observations must be
        independent, i.e. one per round.
    """
    ordered = pl.col("ordered")
    n = ordered.list.len().cast(pl.Int64)

    def at(rank: pl.Expr) -> pl.Expr:
        return ordered.list.get(rank.cast(pl.Int64), null_on_oob=True)

    def quantile(level: float) -> pl.Expr:
        rank = (n - 1) * level
        low, high = at(rank.floor()), at(rank.ceil())
        return low + (rank - rank.floor()) * (high - low)

    # Normal approximation of the binomial distribution with half the continuity correction, which is nearest to 95 %.
    beyond = ((n - 1.96 * n.sqrt() - 0.5) / 2).floor()
    ends = {"low": beyond, "high": n - 1 - beyond}
    levels = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
    return (
        frame.group_by(by)
        .agg(ordered=pl.col(value).drop_nulls().sort())  # once for all quantiles
        .select(
            *by,
            n=n,
            min=at(pl.lit(0)),
            **{name: quantile(level) for name, level in levels.items()},
            max=at(n - 1),
            **{name: pl.when(n >= MIN_ROUNDS).then(at(rank)) for name, rank in ends.items()},
        )
        .sort(by)
    )
