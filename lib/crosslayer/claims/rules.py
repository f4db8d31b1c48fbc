"""Checks of claims and the rules that judge them: a number, a bound, an ordering, the shape of a distribution.

    claim("T058", "On fiber, 0-RTT connects 0.38 RTT sooner", connect("1-RTT").on("fiber") - ..., in_rtts)

A rule gets estimates from an `Observed` and does not read tables. It may raise `NotMeasured`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import Limited, Measure
from crosslayer.claims.tolerances import FACTOR, MOST_ROUNDS, OVERHEAD, ROUND_TRIP_SLACK, Tolerance
from crosslayer.metrics.resampling import LEVEL, MIN_ROUNDS, Estimate, Reals, student_reach

Margins = Mapping[str, Measure] | Callable[[Observed], Mapping[str, Measure]]
"""Measures that are claimed to be above 0, by name; or a function that returns them for a campaign."""


class Verdict(StrEnum):
    """The result of judging a claim."""

    REPRODUCED = "reproduced"
    DIRECTION_ONLY = "direction only"
    INCONCLUSIVE = "inconclusive"
    NOT_REPRODUCED = "not reproduced"
    FOLLOWS = "follows"
    """The published value follows from the configuration alone; measuring this value is no evidence about the claim."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check."""

    verdict: Verdict
    why: str
    """Reason for the verdict, in one sentence."""
    estimate: Estimate | None = None
    unit: str = ""
    round_trips: str = ""
    """Whether a duration has the published number of round-trips: yes, no, inconclusive; empty for other claims."""
    overhead: str = ""
    """Whether the time beyond whole round-trips is as published; values as for `round_trips`."""
    rounds_needed: int | None = None
    """Number of rounds that would decide an inconclusive result, if its value stays the same."""
    would_decide: str = ""
    """Experiment that would decide an inconclusive result."""


class Position(StrEnum):
    """Position of a 95 % interval relative to a range."""

    INSIDE = "yes"
    ACROSS = "inconclusive"
    OUTSIDE = "no"


def position(ours: Estimate, low: float, high: float) -> Position:
    """Position of the 95 % interval relative to [low, high].

    A statistic that never has an interval is judged by its value. With too few rounds for an interval, the result is
    `ACROSS`.
    """
    ends = ours.interval or (ours.value, ours.value)
    if not ours.enough or not ((low <= ends[0] and ends[1] <= high) or ends[1] < low or ends[0] > high):
        return Position.ACROSS
    return Position.INSIDE if low <= ends[0] <= high else Position.OUTSIDE


def above_0(margin: Estimate) -> Position:
    """Position of a margin's 95 % interval relative to the numbers above 0."""
    return position(margin, float(np.nextafter(0, 1)), math.inf)


def rounds_to_decide(ours: Estimate, *borders: float) -> int | None:
    """Number of rounds after which the interval would contain none of the borders.

    The width of the interval falls with the square root of this number. If there are too few rounds for an interval,
    the result is the number of rounds that an interval needs. None if the interval contains no border, if the estimate
    equals a border, if there is no bootstrap interval, or if the number is not below `MOST_ROUNDS`.
    """
    if not ours.enough:
        return ours.needed
    if ours.draws is None or ours.interval is None:
        return None
    low, high = ours.interval
    crossed = [border for border in borders if low <= border <= high]
    if ours.value in crossed or not crossed:
        return None
    scale = math.log if ours.in_logarithm else float
    value = scale(ours.value)
    reach = [(scale(high if border > ours.value else low) - value) / (scale(border) - value) for border in crossed]
    return _rounds(ours.rounds * max(reach) ** 2)


def _rounds(number: float) -> int | None:
    return math.ceil(number) if number < MOST_ROUNDS else None


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Criterion for the verdict "direction only" on a duration: it takes `minimum` to `minimum + 1` round-trips.

    The interval must not begin below `minimum - ROUND_TRIP_SLACK`, and must end below `minimum + 1`.
    """

    minimum: int

    @property
    def range(self) -> tuple[float, float]:
        """Lowest and highest duration that meets the criterion, RTT."""
        return self.minimum - ROUND_TRIP_SLACK, float(np.nextafter(self.minimum + 1, 0))

    def holds(self, ours: Estimate, published: float) -> bool:
        """True if the whole interval lies within the range."""
        del published
        return position(ours, *self.range) is Position.INSIDE

    @property
    def text(self) -> str:
        """The criterion in words, as part of the sentence `Outcome.why`."""
        return f"the value also lies between {self.minimum} and {self.minimum + 1} round-trips"


@dataclass(frozen=True, slots=True)
class Sign:
    """Criterion for the verdict "direction only" on a difference: its whole interval has the published sign."""

    def holds(self, ours: Estimate, published: float) -> bool:
        """True if the whole interval has the published sign. If there is no interval, the value must have this sign."""
        low, high = ours.interval or (ours.value, ours.value)
        return low > 0 if published > 0 else published < 0 and high < 0

    @property
    def text(self) -> str:
        """The criterion in words, as part of the sentence `Outcome.why`."""
        return "the sign is the same"


class Rule(Protocol):
    """Rule by which a claim is judged."""

    @property
    def criterion(self) -> str:
        """Condition for the verdict "reproduced", in a few words."""
        ...

    def judge(self, of: Any, observed: Observed, published: float | None) -> Outcome:
        """Compare the published value with a campaign; `of` is the measure or, for an ordering, its margins."""
        ...


@dataclass(frozen=True, slots=True)
class Cause:
    """Reason why a result differs from the published value, with numbers of the campaign that support the reason."""

    text: str
    """Template of the reason: `{0}` is replaced by the first number, and so on."""
    numbers: tuple[Measure, ...]

    def filled(self, observed: Observed) -> str:
        """The reason with its numbers; if the campaign lacks them, the text starts with "A guess"."""
        try:
            numbers = [number(measure(observed).value) for measure in self.numbers]
        except NotMeasured:
            text = self.text.format(*["?"] * len(self.numbers)).removeprefix("A guess: ")
            return f"A guess, for which this campaign lacks the numbers: {text}"
        return self.text.format(*numbers)


@dataclass(frozen=True, slots=True)
class Check:
    """A claim with its measure and its rule."""

    claim: str
    """Identifier of the claim; that of a published claim is in `data/published/claims.csv`."""
    sentence: str
    """The claim in our words: a statement of the paper, or a conclusion of one of our own studies."""
    of: Measure | Margins | str
    """The measure or the margins, or the reason why the claim cannot be measured."""
    rule: Rule | None = None
    cause: Cause | str = ""
    """Cause of a deviation, shown only if the result deviates. A text without measured numbers must contain "guess"."""
    remark: Cause | str = ""
    """Remark that follows the claim's note from `data/published/claims.csv`."""
    follows_from: str = ""
    """Identifier of another claim that determines this claim, and the relation of both."""
    given_by: str = ""
    """Configuration that determines the published value, so that measuring it gives no evidence."""
    given: Measure | None = None
    """Measure of the value that the configuration alone gives.

    If it is set, the verdict is `FOLLOWS` only if this value reproduces the claim. If it is None, the verdict is always
    `FOLLOWS`. It is used only if `given_by` is set.
    """
    sample: int = 0
    """Number of observations behind a published minimum or maximum; both depend on this number."""
    plain: Callable[[Observed], str] | None = None
    """Function that says in plain words, with the reason, whether a headline result of the paper holds."""

    @property
    def criterion(self) -> str:
        """Condition for the verdict "reproduced", in a few words."""
        return self.rule.criterion if self.rule else ""

    def run(self, observed: Observed, published: float | None) -> Outcome:
        """Judge the published value by a campaign.

        Raises
        ------
        NotMeasured
            If the campaign cannot decide the claim; the message is the reason.
        """
        if self.rule is None:
            raise NotMeasured(str(self.of))
        outcome = self.rule.judge(self.of, observed, published)
        if self.given_by and self._is_given(observed, published):
            why = f"{outcome.why} The configuration determines the value ({self.given_by}), so it is no evidence."
            return replace(outcome, verdict=Verdict.FOLLOWS, why=why, rounds_needed=None, would_decide="")
        ours = outcome.estimate
        if outcome.verdict is Verdict.INCONCLUSIVE and self.sample and ours and ours.enough and ours.draws is None:
            needed = math.ceil(ours.rounds * self.sample / ours.n)
            text = (
                f"{needed} rounds would give {self.sample} observations, as many as the published extreme has; this "
                f"campaign has {ours.n}"
            )
            return replace(outcome, rounds_needed=needed, would_decide=text)
        return outcome

    def _is_given(self, observed: Observed, published: float | None) -> bool:
        if self.given is None or self.rule is None:
            return True
        try:
            return self.rule.judge(self.given, observed, published).verdict is Verdict.REPRODUCED
        except NotMeasured:
            return False


claim = Check
"""Short name of `Check` for the tables of claims in the studies."""


def by_id(
    *checks: Check,
    causes: Mapping[Cause | str, str] | None = None,
    remarks: Mapping[Cause | str, str] | None = None,
    follows: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
    samples: Mapping[int, str] | None = None,
) -> dict[str, Check]:
    """The checks of a study by identifier of their claim, completed by fields that are given separately.

    Parameters
    ----------
    causes, remarks, samples
        Each key is the content of the field `cause`, `remark` or `sample`. The key's value lists the identifiers of the
        claims whose checks get this content, separated by spaces.
    follows, given
        Values of the fields `follows_from` and `given_by`, by identifier of the claim.

    Raises
    ------
    ValueError
        If a claim has two checks, or a cause without numbers does not contain "guess". Also if a keyword argument
        names a claim that has no check, or sets a field that the claim's check has already.
    """
    by_claim = {check.claim: check for check in checks}
    if len(by_claim) < len(checks):
        raise ValueError("a claim has two checks")
    if unfounded := [text for text in causes or {} if isinstance(text, str) and "guess" not in text.lower()]:
        raise ValueError(f"this cause has no number of ours, call it a guess: {unfounded[0]}")
    entries: list[tuple[str, str, Any]] = []
    for attribute, values in (("cause", causes), ("remark", remarks), ("sample", samples)):
        entries += [(attribute, claim, value) for value, claims in (values or {}).items() for claim in claims.split()]
    for attribute, texts in (("follows_from", follows), ("given_by", given)):
        entries += [(attribute, claim, text) for claim, text in (texts or {}).items()]
    for attribute, claim, value in entries:
        if claim not in by_claim or getattr(by_claim[claim], attribute):
            raise ValueError(f"{claim} has no check, or a {attribute} already")
        by_claim[claim] = replace(by_claim[claim], **{attribute: value})
    return by_claim


_BY_POSITION = {
    Position.INSIDE: Verdict.REPRODUCED,
    Position.ACROSS: Verdict.INCONCLUSIVE,
    Position.OUTSIDE: Verdict.NOT_REPRODUCED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Rule for a published number: the interval must lie within a tolerance of the number."""

    tolerance: Tolerance
    unit: str
    direction: RoundTrips | Sign | None = None
    published: float | None = None
    """Published value, if the claim is in words ("approximately equal") or its value is not a plain number."""
    up_to: bool = False
    """Whether the claim is "up to" the published value: the interval must lie between 0 and this value."""
    resolution: float = 0.0
    """Smallest value, in `unit`, that the clock of the campaign resolves. Smaller values are inconclusive."""

    @property
    def criterion(self) -> str:
        """The tolerance in words."""
        t = self.tolerance
        if self.up_to:
            return "95 % interval above 0 and not above the claimed value"
        if not t.share and not t.at_least:
            return "equal values"
        limits = [f"at least {t.at_least:.3g}{of_distance(self.unit, t.at_least)}"] if t.share and t.at_least else []
        limits += [f"at most {t.at_most:.3g}{of_distance(self.unit, t.at_most)}"] if t.at_most < math.inf else []
        most = "half" if t.at_most_share == 0.5 else f"{t.at_most_share * 100:.0f} %"
        limits += [f"at most {most} of it"] if t.at_most_share < math.inf else []
        share = "a third" if round(t.share, 2) == 0.33 else f"{t.share * 100:.0f} %"
        distance = share if t.share else f"{t.at_least:.3g}{of_distance(self.unit, t.at_least)}"
        return f"95 % interval within {distance} of the claimed value" + (f" ({', '.join(limits)})" if limits else "")

    def to(self, published: float) -> Number:
        """The same rule with this published value instead of the claim's."""
        return replace(self, published=published)

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        target = self.published if self.published is not None else published
        if target is None:
            raise NotMeasured("the published value is not a number")
        ours = of(observed)
        if _unresolved(ours, self.resolution):
            return _below_the_clock(ours, self.resolution, self.unit)
        tolerance = self.tolerance.allowed(target)
        allowed = tolerance * (1 + 1e-9)
        distance = ours.value - target
        low, high = (0.0, target) if self.up_to else (target - allowed, target + allowed)
        where = position(ours, low, high)
        verdict = _BY_POSITION[where]
        claimed = f"claimed {'up to ' if self.up_to else ''}{number(target)}{spaced(self.unit, target)}"
        text = f"Measured {number(ours.value)}{spaced(self.unit, ours.value)}, {claimed}"
        if distance:
            size = f"{number(abs(distance))}{of_distance(self.unit, distance)}"
            text += f": {size} {'above' if distance > 0 else 'below'}"
            text += "" if self.up_to else f"; tolerance {number(tolerance)}{of_distance(self.unit, tolerance)}"
        if where is Position.ACROSS and ours.interval:
            text += f"; the interval {'exceeds' if low <= ours.value <= high else 'overlaps'} the tolerance"
        failed = verdict is Verdict.NOT_REPRODUCED and not self.up_to
        if failed and self.direction is not None and self.direction.holds(ours, target):
            near = position(ours, *sorted((target / FACTOR, target * FACTOR))) is Position.INSIDE
            verdict = Verdict.DIRECTION_ONLY if near else verdict
            text += f"; {self.direction.text}" + (
                "" if near else f", but {number(ours.value / target)} times the claimed value"
            )
        outcome = _outcome(verdict, text, ours, self.unit, rounds_to_decide(ours, low, high))
        if not isinstance(self.direction, RoundTrips) or target == self.direction.minimum:
            return outcome
        off = OVERHEAD.allowed(target - self.direction.minimum)
        return replace(
            outcome,
            round_trips=position(ours, *self.direction.range),
            overhead=position(ours, target - off, target + off),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Rule for a statement that a value is above or below a bound."""

    above: float | None = None
    below: float | None = None
    unit: str

    @property
    def criterion(self) -> str:
        """The bound in words."""
        side, bound = ("above", self.above) if self.above is not None else ("below", self.below)
        return f"95 % interval {side} {bound:g}{spaced(self.unit, bound or 0.0)}"

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        ours = of(observed)
        above = self.above is not None
        bound = self.above if self.above is not None else self.below
        if bound is None:
            raise ValueError("a Bound is above or below something")
        where = position(ours, *((bound, math.inf) if above else (-math.inf, bound)))
        side = "above" if above else "below"
        text = f"Measured {number(ours.value)}{spaced(self.unit, ours.value)}, "
        text += f"claimed {side} {bound:g}{spaced(self.unit, bound)}"
        text += "; the interval includes this bound" if where is Position.ACROSS and ours.interval else ""
        return _outcome(_BY_POSITION[where], text, ours, self.unit, rounds_to_decide(ours, bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """Rule for a statement that some values are greater than others; each comparison is a margin above 0.

    The comparisons are judged jointly (Benjamini and Heller, Biometrics 64, 2008). The statement holds if at least u of
    the k margins are above 0; u is the field `enough`. At least u margins are above 0 if the u-th strongest margin, in
    standard errors, exceeds a critical value. This value is a quantile of the greatest deviation among this margin and
    all weaker margins (max-t over the same resamples). With u = k only the weakest margin is tested: an
    intersection-union test, which needs no correction. The statement is refuted if k - u + 1 margins are below 0 by the
    same rule. With u = k, one margin below 0 refutes the statement, after correction for all k.
    `docs/reference/statistics.md` has the error rates and the power.
    """

    unit: str
    enough: int | None = None
    """Number of margins that must be above 0; None for all."""
    criterion: str = "95 % interval of each difference excludes 0"
    resolution: float = 0.0
    """Smallest difference, in `unit`, that the clock of the campaign resolves. Smaller differences have no sign."""
    resolutions: Mapping[str, float] = field(default_factory=dict)
    """`resolution` of the margins that have another unit, by name of the margin."""

    def judge(self, of: Margins, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        measures = of(observed) if callable(of) else of
        margins = {name: measure(observed) for name, measure in measures.items()}
        if not margins:
            raise NotMeasured("the claim needs several links, and the campaign has one")
        count, enough = len(margins), self.enough or len(margins)
        resolution = {name: self.resolutions.get(name, self.resolution) for name in margins}
        sides = (
            _Margin.both_sides(margin, max(resolution[name], float(np.nextafter(0, 1))))
            for name, margin in margins.items()
        )
        upward, downward = zip(*sides, strict=True)
        holds, refuted = _jointly(upward, enough), _jointly(downward, count - enough + 1)
        right = sum(margin.value > 0 for margin in margins.values())
        against = count - enough + 1 if refuted else None
        tested = downward if refuted else upward
        by_strength = sorted(range(count), key=lambda one: (-tested[one].strength, -tested[one].end))
        name = list(margins)[by_strength[(against or enough) - 1]]
        measure = measures[name]
        limit = measure if isinstance(measure, Limited) else None
        deciding = limit.measure(observed) if limit else margins[name]
        value = f"{signed(deciding.value)}{spaced(self.unit, deciding.value)}"
        if count == 1:
            undecided = "; the interval includes the limit" if limit else ", not significant"
            text = f"{name}: {value}" + ("" if holds or refuted else undecided)
        else:
            sure, wrong = (sum(margin.sure for margin in side) for side in (upward, downward))
            agreeing = "limits are kept" if limit else "comparisons have the claimed sign"
            text = f"{right} of {count} {agreeing} ({sure} significantly)"
            if wrong and limit:
                text += f"; {count - right} {'is' if count - right == 1 else 'are'} violated ({wrong} significantly)"
            elif wrong:
                text += f"; {count - right} {'has' if count - right == 1 else 'have'} the opposite sign "
                text += f"({wrong} significantly)"
            text += ", but jointly they do not refute the claim" if wrong > count - enough and not refuted else ""
            if refuted:
                which = "Strongest evidence against it"
                which += f", number {against} by strength" if enough < count else ""
            else:
                which = "Weakest" if enough == count else f"The claim needs {enough}; number {enough} by strength"
            text += f". {which}: {name}{':' if limit else ','} {value}"
        where = Position.INSIDE if holds else Position.OUTSIDE if refuted else Position.ACROSS
        if where is Position.ACROSS and any(_unresolved(one, resolution[key]) for key, one in margins.items()):
            return replace(_below_the_clock(deciding, resolution[name], self.unit), why=f"{text}; {_BELOW}.")
        side, needed = (upward, enough) if right >= enough else (downward, count - enough + 1)
        return _outcome(_BY_POSITION[where], text, deciding, self.unit, _rounds_of_ordering(side, needed))


@dataclass(frozen=True, slots=True)
class _Margin:
    """One of the two one-sided tests of a margin.

    The tested value is the margin itself (is it above 0?), or the margin with reversed sign (is it below 0?).
    """

    estimate: Estimate
    end: float
    """Lower end of the interval of the tested value."""
    floor: float
    """Smallest distance from 0 that the clock resolves."""
    strength: float
    """The tested value minus `floor`, in standard errors.

    If there are no resamples, or all are equal, it is infinite, with the sign of `end - floor`. With too few rounds, it
    is minus infinity.
    """
    deviations: Reals | None
    """The tested value minus its value in each resample, in standard errors.

    None if there are no resamples, or all are equal.
    """

    @classmethod
    def both_sides(cls, estimate: Estimate, floor: float) -> tuple[_Margin, _Margin]:
        """Two tests of a margin: above 0, and below 0."""
        low, high = estimate.interval or (estimate.value, estimate.value)
        error = 0.0 if estimate.draws is None or not estimate.enough else float(np.nanstd(estimate.draws))
        sides = []
        for side, end in ((1, low), (-1, -high)):
            deviations = None
            strength = math.copysign(math.inf, end - floor) if estimate.enough else -math.inf
            if error > 0 and estimate.draws is not None:
                strength = (side * estimate.value - floor) / error
                deviations = side * (estimate.value - estimate.draws) / error
            sides.append(cls(estimate, end, floor, strength, deviations))
        return sides[0], sides[1]

    @property
    def sure(self) -> bool:
        """Whether the margin, tested alone, is beyond the floor at 97.5 % confidence."""
        return self.estimate.enough and self.end >= self.floor


def _jointly(margins: Sequence[_Margin], needed: int) -> bool:
    """Whether at least `needed` margins are beyond the floor, at 97.5 % confidence."""
    weakest = sorted(margins, key=lambda margin: -margin.strength)[needed - 1 :]
    return weakest[0].sure if len(weakest) == 1 else weakest[0].strength > _critical(weakest)


def _critical(margins: Sequence[_Margin]) -> float:
    """Critical value of a joint test of these margins, in standard errors.

    By chance, the greatest deviation of the margins exceeds this value with a probability of 2.5 %. The value is
    computed from their resamples and widened to Student's t, like every interval (`resampling.student_reach`).
    """
    deviations = [margin.deviations for margin in margins if margin.deviations is not None]
    if not deviations:
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample may contain none of a sample's rounds
        maximum = np.nanmax(np.array(deviations), axis=0)
    normal = float(np.nanquantile(maximum, (1 + LEVEL) / 2))
    return student_reach(min(margin.estimate.rounds for margin in margins), normal)


def _rounds_of_ordering(margins: Sequence[_Margin], needed: int) -> int | None:
    """Number of rounds after which `needed` margins would be beyond the floor, if their values stay the same."""
    weakest = sorted(margins, key=lambda margin: -margin.strength)[needed - 1 :]
    decides = weakest[0]
    if lacking := [margin.estimate.needed for margin in margins if not margin.estimate.enough]:
        return max(lacking)
    if not 0 < decides.strength < math.inf:
        return None
    reached = max(_critical(weakest), 1.0)
    return _rounds(decides.estimate.rounds * max(1.0, (reached / decides.strength) ** 2))


_BELOW = "below what the clock of this campaign resolves"


def _unresolved(ours: Estimate, resolution: float) -> bool:
    """Whether the absolute values of the whole interval are smaller than the resolution of the clock."""
    ends = ours.interval or (ours.value, ours.value)
    return resolution > 0 and ours.enough and max(map(abs, ends)) < resolution


def _below_the_clock(ours: Estimate, resolution: float, unit: str) -> Outcome:
    text = f"{number(ours.value)}{spaced(unit, ours.value)}: {_BELOW} ({resolution:g}{spaced(unit, resolution)})."
    experiment = "A campaign in real time, in which computing takes time, would decide it"
    return Outcome(Verdict.INCONCLUSIVE, text, ours, unit, would_decide=experiment)


def descending(measures: Mapping[str, Measure]) -> dict[str, Measure]:
    """Margins of a descending order: each measure minus the next one."""
    return {f"{one} over {other}": first - second for (one, first), (other, second) in pairwise(measures.items())}


def within(measures: Mapping[str, Measure], centre: float, distance: float) -> dict[str, Measure]:
    """Margins of the claim that every measure differs from `centre` by less than `distance` (two one-sided tests).

    There are two `Limited` margins for each measure. The maximum of the measured distances is no test of the claim,
    because noise alone makes this maximum large.
    """
    margins: dict[str, Measure] = {}
    for name, measure in measures.items():
        for limit, upper in ((centre + distance, True), (centre - distance, False)):
            margins[f"{name}, not {'above' if upper else 'below'} {limit:g}"] = Limited(measure, limit, upper)
    return margins


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rule for a statement about the shape of a distribution: a share must reach a level."""

    level: float
    direction: Measure
    """Measure that is above 0 if the campaign has the published direction; used for the verdict "direction only"."""
    unit: str
    criterion: str
    label: str
    """Name of the share, as the start of a sentence."""
    spread: Measure | None = None
    """P90 minus P10 of the distribution, if its shape is claimed. If it is below `resolution`, there is no shape."""
    resolution: float = 0.0
    """Smallest difference that the clock of the campaign resolves, in the unit of `spread`."""
    spread_unit: str = ""

    def judge(self, of: Measure, observed: Observed, published: float | None) -> Outcome:
        """See `Rule`."""
        ours, direction = of(observed), self.direction(observed)
        if self.spread is not None and _unresolved(spread := self.spread(observed), self.resolution):
            below = _below_the_clock(spread, self.resolution, self.spread_unit)
            return replace(below, why=f"P90 minus P10: {below.why}", estimate=ours, unit=self.unit)
        text = f"{self.label} {number(ours.value)}{spaced(self.unit, ours.value)}; "
        text += f"the claim needs {self.level:g}{spaced(self.unit, self.level)}"
        where = position(ours, self.level, math.inf)
        verdict = _BY_POSITION[where]
        if where is Position.OUTSIDE and above_0(direction) is Position.INSIDE:
            near = ours.value >= self.level / FACTOR
            verdict = Verdict.DIRECTION_ONLY if near else verdict
            text += "" if near else "; only the direction is the published one"
        return _outcome(verdict, text, ours, self.unit, rounds_to_decide(ours, self.level))


def _outcome(verdict: Verdict, text: str, ours: Estimate, unit: str, needed: int | None) -> Outcome:
    if ours.rounds < MIN_ROUNDS:
        text += f" (too few rounds: {ours.rounds} give no interval)"
    elif not ours.enough:
        text += f" (too few rounds: {ours.rounds} give no interval of this statistic)"
    elif ours.interval is None:
        text += " (this statistic has no interval)"
    if verdict is not Verdict.INCONCLUSIVE:
        return Outcome(verdict, f"{text}.", ours, unit)
    if needed is None:
        experiment = "No number of rounds would decide it: the value is equal to the limit, or it has no interval"
    elif not ours.enough:
        experiment = f"{needed} rounds would give an interval"
    else:
        experiment = f"About {needed} rounds would decide it, if the value stays the same"
    return Outcome(verdict, f"{text}.", ours, unit, rounds_needed=needed, would_decide=experiment)


def of_distance(unit: str, value: float) -> str:
    """Unit of `value`, a difference between two values with the unit `unit`, with a space before it."""
    return spaced("percentage points" if unit == "%" else unit, value)


def spaced(unit: str, value: float) -> str:
    """Unit of `value` with a space before it, in the singular for 1; empty if there is no unit."""
    singular = f"{unit.removesuffix('ies')}y" if unit.endswith("ies") else unit.removesuffix("s")
    one = number(abs(value)) == "1" and unit not in _SYMBOLS
    return f" {singular if one else unit}" if unit else ""


_SYMBOLS = ("ms", "s", "Mbps", "AS")
"""Units that end with an s but are no plurals."""


def number(value: float) -> str:
    """Number as text, with as many digits as the papers print.

    Whole numbers and numbers of at least 1000 have no decimals. Other numbers of at least 100 have one decimal. Numbers
    from 0.1 to 100 have two decimals, and numbers below 0.1 have up to four.
    """
    size = abs(value)
    if value == round(value) or size >= 1000:
        return f"{value:z.0f}"
    if size < 0.1:
        return f"{value:z.4f}".rstrip("0").removesuffix(".")
    return f"{value:.{1 if size >= 100 else 2}f}"


def signed(value: float) -> str:
    """A number with its sign."""
    return ("+" if value > 0 else "") + number(value)
