"""Measure a comparison from several machines; each measures every target in every round.

For each round of each machine, a separate Dask cluster is opened by SSH (`campaign.cluster`). Therefore, if a machine
fails, only its own rounds are lost. It continues when it is reachable again. The starting machine, on which the user
starts the comparison, stores all rows.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crosslayer.campaign import provenance
from crosslayer.campaign.cluster import connected
from crosslayer.campaign.errors import CampaignError
from crosslayer.errors import CrosslayerError
from crosslayer.resolvers import ledger, manners
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.journal import Journal
from crosslayer.resolvers.plan import Entry, MissedRound, Progress
from crosslayer.resolvers.schedule import RoundTimes
from crosslayer.resolvers.visits import Visitor, capture_here, system_ca
from crosslayer.testbed import outside

_AGAIN_S, _MOST_S = 60.0, 960.0
"""First and longest wait before the next attempt to reach a machine, s. Each wait is twice the previous one."""
_ATTEMPTS = 3
"""Number of attempts at a round without a schedule. With a schedule, attempts end when the next round is due."""
_POLL_S = 5.0
_PER_VISIT_S = 60.0
"""Time that each target adds to the time limit of a round, s; 600 s are added once.

A machine that exceeds the limit counts as unreachable.
"""


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """Everything that a machine needs to measure a round."""

    progress: Progress
    round: int
    queries_per_s: float
    per_day: int
    consent: tuple[str, ...]
    """Addresses outside the machine. The user has consented to packets to these addresses."""
    ca: bytes | None
    """Trusted CAs as PEM; None if the machine uses its own."""
    code: str
    """Hash of crosslayer's code on the starting machine."""
    not_asked: frozenset[int]
    """Numbers of the targets that the starting machine's stop list excludes."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The result of a round on one machine."""

    entries: list[Entry]
    host: provenance.MeasuringHost
    versions: dict[str, str]
    limited: dict[str, str] = field(default_factory=dict)
    """Operators that reached their daily limit, each with a message."""


def measure_round(request: bytes) -> RoundResult:
    """Measure a round on this machine; `request` is a pickled `RoundRequest`.

    The stop lists of this machine and of the starting machine both apply. Raises `ResolversError` if the machines have
    different code, because pickle transfers this function only by name.
    """
    asked: RoundRequest = pickle.loads(request)
    progress = asked.progress
    if provenance.code_sha256() != asked.code:
        raise ResolversError(
            "has another crosslayer than the starter",
            where=progress.vantage,
            next_step="Check out the same commit on both.",
        )
    entries: list[Entry] = []
    progress.record = entries.extend
    targets = progress.plan.targets
    outside.allow(asked.consent)
    not_asked = asked.not_asked | manners.stopped(targets).keys()
    addresses = {target.address for number, target in enumerate(targets) if number not in not_asked}
    path = None if all(map(outside.inside, addresses)) else ledger.user_file()
    paced = ledger.QueryLedger(asked.queries_per_s, asked.per_day, path)
    try:
        with _ca_file(asked.ca) as ca_file, capture_here() as capture:
            visitor = Visitor(
                progress, paced, ca_file=ca_file, not_asked=not_asked, capture=capture, rounds=(asked.round,)
            )
            for _visit in visitor.round(asked.round):
                pass
    finally:
        outside.withdraw()
    host = provenance.this_host(progress.vantage)
    return RoundResult(entries, host, provenance.packages(), visitor.limited)


@contextlib.contextmanager
def _ca_file(pem: bytes | None) -> Iterator[Path]:
    if pem is None:
        yield system_ca()
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        yield Path(file.name)


def measure(
    journal: Journal,
    hosts: Mapping[str, str],
    *,
    queries_per_s: float,
    per_day: int,
    consent: tuple[str, ...],
    ca: bytes | None,
    not_asked: Collection[int],
    say: Callable[[str], None],
    done: Callable[[int], object],
) -> dict[str, str]:
    """Measure the missing rounds of a comparison from all vantage points at once.

    Returns the operators that reached their daily limit, each with a message.

    Parameters
    ----------
    journal
        The comparison; entries are recorded in the calling thread.
    hosts
        SSH destination of each vantage point.
    queries_per_s, per_day
        Limits of the queries to each operator, for all vantage points together; each gets an equal share.
    consent, ca, not_asked
        As in `RoundRequest`.
    say
        Called with each line for the user.
    done
        Called after each measured round with the number of its visits.
    """
    share = len(hosts)
    limits = (queries_per_s / share, max(1, per_day // share))
    code = provenance.code_sha256()
    results: queue.SimpleQueue[_Message] = queue.SimpleQueue()
    stop = threading.Event()
    schedule = RoundTimes(journal.first_s, journal.plan.every_s)
    loops = []
    for vantage, host in hosts.items():
        todo = [round_ for round_ in range(journal.plan.rounds) if not journal.finished(vantage, round_)]

        def request(round_: int, vantage: str = vantage) -> bytes:
            progress = journal.progress[vantage].copy(round_)
            return pickle.dumps(RoundRequest(progress, round_, *limits, consent, ca, code, frozenset(not_asked)))

        timeout_s = 600 + _PER_VISIT_S * len(journal.plan.targets)
        loop = _Loop(vantage, host, todo, schedule, request, results, stop, say, timeout_s)
        loops.append(threading.Thread(target=loop.run, daemon=True))
    limited: dict[str, str] = {}
    for thread in loops:
        thread.start()
    try:
        left = len(loops)
        while left:
            message = results.get()
            if message.round is None:
                left -= 1
                if message.error is not None:
                    raise message.error
                continue
            _keep(journal, message)
            if message.result is not None:
                limited |= message.result.limited
                done(sum(hasattr(entry, "target") for entry in message.result.entries))
            message.kept.set()
    finally:
        stop.set()
    return limited


def _keep(journal: Journal, message: _Message) -> None:
    """Record a measured or missed round in the journal."""
    assert message.round is not None
    progress = journal.progress[message.vantage]
    if message.result is None:
        progress.add(MissedRound(message.round, message.missed, time.time()))
    else:
        journal.describe(message.vantage, message.result.host, message.result.versions)
        progress.add(*message.result.entries)
        journal.share_stops()
    if message.result is None or not message.result.limited or journal.plan.every_s:
        journal.finish(message.vantage, message.round)


@dataclass(frozen=True, slots=True)
class _Message:
    """Report of a vantage point's thread: a measured round, a missed round, or the end of the thread."""

    vantage: str
    round: int | None = None
    result: RoundResult | None = None
    missed: str = ""
    error: CrosslayerError | None = None
    kept: threading.Event = field(default_factory=threading.Event)
    """Set when the report is recorded."""


@dataclass(slots=True)
class _Loop:
    """Measures the rounds of one machine, one after the other; runs in a thread of its own."""

    vantage: str
    host: str
    todo: list[int]
    schedule: RoundTimes
    request: Callable[[int], bytes]
    results: queue.SimpleQueue[_Message]
    stop: threading.Event
    say: Callable[[str], None]
    timeout_s: float

    def run(self) -> None:
        """Measure and report every round, then report the end of the thread."""
        error: CrosslayerError | None = None
        try:
            for round_ in self.todo:
                message = self._round(round_)
                if self.stop.is_set():
                    return
                self.results.put(message)
                message.kept.wait()
        except CrosslayerError as fault:
            error = fault
        finally:
            self.results.put(_Message(self.vantage, error=error))

    def _round(self, round_: int) -> _Message:
        reason = "nothing measured at its time"
        attempts = 0
        while self.schedule.wait(round_, self.stop.wait) and not self.stop.is_set():
            try:
                return _Message(self.vantage, round_, self._measured(round_))
            except (CampaignError, OSError) as error:
                reason = str(error)
            attempts += 1
            if not self.schedule.every_s and attempts == _ATTEMPTS:
                break
            pause_s = min(_AGAIN_S * 2 ** (attempts - 1), _MOST_S, max(0.0, self.schedule.over_s(round_) - time.time()))
            self.say(f"{self.vantage}: round {round_} is tried again in {pause_s:.0f} s: {reason}")
            self.stop.wait(pause_s)
        self.say(f"{self.vantage}: round {round_} is missed: {reason}")
        return _Message(self.vantage, round_, missed=reason)

    def _measured(self, round_: int) -> RoundResult:
        """Measure a round on the machine; `CampaignError` if it is unreachable, fails or exceeds the time limit."""
        with connected(None, "ssh", hosts=self.host) as client:
            future = client.submit(measure_round, self.request(round_), pure=False)
            until_s = time.monotonic() + self.timeout_s
            while not self.stop.is_set():
                try:
                    result: RoundResult = future.result(timeout=_POLL_S)
                except TimeoutError:
                    if client.status == "running" and time.monotonic() < until_s:
                        continue
                    raise CampaignError("the machine does not answer", where=self.vantage) from None
                except CrosslayerError:
                    raise
                except Exception as error:  # Dask raises many classes if a worker or scheduler ended
                    raise CampaignError(f"the machine ended ({type(error).__name__})", where=self.vantage) from error
                return result
        raise CampaignError("the comparison was stopped", where=self.vantage)
