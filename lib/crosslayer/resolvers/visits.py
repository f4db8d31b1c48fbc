"""Measure resolvers in rounds: every target once a round, in a drawn order. Every row is written at once."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from crosslayer.decode import checked
from crosslayer.dns import (
    DEFAULT_PORTS,
    ClientSettings,
    DnsError,
    Protocol,
    Question,
    Resolver,
    Resumption,
    SessionStore,
    build_query,
    check_answer,
    client_for,
    exchange,
    tcp_rtt,
)
from crosslayer.dns.timing import PhaseName, collector_paused
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import ResolverTarget
from crosslayer.resolvers.manners import Turn, resumable

_PHASES = (PhaseName.HANDSHAKE, PhaseName.QUERY)
LEFT_ALONE_AFTER = 3
"""A target that fails in so many visits in succession is not asked again."""
_NO_TICKET = "the server sent no session ticket"


@dataclass(frozen=True, slots=True)
class TargetVisit:
    """One visit of a target: a row of the file. Times are in ms, None where they were not measured."""

    round: int
    target: int
    """Number of the target in the plan, from 0."""
    started_s: float
    """Start, seconds since the Unix epoch."""
    first_ms: float | None = None
    """First query on a new connection without a ticket, from its first packet to the answer."""
    next_ms: float | None = None
    """Next query on the same connection."""
    resumed_ms: float | None = None
    """Query on a new connection with a session ticket."""
    rtt_ms: float | None = None
    """RTT of the path: TCP connect."""
    error: str | None = None
    """Why the first query failed; None if it succeeded."""
    next_error: str | None = None
    resumed_error: str | None = None


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """What a comparison measures: the first row of its file."""

    name: str
    """Domain name of the queries (type A)."""
    rounds: int
    seed: int
    """Seed of the order in each round."""
    timeout_s: float
    targets: list[ResolverTarget]

    def order(self, round_: int) -> list[int]:
        """Numbers of the targets in the order of a round."""
        order = list(range(len(self.targets)))
        random.Random(f"{self.seed} {round_}").shuffle(order)
        return order


@dataclass(slots=True)
class Journal:
    """The JSON Lines file of a comparison: its plan and its visits, each written as soon as it exists."""

    plan: ComparePlan
    visits: list[TargetVisit]
    _stream: TextIO

    @classmethod
    def create(cls, path: Path, plan: ComparePlan) -> Journal:
        """A new file; `ResolversError` if it exists or cannot be written."""
        try:
            stream = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise ResolversError(
                "exists already",
                where=str(path),
                next_step="Continue it with --resume, or name another file with --out.",
            ) from None
        except OSError as error:
            raise _unusable(path, error) from None
        journal = cls(plan, [], stream)
        journal._write(asdict(plan))
        return journal

    @classmethod
    def resume(cls, path: Path, plan: ComparePlan) -> Journal:
        """Continue a file, which has the same plan except for its rounds and its seed.

        An incomplete last line is removed. `ResolversError` if the file is missing or is of another comparison.
        """
        try:
            data = path.read_bytes()
            whole = data[: data.rfind(b"\n") + 1]
            first, *rest = whole.decode("utf-8").splitlines()
            kept = checked(json.loads(first), ComparePlan, where=f"{path}, line 1", error=ResolversError)
            visits = [
                checked(json.loads(line), TargetVisit, where=f"{path}, line {number}", error=ResolversError)
                for number, line in enumerate(rest, start=2)
            ]
        except OSError as error:
            raise _unusable(path, error) from None
        except ValueError:
            raise ResolversError(
                "is not a file of `crosslayer compare`", where=str(path), next_step="Name the file of --out."
            ) from None
        same = replace(plan, seed=kept.seed)
        if replace(kept, rounds=plan.rounds) != same or any(not 0 <= v.target < len(plan.targets) for v in visits):
            raise ResolversError(
                "is of another comparison (resolvers, transports, --name or --timeout)",
                where=str(path),
                next_step="Give the same arguments as before, or name another file with --out.",
            )
        if len(whole) < len(data):
            os.truncate(path, len(whole))
        return cls(same, visits, path.open("a", encoding="utf-8"))

    def add(self, visit: TargetVisit) -> None:
        """Write a visit; it is in the file when this returns, also if the process is killed afterwards."""
        self._write(asdict(visit))
        self.visits.append(visit)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def left_alone(self, target: int) -> bool:
        """Whether the latest visits of a target failed so often that it is not asked again."""
        errors = [visit.error for visit in self.visits if visit.target == target][-LEFT_ALONE_AFTER:]
        return len(errors) == LEFT_ALONE_AFTER and None not in errors

    def _write(self, row: dict[str, Any]) -> None:
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()


def visits(journal: Journal, *, ca_file: Path | None, queries_per_s: float) -> Iterator[TargetVisit]:
    """Make the visits that the journal lacks, add them to it, and yield them.

    Within a round, a target whose operator has a pause comes later.
    """
    plan = journal.plan
    turns = {target.operator: Turn(queries_per_s) for target in plan.targets}
    visited = {(visit.round, visit.target) for visit in journal.visits}
    for round_ in range(plan.rounds):
        waiting = [number for number in plan.order(round_) if (round_, number) not in visited]
        while waiting := [number for number in waiting if not journal.left_alone(number)]:
            now = time.monotonic()
            number = min(waiting, key=lambda number: max(now, turns[plan.targets[number].operator].ready_s))
            waiting.remove(number)
            visit = _visit(plan, round_, number, turns[plan.targets[number].operator], ca_file)
            journal.add(visit)
            yield visit


def _visit(plan: ComparePlan, round_: int, number: int, turn: Turn, ca_file: Path | None) -> TargetVisit:
    """An identical query fills the cache; then path RTT, first query, next query and resumed query."""
    target, question = plan.targets[number], Question(plan.name)
    server, protocol = resolver_of(target, ca_file), target.protocol
    # A UDP query is sent once, so that the budget holds.
    settings = ClientSettings(timeout_s=plan.timeout_s, udp_retransmit_s=2 * plan.timeout_s)
    sessions = SessionStore()
    visit = TargetVisit(round_, number, time.time())
    turn.wait()
    priming = resumable(protocol)
    prime = exchange(server, question, protocol, sessions=sessions, settings=settings, priming=priming)
    no_ticket = prime.error == _NO_TICKET
    error = None if no_ticket else prime.error
    turn.heed(error)
    if error is not None:
        return replace(visit, error=error)
    visit = replace(visit, rtt_ms=_path_rtt_ms(plan, target))
    turn.wait()
    visit = _kept(visit, server, question, protocol, settings, turn)
    if visit.error is not None or not priming:
        return visit
    if no_ticket:
        return replace(visit, resumed_error=_NO_TICKET)
    turn.wait()
    resumed = exchange(server, question, protocol, Resumption.TICKET, sessions=sessions, settings=settings)
    turn.heed(resumed.error)
    if resumed.error is not None:
        return replace(visit, resumed_error=resumed.error)
    return replace(visit, resumed_ms=(resumed.handshake_ms or 0.0) + (resumed.query_ms or 0.0))


def _kept(
    visit: TargetVisit, server: Resolver, question: Question, protocol: Protocol, settings: ClientSettings, turn: Turn
) -> TargetVisit:
    """The first query on a new connection, and the next one on the same connection."""
    with client_for(protocol, server, settings) as client:
        query = build_query(question, protocol, settings)
        try:
            with collector_paused():
                client.connect(query)
                wire = client.query(query)
            error = check_answer(wire, query).error
        except DnsError as fault:
            error = fault.what
        turn.heed(error)
        if error is not None:
            return replace(visit, error=error)
        handshake, first = (client.timeline.duration_ms(name) for name in _PHASES)
        assert first is not None, "an answered query was timed"
        visit = replace(visit, first_ms=(handshake or 0.0) + first)
        turn.wait()
        query = build_query(question, protocol, settings)
        try:
            with collector_paused():
                wire = client.query(query)
            error = check_answer(wire, query).error
        except DnsError as fault:
            error = fault.what
        turn.heed(error)
        if error is not None:
            return replace(visit, next_error=error)
        return replace(visit, next_ms=client.timeline.duration_ms(_PHASES[1]))


def resolver_of(target: ResolverTarget, ca_file: Path | None) -> Resolver:
    """The server of a target."""
    return Resolver(
        target.address,
        target.host,
        ca_file if target.protocol.transport.encrypted else None,
        ports={**DEFAULT_PORTS, target.protocol: target.port},
        path=target.path,
    )


def _path_rtt_ms(plan: ComparePlan, target: ResolverTarget) -> float | None:
    """RTT of the path to the address of a target, ms: TCP connect to a port that it lists; None without one."""
    ports = [
        other.port
        for other in plan.targets
        if other.address == target.address
        and not other.protocol.transport.over_quic
        and other.protocol != Protocol.DOUDP
    ]
    if not ports:
        return None
    try:
        return tcp_rtt(Resolver(target.address), port=ports[0], timeout_s=plan.timeout_s)
    except DnsError:
        return None


def _unusable(path: Path, error: OSError) -> ResolversError:
    return ResolversError(
        f"cannot be used ({error.strerror})", where=str(path), next_step="Name another file with --out."
    )
