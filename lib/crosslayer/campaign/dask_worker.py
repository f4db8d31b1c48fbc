"""The part of a cluster campaign that runs on a Dask worker: measure the rounds of a task on the worker's machine.

The executors are the same as without Dask. `campaign.cluster` sends the tasks and receives the answers. Pickle finds
the functions of this module by their names.
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
from crosslayer.campaign.guest_main import COMMAND, from_json
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
"""Name of the Dask resource that a worker offers; each testbed is one unit of it.

In real time, a machine usually offers one testbed. In virtual time, it usually offers one testbed per core.
"""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Report of a worker: its machine, its identity, and whether it can measure."""

    host: provenance.MeasuringHost
    identity: dict[str, str]
    """Values that all workers must share: commit, code, versions, and in real time the kernel."""
    unable: str
    """Reason why the worker cannot measure, from `crosslayer.doctor`; empty if it can."""


@dataclass(frozen=True, slots=True)
class WorkerHooks:
    """Functions that a worker calls; pickle finds them by their names.

    Tests replace them by functions that sleep and do not measure.
    """

    examine: Callable[[type[Measurer], Plan, Clock], tuple[str, dict[str, str]]]
    """Examines the worker's machine; returns `unable` and `identity` of `WorkerReport`."""
    executor: Callable[[Clock], Executor]
    """Returns the executor that measures a task's rounds."""


@dataclass(frozen=True, slots=True)
class Request:
    """A task for a worker, as `campaign.cluster` sends it."""

    job: Job
    clock: Clock
    hooks: WorkerHooks
    expected: dict[str, str] | None
    """Identity that the worker must have (`WorkerReport.identity`); None for any."""
    worker_files: str = ""
    """Name of the archive of files that the job needs (`campaign.worker_files`); empty if it needs none."""


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """Answer of a worker to a task: the finished rounds, and the reason if rounds are missing."""

    host: provenance.MeasuringHost
    parts: list[FinishedRound]
    refused: str = ""
    """Reason why the worker refused the rest of its batch; empty if it did not refuse.

    A worker that refused receives no other task.
    """
    worker: str = ""
    """Address of the worker, if it refused."""
    fault: bool = False
    """Whether the refusal was probably caused by the round, not by the machine."""


def differing(some: Mapping[str, str], others: Mapping[str, str]) -> list[str]:
    """Keys for which two mappings have different values; missing and empty values do not count."""
    return sorted(key for key in some.keys() & others if some[key] and others[key] and some[key] != others[key])


_known: dict[tuple[type[Measurer], str, Clock], tuple[str, dict[str, str]]] = {}
_LOCK = threading.Lock()


async def offer(dask_worker: Any) -> None:
    """Announce the testbeds of this worker again, because an earlier campaign may have excluded the worker."""
    if number := dask_worker.state.total_resources.get(RESOURCE, 0):
        await dask_worker.set_resources(**{RESOURCE: number})


async def report(pickled: bytes) -> WorkerReport:
    """Report on this worker before its first task.

    A thread examines the worker's machine, so that Dask's event loop continues.
    """
    request: Request = pickle.loads(pickled)
    return await asyncio.to_thread(_report, request)


def _report(request: Request) -> WorkerReport:
    job = request.job
    unable, identity = request.hooks.examine(job.measurer, job.plan, request.clock)
    return WorkerReport(provenance.this_host(job.campaign), identity, unable)


def examine(measurer: type[Measurer], plan: Plan, clock: Clock) -> tuple[str, dict[str, str]]:
    """Examine this machine, see `WorkerHooks.examine`.

    Each process does this only once for each combination of study, browser and clock.
    """
    with _LOCK:
        if (key := (measurer, plan.browser, clock)) not in _known:
            _known[key] = _examination(measurer, plan, clock)
        return _known[key]


def _examination(measurer: type[Measurer], plan: Plan, clock: Clock) -> tuple[str, dict[str, str]]:
    try:
        identity = provenance.code() | versions_here(Job(plan, "", [], measurer, {}, ""), find_browser(plan.browser))
        identity |= find_kernel().as_versions() if clock == "virtual" else {"kernel": os.uname().release}
    except CrosslayerError as error:
        return f"{error} {doctor.verdict(doctor.examine())}", {}
    findings = doctor.examine()
    if clock == "virtual":  # the guest has these
        findings = [one for one in findings if one.item not in ("namespaces", "netem", "uml")]
    return "" if doctor.can_measure(findings) else doctor.verdict(findings), identity


def measure(pickled: bytes) -> WorkerAnswer:
    """Measure the rounds of a task, or refuse it."""
    request: Request = pickle.loads(pickled)
    own = _report(request)
    reason = own.unable
    if not reason and request.expected is not None and (other := differing(own.identity, request.expected)):
        reason = "it differs from the others in " + ", ".join(
            f"{key} ({own.identity[key]} instead of {request.expected[key]})" for key in other
        )
    if reason:
        return WorkerAnswer(own.host, [], *_refusal(own.host, reason))
    cancelled = _cancellation()
    parts: list[FinishedRound] = []
    try:
        job = _localised(request)
        executor = request.hooks.executor(request.clock)
        with _reserved_cpu(request.clock), contextlib.closing(executor(job, _log)) as measuring:
            for part in measuring:
                parts.append(part)
                if cancelled():
                    break
    except CrosslayerError as error:
        refusal = _refusal(own.host, str(error))
        return WorkerAnswer(own.host, parts, *refusal, fault=not isinstance(error, TestbedError))
    return WorkerAnswer(own.host, parts)


def _localised(request: Request) -> Job:
    if not request.worker_files:
        return request.job
    from crosslayer.campaign.worker_files import localise

    return localise(request.job, request.worker_files)


def _refusal(host: provenance.MeasuringHost, why: str) -> tuple[str, str]:
    """Values of `WorkerAnswer.refused` and `WorkerAnswer.worker`; the reason begins with the host's name or address."""
    from distributed import get_worker

    address = get_worker().address
    return f"{host.name or address}: {why}", address


def _log(line: str) -> None:
    """Write a line to the log of this worker."""
    print(line, file=sys.stderr, flush=True)


def _cancellation() -> Callable[[], bool]:
    """Make a function that returns True if the task of this thread was cancelled.

    A cancelled task must release its testbed.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return cancelled


def worker_executor(clock: Clock) -> Executor:
    """Executor for this machine, which measures in a guest or in a subprocess.

    It uses a guest in virtual time, and also in real time if the machine refuses namespaces.
    """
    if clock == "virtual":
        return guest_executor(clock, 1)
    unshare = find_program("unshare")
    return guest_executor(clock, 1) if unshare and namespaces.refused(unshare) else _measured_in_subprocess


def _measured_in_subprocess(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
    """Measure in a subprocess, since only a whole process can enter namespaces."""
    command = [namespaces.tool("setpriv"), "--pdeathsig", "TERM", "--", *COMMAND]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # the output has the fault in this case
                pipe.write(pickle.dumps(job))
            yield from map(from_json, process.stdout)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise CampaignError(f"the measuring process ended with status {process.returncode}", where=job.campaign)


@contextlib.contextmanager
def _reserved_cpu(clock: Clock) -> Iterator[None]:
    """Reserve CPU cores during the block: in real time the whole machine, in virtual time one core if one is free."""
    cores = os.sched_getaffinity(0)
    with contextlib.ExitStack() as locks:
        if clock == "wall":
            fcntl.flock(locks.enter_context(_lock_file("machine")), fcntl.LOCK_EX)
        else:
            for core in cores:
                file = locks.enter_context(_lock_file(f"core-{core}"))
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.sched_setaffinity(0, {core})  # of this thread; the guest runs on the first core of this set
                    break
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


def _lock_file(name: str) -> Any:
    return (Path(tempfile.gettempdir()) / f"crosslayer-{os.getuid()}-{name}.lock").open("w")
