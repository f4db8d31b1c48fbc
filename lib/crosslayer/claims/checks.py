"""The kinds of checks: a number, a bound, an ordering, and what cannot be checked; each gives one `Outcome`.

A check asks an `Observed` for estimates and never looks at a table itself. It may raise `NotMeasured`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from crosslayer.claims.measures import Margins, Measure
from crosslayer.claims.observed import NotMeasured, Observed
from crosslayer.claims.tolerances import ROUND_TRIP_SLACK, Tolerance
from crosslayer.metrics.resampling import MIN_ROUNDS, Estimate, derived


class Verdict(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    DIRECTION_ONLY = "direction only"
    NOT_REPRODUCED = "not reproduced"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check."""

    verdict: Verdict
    why: str
    """One sentence."""
    estimate: Estimate | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A duration has the published direction where it takes this many round-trips, and less than one more."""

    least: int

    def holds(self, ours: Estimate, published: float) -> bool:
        """True for the same number of whole round-trips."""
        del published
        return self.least - ROUND_TRIP_SLACK <= ours.value < self.least + 1

    @property
    def text(self) -> str:
        """As part of a sentence."""
        return f"still {self.least} to {self.least + 1} round-trips"


@dataclass(frozen=True, slots=True)
class Sign:
    """A difference has the published direction where it has the published sign, and its interval excludes 0."""

    def holds(self, ours: Estimate, published: float) -> bool:
        """True for the same sign beyond doubt; without an interval for the same sign."""
        low, high = ours.interval or (ours.value, ours.value)
        return low > 0 if published > 0 else published < 0 and high < 0

    @property
    def text(self) -> str:
        """As part of a sentence."""
        return "the sign is the published one"


class Check(Protocol):
    """What every kind of check has."""

    @property
    def criterion(self) -> str:
        """What makes the claim reproduced, in a few words."""
        ...

    @property
    def remark(self) -> str:
        """What a reader must know beside the published note."""
        ...

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """Hold the published value against a campaign."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A published number, with a tolerance."""

    measure: Measure
    tolerance: Tolerance
    unit: str
    direction: RoundTrips | Sign | None = None
    published: float | None = None
    """Where the claim is in words ("approximately equal") or its value is no plain number."""
    if_not: str = ""
    """Why it may well differ; said where it does."""
    remark: str = ""

    @property
    def criterion(self) -> str:
        """The tolerance in words."""
        t = self.tolerance
        unit = spaced(self.unit)
        parts = [f"{t.share:.0%}".replace("33%", "a third")] if t.share else []
        parts += [f"at least {t.at_least:.3g}{unit}" if t.share else f"{t.at_least:.3g}{unit}"] if t.at_least else []
        parts += [f"at most {t.at_most:.3g}{unit}"] if t.at_most < float("inf") else []
        return f"within {', '.join(parts)}" if parts else "exactly"

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """See `Check`."""
        target = self.published if self.published is not None else published
        if target is None:
            raise NotMeasured("the published value is not a number")
        ours = self.measure(observed)
        allowed = self.tolerance.allowed(target)
        distance = ours.value - target
        unit = spaced(self.unit)
        said = f"{number(ours.value)} against {number(target)}{unit}"
        beyond = f"{number(abs(distance))}{unit} {'above' if distance > 0 else 'below'}, {number(allowed)} allowed"
        if abs(distance) <= allowed * (1 + 1e-9):
            verdict, text = Verdict.REPRODUCED, f"{said}: {beyond}" if distance else f"{said}: equal"
            if ours.interval and not (target - allowed <= ours.interval[0] and ours.interval[1] <= target + allowed):
                text += "; the interval reaches beyond"
        elif self.direction is not None and self.direction.holds(ours, target):
            verdict, text = Verdict.DIRECTION_ONLY, f"{said}: {beyond}; {self.direction.text}"
        else:
            verdict, text = Verdict.NOT_REPRODUCED, f"{said}: {beyond}"
        return _outcome(verdict, text, ours, self.unit, self.if_not)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A statement that something is above or below a value."""

    measure: Measure
    above: float | None = None
    below: float | None = None
    tolerance: Tolerance
    """On the wrong side, but this close, is the direction only."""
    unit: str
    if_not: str = ""
    remark: str = ""

    @property
    def criterion(self) -> str:
        """The bound in words."""
        side, bound = ("above", self.above) if self.above is not None else ("below", self.below)
        return f"95 % interval {side} {bound:g}{spaced(self.unit)}"

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """See `Check`."""
        del published
        ours = self.measure(observed)
        above = self.above is not None
        bound = self.above if self.above is not None else self.below
        if bound is None:
            raise ValueError("a Bound is above or below something")
        margin = derived(lambda x: x - bound if above else bound - x, ours)
        said = f"{number(ours.value)}{spaced(self.unit)}, claimed {'above' if above else 'below'} {bound:g}"
        if _beyond_doubt(margin):
            return _outcome(Verdict.REPRODUCED, said, ours, self.unit, "")
        if margin.value > 0:
            doubt = "the interval reaches the bound" if margin.interval else "no interval to be sure of it"
            return _outcome(Verdict.DIRECTION_ONLY, f"{said}; {doubt}", ours, self.unit, self.if_not)
        if -margin.value <= self.tolerance.allowed(bound):
            return _outcome(Verdict.DIRECTION_ONLY, f"{said}; close to it", ours, self.unit, self.if_not)
        return _outcome(Verdict.NOT_REPRODUCED, said, ours, self.unit, self.if_not)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """A statement that some things are greater than others: every comparison is a margin that must be above 0.

    All comparisons must hold beyond doubt (each 95 % interval excludes 0); no correction for their number is needed,
    since it is the weakest that decides (an intersection-union test).
    """

    margins: Margins
    """By name, what is claimed to be above 0."""
    unit: str
    enough: int | None = None
    """How many must hold where the claim says "most"; None for all."""
    criterion: str = "95 % interval of each paired difference excludes 0"
    if_not: str = ""
    remark: str = ""

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """See `Check`."""
        del published
        margins = self.margins(observed)
        enough = self.enough or len(margins)
        sure = sum(_beyond_doubt(margin) for margin in margins.values())
        right = sum(margin.value > 0 for margin in margins.values())
        by_strength = sorted(margins.items(), key=lambda item: _lower_end(item[1]), reverse=True)
        name, deciding = by_strength[enough - 1]
        if len(margins) == 1:
            said = f"{name}: {signed(deciding.value)}{spaced(self.unit)}"
            said += "" if sure or not right else ", not beyond doubt"
        else:
            said = f"{right} of {len(margins)} comparisons as claimed, {sure} beyond doubt"
            which = "weakest" if enough == len(margins) else f"{enough} needed, that one"
            said += f"; {which} {name}: {signed(deciding.value)}{spaced(self.unit)}"
        if sure >= enough:
            return _outcome(Verdict.REPRODUCED, said, deciding, self.unit, "")
        verdict = Verdict.DIRECTION_ONLY if right >= enough else Verdict.NOT_REPRODUCED
        return _outcome(verdict, said, deciding, self.unit, self.if_not)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A statement about the shape of a distribution: a share that must reach a level."""

    measure: Measure
    """The share that decides."""
    level: float
    direction: Measure
    """Above 0 where at least the direction is right."""
    unit: str
    criterion: str
    said: str
    """What the share is, as the start of a sentence."""
    remark: str = ""

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """See `Check`."""
        del published
        ours = self.measure(observed)
        said = f"{self.said} {number(ours.value)}{spaced(self.unit)}, {self.level:g} needed"
        if ours.value >= self.level:
            return _outcome(Verdict.REPRODUCED, said, ours, self.unit, "")
        right = self.direction(observed).value > 0
        verdict = Verdict.DIRECTION_ONLY if right else Verdict.NOT_REPRODUCED
        return _outcome(verdict, said, ours, self.unit, "")


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A claim that this study cannot check."""

    reason: str
    criterion: str = ""
    remark: str = ""

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """See `Check`."""
        raise NotMeasured(self.reason)


def _beyond_doubt(margin: Estimate) -> bool:
    """Above 0 with 95 %; a statistic that cannot have an interval is taken at its word if there are rounds enough."""
    if margin.interval is not None:
        return margin.interval[0] > 0
    return margin.value > 0 and margin.rounds >= MIN_ROUNDS


def _lower_end(margin: Estimate) -> float:
    return margin.interval[0] if margin.interval else margin.value


def _outcome(verdict: Verdict, said: str, ours: Estimate, unit: str, if_not: str) -> Outcome:
    text = said
    if ours.rounds < MIN_ROUNDS:
        text += f" ({ours.rounds} rounds give no interval)"
    text += "."
    if if_not and verdict is not Verdict.REPRODUCED:
        text += f" {if_not}"
    return Outcome(verdict, text, ours, unit)


def spaced(unit: str) -> str:
    """The unit with the space before it; nothing for a bare number."""
    return f" {unit}" if unit else ""


def number(value: float) -> str:
    """A number with the digits the papers print: two decimals, one from 100, none from 1000, up to 4 below 0.1."""
    size = abs(value)
    if value == round(value) or size >= 1000:
        return f"{value:.0f}"
    if size < 0.1:
        return f"{value:.4f}".rstrip("0").removesuffix(".")
    return f"{value:.{1 if size >= 100 else 2}f}"


def signed(value: float) -> str:
    """A number with its sign."""
    return ("+" if value > 0 else "") + number(value)
