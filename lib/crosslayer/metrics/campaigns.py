"""Prediction interval for the value of a further campaign: a random-effects model, fitted by the method of moments."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from crosslayer.metrics.resampling import LEVEL, reach


@dataclass(frozen=True, slots=True)
class FurtherCampaign:
    """Mean of the values of several campaigns, and the prediction interval for a further campaign."""

    mean: float
    campaigns: int
    low: float
    high: float
    between: float
    """Standard deviation of the effects of campaigns; 0 if the errors within campaigns explain all variation."""

    def holds(self, value: float) -> bool:
        """Whether the prediction interval contains a value."""
        return self.low <= value <= self.high


def further_campaign(
    values: Sequence[float], errors: Sequence[float] = (), *, resolution: float = 0.0, level: float = LEVEL
) -> FurtherCampaign | None:
    """Prediction interval for the value of a further campaign; None for a single campaign.

    A campaign's value is the true mean, plus an effect of the campaign (day, seed, revision), plus the error of its own
    rounds. The sample variance of the values contains the effects and the errors. The interval uses the larger of this
    variance and the mean of the squared `errors`, because the values of a few campaigns (fewer than five) may agree by
    chance. The sample variance minus this mean is the variance between campaigns (Hedges, Psychological Bulletin 93,
    1983). The interval uses the quantile of Student's t (Whitmore, The American Statistician 40, 1986).

    Parameters
    ----------
    values
        One value of each campaign.
    errors
        Standard error of each value within its campaign; empty if unknown, e.g. in virtual time, where a cell has too
        few guests.
    resolution
        Minimum distance of each end of the interval from the mean, e.g. the resolution of a clock.
    level
        Probability that the interval contains the value.
    """
    campaigns = len(values)
    if campaigns < 2:
        return None
    mean = statistics.fmean(values)
    total = statistics.variance(values)
    within = statistics.fmean(error**2 for error in errors) if errors else 0.0
    reached = student_t(campaigns - 1, level) * math.sqrt(max(total, within) * (1 + 1 / campaigns))
    distance = max(reached, resolution)
    return FurtherCampaign(mean, campaigns, mean - distance, mean + distance, math.sqrt(max(0.0, total - within)))


def standard_error(low: float, high: float, rounds: int) -> float:
    """Standard error of a value, computed from the ends of its 95 % interval and its number of rounds."""
    return (high - low) / 2 / reach(rounds)


def student_t(degrees: int, level: float) -> float:
    """Two-sided quantile of Student's t: |t| is below the quantile with probability `level`.

    It is also exact for few degrees of freedom.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < level else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    """Probability that |t| is below sqrt(degrees) times the tangent of an angle (Abramowitz and Stegun, 26.7.3/4)."""
    cosine, sine, odd = math.cos(angle), math.sin(angle), degrees % 2
    term, terms = (cosine, 0.0) if odd else (1.0, 0.0)
    for step in range(odd + 1, degrees, 2):
        terms += term
        term *= cosine**2 * step / (step + 1)
    return 2 / math.pi * (angle + sine * terms) if odd else sine * terms
