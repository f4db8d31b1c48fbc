"""Distributions as the few numbers a chart can take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

MAX_POINTS = 200
"""Points of a curve at most: Vega-Lite chokes on raw rows."""


def curves(frame: pl.LazyFrame, value: str, by: Sequence[str], *, points: int = MAX_POINTS) -> pl.DataFrame:
    """Empirical CDF of each group, thinned to exact order statistics.

    Parameters
    ----------
    frame
        Observations.
    value
        Column to draw; its nulls are left out.
    by
        Columns that name a curve.
    points
        Points per curve at most; the smallest and the greatest observation are always among them.

    Returns
    -------
    polars.DataFrame
        by..., x (observations, ascending), cdf (share of observations at most x), n (observations of the curve).
    """
    groups = (
        frame.filter(pl.col(value).is_not_null())
        .group_by(by)
        .agg(pl.col(value).sort().alias("x"))
        .sort(by)
        .collect(engine="streaming")
    )
    ranks = [_ranks(x.len(), points) for x in groups["x"]]
    heights = [len(r) for r in ranks]
    values = [x.to_numpy()[r - 1] for x, r in zip(groups["x"], ranks, strict=True)]
    sizes = np.repeat(np.array([x.len() for x in groups["x"]], dtype=np.int64), heights)
    empty = np.empty(0)
    return (
        groups.select(by)[np.repeat(np.arange(groups.height), heights)]
        .with_columns(pl.Series("x", np.concatenate([empty, *values])), pl.Series("n", sizes))
        .with_columns((pl.Series("rank", np.concatenate([empty, *ranks])) / pl.col("n")).alias("cdf"))
        .select(*by, "x", "cdf", "n")
    )


def _ranks(n: int, points: int) -> NDArray[np.int64]:
    """Ranks, from 1, of the order statistics that stand for n observations."""
    return np.unique(np.linspace(1, n, min(n, points)).round().astype(np.int64))


def summary(frame: pl.LazyFrame, value: str, by: Sequence[str]) -> pl.LazyFrame:
    """Quantiles of each group.

    Returns
    -------
    polars.LazyFrame
        by..., n, min, p5, p25, median, p75, p95, max, in the unit of the value; interpolated linearly.
    """
    quantiles = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
    column = pl.col(value)
    return (
        frame.group_by(by)
        .agg(
            n=column.count(),
            min=column.min(),
            **{name: column.quantile(q, "linear") for name, q in quantiles.items()},
            max=column.max(),
        )
        .sort(by)
    )
