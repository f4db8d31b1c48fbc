"""Evaluate a comparison: medians, groups of targets that do not differ, and advice. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosslayer.metrics.intervals import median
from crosslayer.metrics.resampling import MIN_ROUNDS, Rounds
from crosslayer.resolvers.flags import Flag, flags, not_ranked
from crosslayer.resolvers.plan import (
    ComparePlan,
    Disturbance,
    Measured,
    NetworkCheck,
    TargetVisit,
    idle_key,
    stopped_targets,
)
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.vocabulary import Role

ByRound = dict[tuple[str, int], float]
"""Values of one quantity; a key is a vantage point and a round."""
MARGIN_MS = 1.0
"""Least difference that counts, ms: the whole 95 % interval of a paired difference must exceed it."""
LEGEND = (
    "Medians of the rounds [95 % interval]. A target begins a new group if its first query takes longer than that of "
    f"the current group's first target, by more than {MARGIN_MS:g} ms (whole 95 % interval). Targets with certain "
    "flags have no group."
)
TIMES = {
    "first_ms": "first query",
    "next_ms": "next query",
    "miss_ms": "miss",
    "resumed_ms": "resumed",
    "early_ms": "early data",
    "rtt_ms": "path RTT",
}
"""Display name of each time, by key. Idle times depend on the plan; `times_of` adds them."""


def times_of(plan: ComparePlan) -> dict[str, str]:
    """Display name of each time of a comparison, by key, with the idle times of its plan."""
    return {key: measure_name(key) for key in (*TIMES, *map(idle_key, plan.idle_s))}


def measure_name(key: str) -> str:
    """Display name of the time with this key."""
    return TIMES.get(key, f"after {key.removeprefix('idle_').removesuffix('s_ms')} s idle")


@dataclass(frozen=True, slots=True)
class Median:
    """A median over rounds, ms, with its 95 % interval.

    `low` and `high`, the ends of the interval, are None with fewer than `MIN_ROUNDS` rounds.
    """

    rounds: int
    median: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.median:z.1f}"
        return f"{self.median:z.1f} [{self.low:z.1f}, {self.high:z.1f}]"


@dataclass(frozen=True, slots=True)
class TargetResult:
    """Times, failures and flags of one target in a comparison."""

    target: ResolverTarget
    group: int | None
    """Number of the target's group, from 1. A group has targets with similar times of the first query, see `LEGEND`.

    None with fewer than `MIN_ROUNDS` rounds or with a flag of `NOT_RANKED`.
    """
    times: dict[str, Median]
    """Medians by the keys of `times_of`; a time that was never measured is absent."""
    failed: int
    """Number of visits whose first query failed."""
    reasons: dict[str, int]
    """For each reason why a query failed: number of visits in which a query failed for this reason."""
    not_asked: str | None = None
    """Why the target was excluded, from the start or during the comparison; None if it was not excluded."""
    flags: tuple[str, ...] = ()
    """Kinds of the flags that concern this target."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The difference between two measurements of the same target (A/A)."""

    target: ResolverTarget
    measure: str
    """Display name of the compared time."""
    difference: Median

    @property
    def differs(self) -> bool:
        """Whether the whole interval is above `MARGIN_MS` or below `-MARGIN_MS`; the procedure then has a fault."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > MARGIN_MS or high < -MARGIN_MS)

    def __str__(self) -> str:
        return f"A/A: {self.target.label}: {self.measure}: {self.difference} ms ({self.difference.rounds} rounds)"


@dataclass(frozen=True, slots=True)
class ResolverComparison:
    """The result of a comparison."""

    lines: list[TargetResult]
    """Results by ascending median of the first query; targets without a successful first query are last."""
    advice: str
    flags: list[Flag]
    self_checks: list[SelfCheck]

    def record(self, plan: ComparePlan) -> dict[str, Any]:
        """The comparison as plain values for JSON."""
        lines = [
            {
                **asdict(line.target),
                "group": line.group,
                **{key: asdict(value) for key, value in line.times.items()},
                "failed": line.failed,
                "reasons": line.reasons,
                "not_asked": line.not_asked,
                "flags": line.flags,
            }
            for line in self.lines
        ]
        return {
            "name": plan.name,
            "rounds": plan.rounds,
            "margin_ms": MARGIN_MS,
            "advice": self.advice,
            "flags": [asdict(flag) for flag in self.flags],
            "self_checks": [asdict(check) for check in self.self_checks],
            "vantages": list(plan.vantages),
            "lines": lines,
        }


def of(measured: Measured, not_asked: Mapping[int, str] | None = None) -> ResolverComparison:
    """Summarise a comparison from all its entries.

    `not_asked` maps the numbers of excluded targets to reasons, as in `compare`. The targets whose operator asked to
    stop (`measured.stops`) are excluded too.
    """
    stopped = stopped_targets(measured.plan, measured.stops)
    return compare(
        measured.plan, measured.visits, {**stopped, **(not_asked or {})}, measured.checks, measured.disturbances
    )


def results_of(measured: Measured, measures: Iterable[str]) -> list[TargetResult]:
    """The result of each target that was queried or whose operator asked to stop.

    It has the medians of only those times whose keys are in `measures` (keys of `times_of`).
    """
    ranking = _ranking(measured.plan, measured.visits, measured.checks, measured.disturbances)
    return _results(measured.plan, ranking, list(measures), stopped_targets(measured.plan, measured.stops))


def compare(
    plan: ComparePlan,
    visits: Sequence[TargetVisit],
    not_asked: Mapping[int, str] | None = None,
    checks: Mapping[str, NetworkCheck] | None = None,
    disturbances: Mapping[str, Sequence[Disturbance]] | None = None,
) -> ResolverComparison:
    """Summarise the visits of a plan; rounds may be missing.

    `not_asked` maps the numbers of excluded targets to reasons; these targets may have visits. `checks` maps each
    vantage point to its network check, `disturbances` to the disturbances of its rounds.
    """
    ranking = _ranking(plan, visits, checks or {}, disturbances)
    lines = _results(plan, ranking, times_of(plan), not_asked or {})
    advice = _advice(plan, ranking.order, ranking.first, ranking.groups)
    return ResolverComparison(lines, advice, ranking.flags, self_checks(plan, visits))


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Targets in the order of the medians of their first queries."""

    by_target: list[list[TargetVisit]]
    first: dict[int, ByRound]
    """Times of the first query by target; targets without a successful first query are absent."""
    order: list[int]
    """Numbers of the targets in `first`, by ascending median."""
    flags: list[Flag]
    groups: dict[int, int]


def _ranking(
    plan: ComparePlan,
    visits: Sequence[TargetVisit],
    checks: Mapping[str, NetworkCheck],
    disturbances: Mapping[str, Sequence[Disturbance]] | None,
) -> _Ranking:
    by_target: list[list[TargetVisit]] = [[] for _ in plan.targets]
    for visit in visits:
        by_target[visit.target].append(visit)
    first = {
        number: values for number in range(len(plan.targets)) if (values := _by_round(by_target[number], "first_ms"))
    }
    order = sorted(first, key=lambda number: (float(np.median(list(first[number].values()))), number))
    all_flags = flags(plan, visits, checks, disturbances)
    misleading = not_ranked(all_flags) | _copies(plan)
    groups = _groups([number for number in order if number not in misleading], first)
    return _Ranking(by_target, first, order, all_flags, groups)


def _results(
    plan: ComparePlan, ranking: _Ranking, measures: Iterable[str], not_asked: Mapping[int, str]
) -> list[TargetResult]:
    others = [
        number
        for number, visits in enumerate(ranking.by_target)
        if number not in ranking.first and (visits or number in not_asked)
    ]
    keys, copies = list(measures), _copies(plan)
    return [
        replace(
            _line(plan.targets[number], keys, ranking.groups.get(number), ranking.by_target[number]),
            not_asked=not_asked.get(number),
            flags=tuple(str(flag.kind) for flag in ranking.flags if number in flag.targets),
        )
        for number in [*ranking.order, *others]
        if number not in copies
    ]


def _copies(plan: ComparePlan) -> set[int]:
    """Numbers of the targets that are A/A copies of another target."""
    return {number for number, target in enumerate(plan.targets) if target.role is Role.SELF_CHECK}


def self_checks(plan: ComparePlan, visits: Iterable[TargetVisit]) -> list[SelfCheck]:
    """Difference of each time between a target and its A/A copy; empty without a copy."""
    twins = [
        (number, copy)
        for copy, second in enumerate(plan.targets)
        if second.role is Role.SELF_CHECK
        for number, target in enumerate(plan.targets)
        if second.copies(target)
    ]
    by_target: dict[int, list[TargetVisit]] = {number: [] for pair in twins for number in pair}
    for visit in visits:
        if visit.target in by_target:
            by_target[visit.target].append(visit)
    return [
        SelfCheck(plan.targets[number], name, difference)
        for number, copy in twins
        for key, name in times_of(plan).items()
        if (difference := differs(_by_round(by_target[number], key), _by_round(by_target[copy], key))[1]) is not None
    ]


def differs(one: ByRound, other: ByRound) -> tuple[bool | None, Median | None]:
    """Whether `other` is slower than `one`, and their paired difference (`other` minus `one`).

    `other` is slower if the whole interval exceeds `MARGIN_MS`. With fewer than `MIN_ROUNDS` common rounds, the first
    value is None. Without a common round, both values are None.
    """
    common = [round_ for round_ in one if round_ in other]
    if not common:
        return None, None
    difference = _median({round_: other[round_] - one[round_] for round_ in common})
    if difference.low is None:
        return None, difference
    return difference.low > MARGIN_MS, difference


def text(comparison: ResolverComparison, plan: ComparePlan) -> str:
    """The result as text: a table, the failures with their reasons, and the advice."""
    shown = {key: name for key, name in times_of(plan).items() if any(key in line.times for line in comparison.lines)}
    rows = [("group", "resolver", "address", "transport", *(f"{name}, ms" for name in shown.values()), "rounds")]
    for line in comparison.lines:
        if "first_ms" in line.times:
            times = [str(line.times[key]) if key in line.times else "-" for key in shown]
            good = line.times["first_ms"].rounds
            target = line.target
            group = str(line.group or "-")
            rows.append((group, target.name, target.address, target.protocol, *times, f"{good}/{good + line.failed}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    parts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(rows) == 1:
        parts = []
    notes = [*self_check_text(comparison), *(f"flag: {flag}" for flag in comparison.flags)]
    return "\n".join([*parts, *failures(comparison, plan), *notes, LEGEND, comparison.advice])


def self_check_text(comparison: ResolverComparison) -> list[str]:
    """The A/A self-check in one line, and a line for each difference beyond `MARGIN_MS`."""
    checks = comparison.self_checks
    if not checks:
        return []
    largest = max(checks, key=lambda check: abs(check.difference.median))
    beyond = [check for check in checks if check.differs]
    name = f"{checks[0].target.name} was measured twice"
    most = f"{abs(largest.difference.median):z.1f} ms ({largest.target.protocol}, {largest.measure})"
    summary = f"{len(beyond)} of {len(checks)} differences exceed {MARGIN_MS:g} ms; the largest is {most}."
    return [f"A/A: {name}: {summary}", *map(str, beyond)]


def failures(comparison: ResolverComparison, plan: ComparePlan) -> list[str]:
    """Lines of text: every failure and every excluded target, each with its reason."""
    failed = [
        f"failed: {line.target.label}: {reason} ({count} of {plan.rounds * len(plan.vantages)} rounds)"
        for line in comparison.lines
        for reason, count in line.reasons.items()
    ]
    not_asked = [
        f"not asked: {line.target.name} {line.target.address}: {line.not_asked}"
        for line in comparison.lines
        if line.not_asked
    ]
    return list(dict.fromkeys([*failed, *not_asked]))


def explained(error: str) -> str:
    """A client's error in plain words; an error that this function does not know is returned unchanged."""
    if error == "timeout":
        return "no answer"
    if "application protocol" in error or "application_protocol" in error:
        return f"other application protocol, such as a draft's ({error})"
    if "certificate" in error:
        return f"wrong certificate ({error.removeprefix('certificate: ')})"
    return error


def _line(
    target: ResolverTarget, measures: Iterable[str], group: int | None, visits: Sequence[TargetVisit]
) -> TargetResult:
    times = {key: _median(values) for key in measures if (values := _by_round(visits, key))}
    reasons: dict[str, int] = {}
    for visit in visits:
        all_reasons = [f"{name}: {explained(error)}" for name, error in visit.errors.items()]
        for reason in [explained(visit.error)] if visit.error is not None else all_reasons:
            reasons[reason] = reasons.get(reason, 0) + 1
    failed = sum(visit.error is not None for visit in visits)
    return TargetResult(target, group, times, failed, reasons)


def _by_round(visits: Sequence[TargetVisit], key: str) -> ByRound:
    return {(visit.vantage, visit.round): value for visit in visits if (value := visit.time_ms(key)) is not None}


def _median(values: ByRound) -> Median:
    """Median of the values, with its interval. The bootstrap draws vantage points, then rounds of each."""
    order, rounds = _rounds_of(tuple(values))
    _n, count, middle, low, high = median(np.fromiter(values.values(), np.float64)[order], rounds)
    return Median(count, middle, low, high)


@lru_cache(maxsize=8)
def _rounds_of(keys: tuple[tuple[str, int], ...]) -> tuple[NDArray[np.intp], Rounds]:
    """Indices that sort values by vantage point and round, and the rounds of the sorted values for the bootstrap.

    The result is cached, because most targets have the same keys.
    """
    order = sorted(range(len(keys)), key=keys.__getitem__)
    hosts = np.unique([keys[number][0] for number in order], return_inverse=True)[1]
    return np.asarray(order, np.intp), Rounds.of(np.arange(len(keys)), hosts)


def _groups(order: Sequence[int], first: dict[int, ByRound]) -> dict[int, int]:
    """Number of each target's group, for targets by ascending median of the first query.

    A target that differs from the first target of the latest group begins a new group.
    """
    numbers: dict[int, int] = {}
    leader: int | None = None
    for number in order:
        if len(first[number]) < MIN_ROUNDS:
            continue
        if leader is None or differs(first[leader], first[number])[0]:
            leader = number
            numbers[number] = max(numbers.values(), default=0) + 1
        else:
            numbers[number] = numbers[leader]
    return numbers


def _advice(plan: ComparePlan, order: Sequence[int], first: dict[int, ByRound], numbers: dict[int, int]) -> str:
    """Which targets are the fastest at these vantage points, and under which condition."""
    if not order:
        return "No resolver answered, so there is no advice."
    if not numbers:
        return f"Advice needs {MIN_ROUNDS} successful rounds of a target without a flag: --rounds {MIN_ROUNDS} or more."
    ranked = [number for number in order if number in numbers]
    encrypted = [number for number in ranked if plan.targets[number].protocol.transport.encrypted]
    plain = [number for number in ranked if number not in encrypted]
    fastest = [
        f"{kind}: {_best(plan, some, first)}."
        for kind, some in (("Encrypted", encrypted), ("Unencrypted", plain))
        if some
    ]
    here = "here" if len(plan.vantages) == 1 else f"these {len(plan.vantages)} vantage points"
    return (
        f"Fastest from {here} at this time, for the first query on a new connection and a name in the resolver's cache "
        f"('{plan.name}'). {' '.join(fastest)}"
    )


def _best(plan: ComparePlan, ranked: Sequence[int], first: dict[int, ByRound]) -> str:
    """Labels of the fastest target and of those that do not differ from it, with the upper limit of the differences."""
    best = ranked[0]
    differences = {number: differs(first[best], first[number]) for number in ranked[1:]}
    equal = {number: difference for number, (differ, difference) in differences.items() if differ is False}
    labels = [plan.targets[number].label for number in (best, *equal)]
    if not equal:
        return labels[0]
    most = max(
        difference.high for difference in equal.values() if difference is not None and difference.high is not None
    )
    most = max(math.ceil(10 * most) / 10, 0.1)
    if most <= _SIMILAR_MS:
        return f"{', '.join(labels[:-1])} or {labels[-1]} (difference: at most {most:.1f} ms)"
    return f"{labels[0]} (lowest median; equally fast or up to {most:.1f} ms slower: {', '.join(labels[1:])})"


_SIMILAR_MS = 5 * MARGIN_MS
"""Limit, ms, up to which the advice names targets as equal (`A or B`).

The interval of the difference between each of them and the fastest target must end at or below this limit.
"""
