"""Coverage of the project's intervals, determined in simulated campaigns.

`python -m tests.interval_coverage` updates the table in docs/reference/statistics.md.

In a simulated campaign, the observations of a round have a common component. Each observation has a log-normal right
tail, like durations on a shared machine.
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
"""Simulated campaigns per row of the table; at 95 %, the standard error is 0.7 percentage points."""
LOWEST, HIGHEST = 93, 97
"""Allowed range of the coverage of a 95 % interval, percent."""
_MANY = 60_000
_ROW = re.compile(r"^\| (.+?) \| (\d+) % \|", re.MULTILINE)

Draw = Callable[[np.random.Generator, int, int], np.ndarray]
Measured = Callable[[np.random.Generator, int, int, bool], Estimate]


def durations(draw: np.random.Generator, rounds: int, each: int, tail: float = 1.0) -> np.ndarray:
    """Durations with a component common to the round and a right tail of each observation."""
    return 10 + 0.3 * draw.lognormal(0, tail, (rounds, 1)) + draw.lognormal(0, tail, (rounds, each))


paced = partial(durations, tail=0.7)
"""Durations like those of paced queries: kurtosis 21; median on kept connections of the committed campaign: 16."""


def differences(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Differences of two conditions of the same round."""
    return 1 + durations(draw, rounds, each) - durations(draw, rounds, each)


def with_an_edge(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Durations of at least 10, most of them near 10: round-trips plus processing."""
    return 10 + draw.exponential(1, (rounds, each))


def one(of: Draw, statistic: Callable[..., Estimate]) -> Measured:
    """A statistic of one condition."""

    def measured(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
        clusters = np.repeat(np.arange(rounds), each)
        weights = np.concatenate(list(drawn(rounds))) if interval else None
        return statistic(Sample(of(draw, rounds, each).ravel(), clusters), weights)

    return measured


def several(function: Callable[..., object], *levels: float, of: Draw, statistic: Callable[..., Estimate]) -> Measured:
    """A function of one statistic of several conditions of the same rounds, each scaled by its level."""

    def measured(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
        common = draw.lognormal(0, 0.5, (rounds, 1))
        parts = [
            one(lambda *size, level=level: common + level * of(*size), statistic)(draw, rounds, each, interval)
            for level in levels
        ]
        return derived(function, *parts)

    return measured


def slope(draw: np.random.Generator, rounds: int, each: int, interval: bool) -> Estimate:
    """Slope of the line through the medians at five positions."""
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
    """Median with an interval from ranks, as in charts, which need no bootstrap."""
    values = durations(draw, rounds, 1).ravel()
    row = metrics.summary(pl.LazyFrame({"g": "g", "v": values}), "v", ["g"]).collect().row(0, named=True)
    return Estimate(row["median"], rounds, rounds, ends=(row["low"], row["high"]) if interval else None)


def _distance(upper: object, lower: object) -> object:
    return upper - lower  # type: ignore[operator]


@dataclass(frozen=True)
class Kind:
    """A kind of interval at a size in use."""

    measured: Measured
    rounds: int
    each: int = 1
    truth: float | None = None
    """True value if it is known; else the value from very many rounds is used."""


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
    """Share of simulated campaigns whose interval contains the true value."""
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
    """Coverage by kind, from the table in the document."""
    return {kind: float(percent) for kind, percent in _ROW.findall(DOCUMENT.read_text(encoding="utf-8"))}


def renew() -> None:
    """Update the table in the document."""
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition("|---|---|\n")
    after = _ROW.sub("", rest).lstrip("\n")
    rows = [f"| {name} | {coverage_percent(name):.0f} % |\n" for name in KINDS]
    DOCUMENT.write_text(f"{before}|---|---|\n{''.join(rows)}\n{after}", encoding="utf-8")


if __name__ == "__main__":
    renew()
