"""One guest: start it, send it a command and input, read its output.

The guest's init is emulation/cmd/crosslayer-guest.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from crosslayer import resources
from crosslayer.guest.errors import GuestDied, GuestError
from crosslayer.guest.kernel import find_kernel
from crosslayer.testbed import namespaces

Clock = Literal["virtual", "wall"]

MARK: Final = "CROSSLAYER_INSIDE_GUEST"
"""Environment variable of every command in a guest; its value is the guest's clock."""

MEMORY_BYTES: Final = 4 << 30
"""Upper limit of the guest's memory, bytes; memory that the guest never touches uses no memory of the host."""

_HEAD = struct.Struct(">cI")
_LOG_BYTES = 4000
_CREDIT = 1024
"""Each `C` frame that the guest sends allows the host to send this number of further bytes (flow control).

emulation/cmd/crosslayer-guest/console.go has the same number.
"""


_JOB: Final = "crosslayer-job-"
_PIPE_BYTES: Final = 1 << 20
"""Capacity of the guest's output pipe: the maximum for an unprivileged user, bytes."""
_DATE_S: Final = 1_767_225_600
"""Start date of a guest with a seed: 2026-01-01, Unix time."""

_MAPPINGS_FILE = Path("/proc/sys/vm/max_map_count")

CLOCK_CONTROL: Final = Path("/dev/crosslayer-clock")
"""File by which a program in a guest with a settable clock changes the time of day, see `Guest`."""
LOOK_S: Final = 10.0
"""Interval at which callers that wait for a guest should call `Guest.check_programs`, s."""


def inside() -> Clock | None:
    """The clock of the guest that this process runs in; None on the host."""
    clock = os.environ.get(MARK)
    return "virtual" if clock == "virtual" else "wall" if clock else None


class Guest:
    """A guest that runs one command with the host's files, as this user; a context manager that ends the guest on exit.

    Parameters
    ----------
    command
        The command; its first element is a path.
    clock
        `virtual`: the clock stands still while any process computes. `wall`: the host's clock.
    writable
        Folders of the host that the command may write to. All others are read-only; /tmp, /run and /dev/shm are in
        memory.
    terminal
        Which of the command's three standard streams are terminals.
    size
        Rows and columns of the terminal.
    core
        The processor that the guest is pinned to; None for any.
    environment
        The command's environment. If it is None, the command gets this process's environment without TMPDIR, TMP and
        TEMP.
    standard_input
        The command's complete standard input; None if it is sent by `send`.
    seed
        Seed of all random numbers, in virtual time only: with the same command, input and seed the same events happen
        at the same virtual times. If it is None, the guest uses the host's random numbers and date.
    settable_clock
        Whether the command may change the guest's time of day. The command writes lines with a number to
        `CLOCK_CONTROL`; each line changes the time of day by this number of nanoseconds.

    Raises
    ------
    GuestError
        If this machine lacks a program or file that a guest needs.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        clock: Clock,
        writable: Iterable[Path] = (),
        terminal: tuple[bool, bool, bool] = (False, False, False),
        size: tuple[int, int] = (24, 80),
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
        standard_input: bytes | None = None,
        seed: int | None = None,
        settable_clock: bool = False,
    ) -> None:
        kernel, init = find_kernel(), resources.locate("guest").path
        if environment is None:
            environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TMP", "TEMP")}
        job = {
            "command": list(command),
            "environment": [f"{name}={value}" for name, value in sorted({**environment, MARK: clock}.items())],
            "folder": str(Path.cwd()),
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "groups": os.getgroups(),
            "writable": [str(folder.resolve()) for folder in writable],
            "virtual": clock == "virtual",
            "terminal": terminal,
            "size": size,
            "given": standard_input is not None,
            "settable_clock": settable_clock,
        }
        self._kernel = kernel.path
        self._received = b""
        self._to_send = b""
        self._credit = 2 * _CREDIT
        self._log = b""
        folder = _memory_folder()
        self._job = _JobFile(folder, json.dumps(job).encode() + b"\n" + (standard_input or b""))
        with contextlib.ExitStack() as ends:
            guest_in, own_in = os.pipe()
            own_out, guest_out = os.pipe()
            own_log, guest_log = os.pipe()
            for end in (guest_in, guest_out, guest_log):
                ends.callback(os.close, end)
            fcntl.fcntl(guest_out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)  # a full pipe would block the guest
            self._process = subprocess.Popen(
                [
                    *(namespaces.tool("setpriv"), "--pdeathsig", "KILL", "--", str(kernel.path)),
                    *_kernel_arguments(init, clock, self._job.path, seed),
                ],
                stdin=guest_in,
                stdout=guest_out,
                stderr=guest_log,
                env={"TMPDIR": str(folder), "PATH": os.defpath},
                start_new_session=True,  # the terminal's signals are sent as frames instead
            )
        self.pid = self._process.pid
        self._in, self.out, self.log = own_in, own_out, own_log
        if core is not None:
            with contextlib.suppress(OSError):  # this process may be restricted to fewer processors
                os.sched_setaffinity(self.pid, {core})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Send the guest a frame of kind `0` (standard input), `S` (signal number) or `W` (size of the terminal)."""
        self._to_send += _HEAD.pack(kind, len(payload)) + payload
        self._send_some()

    def _send_some(self) -> None:
        """Send as many queued bytes as the credit allows; the guest's console loses input that arrives too fast."""
        ready, self._to_send = self._to_send[: self._credit], self._to_send[self._credit :]
        self._credit -= len(ready)
        with contextlib.suppress(BrokenPipeError):  # `frames` reports the end of the guest
            os.write(self._in, ready)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Read from `out`, when it is readable, and yield the complete frames: kind and payload.

        Raises
        ------
        GuestDied
            If the guest has ended without an exit status of the command.
        GuestError
            If the guest's init could not run the command.
        """
        received = os.read(self.out, 1 << 16)
        self._received += received
        while len(self._received) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._received)
            if len(self._received) < _HEAD.size + length:
                break
            payload = self._received[_HEAD.size : _HEAD.size + length]
            self._received = self._received[_HEAD.size + length :]
            if kind == b"R":
                self._job.remove()
            if kind == b"C":
                self._credit += _CREDIT
                self._send_some()
            if kind == b"F":
                raise GuestError(
                    f"the guest cannot run the command: {payload.decode()}", next_step="See docs/reference/clocks.md."
                )
            yield kind, payload
        if not received:
            raise self.died()

    def read_log(self) -> bool:
        """Read the kernel's output from `log`, when it is readable, and keep its end; False if the output has ended."""
        part = os.read(self.log, 1 << 16)
        self._log = (self._log + part)[-_LOG_BYTES:]
        return bool(part)

    def check_programs(self) -> None:
        """Verify that each program of the guest can still map memory; a program that cannot would retry for ever.

        Raises
        ------
        GuestDied
            If a program has as many memory mappings as the host allows one process. The guest is then killed.
        """
        allowed = int(_MAPPINGS_FILE.read_text(encoding="ascii"))
        for pid in self._programs():
            with contextlib.suppress(OSError):  # the program has ended meanwhile
                _, resident, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
                if int(resident) < allowed // 2:  # each mapping has at least one page, so most processes need no count
                    continue
                if Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") >= allowed:
                    self._process.kill()
                    raise GuestDied(
                        f"a program in the guest has {allowed} mappings, the most that this machine allows a process",
                        where=str(_MAPPINGS_FILE),
                        next_step="Its memory is too fragmented: reduce its memory use, or have this machine's "
                        "administrator raise vm.max_map_count.",
                    )

    def _programs(self) -> list[str]:
        """Process IDs, on the host, of the programs in the guest."""
        pids: list[str] = []
        for file in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                pids += file.read_text(encoding="ascii").split()
        return pids

    def died(self) -> GuestDied:
        """The error for a guest that ended by itself, with the last lines of its output."""
        self._process.kill()
        status = self._process.wait()
        with contextlib.suppress(OSError):
            while self.read_log():
                pass
        # After a panic the kernel dumps its messages to its standard output; a backtrace follows the reason.
        lines = (self._received + self._log).decode(errors="replace").splitlines()
        panics = [line for line in lines[:-5] if "panic" in line.lower()]
        last_output = " | ".join(line for line in map(str.strip, panics + lines[-5:]) if line)
        return GuestDied(
            f"the guest ended with status {status}",
            where=str(self._kernel),
            next_step=f"Last output: {last_output}" if last_output else "The kernel printed nothing.",
        )

    def close(self) -> None:
        """Close the guest's input, at which the guest powers off, and kill the guest if it still runs after 2 s."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)  # the guest powers off at the end of its input
            self._process.kill()
            self._process.wait()
            os.close(self.out)
            os.close(self.log)
            self._job.remove()


class _JobFile:
    """A file with the guest's job: command, environment, options and standard input.

    The guest reads the file at its start, so that it has the job before any virtual time passes. The process that made
    the file keeps it locked until it removes the file or ends. The constructor also removes unlocked files, whose
    processes were killed.
    """

    def __init__(self, folder: Path, content: bytes) -> None:
        for stale in folder.glob(f"{_JOB}*"):
            with contextlib.suppress(OSError), stale.open("rb") as file:  # locked, another user's, or removed meanwhile
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stale.unlink()
        while True:
            descriptor, path = tempfile.mkstemp(prefix=_JOB, dir=folder)
            self.path, self._file = Path(path), os.fdopen(descriptor, "wb")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # no other process has removed it as stale
                break
            self._file.close()
        self._file.write(content)
        self._file.flush()

    def remove(self) -> None:
        """Remove the file; callers do so when the guest has read it or has ended."""
        self.path.unlink(missing_ok=True)
        self._file.close()


def _kernel_arguments(init: Path, clock: Clock, job: Path, seed: int | None) -> list[str]:
    arguments = [
        f"mem={MEMORY_BYTES >> 20}M",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "quiet",
        "panic=-1",
        f"init={os.path.realpath(init)}",
        "con=null",
        "con0=fd:0,fd:1",
        "ssl=null",
        "console=stderr0",
        "uml_dir=/dev/null/",  # no control socket and no folder that a killed guest leaves behind
        "seccomp=auto",
        f'crosslayer_job="{job}"',  # TMPDIR may contain a space
    ]
    if clock == "virtual":
        arguments.append("time-travel=inf-cpu")
        if seed is not None:
            arguments += [f"seed={seed}", f"time-travel-start={_DATE_S * 10**9}"]
    return arguments


def _memory_folder() -> Path:
    """The folder for the file that backs the guest's memory: large enough, and not mounted noexec.

    Raises
    ------
    GuestError
        If there is no such folder.
    """
    for name in (os.environ.get("TMPDIR", ""), "/dev/shm", "/tmp", "/var/tmp"):
        with contextlib.suppress(OSError):
            stats = os.statvfs(name)
            free_bytes = stats.f_bavail * stats.f_frsize
            if os.access(name, os.W_OK) and not stats.f_flag & os.ST_NOEXEC and free_bytes >= MEMORY_BYTES // 2:
                return Path(name)
    raise GuestError(
        f"there is no folder for the guest's memory: it needs {MEMORY_BYTES >> 31} GB and must not be mounted noexec",
        where="/dev/shm, /tmp",
        next_step="Set TMPDIR to such a folder.",
    )
