"""Measure resolvers in rounds. Each round visits every target once, in random order, with operators interleaved.

Only one query is in flight at a time, so that queries do not delay each other. While the rate limit of one operator
requires a wait, queries go to other operators.
"""

from __future__ import annotations

import heapq
import itertools
import ssl
import time
from collections.abc import Container, Generator, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from crosslayer.dns import (
    DEFAULT_PORTS,
    Answer,
    Capture,
    Client,
    ClientSettings,
    DnsError,
    ExchangeResult,
    Protocol,
    Question,
    Resolver,
    Resumption,
    Session,
    SessionStore,
    Sizes,
    build_query,
    check_answer,
    client_for,
    exchange,
    sizes,
    tcp_rtt,
)
from crosslayer.dns.exchange import NO_TICKET
from crosslayer.dns.timing import PhaseName, collector_paused
from crosslayer.resolvers.clocks import ClockReading, elapsed_s
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.idle import forgetting
from crosslayer.resolvers.ledger import DayLimitError, QueryLedger
from crosslayer.resolvers.manners import NOBODY, early, priming_queries, resumable, visit_queries
from crosslayer.resolvers.plan import (
    ComparePlan,
    Disturbance,
    IdleQuery,
    NetworkCheck,
    OperatorLimit,
    OperatorStop,
    Progress,
    TargetVisit,
)
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.testbed import outside
from crosslayer.vocabulary import SIZES_BY_PART, EventKind

_SYSTEM_CA = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_CACHED_FOR_S = 10.0
"""Time for which the resolver must still cache the answer when a visit begins, s.

If the remaining time is shorter, a separate query fills the cache again before the visit.
"""
_SOON_S = 3.0
"""As `_CACHED_FOR_S`, but before a query on an idle connection."""
_TTL_STEP_S = 1.0
"""Resolution of a TTL, s: a cached answer may expire this much later than its TTL, which is rounded down."""
_CHECK_S = 2.0
"""Maximum wait for an answer to the network check, s. A middlebox that answers is near."""
_AT_ONCE = 5
"""Number of operators whose visits are interleaved, query by query.

With more operators, the queries of a visit would be so far apart that servers close kept connections.
"""
_SETTLE_S = 0.1
"""Time for which a client still receives tickets and path MTU probes after an answer, s.

`_settle` adds 1.5 times the duration of the handshake.
"""
_NO_TICKET = "the server sent no session ticket"
_RESET = "connection reset"
_SHORT_S = 10.0
"""Idle time up to which no network forgets a flow, s.

If a server sees another address of the client after a shorter time, the cause is a disturbance.
"""
_RESETS = 2
"""A round counts as disturbed if at least this number of operators reset TCP connections in it.

One operator does not suffice, because it may have restarted its server.
"""
Steps = Iterator[float | TargetVisit]
"""Steps of an operator: the time (CLOCK_MONOTONIC, s) at which its next query may leave, or a finished visit."""


def needs_check(plan: ComparePlan, not_asked: Container[int]) -> bool:
    """Whether a comparison needs the network check, i.e. sends queries to UDP port 53.

    Some networks intercept these queries.
    """
    return any(
        target.protocol is Protocol.DOUDP and target.port == Protocol.DOUDP.transport.port and number not in not_asked
        for number, target in enumerate(plan.targets)
    )


def _check_network(plan: ComparePlan) -> NetworkCheck:
    """Send a query to an address that no host has. Only a middlebox can answer it."""
    wait_s = min(plan.timeout_s, _CHECK_S)
    settings = ClientSettings(timeout_s=wait_s, udp_retransmit_s=2 * wait_s)
    query = build_query(Question(plan.name), Protocol.DOUDP, settings, nsid=True)
    answer: Answer | None = None
    with suppress(DnsError), client_for(Protocol.DOUDP, Resolver(NOBODY), settings) as client:
        client.connect(query)
        answer = check_answer(client.query(query), query)
    return NetworkCheck(NOBODY, answer is not None, answer.nsid if answer else None, time.time())


def _interleaved(operators: Iterable[Steps]) -> Generator[TargetVisit, None, None]:
    """Run the steps of the operators in turn; yields the visits.

    At most `_AT_ONCE` operators take turns. The next step is that of the operator whose query is due first.
    """
    pending = enumerate(operators)
    waiting = [(0.0, number, steps) for number, steps in itertools.islice(pending, _AT_ONCE)]
    while waiting:
        ready_s, number, steps = heapq.heappop(waiting)
        time.sleep(max(0.0, ready_s - time.monotonic()))
        step = next(steps, None)
        if isinstance(step, TargetVisit):
            yield step
            heapq.heappush(waiting, (time.monotonic(), number, steps))
        elif step is not None:
            heapq.heappush(waiting, (step, number, steps))
        elif (following := next(pending, None)) is not None:
            heapq.heappush(waiting, (time.monotonic(), *following))


class Visitor:
    """Visits the targets of a comparison from one vantage point, one round at a time.

    Parameters
    ----------
    progress
        Entries so far; visits are added to it.
    ledger
        Rates and limits of the operators.
    ca_file
        File of trusted CAs.
    not_asked
        Numbers of targets that are never queried.
    capture
        Counts the bytes of queries on new connections; see `capture_here`.
    rounds
        Rounds that this visitor measures; all rounds by default.
    """

    def __init__(
        self,
        progress: Progress,
        ledger: QueryLedger,
        *,
        ca_file: Path | None,
        not_asked: Container[int] = (),
        capture: Capture | None = None,
        rounds: Iterable[int] | None = None,
    ) -> None:
        self._progress, self._plan, self._ledger, self._ca_file = progress, progress.plan, ledger, ca_file
        self._not_asked, self._capture = not_asked, capture
        self.limited: dict[str, str] = {}
        """Operators that were left out of the latest round because of their daily limit, each with a message."""
        self._limits: set[tuple[str, str]] = set()
        # A UDP query is sent once, so that the budget holds.
        timeout_s, idle_s = self._plan.timeout_s, max(self._plan.idle_s, default=0.0)
        self._settings = ClientSettings(
            timeout_s=timeout_s, udp_retransmit_s=2 * timeout_s, idle_timeout_s=2 * idle_s + timeout_s
        )
        self._question = Question(self._plan.name)
        measured = range(self._plan.rounds) if rounds is None else tuple(rounds)
        rounds_of = dict[str, set[int]]()
        for number, target in enumerate(self._plan.targets):
            missing = {round_ for round_ in measured if not progress.visited(round_, number)}
            rounds_of.setdefault(target.address, set()).update(missing)
        self._priming_left = {
            address: priming_queries(self._plan, len(missing)) for address, missing in rounds_of.items()
        }
        self._cached_until_s: dict[str, float] = {}
        self._local: dict[str, str | None] = {}
        """Source address of packets to each target address, at the start of the attempt."""
        self._measured_idle_s: dict[int, float] = {}
        """Longest time without packets on the first connection of each target's latest visit."""

    def round(self, round_: int) -> Iterator[TargetVisit]:
        """Make the missing visits of a round, add them to the progress, and yield them.

        An operator that reached its daily limit is left out. After a disturbance, e.g. another address of the client,
        the round starts again, at most `most_repeats` times in all rounds together.
        """
        plan, progress = self._plan, self._progress
        self.limited = {}
        if progress.check is None and needs_check(plan, self._not_asked):
            progress.add(_check_network(plan))
        while True:
            by_operator: dict[str, list[int]] = {}
            for number in plan.order(round_):
                if number not in self._not_asked and not progress.visited(round_, number):
                    by_operator.setdefault(plan.targets[number].operator, []).append(number)
            disturbance = yield from self._attempt(round_, by_operator.values())
            if disturbance is None:
                return
            progress.add(disturbance)
            if disturbance.voids is None:
                return
            for address in self._priming_left:
                self._priming_left[address] += 1

    def _attempt(self, round_: int, operators: Iterable[list[int]]) -> Generator[TargetVisit, None, Disturbance | None]:
        """Make the visits of a round; returns the first disturbance, or None.

        A disturbed round ends at once if it will be measured again; otherwise it is completed.
        """
        self._local = {address: outside.local_address(address) for address in self._priming_left}
        clocks, reset = ClockReading.now(), set[str]()
        disturbance: Disturbance | None = None
        with closing(_interleaved([self._steps(round_, numbers) for numbers in operators])) as visits:
            for visit in visits:
                self._progress.add(visit)
                yield visit
                event = self._disturbed(visit, clocks, reset)
                if event is not None and disturbance is None:
                    disturbance = Disturbance(event[0], round_, event[1], time.time(), self._progress.voids(round_))
                    if disturbance.voids is not None:
                        break
        return disturbance

    def _disturbed(self, visit: TargetVisit, clocks: ClockReading, reset: set[str]) -> tuple[EventKind, str] | None:
        """The event that disturbed the round of a visit, with its evidence; None if there is none.

        `reset` collects the operators that reset a kept connection in this round.
        """
        if (event := clocks.disturbed(ClockReading.now())) is not None:
            return event
        target = self._plan.targets[visit.target]
        if outside.local_address(target.address) != self._local[target.address]:
            return EventKind.ADDRESS_CHANGED, "this machine has another address of its own"
        if self._measured_idle_s.get(visit.target, 0.0) <= _SHORT_S:
            if visit.moved:
                return EventKind.ADDRESS_CHANGED, f"{target.label} validated another address or port of the client"
            if _RESET in (visit.next_error, visit.miss_error):
                reset.add(target.operator)
        if len(reset) >= _RESETS:
            return EventKind.ADDRESS_CHANGED, f"kept connections to {len(reset)} operators were reset"
        return None

    def _steps(self, round_: int, numbers: Iterable[int]) -> Steps:
        """Visit targets of one operator."""
        for number in numbers:
            if self._progress.left_alone(number):
                continue
            target = self._plan.targets[number]
            needed = visit_queries(self._plan, target.protocol) + 1
            try:
                if self._ledger.left(target.operator) < needed:
                    raise DayLimitError(
                        f"has got its {self._ledger.per_day} queries of today (UTC)",
                        where=target.operator,
                        next_step="Continue tomorrow with --resume.",
                    )
                visit = TargetVisit(
                    round_,
                    number,
                    time.time(),
                    vantage=self._progress.vantage,
                    attempt=self._progress.attempt(round_),
                )
                yield (yield from self._visit(visit, target))
            except DayLimitError as limit:
                today = time.strftime("%Y-%m-%d", time.gmtime())
                if (target.operator, today) not in self._limits:
                    self._limits.add((target.operator, today))
                    self._progress.add(OperatorLimit(target.operator, limit.what, time.time()))
                self.limited[target.operator] = str(limit)
                return

    def _visit(self, visit: TargetVisit, target: ResolverTarget) -> Generator[float, None, TargetVisit]:
        """Visit a target: fill the cache if necessary, measure the path RTT, and make the queries of the visit."""
        server, protocol = resolver_of(target, self._ca_file), target.protocol
        error = yield from self._primed(target, server, _CACHED_FOR_S)
        if error is not None:  # the failed query uses the budget of the first query, which is not sent
            return replace(visit, error=error)
        visit = replace(visit, rtt_ms=self._path_rtt_ms(target))
        yield from self._turn(target)
        session = Session()
        moved = False if protocol.transport.over_quic else None
        self._measured_idle_s[visit.target] = 0.0
        with client_for(protocol, server, self._settings) as client:
            with self._capture.record() if self._capture else nullcontext() as recording:
                error, answer = self._ask(client, target, connect=True)
            if error is not None:
                return replace(visit, error=error)
            visit = replace(visit, first_bytes=_parts(sizes(client, recording, time.time_ns())))
            handshake_ms = client.timeline.duration_ms(PhaseName.HANDSHAKE) or 0.0
            first_ms = handshake_ms + _query_ms(client)
            visit = replace(visit, first_ms=first_ms, handshake_ms=handshake_ms, site=answer.nsid if answer else None)
            if protocol is not Protocol.DOUDP:
                _settle(client, handshake_ms)
                yield from self._turn(target, visit)
                error, _ = self._ask(client, target, connect=False)
                if error is not None:
                    return replace(visit, next_error=error)
                visit = replace(visit, next_ms=_query_ms(client))
            if self._plan.zone:
                _settle(client, handshake_ms)
                yield from self._turn(target, visit)
                label = f"{self._plan.seed:x}-{visit.round}-{visit.target}-{visit.attempt}-{visit.vantage}"
                error, _ = self._ask(client, target, connect=False, name=f"{label}.{self._plan.zone}")
                if error is not None:
                    return replace(visit, miss_error=error)
                visit = replace(visit, miss_ms=_query_ms(client))
            _settle(client, handshake_ms)
            visit = replace(visit, moved=moved if moved is None else client.path_challenges > 0)
            for idle_s, search in self._idle_times(target):
                asked = yield from self._after_idle(client, target, server, idle_s, handshake_ms, search=search)
                visit = replace(visit, idle=(*visit.idle, asked))
                if asked.error is not None:
                    break
            session = client.session
        if not self._plan.resumed or not resumable(protocol):
            return visit
        if session.ticket is None:
            return replace(visit, resumed_error=_NO_TICKET)
        yield from self._turn(target)
        sessions = SessionStore()
        sessions.put(server, protocol, session)
        again = self._again(target, server, Resumption.TICKET, sessions)
        if again.error is not None:
            return replace(visit, resumed_error=again.error)
        handshake_ms = again.handshake_ms or 0.0
        visit = replace(
            visit,
            resumed_ms=handshake_ms + (again.query_ms or 0.0),
            resumed_handshake_ms=handshake_ms,
            session_resumed=again.session_resumed,
            resumed_bytes=_parts(again),
        )
        if not early(protocol):
            return visit
        yield from self._turn(target)
        again = self._again(target, server, Resumption.EARLY_DATA, sessions)
        return replace(visit, early_error=again.error, early_ms=None if again.error else again.total_ms)

    def _again(
        self, target: ResolverTarget, server: Resolver, resumption: Resumption, sessions: SessionStore
    ) -> ExchangeResult:
        """Send a query on a new connection with a session ticket."""
        result = exchange(
            server,
            self._question,
            target.protocol,
            resumption,
            sessions=sessions,
            settings=self._settings,
            capture=self._capture,
        )
        self._heed(target, result.error)
        return replace(result, error=_NO_TICKET) if result.error == NO_TICKET else result

    def _idle_times(self, target: ResolverTarget) -> list[tuple[float, bool]]:
        """Idle times of a visit, s, ascending; for each, whether it is part of the search.

        The search finds the time after which the network forgets a flow. It begins as soon as a flow was forgotten.
        Each later visit over UDP then has one more idle time, which lies between the known bounds of the sought time.
        """
        times = [(idle_s, False) for idle_s in self._plan.idle_s]
        quic = target.protocol.transport.over_quic
        if times and (quic or target.protocol is Protocol.DOUDP):
            known = forgetting(self._progress.idle(quic=quic))
            if known is not None and known.next_s is not None:
                times.append((known.next_s, True))
        return sorted(times)

    def _after_idle(
        self,
        client: Client,
        target: ResolverTarget,
        server: Resolver,
        idle_s: float,
        handshake_ms: float,
        *,
        search: bool,
    ) -> Generator[float, None, IdleQuery]:
        """Leave a connection idle, then send a query on it."""
        since_s, challenges = time.monotonic(), client.path_challenges
        yield since_s + idle_s
        yield from self._primed(target, server, _SOON_S)
        yield from self._turn(target)
        measured_idle_s = time.monotonic() - since_s
        error, _ = self._ask(client, target, connect=False, after_idle=True)
        if error is not None:
            return IdleQuery(idle_s, measured_idle_s, error=error, search=search)
        time_ms = _query_ms(client)
        _settle(client, handshake_ms)
        moved = client.path_challenges > challenges if target.protocol.transport.over_quic else None
        return IdleQuery(idle_s, measured_idle_s, time_ms, moved=moved, search=search)

    def _turn(self, target: ResolverTarget, visit: TargetVisit | None = None) -> Iterator[float]:
        """Wait until the operator's limits allow a query to the target.

        `visit` is given if the query is on the visit's first connection. The wait then counts as idle time of this
        connection.
        """
        since_s = time.monotonic()
        while ready_s := self._ledger.take(target.operator):
            yield time.monotonic() + ready_s - time.time()
        if visit is not None:
            self._measured_idle_s[visit.target] = max(self._measured_idle_s[visit.target], time.monotonic() - since_s)

    def _primed(self, target: ResolverTarget, server: Resolver, least_s: float) -> Generator[float, None, str | None]:
        """Fill the resolver's cache by a query on a separate connection; returns the error of this query.

        Nothing is sent in three cases: the cached answer remains valid for at least `least_s`, the budget of queries
        that fill the cache is spent, or a middlebox answers all queries to the target. If the cached answer remains
        valid for a shorter time, the query waits until it has expired. An earlier query would not renew the cached
        answer.
        """
        cached_for_s = self._cached_until_s.get(target.address, 0.0) - elapsed_s()
        if cached_for_s >= least_s or self._priming_left[target.address] <= 0 or self._intercepted(target):
            return None
        if cached_for_s > 0:
            yield time.monotonic() + cached_for_s + _TTL_STEP_S
        yield from self._turn(target)
        with client_for(target.protocol, server, self._settings) as client:
            error = self._ask(client, target, connect=True)[0]
        if error is None:
            self._priming_left[target.address] -= 1
        return error

    def _intercepted(self, target: ResolverTarget) -> bool:
        """Whether a middlebox answers instead of the target, so that queries do not fill the resolver's cache."""
        check = self._progress.check
        return check is not None and check.intercepted and target.protocol is Protocol.DOUDP

    def _ask(
        self, client: Client, target: ResolverTarget, *, connect: bool, name: str = "", after_idle: bool = False
    ) -> tuple[str | None, Answer | None]:
        """Send one query; returns the error (None for a good answer) and the answer.

        The outcome changes the limits of the operator. On an idle connection (`after_idle`), silence and a closed
        connection do not count against the operator.
        """
        question = Question(name) if name else self._question
        query = build_query(question, target.protocol, self._settings, nsid=True)
        answer: Answer | None = None
        try:
            with collector_paused():
                if connect:
                    client.connect(query)
                wire = client.query(query)
            answer = check_answer(wire, query)
            error = answer.error
        except DnsError as fault:
            error = fault.what
        if not after_idle or answer is not None:
            self._heed(target, error, answer)
        if not (name or error or self._intercepted(target)) and answer is not None and answer.ttl_s is not None:
            # A TTL includes the time that the answer spent in an HTTP cache (RFC 8484, section 5.1).
            self._cached_until_s[target.address] = elapsed_s() + answer.ttl_s - client.age_s
        return error, answer

    def _heed(self, target: ResolverTarget, error: str | None, answer: Answer | None = None) -> None:
        """Apply the outcome of a query to its operator's limits; record if the operator asks to stop."""
        reason = self._ledger.heed(target.operator, error, answer.extended_error if answer else None)
        if reason is not None and target.operator not in self._progress.stops:
            self._progress.add(OperatorStop(target.operator, reason, time.time()))

    def _path_rtt_ms(self, target: ResolverTarget) -> float | None:
        """RTT of the path to the address of a target, ms: a TCP connect to one of its listed ports.

        None if the address has no listed TCP port or the connect fails.
        """
        ports = [
            other.port
            for other in self._plan.targets
            if other.address == target.address
            and not other.protocol.transport.over_quic
            and other.protocol is not Protocol.DOUDP
        ]
        if not ports:
            return None
        try:
            return tcp_rtt(Resolver(target.address), port=ports[0], timeout_s=self._plan.timeout_s)
        except DnsError:
            return None


@contextmanager
def capture_here() -> Iterator[Capture | None]:
    """Yield a capture of this network namespace; None if packet sockets are not allowed (CAP_NET_RAW)."""
    with ExitStack() as stack:
        capture: Capture | None = None
        with suppress(DnsError):
            capture = stack.enter_context(Capture())
        yield capture


def _parts(counted: Sizes | ExchangeResult) -> tuple[int, ...] | None:
    """Bytes by the columns of `SIZES_BY_PART`; None if they were not captured."""
    parts = tuple(getattr(counted, column) for column in SIZES_BY_PART.values())
    return None if None in parts else parts


def system_ca() -> Path:
    """The system's file of trusted CAs; `ResolversError` if there is none."""
    for name in (ssl.get_default_verify_paths().cafile, *_SYSTEM_CA):
        if name and Path(name).is_file():
            return Path(name)
    raise ResolversError("this system has no file of trusted CAs", where="--ca", next_step="Name a PEM file with --ca.")


def resolver_of(target: ResolverTarget, ca_file: Path | None) -> Resolver:
    """The server of a target, as the `Resolver` that clients need."""
    return Resolver(
        target.address,
        target.host,
        ca_file if target.protocol.transport.encrypted else None,
        ports={**DEFAULT_PORTS, target.protocol: target.port},
        path=target.path,
    )


def _settle(client: Client, handshake_ms: float) -> None:
    """Receive what a server still sends over QUIC, for `_SETTLE_S` plus 1.5 times the handshake's duration.

    Errors are ignored: if the connection has ended, its next query fails.
    """
    with suppress(DnsError):
        client.settle(_SETTLE_S + 1.5 * handshake_ms / 1000)


def _query_ms(client: Client) -> float:
    duration_ms = client.timeline.duration_ms(PhaseName.QUERY)
    assert duration_ms is not None, "an answered query was timed"
    return duration_ms
