"""The plan and the results of a comparison, as values and as rows of the tables. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import polars as pl

from crosslayer.campaign.plan import Plan
from crosslayer.decode import checked
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.vocabulary import SIZES_BY_PART, CacheUse, EventKind, Protocol, QueryState, Role

STUDY = "resolvers"
"""Name of the study in each campaign that `crosslayer compare` stores."""
HERE = "host-1"
"""Default name of a vantage point."""
LEFT_ALONE_AFTER = 3
"""Number of consecutive failed visits after which a target is not queried again.

An address is not queried again either, if none of its visits got an answer and there were at least this many.
"""
SILENT = "timeout"
"""Error of a query without an answer."""
DISTURBANCES = (EventKind.ADDRESS_CHANGED, EventKind.CLOCK_STEPPED, EventKind.SLEPT)
"""Events that disturb a round."""
QUERIES, EVENTS, LOCATIONS = "resolver_queries", "resolver_events", "resolver_locations"
"""Tables of a comparison."""


@dataclass(frozen=True, slots=True)
class IdleQuery:
    """A query on a connection that was idle."""

    idle_s: float
    """Planned idle time, s."""
    measured_idle_s: float
    """Measured idle time, s."""
    time_ms: float | None = None
    error: str | None = None
    moved: bool | None = None
    """Whether this query showed the server another address or port of the client, which it then validated.

    None without QUIC, or if the query failed.
    """
    search: bool = False
    """Whether the query is part of the search for the idle time after which the network forgets the flow.

    The idle time is then not from the plan.
    """


@dataclass(frozen=True, slots=True)
class TargetVisit:
    """One visit of a target. Times are in ms unless stated otherwise, None if not measured."""

    round: int
    target: int
    """Number of the target in the plan, from 0."""
    started_s: float
    """Start, seconds since the Unix epoch."""
    first_ms: float | None = None
    """Time of the first query on a new connection without a ticket, handshake included."""
    handshake_ms: float | None = None
    """Duration of the handshake before the first query; 0 for DoUDP."""
    next_ms: float | None = None
    """Time of the second query on this connection; None for DoUDP, whose visits lack this query."""
    resumed_ms: float | None = None
    """Time of a query on a new connection with a session ticket, handshake included."""
    resumed_handshake_ms: float | None = None
    """Duration of the handshake with the session ticket."""
    session_resumed: bool | None = None
    """Whether TLS resumed the session in the handshake with the session ticket."""
    miss_ms: float | None = None
    """Time of a query for a new name, which is in no cache, on the first connection; None without a zone."""
    rtt_ms: float | None = None
    """RTT of the path, measured by a TCP connect."""
    site: str | None = None
    """Name server identifier of the server that answered (RFC 5001)."""
    early_ms: float | None = None
    """Time of a query in early data, on a further new connection with a session ticket."""
    moved: bool | None = None
    """Whether the server validated another address or port of the client before any idle time; None without QUIC."""
    attempt: int = 0
    """Number of the attempt at the round, from 0."""
    error: str | None = None
    """Why the first query failed; None if it succeeded."""
    next_error: str | None = None
    miss_error: str | None = None
    resumed_error: str | None = None
    early_error: str | None = None
    vantage: str = HERE
    """Vantage point of the visit."""
    first_bytes: tuple[int, ...] | None = None
    """Bytes of IP payload of each part of the exchange with the first query; None without a capture.

    The parts are the two directions of the handshake, the query and the answer, in the order of `SIZES_BY_PART`.
    """
    resumed_bytes: tuple[int, ...] | None = None
    """As `first_bytes`, for the query on a resumed connection."""
    idle: tuple[IdleQuery, ...] = ()
    """Queries on the first connection, one after each idle time. The last query may have failed."""

    def time_ms(self, key: str) -> float | None:
        """One of the visit's times, ms. `key` is the name of a field, or `idle_key` of the idle time before a query."""
        for query in self.idle:
            if not query.search and idle_key(query.idle_s) == key:
                return query.time_ms
        value: float | None = getattr(self, key, None)
        return value

    @property
    def errors(self) -> dict[str, str]:
        """Errors of the visit's queries, by kind of query, e.g. `next query`.

        The first query and the queries with `IdleQuery.search` are left out.
        """
        if not (self.next_error or self.miss_error or self.resumed_error or self.early_error or self.idle):
            return {}  # most visits
        errors = {
            "next query": self.next_error,
            "miss": self.miss_error,
            **{f"after {query.idle_s:g} s idle": query.error for query in self.idle if not query.search},
            "resumed": self.resumed_error,
            "early data": self.early_error,
        }
        return {name: error for name, error in errors.items() if error is not None}


def idle_key(idle_s: float) -> str:
    """Key by which `TargetVisit.time_ms` finds the time of the query after this idle time."""
    return f"idle_{idle_s:g}s_ms"


@dataclass(frozen=True, slots=True)
class OperatorStop:
    """An operator that asked to stop. It gets no further queries in the comparison."""

    operator: str
    reason: str
    stopped_s: float
    """When the operator asked to stop, seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class OperatorLimit:
    """An operator that reached its daily limit. It is left out until the next day."""

    operator: str
    reason: str
    limited_s: float
    """When the limit ended the queries, seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class MissedRound:
    """A round that could not be measured before the next one was due."""

    round: int
    reason: str
    missed_s: float
    """When the round was recorded as missed, seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """An event at the measuring machine or its network that disturbed a round."""

    kind: EventKind
    """ADDRESS_CHANGED, CLOCK_STEPPED or SLEPT."""
    round: int
    reason: str
    """What was observed, as text."""
    noticed_s: float
    """When the event was noticed, seconds since the Unix epoch."""
    voids: int | None = None
    """Number of the attempt that the event voids, so that the round is measured again; None if it voids no attempt."""


@dataclass(frozen=True, slots=True)
class NetworkCheck:
    """A query over UDP to an address that no host has; only a middlebox can answer it."""

    address: str
    intercepted: bool
    """Whether the query was answered."""
    site: str | None
    """Name server identifier in the answer (RFC 5001)."""
    checked_s: float
    """When the check ended, seconds since the Unix epoch."""


@dataclass(frozen=True)
class CompareOptions:
    """Table `[options]` in a comparison's plan: all of `ComparePlan` except name, rounds, seed and vantage points."""

    targets: tuple[ResolverTarget, ...] = ()
    """Addresses to query, each with a transport."""
    timeout_s: float = 5.0
    """Time limit of a query, s."""
    resumed: bool = False
    """Whether queries on resumed connections are measured too, with and without early data."""
    idle_s: tuple[float, ...] = ()
    """Idle times of the first connection, s, ascending; a query follows each."""
    zone: str = ""
    """Zone in which every name exists, for queries that miss the cache; empty if misses are not measured."""
    every_s: float = 0.0
    """Time from the start of a round to the start of the next one, s; 0 without a schedule."""


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """The plan of a comparison."""

    name: str
    """Domain name of the queries (type A)."""
    rounds: int
    seed: int
    """Seed of the order of the targets in each round."""
    timeout_s: float
    targets: list[ResolverTarget]
    resumed: bool = False
    """Whether queries on resumed connections are measured too, with and without early data."""
    zone: str = ""
    """Zone in which every name exists, for queries that miss the cache; empty if misses are not measured."""
    vantages: tuple[str, ...] = (HERE,)
    """Names of the vantage points."""
    every_s: float = 0.0
    """Time from the start of a round to the start of the next one, s; 0 without a schedule."""
    idle_s: tuple[float, ...] = ()
    """Idle times of the first connection, s, ascending; a query follows each."""

    @property
    def most_repeats(self) -> int:
        """Maximum number of repetitions of disturbed rounds, for all rounds of one vantage point together."""
        return max(2, self.rounds // 10)

    def order(self, round_: int) -> list[int]:
        """Numbers of the targets in the order in which a round visits them."""
        return list(_order(self.seed, round_, len(self.targets)))

    def campaign_plan(self, clock: str) -> Plan:
        """This plan as the plan of a campaign: its links are the vantage points, and its page is the domain name."""
        return Plan(
            study=STUDY,
            links=self.vantages,
            pages=(self.name,),
            rounds=self.rounds,
            seed=self.seed,
            clock="virtual" if clock == "virtual" else "wall",
            options=CompareOptions(
                tuple(self.targets), self.timeout_s, self.resumed, self.idle_s, self.zone, self.every_s
            ),
        )

    @classmethod
    def of_campaign(
        cls,
        vantages: Iterable[str],
        names: Iterable[str],
        rounds: int,
        seed: int,
        options: Mapping[str, Any],
        where: str,
    ) -> ComparePlan:
        """Make the plan of a comparison from the parts of its campaign's plan.

        `ResolversError` if `options` are not those of a comparison.
        """
        known = checked(dict(options), CompareOptions, where=where, error=ResolversError, json_file=True)
        (name,) = names
        return cls(
            name, rounds, seed, known.timeout_s, list(known.targets), known.resumed, known.zone, tuple(vantages),
            known.every_s, known.idle_s,
        )  # fmt: skip


def _order(seed: int, round_: int, count: int) -> list[int]:
    order = list(range(count))
    random.Random(f"{seed} {round_}").shuffle(order)
    return order


@lru_cache(maxsize=64)
def _positions(seed: int, round_: int, count: int) -> dict[int, int]:
    """Position of each target in the order of a round, by the number of the target."""
    return {number: position for position, number in enumerate(_order(seed, round_, count))}


Entry = TargetVisit | OperatorStop | OperatorLimit | MissedRound | NetworkCheck | Disturbance
"""An entry in the journal of a comparison."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A comparison with all its entries."""

    plan: ComparePlan
    entries: dict[str, list[Entry]]
    """Entries by vantage point."""

    @property
    def visits(self) -> list[TargetVisit]:
        """All visits except those of voided attempts."""
        attempts = {vantage: _attempts(some) for vantage, some in self.disturbances.items()}
        return [
            entry
            for vantage, some in self.entries.items()
            for entry in some
            if isinstance(entry, TargetVisit) and entry.attempt == attempts[vantage].get(entry.round, 0)
        ]

    @property
    def disturbances(self) -> dict[str, list[Disturbance]]:
        """All disturbances of rounds, by vantage point."""
        return {
            vantage: [entry for entry in some if isinstance(entry, Disturbance)]
            for vantage, some in self.entries.items()
        }

    @property
    def stops(self) -> dict[str, str]:
        """Operators that asked to stop, each with the reason."""
        stops = (entry for some in self.entries.values() for entry in some if isinstance(entry, OperatorStop))
        return {stop.operator: stop.reason for stop in stops}

    @property
    def checks(self) -> dict[str, NetworkCheck]:
        """The latest network check of each vantage point that has one."""
        return {
            vantage: entry
            for vantage, some in self.entries.items()
            for entry in some
            if isinstance(entry, NetworkCheck)
        }


def measured_of(queries: pl.LazyFrame, events: pl.LazyFrame) -> Measured:
    """The comparison whose rows these tables contain.

    Its targets lack host names, and their paths are the default, because the tables contain neither.
    """
    named = queries.group_by("target").agg(pl.col(_TARGET).first()).sort("target").collect()
    targets = [
        ResolverTarget(resolver, operator, address, Protocol(protocol), port, role=Role(role))
        for _, resolver, operator, address, protocol, port, role in named.iter_rows()
    ]
    idle = queries.filter(state=QueryState.IDLE.value).select("idle_s").unique().collect()
    last = queries.select(pl.col("page").last(), pl.col("round").max().fill_null(0)).collect()
    plan = ComparePlan(
        last["page"].item() or "" if named.height else "",
        int(last["round"].item()) + 1,
        0,
        5.0,
        targets,
        vantages=tuple(_vantages(queries)),
        idle_s=tuple(idle["idle_s"].sort()),
    )
    numbers = {target: number for number, target in enumerate(named["target"])}
    return Measured(plan, entries_of(queries.with_columns(pl.col("target").replace(numbers)), events))


def _vantages(queries: pl.LazyFrame) -> list[str]:
    return queries.select(pl.col("link").unique().sort()).collect()["link"].to_list()


_TARGET = ("resolver", "operator", "address", "protocol", "port", "role")
"""Columns that describe a target, in the order of the fields of `ResolverTarget`."""


@dataclass(slots=True)
class _Answers:
    """Outcome of the visits of an address from one vantage point."""

    visits: int = 0
    tried: set[bool] = field(default_factory=set)
    """Kinds of transport that were tried: True for UDP, False for TCP."""
    silent: bool = True


class Progress:
    """The entries of a comparison at one vantage point, and the targets that are not queried again there.

    Parameters
    ----------
    plan
        The comparison.
    vantage
        The vantage point.
    entries
        Earlier entries.
    record
        Function that stores new entries. `add` first calls this function and then updates the object's own state.
    """

    def __init__(
        self,
        plan: ComparePlan,
        vantage: str = HERE,
        entries: Iterable[Entry] = (),
        record: Callable[[Sequence[Entry]], object] | None = None,
    ) -> None:
        self.plan, self.vantage, self.record = plan, vantage, record
        self.stops: dict[str, str] = {}
        """Operators that asked to stop, each with the reason."""
        self.check: NetworkCheck | None = None
        self.disturbances: list[Disturbance] = []
        self._visited: dict[tuple[int, int], bytearray] = {}
        """By round and attempt: 1 for each target that was visited."""
        self._idle: dict[bool, list[IdleQuery]] = {True: [], False: []}
        self._failed: dict[int, int] = {}
        self._answers: dict[str, _Answers] = {}
        self._kinds: dict[str, set[bool]] = {}
        for target in plan.targets:
            self._kinds.setdefault(target.address, set()).add(_over_udp(target))
        for entry in entries:
            self._count(entry)

    def add(self, *entries: Entry) -> None:
        """Record entries, all or none. They persist even if the process is killed afterwards."""
        if self.record is not None:
            self.record(entries)
        for entry in entries:
            self._count(entry)

    def copy(self, round_: int) -> Progress:
        """A copy with the state that another machine needs to measure a round. It has no `record`."""
        copy = Progress(self.plan, self.vantage)
        copy.stops, copy.check = dict(self.stops), self.check
        copy.disturbances = list(self.disturbances)
        copy._visited = {key: bytearray(some) for key, some in self._visited.items() if key[0] == round_}
        copy._idle = {quic: list(some) for quic, some in self._idle.items()}
        copy._failed = dict(self._failed)
        copy._answers = {address: replace(one, tried=set(one.tried)) for address, one in self._answers.items()}
        return copy

    def visited(self, round_: int, target: int) -> bool:
        """Whether a target was visited in the latest attempt at a round."""
        visited = self._visited.get((round_, self.attempt(round_)))
        return visited is not None and bool(visited[target])

    @property
    def visits(self) -> set[tuple[int, int]]:
        """Round and target of each visit, except visits of voided attempts."""
        return {
            (round_, target)
            for (round_, attempt), visited in self._visited.items()
            if attempt == self.attempt(round_)
            for target, there in enumerate(visited)
            if there
        }

    def attempt(self, round_: int) -> int:
        """Number of the latest attempt at a round, from 0."""
        return _attempts(self.disturbances).get(round_, 0)

    def voids(self, round_: int) -> int | None:
        """Number of the round's attempt that a new disturbance would void; None after `most_repeats` repetitions."""
        repeats = sum(_attempts(self.disturbances).values())
        return self.attempt(round_) if repeats < self.plan.most_repeats else None

    def idle(self, *, quic: bool) -> list[IdleQuery]:
        """All queries after idle times, over QUIC (`quic`) or over DoUDP."""
        return self._idle[quic]

    def left_alone(self, target: int) -> bool:
        """Whether a target is not queried again.

        There are three reasons. Its operator asked to stop. Or its latest `LEFT_ALONE_AFTER` visits failed. Or its
        address has had at least `LEFT_ALONE_AFTER` visits and has answered in none of them. If the address has targets
        over UDP and targets over TCP, these visits must include one over each.
        """
        one = self.plan.targets[target]
        if one.operator in self.stops or self._failed.get(target, 0) >= LEFT_ALONE_AFTER:
            return True
        answers = self._answers.get(one.address)
        return (
            answers is not None
            and answers.visits >= LEFT_ALONE_AFTER
            and answers.silent
            and answers.tried == self._kinds[one.address]
        )

    def _count(self, entry: Entry) -> None:
        if isinstance(entry, OperatorStop):
            self.stops[entry.operator] = entry.reason
        elif isinstance(entry, NetworkCheck):
            self.check = entry
        elif isinstance(entry, Disturbance):
            self.disturbances.append(entry)
        elif isinstance(entry, TargetVisit):
            round_ = (entry.round, entry.attempt)
            self._visited.setdefault(round_, bytearray(len(self.plan.targets)))[entry.target] = True
            self._failed[entry.target] = 0 if entry.error is None else self._failed.get(entry.target, 0) + 1
            target = self.plan.targets[entry.target]
            if _over_udp(target):
                self._idle[target.protocol.transport.over_quic] += entry.idle
            answers = self._answers.setdefault(target.address, _Answers())
            answers.visits += 1
            answers.tried.add(_over_udp(target))
            answers.silent = answers.silent and entry.error == SILENT


def _over_udp(target: ResolverTarget) -> bool:
    return target.protocol.transport.over_quic or target.protocol is Protocol.DOUDP


def _attempts(disturbances: Iterable[Disturbance]) -> dict[int, int]:
    """Number of the latest attempt at each repeated round, by number of the round.

    A round is repeated if a disturbance voided an attempt. Other rounds are absent.
    """
    attempts: dict[int, int] = {}
    for one in disturbances:
        if one.voids is not None:
            attempts[one.round] = max(attempts.get(one.round, 0), one.voids + 1)
    return attempts


def stopped_targets(plan: ComparePlan, stops: Mapping[str, str]) -> dict[int, str]:
    """Numbers of the targets whose operator asked to stop, each with the reason."""
    return {
        number: f"left alone: {stops[target.operator]}"
        for number, target in enumerate(plan.targets)
        if target.operator in stops
    }


# Rows of the tables


def rows_of(plan: ComparePlan, entry: Entry) -> dict[str, list[dict[str, Any]]]:
    """Rows of an entry, by table, without the columns that `Journal` adds to every row."""
    if isinstance(entry, OperatorStop):
        return _event(EventKind.STOPPED, entry.stopped_s, entry.operator, entry.reason)
    if isinstance(entry, OperatorLimit):
        return _event(EventKind.DAY_LIMIT, entry.limited_s, entry.operator, entry.reason)
    if isinstance(entry, MissedRound):
        return _event(EventKind.MISSED_ROUND, entry.missed_s, f"round {entry.round}", entry.reason, round_=entry.round)
    if isinstance(entry, NetworkCheck):
        kind = EventKind.INTERCEPTED if entry.intercepted else EventKind.NOT_INTERCEPTED
        reason = f"a query to an address where nobody is was {'' if entry.intercepted else 'not '}answered"
        return _event(kind, entry.checked_s, entry.address, reason, entry.site)
    if isinstance(entry, Disturbance):
        (event,) = _event(entry.kind, entry.noticed_s, f"round {entry.round}", entry.reason, round_=entry.round)[EVENTS]
        return {EVENTS: [event | {"attempt": entry.voids}]}
    target = plan.targets[entry.target]
    common = {
        "round": entry.round,
        "target": entry.target,
        "resolver": target.name,
        "operator": target.operator,
        "address": target.address,
        "protocol": target.protocol.value,
        "port": target.port,
        "role": target.role.value,
        "position": _positions(plan.seed, entry.round, len(plan.targets))[entry.target],
        "attempt": entry.attempt,
        "started_s": entry.started_s,
        "rtt_ms": entry.rtt_ms,
    }
    kept = QueryState.COLD if target.protocol is Protocol.DOUDP else QueryState.KEPT
    encrypted = target.protocol.transport.encrypted
    queries = (
        (QueryState.COLD, CacheUse.HIT, entry.first_ms, entry.handshake_ms, entry.error, False, entry.first_bytes),
        (QueryState.KEPT, CacheUse.HIT, entry.next_ms, 0.0, entry.next_error, False, None),
        (kept, CacheUse.MISS, entry.miss_ms, 0.0, entry.miss_error, False, None),
        (
            QueryState.RESUMED, CacheUse.HIT, entry.resumed_ms, entry.resumed_handshake_ms, entry.resumed_error,
            entry.session_resumed, entry.resumed_bytes,
        ),
        (QueryState.EARLY_DATA, CacheUse.HIT, entry.early_ms, 0.0, entry.early_error, True, None),
    )  # fmt: skip
    rows = []
    for state, cache, total_ms, handshake_ms, error, resumed, sizes in queries:
        if total_ms is None and error is None:
            continue
        own: dict[str, Any] = {"state": state.value, "cache": cache.value, "error": error}
        own["session_resumed"] = resumed if encrypted and error is None else None
        query_ms = None if total_ms is None or handshake_ms is None else total_ms - handshake_ms
        times = {"handshake_ms": None if error else handshake_ms, "query_ms": query_ms, "total_ms": total_ms}
        first = (state, cache) == (QueryState.COLD, CacheUse.HIT)
        of_parts = dict(zip(SIZES_BY_PART.values(), sizes or [None] * len(SIZES_BY_PART), strict=True))
        of_first = {"site": entry.site if first else None, "moved": entry.moved if first else None}
        rows.append(common | own | times | of_parts | of_first)
    for query in entry.idle:
        state = QueryState.IDLE_SEARCH if query.search else QueryState.IDLE
        failed = query.error is not None
        rows.append(
            common
            | {
                "state": state.value, "cache": CacheUse.HIT.value, "error": query.error, "idle_s": query.idle_s,
                "measured_idle_s": query.measured_idle_s, "moved": query.moved, "handshake_ms": None if failed else 0.0,
                "query_ms": query.time_ms, "total_ms": query.time_ms, "site": None,
                "session_resumed": False if encrypted and not failed else None,
            }
            | dict.fromkeys(SIZES_BY_PART.values())
        )  # fmt: skip
    return {QUERIES: rows}


def _event(
    kind: EventKind, when_s: float, subject: str, reason: str, site: str | None = None, round_: int = -1
) -> dict[str, list[dict[str, Any]]]:
    own = {"kind": kind.value, "when_s": when_s, "subject": subject, "reason": reason, "site": site, "round": round_}
    return {EVENTS: [own]}


def entries_of(queries: pl.LazyFrame, events: pl.LazyFrame) -> dict[str, list[Entry]]:
    """Entries by vantage point, from rows of the tables: the inverse of `rows_of`."""
    entries: dict[str, list[Entry]] = {}
    for vantage in _vantages(queries):
        visits = _visits_frame(queries.filter(link=vantage))
        plain = visits.select(one.name for one in fields(TargetVisit) if one.name not in _RARE).iter_rows()
        if visits.select(pl.any_horizontal(pl.col(_RARE).list.len().fill_null(0) > 0).any()).item():
            rare = (
                (*(part and tuple(part) for part in sizes), tuple(IdleQuery(**query) for query in idle))
                for *sizes, idle in visits.select(_RARE).iter_rows()
            )
            entries[vantage] = [TargetVisit(*values, *more) for values, more in zip(plain, rare, strict=True)]
        else:
            entries[vantage] = [TargetVisit(*values) for values in plain]
    for event in events.collect().iter_rows(named=True):
        of_vantage = entries.setdefault(event["link"], [])
        if event["kind"] == EventKind.STOPPED:
            of_vantage.append(OperatorStop(event["subject"], event["reason"], event["when_s"]))
        elif event["kind"] == EventKind.DAY_LIMIT:
            of_vantage.append(OperatorLimit(event["subject"], event["reason"], event["when_s"]))
        elif event["kind"] == EventKind.MISSED_ROUND:
            of_vantage.append(MissedRound(event["round"], event["reason"], event["when_s"]))
        elif event["kind"] in DISTURBANCES:
            kind = EventKind(event["kind"])
            of_vantage.append(Disturbance(kind, event["round"], event["reason"], event["when_s"], event["attempt"]))
        else:
            intercepted = event["kind"] == EventKind.INTERCEPTED
            of_vantage.append(NetworkCheck(event["subject"], intercepted, event["site"], event["when_s"]))
    return entries


_RARE = ("first_bytes", "resumed_bytes", "idle")
"""The last fields of `TargetVisit`, which are empty in all visits of most comparisons."""


def _visits_frame(queries: pl.LazyFrame) -> pl.DataFrame:
    """A row for each visit, in order of start. Columns are the fields of `TargetVisit`, with lists for tuples."""
    state, total, error = pl.col("state"), pl.col("total_ms"), pl.col("error")
    miss = pl.col("cache") == CacheUse.MISS
    cold, kept, early, resumed = (
        ~miss & (state == which)
        for which in (QueryState.COLD, QueryState.KEPT, QueryState.EARLY_DATA, QueryState.RESUMED)
    )
    idle = ~miss & state.is_in([QueryState.IDLE, QueryState.IDLE_SEARCH])
    handshake, parts = pl.col("handshake_ms"), pl.col(SIZES_BY_PART.values())
    sizes = pl.when(pl.all_horizontal(parts.is_not_null())).then(pl.concat_list(parts))
    idle_query = pl.struct(
        "idle_s", "measured_idle_s", time_ms=total, error=error, moved="moved", search=state == QueryState.IDLE_SEARCH
    )
    keys = ("round", "target", pl.col("attempt").fill_null(0), pl.col("link").alias("vantage"))
    visits = queries.group_by(*keys, maintain_order=True).agg(
        pl.col("started_s").first(),
        first_ms=total.filter(cold).last(),
        handshake_ms=handshake.filter(cold).last(),
        next_ms=total.filter(kept).last(),
        resumed_ms=total.filter(resumed).last(),
        resumed_handshake_ms=handshake.filter(resumed).last(),
        session_resumed=pl.col("session_resumed").filter(resumed).last(),
        miss_ms=total.filter(miss).last(),
        rtt_ms=pl.col("rtt_ms").first(),
        site=pl.col("site").filter(cold).last(),
        early_ms=total.filter(early).last(),
        moved=pl.col("moved").filter(cold).last(),
        error=error.filter(cold).last(),
        next_error=error.filter(kept).last(),
        miss_error=error.filter(miss).last(),
        resumed_error=error.filter(resumed).last(),
        early_error=error.filter(early).last(),
        first_bytes=sizes.filter(cold).last(),
        resumed_bytes=sizes.filter(resumed).last(),
        idle=idle_query.filter(idle),
    )
    return visits.sort("started_s", maintain_order=True).collect()
