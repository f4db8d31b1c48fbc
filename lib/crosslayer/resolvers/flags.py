"""Flags: causes of misleading times in a comparison, with evidence from its rows. No I/O.

A target with a flag in `NOT_RANKED` is shown, but neither grouped nor recommended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, pairwise

import numpy as np

from crosslayer.resolvers.idle import forgetting
from crosslayer.resolvers.ledger import SLOWING
from crosslayer.resolvers.plan import SILENT, ComparePlan, Disturbance, NetworkCheck, TargetVisit
from crosslayer.vocabulary import EventKind, Protocol

SLOWER_MS = 10.0
"""Minimum extra time of a cache miss compared with a hit, ms.

Half of this value is the minimum change of a path's RTT that is flagged.
"""
_SLOWER_SHARE = 0.2
"""Minimum extra time, as a share of the shorter time.

For a cache miss, the shorter time is that of the next query. For a path change, it is the shorter median RTT.
"""

_JITTERS = 20.0
"""Minimum extra time of a cache miss, in multiples of the jitter.

The jitter is the median of the absolute differences between two cache hits of the same visit. With `SLOWER_MS` alone,
one of 3,000 visits over a path with an exponential jitter of 1 ms counted as a miss.
"""


class FlagKind(StrEnum):
    """Kinds of flags."""

    INTERCEPTED = "interception of UDP port 53"
    BLOCKED = "blocked port"
    SITES = "several sites"
    CACHES = "several servers behind one address"
    PATH_CHANGE = "path change"
    PARTLY_MISSED = "partly missed the cache"
    RATE_LIMIT = "rate limit"
    OTHER_ANSWER = "other answer"
    CERTIFICATE = "certificate"
    OTHER_VERSION = "other version of DoQ"
    UDP_FORGOTTEN = "idle UDP is forgotten"
    ADDRESS_CHANGE = "address change"
    CLOCK_STEP = "clock step"
    SLEEP = "sleep of the machine"
    BROKEN_IPV6 = "broken IPv6"
    DEAD = "no answer at all"


NOT_RANKED = frozenset(
    {
        FlagKind.INTERCEPTED,
        FlagKind.SITES,
        FlagKind.CACHES,
        FlagKind.PATH_CHANGE,
        FlagKind.PARTLY_MISSED,
        FlagKind.RATE_LIMIT,
    }
)
"""Kinds of flags whose targets must not be compared with other targets."""


@dataclass(frozen=True, slots=True)
class Flag:
    """A cause of misleading times, with its evidence."""

    kind: FlagKind
    subject: str
    """What is affected: a target, an address, a port, the network or a round."""
    evidence: str
    targets: tuple[int, ...]
    """Numbers of the affected targets in the plan."""
    vantage: str = ""
    """Vantage point; empty if the comparison has only one."""

    def __str__(self) -> str:
        return f"{self.kind}: {f'{self.vantage}: ' if self.vantage else ''}{self.subject}: {self.evidence}"


_EVENTS = {
    EventKind.ADDRESS_CHANGED: FlagKind.ADDRESS_CHANGE,
    EventKind.CLOCK_STEPPED: FlagKind.CLOCK_STEP,
    EventKind.SLEPT: FlagKind.SLEEP,
}


def flags(
    plan: ComparePlan,
    visits: Sequence[TargetVisit],
    checks: Mapping[str, NetworkCheck],
    disturbances: Mapping[str, Sequence[Disturbance]] | None = None,
) -> list[Flag]:
    """All flags of a comparison, by vantage point.

    Flags of the machine and the network precede those of targets.
    """
    several = len(plan.vantages) > 1
    by_vantage = (
        (vantage, flag)
        for vantage in plan.vantages
        for flag in [
            *_of_disturbances((disturbances or {}).get(vantage, ())),
            *_of_vantage(plan, [visit for visit in visits if visit.vantage == vantage], checks.get(vantage)),
        ]
    )
    return [replace(flag, vantage=vantage) if several else flag for vantage, flag in by_vantage]


def _of_vantage(plan: ComparePlan, visits: Sequence[TargetVisit], check: NetworkCheck | None) -> list[Flag]:
    by_target: dict[int, list[TargetVisit]] = {number: [] for number in range(len(plan.targets))}
    for visit in sorted(visits, key=lambda visit: visit.started_s):
        by_target[visit.target].append(visit)
    by_address: dict[str, list[int]] = {}
    for number, target in enumerate(plan.targets):
        if by_target[number]:
            by_address.setdefault(target.address, []).append(number)
    intercepted = list(_intercepted(plan, check))
    elsewhere = {number for flag in intercepted for number in flag.targets}
    return [
        *intercepted,
        *_blocked(plan, by_target, by_address),
        *_forgotten(plan, by_target),
        *(
            flag
            for address, numbers in by_address.items()
            for flag in _of_address(plan, by_target, address, [number for number in numbers if number not in elsewhere])
        ),
    ]


def _of_disturbances(disturbances: Sequence[Disturbance]) -> Iterable[Flag]:
    """Flags of events at the measuring machine or its network during a round."""
    for one in disturbances:
        after = "it was not measured again" if one.voids is None else "it was measured again"
        yield Flag(_EVENTS[one.kind], f"round {one.round}", f"{one.reason}; {after}", ())


def _forgotten(plan: ComparePlan, by_target: dict[int, list[TargetVisit]]) -> Iterable[Flag]:
    """Flags of a network that forgets idle UDP flows: one for QUIC, one for DoUDP.

    The network may forget the flows of QUIC and of DoUDP after different idle times.
    """
    for name, quic in (("QUIC", True), (str(Protocol.DOUDP), False)):
        numbers = tuple(
            number
            for number, target in enumerate(plan.targets)
            if (target.protocol.transport.over_quic if quic else target.protocol is Protocol.DOUDP)
        )
        known = forgetting([query for number in numbers for visit in by_target[number] for query in visit.idle])
        if known is not None and known.shown:
            evidence = f"after {known.middle_s:.0f} s: {known}"
            yield Flag(FlagKind.UDP_FORGOTTEN, f"{name} in this network", evidence, numbers)


def not_ranked(all_flags: Iterable[Flag]) -> set[int]:
    """Numbers of the targets that must not be compared, because of a flag of `NOT_RANKED`."""
    return {number for flag in all_flags if flag.kind in NOT_RANKED for number in flag.targets}


def _intercepted(plan: ComparePlan, check: NetworkCheck | None) -> Iterable[Flag]:
    if check is None or not check.intercepted:
        return
    numbers = tuple(number for number, target in enumerate(plan.targets) if target.protocol is Protocol.DOUDP)
    by = f" by '{check.site}'" if check.site else ""
    yield Flag(
        FlagKind.INTERCEPTED, "this network", f"a query to {check.address}, where nobody is, was answered{by}", numbers
    )


def _blocked(
    plan: ComparePlan, by_target: dict[int, list[TargetVisit]], by_address: dict[str, list[int]]
) -> Iterable[Flag]:
    """Flags of blocked ports: no address answers there, although at least two addresses answer at other ports."""
    by_port: dict[tuple[str, int], list[int]] = {}
    for number, target in enumerate(plan.targets):
        if by_target[number]:
            over_udp = target.protocol is Protocol.DOUDP or target.protocol.transport.over_quic
            by_port.setdefault(("UDP" if over_udp else "TCP", target.port), []).append(number)
    for (below, port), numbers in by_port.items():
        alive = [
            number
            for number in numbers
            if any(_answered(by_target[other]) for other in by_address[plan.targets[number].address])
        ]
        addresses = {plan.targets[number].address for number in alive}
        if len(addresses) >= 2 and all(_silent(by_target[number]) for number in alive):
            evidence = f"none of {len(addresses)} addresses answers there, and all answer at other ports"
            yield Flag(FlagKind.BLOCKED, f"{below} port {port}", evidence, tuple(alive))


def _of_address(
    plan: ComparePlan, by_target: dict[int, list[TargetVisit]], address: str, numbers: list[int]
) -> Iterable[Flag]:
    """Flags of one address of a resolver; `numbers` are its targets, except those that the network intercepts."""
    if not numbers:
        return
    name = plan.targets[numbers[0]].name
    subject = f"{name} {address}"
    if all(_silent(by_target[number]) for number in numbers):
        other = {
            plan.targets[number].address
            for number, visits in by_target.items()
            if plan.targets[number].name == name and _answered(visits)
        }
        if ":" in address and any(":" not in answering for answering in other):
            yield Flag(FlagKind.BROKEN_IPV6, subject, "silent, while its IPv4 address answers", tuple(numbers))
        else:
            yield Flag(FlagKind.DEAD, subject, f"silent over {len(numbers)} transports", tuple(numbers))
        return
    yield from _of_sites(plan, by_target, subject, numbers)
    yield from _of_path(by_target, subject, numbers)
    for number in numbers:
        target, visits = plan.targets[number], by_target[number]
        errors = [
            error
            for visit in visits
            for error in (visit.error, visit.next_error, visit.miss_error, visit.resumed_error, visit.early_error)
            if error
        ]
        missed = _missed(visits)
        # If all first queries are slow, the cause is not the cache, but the server's handling of new connections.
        if 0 < len(missed) < sum(visit.next_ms is not None for visit in visits):
            evidence = f"the first query of {len(missed)} of {len(visits)} visits took longer than the next one"
            yield Flag(FlagKind.PARTLY_MISSED, target.label, evidence, (number,))
        limited = [error for error in errors if error.startswith(SLOWING) and error != SILENT]
        if limited:
            yield Flag(FlagKind.RATE_LIMIT, target.label, f"{limited[0]} in {len(limited)} visits", (number,))
        others = [error for error in errors if error.startswith("rcode ") and not error.startswith(SLOWING)]
        if others:
            evidence = f"{others[0].removeprefix('rcode ')} in {len(others)} of {len(visits)} visits"
            yield Flag(FlagKind.OTHER_ANSWER, target.label, evidence, (number,))
        invalid = [error for error in errors if "certificate" in error]
        if invalid:
            yield Flag(FlagKind.CERTIFICATE, target.label, _brief(invalid[0]), (number,))
        if any("application protocol" in error or "application_protocol" in error for error in errors):
            yield Flag(FlagKind.OTHER_VERSION, target.label, "it has another application protocol", (number,))


def _of_sites(
    plan: ComparePlan, by_target: dict[int, list[TargetVisit]], subject: str, numbers: list[int]
) -> Iterable[Flag]:
    """A flag of an address at which several servers answered, according to their identifiers (NSID)."""
    seen = {number: [visit.site for visit in by_target[number] if visit.site is not None] for number in numbers}
    seen = {number: sites for number, sites in seen.items() if sites}
    everywhere = sorted({site for sites in seen.values() for site in sites})
    if len(everywhere) < 2:
        return
    changes = max(sum(a != b for a, b in pairwise(sites)) for sites in seen.values())
    names = ", ".join(everywhere)
    if changes > 1:
        yield Flag(FlagKind.CACHES, subject, f"answers came from {names} in turn", tuple(numbers))
        return
    first = ", ".join(f"{plan.targets[number].protocol} from {sites[0]}" for number, sites in seen.items())
    when = "; this changed meanwhile" if changes else ""
    yield Flag(FlagKind.SITES, subject, f"answers came from {names}: {first}{when}", tuple(numbers))


def _of_path(by_target: dict[int, list[TargetVisit]], subject: str, numbers: list[int]) -> Iterable[Flag]:
    """A flag of a path change: from some visit on, all RTTs are longer, or all are shorter, than all earlier RTTs."""
    visits = sorted((visit for number in numbers for visit in by_target[number]), key=lambda visit: visit.started_s)
    rtts = [visit.rtt_ms for visit in visits if visit.rtt_ms is not None]
    least = max(2, len(numbers))
    first = list(zip(accumulate(rtts, min), accumulate(rtts, max), strict=True))
    last = list(zip(accumulate(reversed(rtts), min), accumulate(reversed(rtts), max), strict=True))[::-1]
    for at in range(least, len(rtts) - least + 1):
        (least_before, most_before), (least_after, most_after) = first[at - 1], last[at]
        gap_ms = max(least_after - most_before, least_before - most_after)
        if gap_ms < SLOWER_MS / 2:
            continue
        before, after = rtts[:at], rtts[at:]
        if gap_ms >= _SLOWER_SHARE * float(np.median(before if most_before < least_after else after)):
            evidence = f"its RTT changed from {np.median(before):.1f} to {np.median(after):.1f} ms"
            yield Flag(FlagKind.PATH_CHANGE, subject, evidence, tuple(numbers))
            return


def _missed(visits: Sequence[TargetVisit]) -> list[float]:
    """Extra times of the first queries that missed the cache, ms.

    The extra time is the first query's time, without its handshake, minus the next query's time in the same visit. A
    query counts as a miss if its extra time reaches all three limits: `SLOWER_MS`, `_SLOWER_SHARE` and `_JITTERS`.
    """
    longer: list[float] = []
    missed: list[float] = []
    for visit in visits:
        if visit.first_ms is None or visit.handshake_ms is None or visit.next_ms is None:
            continue
        longer_ms = visit.first_ms - visit.handshake_ms - visit.next_ms
        slow = longer_ms >= max(SLOWER_MS, _SLOWER_SHARE * visit.next_ms)
        (missed if slow else longer).append(longer_ms)
    jitter_ms = float(np.median(np.abs(longer))) if longer else 0.0
    return [longer_ms for longer_ms in missed if longer_ms >= _JITTERS * jitter_ms]


def _brief(error: str) -> str:
    """The cause of a certificate error, without the certificate itself."""
    return error.removeprefix("certificate: ").partition(" (encountered")[0].removeprefix("validation failed: ")


def _answered(visits: Sequence[TargetVisit]) -> bool:
    return any(visit.first_ms is not None for visit in visits)


def _silent(visits: Sequence[TargetVisit]) -> bool:
    return all(visit.error == SILENT for visit in visits)
