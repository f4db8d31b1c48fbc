"""Orderings judged jointly: simulated error rates and power, as `docs/reference/statistics.md` states them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from crosslayer.claims import rules
from crosslayer.claims.measures import CustomMeasure, Measure
from crosslayer.metrics.resampling import Estimate, drawn, reach, student_reach

ROUNDS, CAMPAIGNS = 24, 200
SHARED = {"independent": 0.0, "half shared": 0.5}
"""Share of a margin's variance that all margins of a round have in common, as margins with one baseline have."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "statistics.md"


def verdicts(margins: int, errors: float, shared: float, *, enough: int | None = None, wrong: int = 0) -> Counter[str]:
    """Verdicts on an ordering in simulated campaigns, percent.

    Parameters
    ----------
    margins
        How many comparisons it has.
    errors
        How far each true margin is above 0, in standard errors of its mean; of the last `wrong` ones below it.
    shared
        One of `SHARED`.
    """
    draw = np.random.default_rng(35)
    [weights] = drawn(ROUNDS)
    truth = np.full(margins, errors / np.sqrt(ROUNDS))
    truth[margins - wrong :] *= -1
    rule, counted = rules.Ordering(unit="ms", enough=enough), Counter[str]()
    for _ in range(CAMPAIGNS):
        common = draw.normal(size=(ROUNDS, 1))
        rounds = truth + np.sqrt(shared) * common + np.sqrt(1 - shared) * draw.normal(size=(ROUNDS, margins))
        resampled = weights @ rounds / ROUNDS
        counted[rule.judge(as_margins(rounds.mean(axis=0), resampled), None, None).verdict] += 1  # type: ignore[arg-type]
    return Counter({verdict: round(100 * count / CAMPAIGNS) for verdict, count in counted.items()})


def as_margins(means: np.ndarray, resampled: np.ndarray) -> dict[str, Measure]:
    def measure(number: int) -> Measure:
        estimate = Estimate(float(means[number]), ROUNDS, ROUNDS, resampled[:, number])
        return CustomMeasure(lambda observed: estimate)

    return {str(number): measure(number) for number in range(len(means))}


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("margins", [1, 5, 30])
def test_equal_things_are_refuted_in_at_most_5_percent(margins: int, shared: float) -> None:
    judged = verdicts(margins, 0.0, shared)
    assert judged["not reproduced"] <= 5
    assert judged["reproduced"] <= 5


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_most_of_equal_things_prove_nothing(shared: float) -> None:
    judged = verdicts(14, 0.0, shared, enough=12)
    assert judged["not reproduced"] <= 5
    assert judged["reproduced"] <= 5


@pytest.mark.slow
def test_one_margin_of_30_that_is_wrong_is_detected() -> None:
    judged = verdicts(30, 6.0, 0.0, wrong=1)
    assert judged["not reproduced"] >= 95
    assert judged["reproduced"] == 0


def power_table() -> list[str]:
    """Rows of the table in the document: how often true orderings are reproduced."""
    return [
        f"| {margins} | {errors} | "
        + " | ".join(f"{verdicts(margins, errors, s)['reproduced']}" for s in SHARED.values())
        + " |"
        for margins in (1, 5, 30)
        for errors in (3, 4, 5)
    ]


@pytest.mark.slow
def test_the_document_states_the_power() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [row for row in power_table() if row not in text]
    assert missing == []


def test_a_critical_value_far_out_is_a_number() -> None:
    assert student_reach(12, 9.0) > 9.0
    assert student_reach(12, NormalDist().inv_cdf(0.975)) == reach(12)
