"""Coverage of the project's intervals: the share of simulated campaigns whose interval contains the true value.

`python -m tests.interval_coverage` updates the table in docs/reference/statistics.md.

In most simulated campaigns, all observations of a round share a random component. In addition, each observation has its
own random component. Both are log-normal, i.e. with a long right tail, like durations on a shared machine.

A function of type `Draw` draws an array of `rounds` rows with `each` observations. A function of type `Measured`
simulates a campaign and returns an estimate, with an interval if `interval` is true.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.claims.measures import Moment, Quantile, Share
from crosslayer.metrics.resampling import Estimate, Sample, derived, drawn

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "statistics.md"
TRIALS = 1000
"""Simulated campaigns per row of the table. A coverage of 95 % then has a standard error of 0.7 percentage points."""
LOWEST, HIGHEST = 93, 97
"""Allowed range of the coverage of a 95 % interval, percent."""
_MANY = 60_000
_ROW = re.compile(r"^\| (.+?) \| (\d+) % \|", re.MULTILINE)

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
Measured = Callable[[np.random.Generator, int, int, bool], Estimate]


def durations(draw: np.random.Generator, rounds: int, each: int, tail: float = 1.0) -> np.ndarray:
    """Draw durations, each the sum of a constant, a component of its round and a component of its own.

    Both components are log-normal; `tail` is the standard deviation of their logarithms.
    """
    return 10 + 0.3 * draw.lognormal(0, tail, (rounds, 1)) + draw.lognormal(0, tail, (rounds, each))


paced = partial(durations, tail=0.7)
"""Draw durations like those of paced queries.

Their kurtosis is 18. In data/raw/authoritative, `response_ms` on kept connections has a kurtosis of 15 (median over
links and transports).
"""


def differences(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Draw differences of two conditions in the same round; their true median is 1."""
    return 1 + durations(draw, rounds, each) - durations(draw, rounds, each)


def with_an_edge(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Draw durations of at least 10, most of them near 10, like round-trips of 10 plus a processing time."""
    return 10 + draw.exponential(1, (rounds, each))


def one(of: Draw, statistic: Callable[..., Estimate]) -> Measured:
    """Make a function that simulates a campaign of one condition, drawn by `of`, and estimates a statistic of it."""

    def measured(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
        clusters = np.repeat(np.arange(rounds), each)
        weights = np.concatenate(list(drawn(rounds))) if interval else None
        return statistic(Sample(of(draw, rounds, each).ravel(), clusters), weights)

    return measured


def several(function: Callable[..., object], *levels: float, of: Draw, statistic: Callable[..., Estimate]) -> Measured:
    """Make a function that simulates a campaign of several conditions and estimates `function` of their statistics.

    Each condition has the same statistic and one of the `levels`. Its observations are those of `of`, multiplied by
    its level, plus a component that all conditions of the round share.
    """

    def measured(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
        common = draw.lognormal(0, 0.5, (rounds, 1))
        parts = [
            one(lambda *size, level=level: common + level * of(*size), statistic)(draw, rounds, each, interval)
            for level in levels
        ]
        return derived(function, *parts)

    return measured


def slope(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
    """Simulate a campaign and estimate the slope of the line through the medians at five positions; it is 1."""
    values = [durations(draw, rounds, each).ravel() + x for x in range(5)]
    frame = pl.LazyFrame(
        {
            "campaign": "c",
            "host": "",
            "round": np.tile(np.repeat(np.arange(rounds), each), 5),
            "group": np.repeat(np.arange(5), rounds * each),
            "x": np.repeat(np.arange(5.0), rounds * each),
            "y": np.concatenate(values),
        }
    )
    actual = metrics.line(frame, "x", "y", ["group"], resamples=1000 if interval else 0)
    assert actual is not None
    return actual[0]


def by_ranks(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
    """Simulate a campaign and estimate the median. As in charts, its interval is from ranks, not from the bootstrap."""
    values = durations(draw, rounds, 1).ravel()
    row = metrics.summary(pl.LazyFrame({"g": "g", "v": values}), "v", ["g"]).collect().row(0, named=True)
    return Estimate(row["median"], rounds, rounds, ends=(row["low"], row["high"]) if interval else None)


def _distance(upper: object, lower: object) -> object:
    return upper - lower  # type: ignore[operator]


@dataclass(frozen=True)
class Kind:
    """A kind of interval, and the size of the campaigns in which its coverage is determined."""

    measured: Measured
    rounds: int
    each: int = 1
    truth: float | None = None
    """True value. None: it is estimated from campaigns with very many rounds."""


KINDS: dict[str, Kind] = {
    "median, 32 rounds": Kind(one(durations, Quantile(0.5)), 32),
    "median, 32 rounds of 15": Kind(one(durations, Quantile(0.5)), 32, 15),
    "median, 6 rounds": Kind(one(durations, Quantile(0.5)), 6),
    "median, 6 rounds of 12": Kind(one(durations, Quantile(0.5)), 6, 12),
    "median by its ranks (charts), 32 rounds": Kind(by_ranks, 32),
    "median of paired differences, 32 rounds": Kind(one(differences, Quantile(0.5)), 32),
    "median of paired differences, 6 rounds": Kind(one(differences, Quantile(0.5)), 6),
    "ratio of two medians, 32 rounds": Kind(
        several(lambda x, y: x / y, 1.2, 1.0, of=durations, statistic=Quantile(0.5)), 32
    ),
    "mean of five medians, 32 rounds": Kind(
        several(lambda *xs: np.mean(xs, axis=0), 1, 1, 2, 3, 5, of=durations, statistic=Quantile(0.5)), 32
    ),
    "maximum of five medians, 32 rounds": Kind(
        several(lambda *xs: np.max(xs, axis=0), 1, 1, 2, 3, 5, of=durations, statistic=Quantile(0.5)), 32
    ),
    "slope of a line through five medians, 20 rounds of 3": Kind(slope, 20, 3, 1.0),
    "P25, 32 rounds": Kind(one(durations, Quantile(0.25)), 32),
    "P5, 32 rounds of 3": Kind(one(durations, Quantile(0.05)), 32, 3),
    "P95, 32 rounds of 3": Kind(one(durations, Quantile(0.95)), 32, 3),
    "P99, 200 rounds of 3": Kind(one(durations, Quantile(0.99)), 200, 3),
    "minimum of a distribution with an edge, 32 rounds of 3": Kind(one(with_an_edge, Quantile(0)), 32, 3, 10.0),
    "share, 32 rounds of 10": Kind(one(durations, Share(lambda ms: ms > 12)), 32, 10),
    "mean, 32 rounds of 16": Kind(one(paced, Moment("mean")), 32, 16),
    "variance, 32 rounds of 16": Kind(one(paced, Moment("variance")), 32, 16),
    "difference of two variances, 32 rounds of 16": Kind(
        several(_distance, 1.5, 1.0, of=paced, statistic=Moment("variance")), 32, 16
    ),
}


def coverage_percent(name: str, trials: int = TRIALS) -> float:
    """Share of simulated campaigns whose interval contains the true value, percent. `name` is a key of `KINDS`."""
    kind = KINDS[name]
    truth = kind.truth
    if truth is None:
        many = max(1, _MANY // kind.each)
        truth = float(
            np.mean([kind.measured(np.random.default_rng(n), many, kind.each, False).value for n in range(8)])
        )
    draw, hits = np.random.default_rng(12), 0
    for _ in range(trials):
        low, high = kind.measured(draw, kind.rounds, kind.each, True).interval  # type: ignore[misc]
        hits += low <= truth <= high
    return 100 * hits / trials


def documented() -> dict[str, float]:
    """Coverage by kind of interval, percent, as docs/reference/statistics.md states it."""
    return {kind: float(percent) for kind, percent in _ROW.findall(DOCUMENT.read_text(encoding="utf-8"))}


def renew() -> None:
    """Determine the coverage of every kind, and write the table in docs/reference/statistics.md."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("|---|---|\n")
    after = _ROW.sub("", rest).lstrip("\n")
    rows = [f"| {name} | {coverage_percent(name):.0f} % |\n" for name in KINDS]
    DOCUMENT.write_text(f"{before}|---|---|\n{''.join(rows)}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    renew()
