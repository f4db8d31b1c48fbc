"""How often the intervals in use hold the truth, against the table in docs/reference/statistics.md."""

from __future__ import annotations

import pytest

import interval_coverage

TRIALS = 60
SAME = 8.0
"""Percentage points: nearly three standard errors of that many trials at 95 %."""


def test_every_kind_of_interval_holds_what_it_promises() -> None:
    """Of 1,000 trials; renewed by `python -m tests.interval_coverage`."""
    result = interval_coverage.documented()
    assert list(result) == list(interval_coverage.KINDS)
    lowest, highest = interval_coverage.LOWEST, interval_coverage.HIGHEST
    assert {kind: percent for kind, percent in result.items() if not lowest <= percent <= highest} == {}


@pytest.mark.slow
@pytest.mark.parametrize("kind", interval_coverage.KINDS)
def test_coverage_is_what_the_documentation_says(kind: str) -> None:
    documented = interval_coverage.documented()[kind]
    assert interval_coverage.coverage_percent(kind, TRIALS) == pytest.approx(documented, abs=SAME)
