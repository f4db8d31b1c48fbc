"""Budget and limits of a comparison, and the targets that it must not query. No packet is sent here."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from crosslayer.dns import Protocol, Resumption
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.plan import ComparePlan
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.testbed import outside, stop_list

QUERIES_PER_S = 1.0
"""Default rate for each operator, queries/s; also the maximum for addresses outside the machine."""
QUERIES_PER_DAY = 5000
"""Default limit of queries to each operator in a day; also the maximum for addresses outside the machine."""
NOBODY = "192.0.2.53"
"""An address that no host has (RFC 5737). A query to it shows whether the network intercepts UDP port 53."""
USUAL_QUERIES = 300
"""Maximum number of queries without a warning. A comparison of five resolvers with default options needs fewer."""

_CONNECTION_BYTES = {
    Protocol.DOUDP: 500,
    Protocol.DOTCP: 1_200,
    Protocol.DOT: 8_000,
    Protocol.DOH: 9_000,
    Protocol.DOH3: 12_000,
    Protocol.DOQ: 12_000,
}
"""Upper estimate of the size of a new connection with one query: IP packets in both directions, bytes."""
_KEPT_QUERY_BYTES = 1_500
_TCP_CONNECT_BYTES = 500


def resumable(protocol: Protocol) -> bool:
    """Whether a comparison can measure resumed connections of this transport."""
    return Resumption.TICKET in protocol.transport.resumptions


def early(protocol: Protocol) -> bool:
    """Whether a comparison can measure queries in early data over this transport."""
    return Resumption.EARLY_DATA in protocol.transport.resumptions


def visit_queries(plan: ComparePlan, protocol: Protocol) -> int:
    """Maximum number of queries of a visit, of all kinds: first, next, miss, idle, resumed and early data.

    A visit over DoUDP has no query of the kind next. With idle times, a visit over DoUDP or QUIC may have one more
    query, which searches for the time after which the network forgets a flow.
    """
    over_udp = protocol is Protocol.DOUDP or protocol.transport.over_quic
    more = (
        protocol is not Protocol.DOUDP,
        bool(plan.zone),
        plan.resumed and resumable(protocol),
        plan.resumed and early(protocol),
        bool(plan.idle_s) and over_udp,
    )
    return 1 + sum(more) + len(plan.idle_s)


def priming_queries(plan: ComparePlan, rounds: int, *, apart: bool = False) -> int:
    """Maximum number of queries that only fill the resolver's cache, for one address in `rounds` rounds.

    `apart`: each round is measured without knowledge of the cache entries of earlier rounds, as with `--everywhere`.
    """
    return rounds if apart or plan.every_s or plan.idle_s else (rounds + 1) // 2


@dataclass(frozen=True, slots=True)
class OperatorBudget:
    """Maximum number of queries to one operator, and of bytes from and to it."""

    operator: str
    addresses: tuple[str, ...]
    queries: int
    bytes: int
    """Upper estimate for both directions."""


def budget(
    plan: ComparePlan,
    *,
    not_asked: Container[int] = (),
    visited: Container[tuple[int, int]] = (),
    network_check: bool = False,
    apart: bool = False,
) -> list[OperatorBudget]:
    """Upper limits for each operator: queries that a comparison has yet to send, and their bytes in both directions.

    `not_asked` has the numbers of excluded targets, and `visited` has the round and target of each earlier visit. With
    `network_check`, the queries to `NOBODY` are included. `apart` is as in `priming_queries`.
    """
    missing: dict[str, list[tuple[int, ResolverTarget]]] = {}
    for number, target in enumerate(plan.targets):
        if number not in not_asked:
            rounds = [round_ for round_ in range(plan.rounds) if (round_, number) not in visited]
            missing.setdefault(target.operator, []).extend((round_, target) for round_ in rounds)
    budgets = []
    for operator, pending in missing.items():
        if not pending:
            continue
        rounds_of: dict[str, set[int]] = {}
        fill: dict[str, Protocol] = {}
        for round_, target in pending:
            rounds_of.setdefault(target.address, set()).add(round_)
            fill[target.address] = max(
                fill.get(target.address, target.protocol), target.protocol, key=_CONNECTION_BYTES.__getitem__
            )
        priming = {address: priming_queries(plan, len(rounds), apart=apart) for address, rounds in rounds_of.items()}
        queries = sum(visit_queries(plan, target.protocol) for _, target in pending)
        vantages = len(plan.vantages)
        budgets.append(
            OperatorBudget(
                operator,
                tuple(rounds_of),
                vantages * (queries + sum(priming.values())),
                vantages * sum(_visit_bytes(plan, target.protocol) for _, target in pending)
                + vantages * sum(count * _CONNECTION_BYTES[fill[address]] for address, count in priming.items()),
            )
        )
    if network_check and budgets:
        vantages = len(plan.vantages)
        size = vantages * _CONNECTION_BYTES[Protocol.DOUDP]
        budgets.append(OperatorBudget("nobody (RFC 5737)", (NOBODY,), vantages, size))
    return budgets


def budget_text(
    shares: Sequence[OperatorBudget], plan: ComparePlan, queries_per_s: float, per_day: int, *, apart: bool = False
) -> str:
    """The budget as text; `apart` is as in `priming_queries`."""
    name = plan.name
    if not shares:
        return "This comparison sends nothing more."
    rows = [
        (share.operator, str(share.queries), f"{share.bytes / 1e6:.1f}", " ".join(share.addresses)) for share in shares
    ]
    rows.insert(0, ("operator", "queries", "MB", "addresses"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{operator.ljust(widths[0])}  {queries.rjust(widths[1])}  {size.rjust(widths[2])}  {addresses}"
        for operator, queries, size, addresses in rows
    ]
    most = max(share.queries for share in shares)
    total = sum(share.queries for share in shares)
    minutes = most / queries_per_s / 60
    limits = f"At most {queries_per_s:g} queries/s and {per_day} a day go to each operator."
    if len(plan.vantages) > 1:
        limits += f" {len(plan.vantages)} vantage points share them."
    idle_s = sum(plan.idle_s) * max(_visits_of_an_operator(plan).values(), default=0)
    minutes = max(minutes, idle_s / 60)
    time = f"It takes at least {minutes:.1f} minutes." if minutes >= 1 else f"It takes at least {60 * minutes:.0f} s."
    if plan.every_s:
        days = 86_400 / plan.every_s
        most = math.ceil(most * min(1.0, days / plan.rounds))
        time = f"A round begins every {span(plan.every_s)}, {plan.rounds} times: {span(plan.every_s * plan.rounds)}."
    repeated = math.ceil(total / plan.rounds) * plan.most_repeats
    again = (
        "If the network or the clock changes in the middle of a round, it is measured again: at most "
        f"{plan.most_repeats} rounds, {repeated} more queries."
    )
    if apart:
        again += " A machine that fails in the middle of a round measures this round again."
    text = [
        f"This comparison sends at most {total} queries for '{name}':",
        *lines,
        f"{limits} {time}",
        again,
    ]
    if most > per_day:
        text.append(f"That is more than one day allows: it ends after {per_day} queries. Continue with --resume.")
    if total > USUAL_QUERIES:
        text.append(
            f"MANY QUERIES: {total} are more than {USUAL_QUERIES}, which five resolvers need by default. Fewer "
            "resolvers, --transport or fewer --rounds reduce them."
        )
    return "\n".join(text)


def _visits_of_an_operator(plan: ComparePlan) -> dict[str, int]:
    """Number of visits to the targets of each operator in all rounds, from one vantage point."""
    visits: dict[str, int] = {}
    for target in plan.targets:
        visits[target.operator] = visits.get(target.operator, 0) + plan.rounds
    return visits


def span(seconds: float) -> str:
    """A duration as text: 90 s, 15 min, 2 h, 7 d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def check_limits(queries_per_s: float, per_day: int, targets: Iterable[ResolverTarget]) -> None:
    """Raise `ResolversError` if a rate or daily limit is too high for an address outside the machine."""
    for value, most, unit, where in (
        (queries_per_s, QUERIES_PER_S, "query/s", "--rate"),
        (per_day, QUERIES_PER_DAY, "queries a day", "--per-day"),
    ):
        if value <= most:
            continue
        for target in targets:
            if not outside.inside(target.address):
                raise ResolversError(
                    f"{target.address} is outside, and gets at most {most:g} {unit}",
                    where=where,
                    next_step=f"Leave {where} out; it is for loopback and private namespaces.",
                )


def stopped(targets: Sequence[ResolverTarget]) -> Mapping[int, str]:
    """Targets in the stop list, by number, each with the reason of its entry."""
    stops = stop_list.load()
    reasons = {
        number: stops.reason(target.address, target.operator, target.name, *([target.host] if target.host else []))
        for number, target in enumerate(targets)
    }
    return {number: f"stop list: {reason}" for number, reason in reasons.items() if reason is not None}


def _visit_bytes(plan: ComparePlan, protocol: Protocol) -> int:
    connections = 1 + (plan.resumed and resumable(protocol)) + (plan.resumed and early(protocol))
    kept = visit_queries(plan, protocol) - connections
    return connections * _CONNECTION_BYTES[protocol] + kept * _KEPT_QUERY_BYTES + _TCP_CONNECT_BYTES
