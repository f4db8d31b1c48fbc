"""A claim as a check, and the kinds of rules it is judged by: a number, a bound, an ordering, a share of a shape.

    claim("T058", "On fiber, 0-RTT connects 0.38 RTT sooner", connect("1-RTT").on("fiber") - ..., in_rtts)

A rule asks an `Observed` for estimates and never looks at a table itself. It may raise `NotMeasured`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from crosslayer.claims.measures import Measure
from crosslayer.claims.observed import NotMeasured, Observed
from crosslayer.claims.rules import OVERHEAD, ROUND_TRIP_SLACK, Tolerance
from crosslayer.metrics.resampling import MIN_ROUNDS, Estimate, derived

Margins = Mapping[str, Measure] | Callable[[Observed], Mapping[str, Measure]]
"""By name, what is claimed to be above 0; a function where the names depend on the campaign."""


class Verdict(StrEnum):
    """What became of a claim."""

    REPRODUCED = "reproduced"
    DIRECTION_ONLY = "direction only"
    INCONCLUSIVE = "inconclusive"
    NOT_REPRODUCED = "not reproduced"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check."""

    verdict: Verdict
    why: str
    """One sentence."""
    before: Verdict = Verdict.NOT_MEASURED
    """By version 1 of the rules."""
    estimate: Estimate | None = None
    unit: str = ""
    round_trips: str = ""
    """Whether a duration has the published number of whole round-trips: yes, no, inconclusive; empty for all else."""
    overhead: str = ""
    """The same of what it takes beyond them."""


class Place(StrEnum):
    """Where a 95 % interval lies."""

    INSIDE = "yes"
    ACROSS = "inconclusive"
    OUTSIDE = "no"


def place(ours: Estimate, low: float, high: float) -> Place:
    """Whether an estimate lies between two values; one that cannot have an interval is taken at its word."""
    ends = ours.interval or (ours.value, ours.value)
    if not ours.enough or not ((low <= ends[0] and ends[1] <= high) or ends[1] < low or ends[0] > high):
        return Place.ACROSS
    return Place.INSIDE if low <= ends[0] <= high else Place.OUTSIDE


def above_0(margin: Estimate) -> Place:
    """Whether a margin is above 0, beyond doubt."""
    least = float(np.nextafter(0, 1))
    return place(margin, least, math.inf)


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """A duration has the published direction where it takes this many round-trips, and less than one more."""

    least: int

    @property
    def range(self) -> tuple[float, float]:
        """From where to where it takes this many."""
        return self.least - ROUND_TRIP_SLACK, float(np.nextafter(self.least + 1, 0))

    def holds(self, ours: Estimate, published: float) -> bool:
        """True for the same number of whole round-trips, beyond doubt."""
        del published
        return place(ours, *self.range) is Place.INSIDE

    def held(self, ours: Estimate, published: float) -> bool:
        """The same by version 1 of the rules: of the point estimate."""
        del published
        return self.range[0] <= ours.value <= self.range[1]

    @property
    def text(self) -> str:
        """As part of a sentence."""
        return f"still {self.least} to {self.least + 1} round-trips"


@dataclass(frozen=True, slots=True)
class Sign:
    """A difference has the published direction where it has the published sign, and its interval excludes 0."""

    def holds(self, ours: Estimate, published: float) -> bool:
        """True for the same sign beyond doubt; of a statistic that has no interval for the same sign."""
        low, high = ours.interval or (ours.value, ours.value)
        return low > 0 if published > 0 else published < 0 and high < 0

    held = holds

    @property
    def text(self) -> str:
        """As part of a sentence."""
        return "the sign is the published one"


class Rule(Protocol):
    """How a claim is judged."""

    @property
    def criterion(self) -> str:
        """What makes the claim reproduced, in a few words."""
        ...

    def judge(self, of: Any, observed: Observed, published: float | None) -> Outcome:
        """Hold the published value against a campaign; `of` is the measure, or the margins of an ordering."""
        ...


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a result differs, with the numbers of the campaign that bear it out."""

    text: str
    """`{0}` stands for the first number, and so on."""
    numbers: tuple[Measure, ...]

    def said(self, observed: Observed) -> str:
        """The cause with its numbers; where this campaign has not got them it is called the guess that it is."""
        try:
            found = [number(measure(observed).value) for measure in self.numbers]
        except NotMeasured:
            return f"A guess, for which this campaign lacks the numbers: {self.text.format(*['?'] * len(self.numbers))}"
        return self.text.format(*found)


@dataclass(frozen=True, slots=True)
class Check:
    """A claim, what is measured of it, and how it is judged."""

    claim: str
    """Identifier in `data/published/claims.csv`."""
    sentence: str
    """What the paper says, in our words."""
    of: Measure | Margins | str
    """What is measured, or why it cannot be."""
    rule: Rule | None = None
    cause: Cause | str = ""
    """Why it may well differ: said where it does. A text without numbers of ours calls itself a guess."""
    remark: str = ""
    """What a reader must know beside the published note."""
    follows_from: str = ""
    """Where another result makes this one true or false: which, or what does."""

    @property
    def criterion(self) -> str:
        """What makes the claim reproduced, in a few words."""
        return self.rule.criterion if self.rule else ""

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """Hold the published value against a campaign.

        Raises
        ------
        NotMeasured
            With the reason.
        """
        if self.rule is None:
            raise NotMeasured(str(self.of))
        return self.rule.judge(self.of, observed, published)


claim = Check
"""So that a table of claims reads as such."""


def by_id(
    *checks: Check,
    causes: Mapping[Cause | str, str] | None = None,
    remarks: Mapping[str, str] | None = None,
    follows: Mapping[str, str] | None = None,
) -> dict[str, Check]:
    """The checks of a study by their claims.

    Parameters
    ----------
    causes, remarks
        By text, the claims it is said of: identifiers with spaces between.
    follows
        By claim, see `Check.follows_from`.

    Raises
    ------
    ValueError
        For a claim with two checks, a text on a claim that has none or has one already, or a cause that has no number
        and does not call itself a guess.
    """
    found = {check.claim: check for check in checks}
    if len(found) < len(checks):
        raise ValueError("a claim has two checks")
    if unsaid := [text for text in causes or {} if isinstance(text, str) and "guess" not in text.lower()]:
        raise ValueError(f"no number of ours bears this cause out, call it a guess: {unsaid[0]}")
    said: list[tuple[str, str, Any]] = []
    said += [("cause", claim, text) for text, claims in (causes or {}).items() for claim in claims.split()]
    said += [("remark", claim, text) for text, claims in (remarks or {}).items() for claim in claims.split()]
    said += [("follows_from", claim, text) for claim, text in (follows or {}).items()]
    for field, claim, text in said:
        if claim not in found or getattr(found[claim], field):
            raise ValueError(f"{claim} has no check, or a {field} already")
        found[claim] = replace(found[claim], **{field: text})
    return found


_BY_PLACE = {
    Place.INSIDE: Verdict.REPRODUCED,
    Place.ACROSS: Verdict.INCONCLUSIVE,
    Place.OUTSIDE: Verdict.NOT_REPRODUCED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A published number, with a tolerance."""

    tolerance: Tolerance
    unit: str
    direction: RoundTrips | Sign | None = None
    published: float | None = None
    """Where the claim is in words ("approximately equal") or its value is no plain number."""
    up_to: bool = False
    """The claim says "up to": above 0, and not above the published value."""

    @property
    def criterion(self) -> str:
        """The tolerance in words."""
        t = self.tolerance
        unit = spaced(self.unit)
        if self.up_to:
            return "95 % interval above 0 and not above it"
        parts = [f"{t.share:.0%}".replace("33%", "a third")] if t.share else []
        parts += [f"at least {t.at_least:.3g}{unit}" if t.share else f"{t.at_least:.3g}{unit}"] if t.at_least else []
        parts += [f"at most {t.at_most:.3g}{unit}"] if t.at_most < math.inf else []
        return f"95 % interval within {', '.join(parts)}" if parts else "exactly"

    def to(self, published: float) -> Number:
        """The same, held against this value instead of the claim's."""
        return replace(self, published=published)

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        target = self.published if self.published is not None else published
        if target is None:
            raise NotMeasured("the published value is not a number")
        ours = of(observed)
        allowed = self.tolerance.allowed(target) * (1 + 1e-9)
        distance = ours.value - target
        unit = spaced(self.unit)
        low, high = (0.0, target) if self.up_to else (target - allowed, target + allowed)
        found = place(ours, low, high)
        verdict = _BY_PLACE[found]
        said = f"{number(ours.value)} against {'up to ' if self.up_to else ''}{number(target)}{unit}"
        beyond = f"{number(abs(distance))}{unit} {'above' if distance > 0 else 'below'}"
        beyond += "" if self.up_to else f", {number(allowed)} allowed"
        text = f"{said}: {beyond}" if distance else f"{said}: equal"
        if found is Place.ACROSS and ours.interval:
            text += "; the interval reaches across" if low <= ours.value <= high else "; the interval reaches into it"
        before = Verdict.REPRODUCED if abs(distance) <= allowed else Verdict.NOT_REPRODUCED
        if self.direction is not None and before is Verdict.NOT_REPRODUCED and self.direction.held(ours, target):
            before = Verdict.DIRECTION_ONLY
        failed = verdict is Verdict.NOT_REPRODUCED and not self.up_to
        if failed and self.direction is not None and self.direction.holds(ours, target):
            verdict, text = Verdict.DIRECTION_ONLY, f"{text}; {self.direction.text}"
        outcome = _outcome(verdict, before, text, ours, self.unit)
        if not isinstance(self.direction, RoundTrips) or target == self.direction.least:
            return outcome
        whole = self.direction.least
        off = OVERHEAD.allowed(target - whole)
        return replace(
            outcome, round_trips=place(ours, *self.direction.range), overhead=place(ours, target - off, target + off)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A statement that something is above or below a value."""

    above: float | None = None
    below: float | None = None
    tolerance: Tolerance
    """By version 1 of the rules this close on the wrong side was the direction only."""
    unit: str

    @property
    def criterion(self) -> str:
        """The bound in words."""
        side, bound = ("above", self.above) if self.above is not None else ("below", self.below)
        return f"95 % interval {side} {bound:g}{spaced(self.unit)}"

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        ours = of(observed)
        above = self.above is not None
        bound = self.above if self.above is not None else self.below
        if bound is None:
            raise ValueError("a Bound is above or below something")
        margin = derived(lambda x: x - bound if above else bound - x, ours)
        found = place(ours, *((bound, math.inf) if above else (-math.inf, bound)))
        text = f"{number(ours.value)}{spaced(self.unit)}, claimed {'above' if above else 'below'} {bound:g}"
        text += "; the interval reaches across" if found is Place.ACROSS and ours.interval else ""
        near = margin.value > 0 or -margin.value <= self.tolerance.allowed(bound)
        before = Verdict.DIRECTION_ONLY if near else Verdict.NOT_REPRODUCED
        before = Verdict.REPRODUCED if _was_beyond_doubt(margin) else before
        return _outcome(_BY_PLACE[found], before, text, ours, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """A statement that some things are greater than others: every comparison is a margin that must be above 0.

    All comparisons must hold beyond doubt (each 95 % interval excludes 0); no correction for their number is needed,
    since it is the weakest that decides (an intersection-union test). It is refuted where too many are beyond doubt
    not above 0.
    """

    unit: str
    enough: int | None = None
    """How many must hold where the claim says "most"; None for all."""
    criterion: str = "95 % interval of each difference excludes 0"

    def judge(self, of: Margins, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        margins = {name: measure(observed) for name, measure in (of(observed) if callable(of) else of).items()}
        if not margins:
            raise NotMeasured("this takes several links, and the campaign has one")
        enough = self.enough or len(margins)
        places = [above_0(margin) for margin in margins.values()]
        sure, wrong = places.count(Place.INSIDE), places.count(Place.OUTSIDE)
        right = sum(margin.value > 0 for margin in margins.values())
        by_strength = sorted(margins.items(), key=lambda item: _lower_end(item[1]), reverse=True)
        name, deciding = by_strength[enough - 1]
        if len(margins) == 1:
            text = f"{name}: {signed(deciding.value)}{spaced(self.unit)}"
            text += "" if sure or wrong else ", not beyond doubt"
        else:
            text = f"{right} of {len(margins)} comparisons as claimed, {sure} beyond doubt, {wrong} beyond doubt not"
            which = "weakest" if enough == len(margins) else f"{enough} needed, that one"
            text += f"; {which} {name}: {signed(deciding.value)}{spaced(self.unit)}"
        found = Place.INSIDE if sure >= enough else Place.OUTSIDE if wrong > len(margins) - enough else Place.ACROSS
        before = Verdict.DIRECTION_ONLY if right >= enough else Verdict.NOT_REPRODUCED
        if sum(_was_beyond_doubt(margin) for margin in margins.values()) >= enough:
            before = Verdict.REPRODUCED
        return _outcome(_BY_PLACE[found], before, text, deciding, self.unit)


def descending(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """Margins: everything is greater than what follows it."""
    return {f"{one} over {other}": first - second for (one, first), (other, second) in pairwise(measures.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A statement about the shape of a distribution: a share that must reach a level."""

    level: float
    direction: Measure
    """Above 0 where at least the direction is right."""
    unit: str
    criterion: str
    said: str
    """What the share is, as the start of a sentence."""

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        ours, direction = of(observed), self.direction(observed)
        text = f"{self.said} {number(ours.value)}{spaced(self.unit)}, {self.level:g} needed"
        found = place(ours, self.level, math.inf)
        verdict = _BY_PLACE[found]
        if found is Place.OUTSIDE and above_0(direction) is Place.INSIDE:
            verdict = Verdict.DIRECTION_ONLY
        before = Verdict.DIRECTION_ONLY if direction.value > 0 else Verdict.NOT_REPRODUCED
        before = Verdict.REPRODUCED if ours.value >= self.level else before
        return _outcome(verdict, before, text, ours, self.unit)


def _was_beyond_doubt(margin: Estimate) -> bool:
    """Above 0 with 95 % by version 1 of the rules; a statistic without an interval was taken at its word."""
    if margin.interval is not None:
        return margin.interval[0] > 0
    return margin.value > 0 and margin.rounds >= MIN_ROUNDS


def _lower_end(margin: Estimate) -> float:
    return margin.interval[0] if margin.interval else margin.value


def _outcome(verdict: Verdict, before: Verdict, said: str, ours: Estimate, unit: str) -> Outcome:
    if ours.rounds < MIN_ROUNDS:
        said += f" (too few rounds: {ours.rounds} give no interval)"
    elif ours.sparse:
        said += f" (too few rounds: {ours.rounds} give no interval of this statistic)"
    elif ours.interval is None:
        said += " (this statistic has no interval)"
    return Outcome(verdict, f"{said}.", before, ours, unit)


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
