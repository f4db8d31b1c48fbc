"""An executor that measures the rounds of a plan on the workers of a Dask cluster.

Only the process that starts the campaign (the starter) has the store. It submits tasks, which Dask schedules. A task
is a batch of rounds of one cell (`campaign.dask_worker`) and needs one `testbed` of its worker's resources.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import pickle
import queue
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from crosslayer.campaign import provenance
from crosslayer.campaign.dask_worker import (
    RESOURCE,
    Request,
    WorkerAnswer,
    WorkerHooks,
    WorkerReport,
    differing,
    examine,
    measure,
    offer,
    report,
    worker_executor,
)
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.guests import left_of
from crosslayer.campaign.plan import Cell, RoundBatch
from crosslayer.campaign.rounds import Executor, FinishedRound, Job
from crosslayer.decode import read_json
from crosslayer.guest import Clock
from crosslayer.resources import find_program
from crosslayer.testbed.errors import TestbedError

if TYPE_CHECKING:
    from distributed import Client, Future

MOST_ROUNDS: Final = 20
"""Default maximum number of rounds in a task: they take a few minutes, much longer than the start of a testbed."""

_PER_TESTBED = 2
"""Number of tasks at the scheduler for each testbed: one is being measured, one waits. More would only take memory."""
_POLL_S = 5.0
_ATTEMPTS = 3
_ANSWER_S = 10.0
"""Maximum time for a worker's first answer, s; a worker that takes longer counts as ended."""
_EXAMINATION_S = 120.0
"""Maximum time for the examination of a worker's machine, s."""
_AGAIN = "Finished rounds are stored: give the same command again to resume the campaign."


def dask_executor(
    client: Client,
    *,
    clock: Clock,
    batch: int | None = None,
    allow_mixed_versions: bool = False,
    hooks: WorkerHooks | None = None,
) -> Executor:
    """Make an executor that measures on those workers of a Dask cluster that offer the resource `testbed`.

    Workers may join and leave. A worker that cannot measure or fails is reported and receives no more tasks. The same
    applies to a worker whose commit differs from the starter's, or whose versions differ from those of the campaign or
    of most workers. If a worker ends or does not answer, another worker measures its batch.

    Parameters
    ----------
    client
        Client of the cluster; it stays open.
    clock
        Clock of the measurement.
    batch
        Maximum number of rounds in a task. If it is None in real time, a task has at most `MOST_ROUNDS` rounds, or
        fewer so that each testbed gets work. If it is None in virtual time, the tasks are those of `Plan.tasks`, so
        that the rows do not depend on the cluster.
    allow_mixed_versions
        Whether workers may have other commits and versions; the campaign's notes then list the differences.
    hooks
        Functions that workers call; None for the functions that measure in a testbed.
    """
    chosen = hooks or WorkerHooks(examine, worker_executor)

    def source(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
        return _Campaign(client, Request(job, clock, chosen, None), say, allow_mixed_versions).measured(batch)

    return source


@contextlib.contextmanager
def connected(
    scheduler: str | None,
    kind: str | None,
    *,
    workers: int | None = None,
    hosts: str | None = None,
    clock: Clock = "wall",
) -> Iterator[Client]:
    """A Dask client of a running scheduler, or of a new Dask cluster that ends with the block.

    Parameters
    ----------
    scheduler
        Address of a running scheduler, or path of its scheduler file. Unused if `kind` is given.
    kind
        Kind of the new cluster: `local`, `ssh` or `slurm`. None connects to a running scheduler.
    workers
        `local`: number of workers, which are threads; in real time always one, in virtual time by default one for each
        core. `ssh`: number of testbeds on each machine, by default one. `slurm`: number of jobs, by default one.
    hosts
        Machines for `ssh`, separated by commas.
    clock
        Clock of the measurement.

    Raises
    ------
    CampaignError
        If Dask is not installed, the scheduler does not answer, or Dask cannot start the cluster.
    """
    try:
        import distributed
    except ImportError:
        raise CampaignError(
            "measuring on a cluster needs Dask, which is not installed",
            next_step="Install the extra: `pip install 'crosslayer[cluster]'`; docs/howto/cluster.md.",
        ) from None
    with contextlib.ExitStack() as around:
        around.enter_context(_quiet(*_LOGGERS))
        try:
            if kind is None and scheduler and Path(scheduler).is_file():
                _check_scheduler_file(Path(scheduler))
                client = distributed.Client(scheduler_file=scheduler)
            elif kind is None:
                client = distributed.Client(scheduler)
            else:
                cluster = around.enter_context(_made(kind, workers, hosts, clock))
                client = distributed.Client(cluster)
        except (OSError, TimeoutError, ValueError, RuntimeError, ImportError) as error:
            raise CampaignError(
                f"there is no such cluster: {str(error) or type(error).__name__}",
                where=f"--scheduler {scheduler}" if scheduler else f"--cluster {kind}",
                next_step=f"See docs/howto/cluster.md{', SSH' if kind == 'ssh' else ''}.",
            ) from error
        yield around.enter_context(client)


_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")
"""Loggers of Dask and Tornado in the starter's process. `distributed.client` has a level of its own.

When a scheduler dies, they log tracebacks; the campaign reports the death in one sentence.
"""


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Silence loggers during the block, unless CROSSLAYER_DEBUG is set."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    if not os.environ.get("CROSSLAYER_DEBUG"):
        for logger in levels:
            logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _check_scheduler_file(file: Path) -> None:
    """Raise `ValueError` unless `dask scheduler --scheduler-file` wrote this file."""
    content = read_json(file, CampaignError, "Name the file of `dask scheduler --scheduler-file`.")
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise ValueError("the file names no address of a scheduler, as `dask scheduler --scheduler-file` writes it")


def listening(first: str) -> dict[str, dict[str, Any]]:
    """Options of an SSH cluster for the addresses on which its scheduler and its workers listen.

    The scheduler runs on the machine named `first` and listens on that machine's address alone. Its dashboard listens
    on the loopback address. If the scheduler's address is a loopback address, the workers listen on it too. Otherwise
    Dask chooses their addresses. If this machine cannot resolve the name (e.g. one of ~/.ssh/config), Dask chooses the
    addresses of scheduler and workers.
    """
    scheduler: dict[str, Any] = {"port": 0, "dashboard_address": "127.0.0.1:8797"}
    worker: dict[str, Any] = {"dashboard": False}
    with contextlib.suppress(OSError):
        address = str(socket.getaddrinfo(first.rpartition("@")[2], None, type=socket.SOCK_STREAM)[0][4][0])
        scheduler["host"] = address
        if ipaddress.ip_address(address).is_loopback:
            worker["host"] = address
    return {"scheduler": scheduler, "worker": worker}


def _made(kind: str, workers: int | None, hosts: str | None, clock: Clock) -> Any:
    """Start a Dask cluster of a kind (see `connected`); each worker offers at least one testbed."""
    import distributed

    cores = len(os.sched_getaffinity(0))
    if kind == "local":
        number = (workers or cores) if clock == "virtual" else 1
        # Workers are threads of this process: each measures in a process of its own, so workers need none.
        return distributed.LocalCluster(
            n_workers=number, threads_per_worker=1, processes=False, resources={RESOURCE: 1}
        )
    number = workers or 1
    if kind == "ssh":
        if not hosts:
            raise ValueError("it takes --hosts")
        first, *others = hosts.split(",")
        options = listening(first)
        options["worker"] |= {"nthreads": number, "resources": {RESOURCE: number}}
        return distributed.SSHCluster(
            [first, first, *others], scheduler_options=options["scheduler"], worker_options=options["worker"]
        )
    if find_program("sbatch") is None:
        raise ValueError("there is no `sbatch` on this machine: start it where SLURM takes jobs")
    import dask
    from dask_jobqueue import SLURMCluster

    configured = dask.config.get("jobqueue.slurm", {})
    usual = {"cores": 2, "processes": 1, "memory": "4GB"}
    given = {key: value for key, value in usual.items() if configured.get(key) is None}
    testbeds = 1 if clock == "wall" else given.get("cores") or configured["cores"]
    further = [*(configured.get("worker-extra-args") or []), "--resources", f"{RESOURCE}={testbeds}"]
    cluster = SLURMCluster(**given, worker_extra_args=further)
    cluster.scale(jobs=number)
    return cluster


def batches(todo: RoundBatch, size: int) -> Iterator[RoundBatch]:
    """Divide rounds into batches of at most `size` rounds of one cell.

    Each batch is yielded as soon as it is full. So if the cells alternate in `todo`, the batches of different cells
    alternate too.
    """
    open_: dict[Cell, RoundBatch] = {}
    for number, cell in todo:
        one = open_.setdefault(cell, [])
        one.append((number, cell))
        if len(one) == size:
            yield open_.pop(cell)
    yield from open_.values()


def ending_together(work: list[RoundBatch], testbeds: int) -> list[RoundBatch]:
    """Divide the last batches, so that as many testbeds as possible get a part of them.

    The last batches are those that remain if each testbed gets the same number of whole batches.
    """
    whole = len(work) - len(work) % testbeds
    left = [entry for batch in work[whole:] for entry in batch]
    return work[:whole] + list(batches(left, max(1, -(-len(left) // testbeds))))


def _news(part: FinishedRound, checked: set[str]) -> bool:
    """Whether the campaign stores the link checks of `part`.

    It stores them if one of them failed, or is the first check of its link on this host. `checked` has the names of the
    links that the host has already checked. This function adds the new names.
    """
    links = {row["link"] for row in part.rows["link_checks"]}
    passed = all(row["verdict"] == "pass" for row in part.rows["link_checks"])
    known = links <= checked
    checked |= links
    return not (known and passed)


class _Campaign:
    """State of a campaign in the process that started it: waiting batches, batches at workers, excluded workers."""

    def __init__(
        self, client: Client, request: Request, say: Callable[[str], None], allow_mixed_versions: bool
    ) -> None:
        self._client, self._request, self._say, self._allow_mixed_versions = client, request, say, allow_mixed_versions
        self._todo: deque[RoundBatch] = deque()
        self._away: dict[Future, RoundBatch] = {}
        self._back: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._failed_attempts: Counter[tuple[int, Cell]] = Counter()
        self._refused: list[str] = []
        self._checked: dict[str, set[Any]] = {}
        self._measured = False

    def measured(self, size: int | None) -> Generator[FinishedRound, None, None]:
        testbeds = self._prepare()
        job = self._request.job
        if size is None and self._request.clock == "virtual":
            self._todo.extend(left_of(job))
        else:
            size = size or min(MOST_ROUNDS, max(1, -(-len(job.todo) // testbeds)))
            self._todo.extend(ending_together(list(batches(job.todo, size)), testbeds))
        most = max(map(len, self._todo))
        self._say(
            f"Measuring on a cluster of {_counted(testbeds, 'testbed')}: {_counted(len(self._todo), 'task')} of up to "
            f"{_counted(most, 'round')} of a cell. "
            f"Dashboard: {self._client.dashboard_link}"
        )
        looked = time.monotonic()
        self._pack()
        try:
            while self._todo or self._away:
                while self._todo and len(self._away) < _PER_TESTBED * max(1, testbeds):
                    self._send(self._todo.popleft())
                with contextlib.suppress(queue.Empty):
                    yield from self._receive(self._back.get(timeout=_POLL_S))
                if time.monotonic() - looked > _POLL_S:
                    looked, testbeds = time.monotonic(), self._testbeds()
        except OSError as error:  # of the connection to the scheduler
            raise self._lost() from error
        finally:
            with contextlib.suppress(Exception):  # a scheduler that has ended has no tasks to cancel
                self._client.cancel(list(self._away), force=True)
                if self._request.worker_files:
                    self._client.unregister_worker_plugin(self._request.worker_files)

    def _pack(self) -> None:
        """Send the user's own pages and traces to all workers, present and future."""
        from crosslayer.campaign.worker_files import pack

        if (packed := pack(self._request.job)) is None:
            return
        self._request = replace(self._request, worker_files=packed.name)
        try:
            self._client.register_plugin(packed, name=packed.name)
        except Exception as error:  # of a worker, which reports it again when it gets a task
            self._say(f"A worker did not take the campaign's own pages and traces: {error}")

    def _prepare(self) -> int:
        """Wait for the first workers and return the number of testbeds.

        Unless mixed versions are allowed, this method also sets the identity that every worker must have.
        """
        reports = self._ask()
        able = [one for one in reports.values() if not one.unable]
        if not able:
            raise TestbedError(
                f"no worker of the cluster can measure: {next(iter(reports.values())).unable}",
                where=_address(self._client),
            )
        if not (testbeds := self._testbeds()):
            raise CampaignError(
                f"no worker of the cluster offers a {RESOURCE}",
                where=_address(self._client),
                next_step=f"Start them as `dask worker ADDRESS --nthreads 1 --resources {RESOURCE}=1`.",
            )
        ours = provenance.code()
        if not self._allow_mixed_versions:
            meant = self._request.job.versions | ours  # a resumed campaign keeps its versions
            same = [one.identity for one in able if differing(one.identity, meant) == []] or [able[0].identity]
            most = Counter(tuple(sorted(one.items())) for one in same).most_common(1)[0][0]
            self._request = replace(self._request, expected=dict(most) | ours)
        return testbeds

    def _ask(self) -> dict[str, WorkerReport]:
        """Wait for workers and return the reports of the first ones that answer, by worker address.

        A worker that does not answer is removed from the cluster. A worker whose report fails receives no task.
        """
        waiting = False
        while True:
            while not (workers := _workers(self._client)):
                if not waiting:
                    self._say("Waiting for the first worker of the cluster.")
                waiting = True
                self._raise_if_lost()
                time.sleep(1)
            answering = self._on_each(list(workers), _ANSWER_S, offer)
            results = self._on_each(list(answering), _EXAMINATION_S, report, pickle.dumps(self._request))
            reports = {worker: one for worker, one in results.items() if isinstance(one, WorkerReport)}
            # A worker that ended has no answer, or an OSError about its connection.
            broken = {worker: one for worker, one in results.items() if not isinstance(one, WorkerReport | OSError)}
            if broken and not reports:
                raise CampaignError(
                    f"none of {len(workers)} workers can be asked: {next(iter(broken.values()))}",
                    where=_address(self._client),
                    next_step="Install this version of crosslayer on them.",
                )
            for worker, error in broken.items():
                self._leave_out(worker, f"{worker}: {type(error).__name__}: {error}")
            if reports:
                return reports

    def _on_each(
        self, workers: list[str], within_s: float, function: Callable[..., Any], *arguments: Any
    ) -> dict[str, Any]:
        """Call a function on each worker; return its result or exception by worker address.

        A worker that does not answer within `within_s` is removed from the cluster, because Dask would send it tasks
        for five more minutes. If the process of a removed worker continues later, it exits. If the worker's command
        runs in a shell loop, the loop then starts a new process.
        """

        async def one(worker: str) -> dict[str, Any]:
            with contextlib.suppress(TimeoutError):
                run = self._client.run(function, *arguments, workers=[worker], on_error="return")
                return dict(await asyncio.wait_for(run, within_s))
            return {}

        async def each() -> list[dict[str, Any]]:
            return await asyncio.gather(*map(one, workers))

        results = {worker: result for answer in self._client.sync(each) for worker, result in answer.items()}
        if silent := [worker for worker in workers if worker not in results and worker in _workers(self._client)]:
            self._say(f"No answer within {within_s:g} s, so it goes on without: {', '.join(silent)}.")
            self._client.retire_workers(silent, close_workers=False)
        return results

    def _leave_out(self, worker: str, why: str) -> None:
        """Exclude a worker from further tasks.

        Tasks that wait at this worker go to other workers; Dask would leave them at this worker.
        """
        self._refused.append(why)
        self._say(f"A worker is left out: {why}")
        self._client.run_on_scheduler(
            lambda dask_scheduler: (
                worker in dask_scheduler.workers and dask_scheduler.add_resources(worker, {RESOURCE: 0})
            )
        )
        waiting = set(self._client.processing([worker]).get(worker, ()))
        taken = [future for future in self._away if future.key in waiting]
        for future in taken:
            self._todo.appendleft(self._away.pop(future))
        self._client.cancel(taken, force=True)
        self._testbeds()

    def _send(self, batch: RoundBatch) -> None:
        request = replace(self._request, job=replace(self._request.job, todo=batch))
        number, cell = batch[0]
        future = self._client.submit(
            measure, pickle.dumps(request), resources={RESOURCE: 1}, pure=False, key=_key(cell, number)
        )
        self._away[future] = batch
        future.add_done_callback(self._back.put)

    def _receive(self, future: Future) -> Generator[FinishedRound, None, None]:
        batch = self._away.pop(future, None)
        if batch is None:
            return
        try:
            answer: WorkerAnswer = future.result()
        except (Exception, asyncio.CancelledError) as error:
            self._raise_if_lost()
            self._again(batch, self._why(error, future.key), counts=True)
            return
        future.release()
        left = set(batch)
        for part in answer.parts:
            mine = replace(part, host=answer.host)
            if part.cell is None:
                # Each task checks its link. The campaign stores a host's first check of each link, and failed checks.
                if _news(part, self._checked.setdefault(answer.host.mark, set())):
                    yield mine
            elif (entry := (part.number, part.cell)) in left:
                left.remove(entry)
                self._measured = True
                yield mine
        if left:
            why = answer.refused or "the worker did not measure it"
            self._again([entry for entry in batch if entry in left], why, counts=answer.fault or not answer.refused)
        if answer.refused:
            self._leave_out(answer.worker, answer.refused)

    def _again(self, batch: RoundBatch, why: str, *, counts: bool) -> None:
        """Put a batch back in front of the waiting batches.

        If `counts` is true, this call counts as a failure of the batch's first round. `CampaignError` after `_ATTEMPTS`
        failures of the same round.
        """
        self._failed_attempts[batch[0]] += counts
        if self._failed_attempts[batch[0]] >= _ATTEMPTS:
            raise CampaignError(
                f"a round cannot be measured: {why}", where=self._request.job.campaign, next_step=_AGAIN
            )
        self._todo.appendleft(batch)

    def _why(self, error: BaseException, key: str) -> str:
        """Reason why a task returned no answer. This method excludes workers on which the task raised an exception."""
        from distributed import KilledWorker

        if not isinstance(error, (KilledWorker, asyncio.CancelledError)):
            why = f"{type(error).__name__}: {error}"
            for worker in self._client.run_on_scheduler(
                lambda dask_scheduler: sorted(dask_scheduler.tasks[key].erred_on) if key in dask_scheduler.tasks else []
            ):
                self._leave_out(worker, f"{worker}: {why}. Has it this very crosslayer?")
            return why
        why = "every worker that had it ended" if isinstance(error, KilledWorker) else "it was cancelled"
        self._say(f"A task came back without an answer ({why}); it is measured again.")
        return why

    def _testbeds(self) -> int:
        """Number of testbeds that the cluster offers now.

        Raises
        ------
        TestbedError
            If all workers are excluded, and no round was measured.
        CampaignError
            If all workers are excluded after rounds were measured, or if the scheduler does not respond.
        """
        self._raise_if_lost()
        workers = _workers(self._client)
        offered = int(sum(worker["resources"].get(RESOURCE, 0) for worker in workers.values()))
        if workers and not offered and self._refused:
            kind = CampaignError if self._measured else TestbedError
            raise kind(f"no worker is left that measures: {self._refused[-1]}", where=_address(self._client))
        return offered

    def _raise_if_lost(self) -> None:
        if self._client.status != "running":
            raise self._lost()

    def _lost(self) -> CampaignError:
        return CampaignError("Dask's scheduler does not respond", where=_address(self._client), next_step=_AGAIN)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _workers(client: Client) -> Mapping[str, Any]:
    workers: Mapping[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return workers


def _address(client: Client) -> str:
    return str(client.scheduler.address) if client.scheduler else ""


def _key(cell: Cell, number: int) -> str:
    return f"{cell.link} {cell.page}-{number}-{os.urandom(4).hex()}"  # the dashboard groups by the part before '-'
