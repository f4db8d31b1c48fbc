"""How often the intervals in use hold the truth, against the table in docs/statistics.md.

Campaigns are simulated: each round adds something common to its observations, and each observation has a right tail
(log-normal), as durations on a shared machine do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from crosslayer.claims.measures import Moment, Quantile, Share
from crosslayer.metrics.resampling import Estimate, Sample, drawn

DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
TRIALS = 500
SAME = 4.0
"""Percentage points: two standard errors of that many trials are 2 at 95 %, and 4 at 60 %."""

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def durations(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Something common to a round, and a right tail of each observation."""
    return 10 + 0.3 * draw.lognormal(0, 1, (rounds, 1)) + draw.lognormal(0, 1, (rounds, each))


def differences(draw: np.random.Generator, rounds: int, each: int) -> np.ndarray:
    """Of two conditions in the same round: what they have in common cancels."""
    return 1 + durations(draw, rounds, each) - durations(draw, rounds, each)


KINDS: dict[str, tuple[Draw, object, int, int]] = {
    "median, 32 rounds": (durations, Quantile(0.5), 32, 1),
    "median, 32 rounds of 15": (durations, Quantile(0.5), 32, 15),
    "median, 6 rounds": (durations, Quantile(0.5), 6, 1),
    "median, 6 rounds of 12": (durations, Quantile(0.5), 6, 12),
    "median of paired differences, 32 rounds": (differences, Quantile(0.5), 32, 1),
    "median of paired differences, 6 rounds": (differences, Quantile(0.5), 6, 1),
    "P5, 32 rounds of 3": (durations, Quantile(0.05), 32, 3),
    "P95, 32 rounds of 3": (durations, Quantile(0.95), 32, 3),
    "P99, 32 rounds of 3": (durations, Quantile(0.99), 32, 3),
    "least observation, 32 rounds of 3": (durations, Quantile(0), 32, 3),
    "share, 6 rounds of 10": (durations, Share(lambda ms: ms > 12), 6, 10),
    "mean, 8 rounds of 16": (durations, Moment("mean"), 8, 16),
    "variance, 8 rounds of 16": (durations, Moment("variance"), 8, 16),
}


def estimate(of: Draw, statistic: object, draw: np.random.Generator, rounds: int, each: int) -> Estimate:
    [weights] = list(drawn(rounds, rounds * each))
    values = of(draw, rounds, each)
    return statistic(Sample(values.ravel(), np.repeat(np.arange(rounds), each)), weights)  # type: ignore[operator,no-any-return]


@cache
def coverage_percent(kind: str) -> float:
    of, statistic, rounds, each = KINDS[kind]
    # The least that there can be is known; everything else is taken from a campaign of very many rounds.
    truth = (
        10.0
        if statistic == Quantile(0)
        else statistic(
            Sample(of(np.random.default_rng(1), 100_000, each).ravel(), np.zeros(100_000 * each, dtype=np.intp)), None
        ).value
    )  # type: ignore[operator]
    draw, hits = np.random.default_rng(12), 0
    for _ in range(TRIALS):
        low, high = estimate(of, statistic, draw, rounds, each).interval  # type: ignore[misc]
        hits += low <= truth <= high
    return 100 * hits / TRIALS


def documented() -> dict[str, float]:
    rows = re.findall(r"^\| (.+?) \| (\d+) % \|", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    return {kind: float(percent) for kind, percent in rows}


def test_every_kind_of_interval_is_documented() -> None:
    assert list(documented()) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_coverage_is_what_the_documentation_says(kind: str) -> None:
    assert coverage_percent(kind) == pytest.approx(documented()[kind], abs=SAME)


if __name__ == "__main__":
    for name in KINDS:
        print(f"| {name} | {coverage_percent(name):.0f} % |")
