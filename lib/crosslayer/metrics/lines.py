"""A straight line through medians, with the uncertainty of its slope.

If a duration contains a number of round-trips, its median is linear in the RTT, and the slope is this number. If a
duration contains the transfer of bytes at a rate, its median is linear in the time per byte in the same way. Rounds are
resampled; each resample has its own medians and its own line through them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.intervals import rounds_of
from crosslayer.metrics.resampling import RESAMPLES, Estimate, Reals, Sample, weighted_sums
from crosslayer.metrics.rows import CLUSTER


def line(
    frame: pl.LazyFrame, x: str, y: str, by: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Estimate, Estimate] | None:
    """Least-squares line through the medians of groups; the rounds of all groups are resampled together.

    The position of a group is the median of its x.

    Returns
    -------
    tuple of Estimate, or None
        Slope (unit of y over unit of x) and intercept (unit of y). None without two different positions.
    """
    rows = (
        frame.filter(pl.col(x).is_not_null(), pl.col(y).is_not_null())
        .select(*by, *CLUSTER, x=pl.col(x), y=pl.col(y))
        .collect(engine="streaming")
    )
    rounds = rounds_of(rows)
    rows = rows.with_columns(cluster=rounds.numbers).sort(*by, "cluster", "y")
    groups = list(rows.group_by(by, maintain_order=True))
    positions = np.array([float(np.median(group["x"].to_numpy())) for _, group in groups])
    if len(np.unique(positions)) < 2:
        return None
    samples = [Sample(group["y"].to_numpy(), group["cluster"].to_numpy(), rounds.blocks) for _, group in groups]
    # The last row has the medians themselves, the other rows have those of the resamples.
    blocks = [
        np.stack([sample.quantiles(0.5, weights) for sample in samples], axis=1)
        for weights in rounds.drawn(resamples, seed)
    ]
    medians = np.concatenate([*blocks, np.array([[sample.quantile(0.5) for sample in samples]])])
    slopes, intercepts = _through(positions, medians)
    n, fewest = min(sample.size for sample in samples), min(sample.rounds for sample in samples)
    slope, intercept = (
        Estimate(float(values[-1]), n, fewest, values[:-1] if blocks else None) for values in (slopes, intercepts)
    )
    return slope, intercept


def _through(x: Reals, y: NDArray[np.float64]) -> tuple[Reals, Reals]:
    """Slope and intercept of the line through each row of `y`, whose shape is (lines, points)."""
    centred = x - x.mean()
    slopes = weighted_sums(y, centred) / (centred**2).sum()
    return slopes, np.asarray(y.mean(axis=1) - slopes * x.mean())
