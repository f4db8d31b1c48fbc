"""The stub as an object: started, waited for, commanded, read and stopped."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosslayer import places
from crosslayer.stub.errors import StubError
from crosslayer.stub.metrics import QueryMetrics, parse_metrics
from crosslayer.stub.settings import Settings
from crosslayer.testbed.programs import Spawn, stop_program

_READY_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 10.0
_POLL_S = 0.002
_LOG_LINES = 5


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


def find_stub_binary() -> Path:
    """The stub's program; `places.PlaceError` where it is not built."""
    return places.find("stub").path


def stub_version() -> str:
    """What the stub says of itself: versions of its libraries and of Go.

    Raises
    ------
    PlaceError
        Where it is not built.
    """
    words = [str(find_stub_binary()), "--version"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


class Stub:
    """A running stub; a context manager that stops it. Made by `Stub.start`.

    Attributes
    ----------
    settings
        What it was told at its start.
    listen
        Address and port it answers on, also where the settings left the port to the system.
    metrics_file
        Where it writes one JSON line per query.
    """

    def __init__(self, process: subprocess.Popen[Any], settings: Settings, folder: Path, metrics_file: Path) -> None:
        self.settings = settings
        self.listen = settings.listen
        self.metrics_file = metrics_file
        self._process = process
        self._control_path = folder / "stub.control"
        self._log_path = folder / "stub.log"
        self._metrics = metrics_file.open("rb")
        self._metrics.seek(0, 2)
        self._partial = b""
        self._control: socket.socket | None = None
        self._one_at_a_time = threading.Lock()

    @classmethod
    def start(cls, spawn: Spawn, settings: Settings, folder: Path, *, metrics_file: Path | None = None) -> Self:
        """Start a stub and wait until it answers.

        Parameters
        ----------
        spawn
            Starts a program in the client's namespace.
        settings
            What to forward, and where to.
        folder
            Private folder for the control socket, the log and the metrics.
        metrics_file
            File the metrics are appended to, where it is not to be one in `folder`.

        Raises
        ------
        StubError
            With the stub's own last lines, where it does not start.
        """
        binary = find_stub_binary()
        metrics = metrics_file or folder / "stub.jsonl"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            metrics.touch(mode=0o600)
            output = (folder / "stub.log").open("wb")
        except OSError as error:
            raise StubError(
                f"the stub's files cannot be written: {error.strerror}",
                where=str(error.filename or folder),
                next_step="Free some space, or use another folder.",
            ) from error
        words = [str(binary), *settings.words(), "--control", str(folder / "stub.control"), "--metrics", str(metrics)]
        with output:
            process = spawn(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        stub = cls(process, settings, folder, metrics)
        try:
            stub._wait_until_ready()
        except BaseException:
            stub.stop()
            raise
        return stub

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def reset_sessions(self) -> int:
        """Close the upstream connection, so that the next query sets one up with the ticket and token this one left.

        Waits, at most 1 s, for queries on their way, whose rows `metrics` has then, and for the first ticket; what
        hangs longer is cut. Returns how many connections it closed. May be called from any thread.
        """
        return int(self._command("reset-sessions")["closed"])

    def forget(self) -> int:
        """Close the upstream connection and forget tickets and tokens; returns how many connections it closed."""
        return int(self._command("forget")["closed"])

    def stats(self) -> Stats:
        """Counts since the start."""
        answer = self._command("stats")
        del answer["ok"]
        return Stats(**answer)

    def metrics(self) -> list[QueryMetrics]:
        """What the stub told since the last call, in the order it was written.

        A client that has its answer finds the answer's row here.
        """
        *lines, self._partial = (self._partial + self._metrics.read()).split(b"\n")
        return [parse_metrics(line.decode()) for line in lines]

    def stop(self) -> None:
        """Stop the stub and wait for its end. A second call does nothing."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._metrics.close()
        stop_program(self._process)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while self._control is None:
            if self._process.poll() is not None:
                raise self._failure(f"the stub ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"the stub was not ready after {_READY_TIMEOUT_S:.0f} s")
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_COMMAND_TIMEOUT_S)
            try:
                connection.connect(str(self._control_path))
            except OSError:
                connection.close()
                time.sleep(_POLL_S)  # the socket does not exist before the stub made it
            else:
                self._control = connection
        self.listen = str(self._command("ready")["listen"])

    def _command(self, command: str) -> dict[str, Any]:
        if self._control is None:
            raise StubError("the stub is not running", where=command)
        answer = b""
        with self._one_at_a_time, contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"command": command}).encode() + b"\n")
            while not answer.endswith(b"\n") and (part := self._control.recv(65536)):
                answer += part
        if not answer.endswith(b"\n"):
            raise self._failure(f"the stub did not answer the command `{command}`")
        result: dict[str, Any] = json.loads(answer)
        if not result["ok"]:
            raise StubError(f"the stub refused: {result['error']}", where=command)
        return result

    def _failure(self, what: str) -> StubError:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LOG_LINES:]
        return StubError(
            what,
            where=str(self._log_path),
            next_step="Its last words: " + " | ".join(lines) if lines else "It wrote nothing.",
        )
