"""Measure resolvers in rounds: every target once a round, in a drawn order, the operators interleaved.

Only one query is under way at a time, so that none delays another. While the rate limit of one operator lets it wait,
others are asked.
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
"""An answer must stay in the resolver's cache for so long, otherwise a query fills the cache before a visit."""
_SOON_S = 3.0
"""The same before a query on an idle connection."""
_TTL_STEP_S = 1.0
"""A TTL is rounded down to whole seconds, so that an entry may end so much later."""
_CHECK_S = 2.0
"""A middlebox is near: it answers in this time."""
_AT_ONCE = 5
"""Operators that are interleaved. With more, each waits so long for its turn that servers close kept connections."""
_SETTLE_S = 0.1
"""A server sends tickets and probes of the path's MTU for so long after an answer."""
_NO_TICKET = "the server sent no session ticket"
_RESET = "connection reset"
_SHORT_S = 10.0
"""No network forgets a flow after so short a time without packets: another cause is its new address."""
_RESETS = 2
"""Operators whose kept TCP connections are reset in one round: one alone may have restarted its server."""
Steps = Iterator[float | TargetVisit]
"""Steps of an operator: the time (CLOCK_MONOTONIC, s) at which its next query may leave, or a visit that ended."""


def needs_check(plan: ComparePlan, not_asked: Container[int]) -> bool:
    """Whether a comparison asks over UDP port 53, which networks intercept."""
    return any(
        target.protocol is Protocol.DOUDP and target.port == Protocol.DOUDP.transport.port and number not in not_asked
        for number, target in enumerate(plan.targets)
    )


def _check_network(plan: ComparePlan) -> NetworkCheck:
    """Ask at an address where nobody is: an answer is a middlebox's."""
    wait_s = min(plan.timeout_s, _CHECK_S)
    settings = ClientSettings(timeout_s=wait_s, udp_retransmit_s=2 * wait_s)
    query = build_query(Question(plan.name), Protocol.DOUDP, settings, nsid=True)
    answer: Answer | None = None
    with suppress(DnsError), client_for(Protocol.DOUDP, Resolver(NOBODY), settings) as client:
        client.connect(query)
        answer = check_answer(client.query(query), query)
    return NetworkCheck(NOBODY, answer is not None, answer.nsid if answer else None, time.time())


def _interleaved(operators: Iterable[Steps]) -> Generator[TargetVisit, None, None]:
    """Advance the steps of all operators, always those that have waited longest for their turn; yields the visits."""
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
    """Visits the targets of a comparison from one vantage point, a round at a time.

    Parameters
    ----------
    progress
        What was measured before; visits are added to it.
    ledger
        Rates and limits of the operators.
    ca_file
        Trusted CAs.
    not_asked
        Numbers of targets that are never asked.
    capture
        Counts the bytes of queries on new connections; see `capture_here`.
    """

    def __init__(
        self,
        progress: Progress,
        ledger: QueryLedger,
        *,
        ca_file: Path | None,
        not_asked: Container[int] = (),
        capture: Capture | None = None,
    ) -> None:
        self._progress, self._plan, self._ledger, self._ca_file = progress, progress.plan, ledger, ca_file
        self._not_asked, self._capture = not_asked, capture
        self.limited: dict[str, str] = {}
        """Operators that were left out of the latest round: they got their queries of the day. Each with the reason."""
        self._limits: set[tuple[str, str]] = set()
        # A UDP query is sent once, so that the budget holds.
        timeout_s, idle_s = self._plan.timeout_s, max(self._plan.idle_s, default=0.0)
        self._settings = ClientSettings(
            timeout_s=timeout_s, udp_retransmit_s=2 * timeout_s, idle_timeout_s=2 * idle_s + timeout_s
        )
        self._question = Question(self._plan.name)
        rounds = dict[str, set[int]]()
        for number, target in enumerate(self._plan.targets):
            missing = {round_ for round_ in range(self._plan.rounds) if not progress.visited(round_, number)}
            rounds.setdefault(target.address, set()).update(missing)
        self._priming_left = {address: priming_queries(self._plan, len(missing)) for address, missing in rounds.items()}
        self._cached_until_s: dict[str, float] = {}
        self._local: dict[str, str | None] = {}
        """Address of this machine towards each address, at the start of the attempt."""
        self._measured_idle_s: dict[int, float] = {}
        """The longest time without packets on the first connection of the latest visit of a target."""

    def round(self, round_: int) -> Iterator[TargetVisit]:
        """Make the visits that a round lacks, add them to the progress, and yield them.

        An operator that got its queries of today is left out. If the client's address or clock changes meanwhile, the
        round begins again, unless so many rounds were measured again that the budget allows no more.
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
        """Make the visits of a round until it is complete or disturbed; returns what disturbed it.

        A round that is not measured again is completed.
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
        """What disturbed the round of a visit, with its evidence.

        `reset` has the operators that reset a kept connection in this round, and gets that of this visit.
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
        """A query that fills the cache where it is needed; then path RTT, first, next and resumed query."""
        server, protocol = resolver_of(target, self._ca_file), target.protocol
        error = yield from self._primed(target, server, _CACHED_FOR_S)
        if error is not None:  # it takes the budget of the first query, which is not sent
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
        """Ask on a new connection with a session ticket."""
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
        """Idle times of a visit, ascending; of UDP also one, marked, that narrows down when the network forgets it."""
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
        """Leave a connection idle, and ask on it."""
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
        """Wait until a query to the target may leave: one on the first connection of a visit, if that is given."""
        since_s = time.monotonic()
        while ready_s := self._ledger.take(target.operator):
            yield time.monotonic() + ready_s - time.time()
        if visit is not None:
            self._measured_idle_s[visit.target] = max(self._measured_idle_s[visit.target], time.monotonic() - since_s)

    def _primed(self, target: ResolverTarget, server: Resolver, least_s: float) -> Generator[float, None, str | None]:
        """Fill the cache by a query on a connection of its own, unless it has the name for `least_s` more seconds.

        Returns the error. An entry that ends earlier is let expire before, since a query does not prolong it. Nothing
        is sent if the budget of such queries is spent.
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
        """Whether a middlebox answers in place of the target: then the resolver's cache is not filled."""
        check = self._progress.check
        return check is not None and check.intercepted and target.protocol is Protocol.DOUDP

    def _ask(
        self, client: Client, target: ResolverTarget, *, connect: bool, name: str = "", after_idle: bool = False
    ) -> tuple[str | None, Answer | None]:
        """Ask once and heed the outcome; returns the error, None for a good answer, and the answer.

        Of a idle connection (`after_idle`), silence and a closed connection are no fault of the operator.
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
            self._cached_until_s[target.address] = elapsed_s() + answer.ttl_s
        return error, answer

    def _heed(self, target: ResolverTarget, error: str | None, answer: Answer | None = None) -> None:
        """Heed what an operator wants, by the outcome of a query."""
        reason = self._ledger.heed(target.operator, error, answer.extended_error if answer else None)
        if reason is not None and target.operator not in self._progress.stops:
            self._progress.add(OperatorStop(target.operator, reason, time.time()))

    def _path_rtt_ms(self, target: ResolverTarget) -> float | None:
        """RTT of the path to the address of a target, ms: TCP connect to a port that it lists; None without one."""
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
    """Yield a capture of this network namespace; None where packet sockets are not allowed (CAP_NET_RAW)."""
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
    """The server of a target."""
    return Resolver(
        target.address,
        target.host,
        ca_file if target.protocol.transport.encrypted else None,
        ports={**DEFAULT_PORTS, target.protocol: target.port},
        path=target.path,
    )


def _settle(client: Client, handshake_ms: float) -> None:
    """Let a connection come to rest, in less than two round-trips; a connection that ends fails its next query."""
    with suppress(DnsError):
        client.settle(_SETTLE_S + 1.5 * handshake_ms / 1000)


def _query_ms(client: Client) -> float:
    duration_ms = client.timeline.duration_ms(PhaseName.QUERY)
    assert duration_ms is not None, "an answered query was timed"
    return duration_ms
