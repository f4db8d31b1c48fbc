"""A child process as an object, with methods to start it, send it commands, read its output and stop it.

The child is e.g. the server, the stub, BIND, dnsproxy or an emulated resolver. This module treats all of them alike.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

from crosslayer import resources
from crosslayer.errors import CrosslayerError

Spawn = Callable[..., "subprocess.Popen[Any]"]
"""Function that starts a program, e.g. in a namespace or guest: `spawn(arguments, **options of subprocess.Popen)`."""

_STOP_TIMEOUT_S = 5.0
_COMMAND_TIMEOUT_S = 10.0
_POLL_S = 0.005
_MISSING, _NOT_EXECUTABLE = 127, 126


class ProcessDied(CrosslayerError):  # noqa: N818 - the name describes an event
    """A program ended unexpectedly. `status` is its exit status, or the negative number of the signal that ended it."""

    def __init__(self, program: str, status: int, *, where: str, next_step: str) -> None:
        super().__init__(f"{program} ended with status {status}", where=where, next_step=next_step)
        self.program = program
        self.status = status


class Process:
    """A running program; a context manager that stops it.

    Failures, e.g. a log that cannot be written, are raised as the exception class `fault`.

    Parameters
    ----------
    spawn
        Function that starts the program, see `Spawn`.
    log
        File for the program's output.
    **options
        Further options of `subprocess.Popen`.
    """

    name: ClassVar[str]
    """Name of the program in errors, e.g. `the server`."""
    fault: ClassVar[type[CrosslayerError]]
    """Exception for a program that does not start, does not answer or refuses a command."""
    ready_timeout_s: ClassVar[float] = 10.0
    log_lines: ClassVar[int] = 5
    """Number of output lines that an error quotes."""

    def __init__(self, spawn: Spawn, command: Sequence[str], log: Path, **options: Any) -> None:
        self.log = log
        self._control: socket.socket | None = None
        self._one_at_a_time = threading.Lock()
        self._lines: BinaryIO | None = None
        self._partial = b""
        self._stopped = False
        with self.writing(log.parent):
            output = log.open("wb")
        with output:
            common = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            self._process = spawn(list(command), **common | options)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.stop()

    @classmethod
    @contextlib.contextmanager
    def writing(cls, folder: Path) -> Iterator[None]:
        """Create the program's folder (mode 0700) if it is missing, then run the body of `with`.

        An `OSError` of either step is raised as `fault`.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield
        except OSError as error:
            raise cls.fault(
                f"the files of {cls.name} cannot be written: {error.strerror}",
                where=str(error.filename or folder),
                next_step="Free some space, or use another folder.",
            ) from error

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until `ready` returns True, at most `ready_timeout_s`.

        If the program ends or is not ready in time, it is stopped, and `fault` is raised with its last output.
        """
        deadline = time.monotonic() + self.ready_timeout_s
        try:
            while not ready():
                if (status := self._process.poll()) is not None:
                    raise self.failure(f"{self.name} ended with status {status}")
                if time.monotonic() > deadline:
                    raise self.failure(f"{self.name} was not ready after {self.ready_timeout_s:g} s")
                time.sleep(_POLL_S)  # there is no notification when a socket is bound or a line is written
        except BaseException:
            self.stop()
            raise

    def raise_if_dead(self) -> None:
        """Raise `ProcessDied`, with status and last output, if the program has ended by itself."""
        if not self._stopped and (status := self._process.poll()) is not None:
            raise ProcessDied(self.name, status, where=str(self.log), next_step=self._quoted())

    def connect(self, control: Path) -> dict[str, Any]:
        """Wait for the program's control socket and send the command `ready`; returns the answer.

        Raises `fault` if the socket does not open or the command fails, e.g. because the program ends in between.
        """
        self.wait_until(lambda: self._connected(control))
        try:
            return self.command("ready")
        except ProcessDied as died:
            self.stop()
            raise self.failure(died.what) from None
        except BaseException:
            self.stop()
            raise

    def command(self, command: str, **parameters: str | int) -> dict[str, Any]:
        """Send a command, a line of JSON, over the control socket; returns the answer. Thread-safe.

        Raises `ProcessDied` if the program has ended by itself, and `fault` if it was stopped, does not answer or
        refuses the command.
        """
        if self._control is None:
            raise self.fault(f"{self.name} is not running", where=command)
        answer = b""
        with self._one_at_a_time, contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"command": command, **parameters}).encode() + b"\n")
            while not answer.endswith(b"\n") and (part := self._control.recv(65536)):
                answer += part
        if not answer.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)  # a dying process closes its sockets shortly before it ends
            self.raise_if_dead()
            raise self.failure(f"{self.name} did not answer the command `{command}`")
        result: dict[str, Any] = json.loads(answer)
        if not result.pop("ok"):
            raise self.fault(f"{self.name} refused: {result['error']}", where=command)
        return result

    def follow(self, file: Path) -> None:
        """Open a file to which the program appends lines; `new_lines` returns the lines appended from now on."""
        self._lines = file.open("rb")
        self._lines.seek(0, 2)

    def new_lines(self) -> list[str]:
        """Complete lines that the program has appended since the last call."""
        assert self._lines is not None, "new_lines before follow"
        *lines, self._partial = (self._partial + self._lines.read()).split(b"\n")
        return [line.decode() for line in lines]

    def kill(self) -> None:
        """Kill the program with SIGKILL, like a crash, and wait for its end."""
        self._process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the program still runs after 5 s; wait for its end.

        A second call does nothing.
        """
        self._stopped = True
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._lines is not None:
            self._lines.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def output(self) -> list[str]:
        """Lines of the program's log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    def failure(self, what: str, lines: Sequence[str] | None = None) -> CrosslayerError:
        """A `fault` that quotes output of the program: `lines`, by default the last lines of its log."""
        return self.fault(what, where=str(self.log), next_step=self._quoted(lines))

    def _quoted(self, lines: Sequence[str] | None = None) -> str:
        if lines is None:
            output = self.output()
            earlier, last = output[: -self.log_lines], output[-self.log_lines :]
            # The reason of a panic (Linux or Go) precedes a backtrace that is longer than the quoted lines.
            shown = [line for line in earlier if "panic" in line.lower()][:1] + last
        else:
            shown = list(lines[: self.log_lines])
        text = " | ".join(line for line in map(str.strip, shown) if line)
        return f"Last output: {text}" if text else "(no output)"

    def _connected(self, control: Path) -> bool:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_COMMAND_TIMEOUT_S)
        try:
            connection.connect(str(control))
        except OSError:
            connection.close()
            return False
        self._control = connection
        return True


def run_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a user's command to its end; returns the exit status that a shell would return.

    This is 128 + signal after a signal, 126 if the file is not executable, and 127 if the command is missing. The PATH
    of the command also has the system folders, which contain `tc` and `tcpdump`.
    """
    environment = {**(os.environ if environment is None else environment), "PATH": resources.search_path()}
    try:
        status = subprocess.run(command, env=environment, check=False).returncode
    except FileNotFoundError:
        print(f"crosslayer: {command[0]}: command not found", file=sys.stderr)
        return _MISSING
    except PermissionError:
        print(f"crosslayer: {command[0]}: not executable", file=sys.stderr)
        return _NOT_EXECUTABLE
    return status if status >= 0 else 128 - status
