"""Numbers that describe the shape of a distribution: steps, modes, shares. `tolerances` has the criteria."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crosslayer.claims.tolerances import MODE_HEIGHT, MODE_VALLEY, MODE_WIDTH_MS, STEP_RISE_RTT
from crosslayer.metrics.resampling import Counts, Estimate, Sample, weighted_sums

_GRID = 1024
_SAME = 1e-6
"""Relative difference below which two values are equal except for rounding."""


def steps(sample: Sample, weights: Counts | None = None, count: int = 5) -> Estimate:
    """Number of visible steps of a CDF, at most `count`.

    The sorted observations are divided into `count` parts of equal size. Two neighbouring parts are different steps if
    their medians differ by more than `STEP_RISE_RTT`.

    Returns
    -------
    Estimate
        Number of such differences plus one; 0 if there is no such difference. The estimate has no interval.
    """
    middles = [sample.quantile((part + 0.5) / count) for part in range(count)]
    rises = sum(second - first > STEP_RISE_RTT for first, second in pairwise(middles))
    return Estimate(float(rises + 1 if rises else 0), sample.size, sample.rounds)


def modes(sample: Sample, weights: Counts | None = None) -> Estimate:
    """Number of modes of a distribution; the estimate has no interval."""
    return Estimate(float(len(positions_of_modes(sample))), sample.size, sample.rounds)


def positions_of_modes(sample: Sample) -> list[float]:
    """Positions of the modes of durations, ms, ascending.

    Modes are maxima of a Gaussian kernel density with Silverman's bandwidth, which is at least `MODE_WIDTH_MS`. A
    maximum is a mode if it is high enough (`MODE_HEIGHT`) and the valleys next to it are deep enough (`MODE_VALLEY`).
    """
    return [x for x, _ in _modes(sample.values)[0]]


def first_mode_percent(sample: Sample, weights: Counts | None = None) -> Estimate:
    """Percentage of the observations up to the valley between the first two modes; 100 if there is one mode."""
    valleys = _modes(sample.values)[1]
    share = float(np.mean(sample.values <= valleys[0]) * 100) if valleys else 100.0
    return Estimate(share, sample.size, sample.rounds)


def share_within(part: Sample, whole: Sample, low: float, high: float) -> float:
    """Percentage of the observations of `part` that lie between two quantiles of `whole`."""
    first, last = whole.quantile(low), whole.quantile(high)
    return float(np.mean((part.values >= first) & (part.values <= last)) * 100)


def _modes(values: NDArray[np.float64]) -> tuple[list[tuple[float, float]], list[float]]:
    """Modes as (x, density), and the x of the valleys between them."""
    # The grid covers the central 98 %, because outliers would widen it until it misses the modes. It loses no mode: a
    # mode has at least a fifth of the highest mode's density, so none lies in the outermost percent.
    first, p25, p75, last = np.quantile(values, [0.01, 0.25, 0.75, 0.99])
    central = values[(values >= first) & (values <= last)]
    spread = min(float(np.std(central)), float(p75 - p25) / 1.349) or float(np.std(central))
    if spread <= _SAME * max(abs(first), abs(last)):
        return [(float(np.median(values)), 1.0)], []
    width = max(MODE_WIDTH_MS, 0.9 * spread * len(values) ** -0.2)
    grid = np.linspace(first - 3 * width, last + 3 * width, _GRID)
    # Binning makes the cost of the density independent of the number of observations.
    counts, edges = np.histogram(central, bins=_GRID)
    centres = (edges[:-1] + edges[1:]) / 2
    density = weighted_sums(np.exp(-0.5 * ((grid[:, None] - centres) / width) ** 2), counts)
    inner = density[1:-1]
    tops = [int(i) + 1 for i in np.flatnonzero((inner > density[:-2]) & (inner >= density[2:]))]
    high = [i for i in tops if density[i] >= MODE_HEIGHT * density.max()]
    modes, valleys = [high[0]], []
    for top in high[1:]:
        valley = modes[-1] + int(np.argmin(density[modes[-1] : top + 1]))
        if density[valley] < MODE_VALLEY * min(density[modes[-1]], density[top]):
            modes.append(top)
            valleys.append(float(grid[valley]))
        elif density[top] > density[modes[-1]]:
            modes[-1] = top
    return [(float(grid[i]), float(density[i])) for i in modes], valleys
