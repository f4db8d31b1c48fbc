"""A task of a cluster's worker: rounds of one cell, measured on its machine by the code that measures anywhere.

What runs here is called by pickle, by its name. `campaign.cluster` sends the tasks and takes what comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crosslayer import doctor
from crosslayer.browser import find_browser
from crosslayer.campaign import provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.guest_main import WORDS, from_json
from crosslayer.campaign.guests import guest_executor
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import Executor, FinishedRound, Job, versions_here
from crosslayer.errors import CrosslayerError
from crosslayer.guest import Clock, find_kernel
from crosslayer.resources import find_program
from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import TestbedError

RESOURCE: Final = "testbed"
"""What a worker offers: one on a machine by the wall clock, one for each core by the virtual."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a worker says of its machine."""

    host: provenance.Host
    identity: dict[str, str]
    """What has to be the same on all: commit, code, versions, and by the wall clock the kernel."""
    unable: str
    """Why it cannot measure, in the doctor's words; empty where it can."""


@dataclass(frozen=True, slots=True)
class WorkerHooks:
    """What a worker measures with: functions that pickle finds by name. A benchmark has a testbed that sleeps."""

    examined: Callable[[type[Measurer], Plan, Clock], tuple[str, dict[str, str]]]
    """Why its machine cannot measure (empty where it can), and what has to be the same on all."""
    source: Callable[[Clock], Executor]
    """Where the rounds of a task come from."""


@dataclass(frozen=True, slots=True)
class Request:
    job: Job
    clock: Clock
    hands: WorkerHooks
    expected: dict[str, str] | None
    """The identity to have; None for any."""
    worker_files: str = ""
    """Name of the files it needs, which the worker was given; empty for none."""


@dataclass(frozen=True, slots=True)
class Answer:
    host: provenance.Host
    parts: list[FinishedRound]
    refused: str = ""
    """Why the rest of the batch was not measured: this worker is to get no other."""
    worker: str = ""
    """Its address, where it refused."""
    fault: bool = False
    """Not the machine was at fault, as far as one can tell, but the round."""


def differing(some: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """What both say and not the same."""
    return sorted(key for key in some.keys() & others if some[key] and others[key] and some[key] != others[key])


_known: dict[tuple[type[Measurer], str, Clock], tuple[str, dict[str, str]]] = {}
_LOCK = threading.Lock()


async def offer(dask_worker: Any) -> None:
    """Announce its testbeds to the scheduler: an earlier campaign may have left this worker out."""
    if number := dask_worker.state.total_resources.get(RESOURCE, 0):
        await dask_worker.set_resources(**{RESOURCE: number})


async def about(request: bytes) -> Told:
    """What the starter asks first; a worker's loop goes on meanwhile."""
    asked: Request = pickle.loads(request)
    return await asyncio.to_thread(_told, asked)


def _told(request: Request) -> Told:
    job = request.job
    unable, identity = request.hands.examined(job.measurer, job.plan, request.clock)
    return Told(provenance.this_host(job.campaign), identity, unable)


def examined(measurer: type[Measurer], plan: Plan, clock: Clock) -> tuple[str, dict[str, str]]:
    """By the doctor, once in a process."""
    with _LOCK:
        if (asked := (measurer, plan.browser, clock)) not in _known:
            _known[asked] = _examination(measurer, plan, clock)
        return _known[asked]


def _examination(measurer: type[Measurer], plan: Plan, clock: Clock) -> tuple[str, dict[str, str]]:
    try:
        identity = provenance.code() | versions_here(Job(plan, "", [], measurer, {}, ""), find_browser(plan.browser))
        identity |= find_kernel().as_versions() if clock == "virtual" else {"kernel": os.uname().release}
    except CrosslayerError as error:
        return f"{error} {doctor.verdict(doctor.examine())}", {}
    found = doctor.examine()
    if clock == "virtual":  # the guest has these
        found = [one for one in found if one.item not in ("namespaces", "netem", "uml")]
    return "" if doctor.can_measure(found) else doctor.verdict(found), identity


def measure(request: bytes) -> Answer:
    """A task: the rounds of a batch, or why not."""
    asked: Request = pickle.loads(request)
    told = _told(asked)
    refused = told.unable
    if not refused and asked.expected is not None and (other := differing(told.identity, asked.expected)):
        refused = "it differs from the others in " + ", ".join(
            f"{key} ({told.identity[key]} instead of {asked.expected[key]})" for key in other
        )
    if refused:
        return Answer(told.host, [], *_named(told.host, refused))
    abandoned = _abandonment()
    parts: list[FinishedRound] = []
    try:
        job = _at_hand(asked)
        with _place(asked.clock), contextlib.closing(asked.hands.source(asked.clock)(job, _log)) as measuring:
            for part in measuring:
                parts.append(part)
                if abandoned():
                    break
    except CrosslayerError as error:
        return Answer(told.host, parts, *_named(told.host, str(error)), fault=not isinstance(error, TestbedError))
    return Answer(told.host, parts)


def _at_hand(asked: Request) -> Job:
    if not asked.worker_files:
        return asked.job
    from crosslayer.campaign.worker_files import localise

    return localise(asked.job, asked.worker_files)


def _named(host: provenance.Host, why: str) -> tuple[str, str]:
    """Why a worker refuses, with its name, and its address."""
    from distributed import get_worker

    address = get_worker().address
    return f"{host.name or address}: {why}", address


def _log(line: str) -> None:
    """What is said on a worker stays in its log."""
    print(line, file=sys.stderr, flush=True)


def _abandonment() -> Callable[[], bool]:
    """Tells whether nobody waits for the task of this thread any more; it would hold its testbed in vain."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def abandoned() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return abandoned


def source(clock: Clock) -> Executor:
    """As on a machine of one's own; a guest by the wall clock is for those that refuse namespaces."""
    if clock == "virtual":
        return guest_executor(clock, 1)
    unshare = find_program("unshare")
    return guest_executor(clock, 1) if unshare and namespaces.refused(unshare) else _measured_beside


def _measured_beside(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
    """Measure in a process of its own, since namespaces are entered by a whole process."""
    words = [namespaces.tool("setpriv"), "--pdeathsig", "TERM", "--", *WORDS]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # its fault is what it writes
                pipe.write(pickle.dumps(job))
            yield from map(from_json, process.stdout)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise CampaignError(f"the measuring process ended with status {process.returncode}", where=job.campaign)


@contextlib.contextmanager
def _place(clock: Clock) -> Iterator[None]:
    """Where to measure: by the wall clock the machine for itself, by the virtual clock a core."""
    cores = os.sched_getaffinity(0)
    with contextlib.ExitStack() as held:
        if clock == "wall":
            fcntl.flock(held.enter_context(_lock_file("machine")), fcntl.LOCK_EX)
        else:
            for core in cores:
                file = held.enter_context(_lock_file(f"core-{core}"))
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.sched_setaffinity(0, {core})  # of this thread; the guest is put on the first it finds
                    break
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


def _lock_file(name: str) -> Any:
    return (Path(tempfile.gettempdir()) / f"crosslayer-{os.getuid()}-{name}.lock").open("w")
