"""Statistics of a campaign, by which checks judge claims. They support arithmetic and are computed on demand.

    connect("1-RTT").on("fiber") - connect("0-RTT").on("fiber")

Every statistic is computed in every resample of the rounds, so errors that two statistics share cancel in their
difference.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from crosslayer import metrics
from crosslayer.claims.data import Observed, Series, Statistic
from crosslayer.metrics.resampling import (
    FEWEST_BEYOND,
    LEVEL,
    MIN_ROUNDS,
    ROUNDS_OF_MOMENTS,
    Counts,
    Estimate,
    Sample,
    beyond,
    derived,
    weighted_sums,
)


class Measure(ABC):
    """A statistic of a campaign. `+ - * /` with a number or another measure give a further measure."""

    @abstractmethod
    def __call__(self, observed: Observed) -> Estimate:
        """Compute the value in a campaign and in every resample of its rounds."""

    @abstractmethod
    def on(self, *links: str) -> Measure:
        """The same measure on these links only."""

    def over(self, other: Measure) -> Measure:
        """Increase over another measure, percent."""
        return Derived(lambda x, y: (x / y - 1) * 100, (self, other))

    def _with(self, function: Callable[[Any, Any], Any], other: Measure | float) -> Measure:
        if isinstance(other, Measure):
            return Derived(function, (self, other))
        return Derived(lambda x: function(x, other), (self,))

    def __add__(self, other: Measure | float) -> Measure:
        return self._with(operator.add, other)

    def __sub__(self, other: Measure | float) -> Measure:
        return self._with(operator.sub, other)

    def __mul__(self, other: Measure | float) -> Measure:
        return self._with(operator.mul, other)

    def __truediv__(self, other: Measure | float) -> Measure:
        return self._with(operator.truediv, other)

    def __radd__(self, other: float) -> Measure:
        return self + other

    def __rsub__(self, other: float) -> Measure:
        return self._with(lambda x, y: y - x, other)

    def __rmul__(self, other: float) -> Measure:
        return self._with(lambda x, y: y * x, other)

    def __rtruediv__(self, other: float) -> Measure:
        return self._with(lambda x, y: y / x, other)


@dataclass(frozen=True, slots=True)
class Derived(Measure):
    """A measure that `function` computes from other measures, the `parts`.

    `function` takes one argument for each part. It is called with the values of the parts, and with arrays of their
    values in all resamples. So it must compute elementwise.
    """

    function: Callable[..., Any]
    parts: tuple[Measure, ...]

    def __call__(self, observed: Observed) -> Estimate:
        """See `Measure`."""
        return derived(self.function, *(part(observed) for part in self.parts))

    def on(self, *links: str) -> Measure:
        """See `Measure`."""
        return replace(self, parts=tuple(part.on(*links) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Limited(Measure):
    """Distance of a measure from a limit, as a margin of an `Ordering`: above 0 if the measure keeps the limit."""

    measure: Measure
    limit: float
    upper: bool
    """Whether the measure must be below the limit; otherwise it must be above."""

    def __call__(self, observed: Observed) -> Estimate:
        """See `Measure`."""
        return (self.limit - self.measure if self.upper else self.measure - self.limit)(observed)

    def on(self, *links: str) -> Measure:
        """See `Measure`."""
        return replace(self, measure=self.measure.on(*links))


@dataclass(frozen=True, slots=True)
class CustomMeasure(Measure):
    """A measure that is not a statistic of one series; a function computes it from a campaign."""

    ask: Callable[[Observed], Estimate]

    def __call__(self, observed: Observed) -> Estimate:
        """See `Measure`."""
        return self.ask(observed)

    def on(self, *links: str) -> Measure:
        """Raise `TypeError`, because the function chooses its links itself."""
        raise TypeError(f"{self.ask} chooses its links itself")


@dataclass(frozen=True, slots=True)
class SeriesStatistic(Measure):
    """A statistic of a series, by default over the study's links and all pages with observations."""

    series: Series
    statistic: Statistic

    def __call__(self, observed: Observed) -> Estimate:
        """See `Measure`."""
        return observed.estimate(self.series, self.statistic)

    def on(self, *links: str) -> Self:
        """See `Measure`."""
        return replace(self, series=replace(self.series, links=links))

    def among(self, links: Callable[[Observed], Sequence[str]]) -> Self:
        """The same measure on the links that a function chooses for a campaign."""
        return replace(self, series=replace(self.series, links=links))

    def by(self, statistic: Statistic) -> Self:
        """Another statistic of the same observations."""
        return replace(self, statistic=statistic)

    def at(self, q: float) -> Self:
        """The quantile `q` of the same observations."""
        return self.by(Quantile(q))

    def spread(self, low: float = 0.05, high: float = 0.95) -> Measure:
        """Difference between two quantiles of the same observations."""
        return self.at(high) - self.at(low)


def median(terms: str | Mapping[str, float], *pages: str, in_rtts: bool = False) -> SeriesStatistic:
    """Median of a series, or of a sum of series within each round; by default on all pages with observations.

    Parameters
    ----------
    terms
        Name of a series, or a factor per series: `{"DoH exchange": 1, "DoQ exchange": -1}` is the difference.
    """
    factors = {terms: 1.0} if isinstance(terms, str) else terms
    return SeriesStatistic(Series(tuple(factors.items()), pages=pages or None, in_rtts=in_rtts), Quantile(0.5))


def maximum(parts: Iterable[Measure]) -> Measure:
    """The greatest of several statistics."""
    return Derived(lambda *xs: np.max(xs, axis=0), tuple(parts))


def minimum(parts: Iterable[Measure]) -> Measure:
    """The least of several statistics."""
    return Derived(lambda *xs: np.min(xs, axis=0), tuple(parts))


def mean(parts: Iterable[Measure]) -> Measure:
    """The mean of several statistics."""
    return Derived(lambda *xs: np.mean(xs, axis=0), tuple(parts))


def median_of(parts: Iterable[Measure]) -> Measure:
    """The median of several statistics."""
    return Derived(lambda *xs: np.median(xs, axis=0), tuple(parts))


def total(parts: Iterable[Measure]) -> Measure:
    """The sum of several statistics."""
    return Derived(lambda *xs: np.sum(xs, axis=0), tuple(parts))


# Statistics of a sample


@dataclass(frozen=True, slots=True)
class Quantile:
    """Statistic: the quantile `q`, from 0 (minimum) to 1 (maximum).

    The bootstrap gives no valid interval for minimum and maximum; for these, `resampling.beyond` computes the interval.
    """

    q: float

    def __call__(self, sample: Sample, weights: Counts | None) -> Estimate:
        """See `Statistic`."""
        value, draws, ends = sample.quantile(self.q), None, None
        needed = MIN_ROUNDS
        if 0 < self.q < 1 and self.q != 0.5:
            beyond_it = sample.size * min(self.q, 1 - self.q)
            needed = max(needed, math.ceil(sample.rounds * FEWEST_BEYOND / beyond_it))
        if weights is not None and 0 < self.q < 1:
            draws = sample.quantiles(self.q, weights) if sample.rounds >= needed else None
        elif weights is not None:
            ends = beyond(*sample.at(*((0, 1) if self.q == 0 else (sample.size - 1, sample.size - 2))))
        return Estimate(value, sample.size, sample.rounds, draws, ends, needed)


@dataclass(frozen=True, slots=True)
class Moment:
    """Statistic: the mean, or the unbiased variance; the variance has the square of the observations' unit."""

    name: str
    """One of `crosslayer.metrics.paced.STATISTICS`."""

    def __call__(self, sample: Sample, weights: Counts | None) -> Estimate:
        """See `Statistic`."""
        order = np.argsort(sample.values)  # sums of floating-point numbers depend on their order
        result = metrics.estimate(sample.values[order], sample.clusters[order], self.name, weights)
        return replace(result, rounds=sample.rounds)


@dataclass(frozen=True, slots=True)
class Share:
    """Statistic: the percentage of the observations that satisfy a condition."""

    holds: Callable[[Any], Any]
    """Function from an array of observations to an array of booleans."""

    def __call__(self, sample: Sample, weights: Counts | None) -> Estimate:
        """See `Statistic`."""
        held = np.asarray(self.holds(sample.values), dtype=np.float64)
        share = float(held.mean() * 100)
        draws, ends = None, None
        if weights is not None and share in (0.0, 100.0):
            # All observations are equal, so nothing varies between rounds: the interval of Clopper and Pearson (1934).
            reach = 100 * (1 - ((1 - LEVEL) / 2) ** (1 / sample.size))
            ends = (0.0, reach) if share == 0 else (100 - reach, 100.0)
        if weights is not None and sample.rounds >= ROUNDS_OF_MOMENTS:
            counts = (np.bincount(sample.clusters, of, minlength=weights.shape[1]) for of in (held, None))
            with np.errstate(invalid="ignore"):
                some, every = (weighted_sums(weights, count) for count in counts)
                draws = some / every * 100
        return Estimate(share, sample.size, sample.rounds, draws, ends, ROUNDS_OF_MOMENTS)
