"""A Dask cluster of processes that tests can kill: a scheduler, workers, and a starter, which starts a campaign."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from crosslayer.campaign.store import FILE_NAME, Store
from tests import sleeping

ROOT = Path(__file__).parents[1]


def free_port(host: str) -> int:
    """A free TCP port outside Linux's default ephemeral range.

    The system gives such a port to no outgoing connection, so a killed scheduler can be started again on it.
    `OSError` if a hundred ports are in use.
    """
    for port in random.sample(range(20_000, 30_000), 100):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    raise OSError("a hundred ports are in use")


class Cluster:
    """A cluster, each process of which has its own process group. A context manager that kills all processes.

    Parameters
    ----------
    folder
        Folder for logs and the dataset.
    rounds, batch
        Rounds of each cell of the campaign, and rounds per Dask task.
    environment
        Additional environment variables of every process.
    host
        Address of the scheduler.
    """

    def __init__(
        self, folder: Path, *, rounds: int, batch: int, environment: dict[str, str], host: str = "127.0.0.1"
    ) -> None:
        self.folder, self._rounds, self._batch = folder, rounds, batch
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "lib"), str(ROOT)])} | environment
        self._port = free_port(host)
        self._host, self.address = host, f"tcp://{host}:{self._port}"
        self.dataset = folder / "dataset"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.running):
            self.kill(name)

    def _start(self, name: str, *arguments: str, before: Sequence[str] = (), **environment: str) -> None:
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [*before, sys.executable, *arguments],
                cwd=self.folder,
                env=self._environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> Path:
        """Path of the log file of a process."""
        return self.folder / f"{name}.log"

    def scheduler(self) -> None:
        arguments = ("-m", "distributed.cli.dask_scheduler", "--host", self._host, "--port", str(self._port))
        self._start("scheduler", *arguments, "--no-dashboard", "--no-show")

    def worker(self, name: str, testbeds: int = 1, *, before: Sequence[str] = (), **environment: str) -> None:
        arguments = ("-m", "distributed.cli.dask_worker", self.address, "--nthreads", str(testbeds))
        arguments += ("--resources", f"testbed={testbeds}", "--no-nanny", "--no-dashboard", "--memory-limit", "0")
        self._start(name, *arguments, before=before, CROSSLAYER_HOST=name, **environment)

    def starter(self, **environment: str) -> None:
        arguments = ("-m", "tests.sleeping", self.address, str(self.dataset), str(self._rounds), str(self._batch))
        self._start("starter", *arguments, **environment)

    def pause(self, name: str) -> None:
        """Stop a process and its children with SIGSTOP, until `resume` or `kill`."""
        os.killpg(self.running[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Continue a process after `pause`."""
        os.killpg(self.running[name].pid, signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Kill a process and its children."""
        process = self.running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for_log(self, name: str, message: str, *, within_s: float = 120) -> str:
        """Wait until the log of a process contains a message; returns the log. `AssertionError` after `within_s`."""
        deadline = time.monotonic() + within_s
        while message not in (text := self.log(name).read_text(encoding="utf-8", errors="replace")):
            assert time.monotonic() < deadline, f"{name} did not log {message!r}: {text[-2000:]}"
            time.sleep(0.05)
        return text

    def finished(self) -> int:
        """Number of rounds in the store. Call this function only while no starter runs: a starter locks the store."""
        if not (self.dataset / FILE_NAME).exists():
            return 0
        with contextlib.closing(Store(self.dataset)) as store:
            return len(store.done())


def check_whole(dataset: Path, rounds: int) -> pl.DataFrame:
    """Check that a dataset has each load of each round exactly once, in the order of the plan; returns the loads."""
    loads = pl.read_parquet(dataset / "page_loads/**/*.parquet", hive_partitioning=False)
    key = ["link", "page", "round", "condition"]
    assert loads.select(key).is_unique().all()
    conditions = [str(number) for number in range(2)]
    plan = sleeping.a_plan(rounds)
    expected = {
        (cell.link, cell.page, number, condition, position)
        for number in range(rounds)
        for cell in plan.cells
        for position, condition in enumerate(plan.shuffled(number, cell, conditions))
    }
    assert set(loads.select(*key, "position").iter_rows()) == expected
    return loads
