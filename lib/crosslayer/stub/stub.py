"""The stub as an object: start it, wait for it, send commands, read its metrics, stop it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from crosslayer import resources
from crosslayer.process import Process, Spawn
from crosslayer.stub.errors import StubError
from crosslayer.stub.metrics import QueryMetrics, parse_metrics
from crosslayer.stub.settings import StubSettings


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of queries and connections since the stub was started, and the stub's present state."""

    queries: int
    """Number of finished queries, including those without an answer."""
    failures: int
    """Number of finished queries with an error."""
    in_flight: int
    """Number of queries in progress."""
    connections: int
    """Number of upstream connections that were set up or attempted."""
    open: int
    """Number of upstream connections that are open now."""
    ticket: bool
    """Whether the stub now has a session ticket for the next connection."""


def stub_version() -> str:
    """Versions that the stub prints: of its libraries and of Go; `ResourceError` if the stub is not built."""
    command = [str(resources.locate("stub").path), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


class Stub(Process):
    """A running stub; `Stub.start` makes it."""

    name = "the stub"
    fault = StubError
    settings: StubSettings
    listen: str
    """Address and port on which the stub answers; the actual port if the settings give port 0."""
    metrics_file: Path
    """File with one JSON line per query."""

    @classmethod
    def start(cls, spawn: Spawn, settings: StubSettings, folder: Path, *, metrics_file: Path | None = None) -> Self:
        """Start a stub by `spawn`, which chooses its namespace, and wait until it answers.

        Control socket and log are in `folder`, and the metrics too unless `metrics_file` is given.

        Raises
        ------
        StubError
            If the stub does not start; the error has the last lines of its log.
        OutsideError
            If the upstream is outside this machine and the user has not consented.
        ResourceError
            If the stub is not built.
        """
        settings.check_consent()
        binary = resources.locate("stub").path
        metrics = metrics_file or folder / "stub.jsonl"
        control = folder / "stub.control"
        command = [str(binary), *settings.arguments(), "--control", str(control), "--metrics", str(metrics)]
        with cls.writing(folder):
            os.close(os.open(metrics, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        stub = cls(spawn, command, folder / "stub.log")
        stub.settings, stub.metrics_file = settings, metrics
        stub.follow(metrics)
        stub.listen = str(stub.connect(control)["listen"])
        return stub

    def reset_sessions(self) -> int:
        """Close the upstream connections; the next query sets up another with the stored ticket and token.

        Returns the number of closed connections. Before the stub closes a connection, it waits at most 1 s for queries
        in progress and, if it has no ticket yet, for a first ticket. It then aborts queries that are still unfinished.
        Afterwards `metrics` has the rows of all these queries. Any thread may call this method.
        """
        return int(self.command("reset-sessions")["closed"])

    def forget(self) -> int:
        """Close the upstream connections and delete tickets and tokens; returns the number of closed connections."""
        return int(self.command("forget")["closed"])

    def carried(self) -> dict[int, int]:
        """For each local port towards the upstream: number of requests that the gateway forwarded from it.

        The count begins at the last `reset_sessions` or `forget`.
        """
        return {int(port): count for port, count in self.command("carried")["requests"].items()}

    def stats(self) -> Stats:
        """Counts of queries and connections since the stub was started, and its present state."""
        return Stats(**self.command("stats"))

    def metrics(self) -> list[QueryMetrics]:
        """Metrics of the queries since the last call, in the order in which the stub wrote them.

        The stub writes the metrics of a query before it sends the answer.
        """
        return [parse_metrics(line) for line in self.new_lines()]
