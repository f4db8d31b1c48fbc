"""The stub as an object: started, waited for, commanded, read and stopped."""

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
    """Counts since the start."""

    queries: int
    """Queries answered, those that got no answer included."""
    failures: int
    """Queries among them with an error."""
    in_flight: int
    """Queries that wait for the upstream now."""
    connections: int
    """Upstream connections set up, or tried."""
    open: int
    """1 while the upstream connection stands."""
    ticket: bool
    """There is a session ticket for the next connection."""


def stub_version() -> str:
    """Version that the stub prints: its libraries and Go; `ResourceError` if it is not built."""
    command = [str(resources.locate("stub").path), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


class Stub(Process):
    """A running stub. Made by `Stub.start`."""

    name = "the stub"
    fault = StubError
    settings: StubSettings
    listen: str
    """Address and port it answers on, also where the settings left the port to the system."""
    metrics_file: Path
    """Where it writes one JSON line per query."""

    @classmethod
    def start(cls, spawn: Spawn, settings: StubSettings, folder: Path, *, metrics_file: Path | None = None) -> Self:
        """Start a stub in the client's namespace and wait until it answers; `StubError` with its last lines otherwise.

        `OutsideError` if its upstream is outside and the user has not consented.

        Control socket, log and metrics are in the private folder, unless another file is given for the metrics.
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
        """Close the upstream connection, so that the next query sets one up with the ticket and token this one left.

        Waits, at most 1 s, for queries on their way, whose rows `metrics` has then, and for the first ticket; what
        hangs longer is cut. Returns how many connections it closed. May be called from any thread.
        """
        return int(self.command("reset-sessions")["closed"])

    def forget(self) -> int:
        """Close the upstream connections and forget tickets and tokens; returns how many connections it closed."""
        return int(self.command("forget")["closed"])

    def carried(self) -> dict[int, int]:
        """Requests of browsers that a gateway has passed on since the last reset, by its port towards the upstream."""
        return {int(port): count for port, count in self.command("carried")["requests"].items()}

    def stats(self) -> Stats:
        """Counts since the start."""
        return Stats(**self.command("stats"))

    def metrics(self) -> list[QueryMetrics]:
        """Metrics since the last call, in the order of their rows.

        The row of a query is written before its answer is sent.
        """
        return [parse_metrics(line) for line in self.new_lines()]
