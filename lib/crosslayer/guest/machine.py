"""One guest: started, fed with a command, read to its end. Its init is emulation/cmd/crosslayer-guest."""

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

from crosslayer import places
from crosslayer.guest.errors import GuestDied, GuestError
from crosslayer.guest.kernel import find_kernel
from crosslayer.testbed import private

Clock = Literal["virtual", "wall"]

MARK: Final = "CROSSLAYER_INSIDE_GUEST"
"""Environment variable of every command in a guest: its clock."""

MEMORY_BYTES: Final = 4 << 30
"""An upper bound: what the guest never touched costs the host nothing."""

_HEAD = struct.Struct(">cI")
_LOG_BYTES = 4000
_CREDIT = 1024
"""What the guest says may come more, bytes; it stands in emulation/cmd/crosslayer-guest/console.go too."""


_JOB: Final = "crosslayer-job-"
_PIPE_BYTES: Final = 1 << 20
"""What a guest can say before anybody reads it; the most that an ordinary user may ask for."""
_DATE_S: Final = 1_767_225_600
"""The date where nothing comes from the host: 2026-01-01, Unix time."""

_MAPPINGS_FILE = Path("/proc/sys/vm/max_map_count")
_MAPPINGS_TOO_FEW: Final = 65_530
"""With so many of the host's mappings Firefox dies in a guest, each stretch of whose pages is one."""


LOOK_S: Final = 10.0
"""How often whoever waits for a guest calls `Machine.check_programs`, s."""


def check_mappings() -> None:
    """`GuestError` where the host allows a process too few mappings for Firefox in a guest."""
    allowed = int(_MAPPINGS_FILE.read_text(encoding="ascii"))
    if allowed <= _MAPPINGS_TOO_FEW:
        raise GuestError(
            f"this machine allows a process {allowed} mappings, too few for Firefox in a guest",
            where=str(_MAPPINGS_FILE),
            next_step="Measure by the wall clock, or have its administrator raise vm.max_map_count.",
        )


def inside() -> Clock | None:
    """The clock of the guest that this process runs in; None on the host."""
    clock = os.environ.get(MARK)
    return "virtual" if clock == "virtual" else "wall" if clock else None


class Machine:
    """A guest that runs one command with the host's files, as this user; a context manager that kills it.

    Parameters
    ----------
    words
        The command, its first word a path.
    clock
        `virtual` stands still while anything computes; `wall` is the host's.
    writable
        Folders of the host that the command may write to; all others are read-only, /tmp, /run and /dev/shm in memory.
    terminal
        Which of its standard streams are a terminal.
    size
        Rows and columns of that.
    core
        The processor it stays on; None for any.
    environment
        Of the command; None for this process's, without where its temporary files are.
    given
        All of the command's standard input; None where it comes by `send`.
    seed
        What all that is random in it follows from, by the virtual clock: with the same words, input and seed the same
        happens at the same virtual time. None for the host's random numbers and date.

    Raises
    ------
    GuestError
        Where this machine has not got what a guest needs.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        clock: Clock,
        writable: Iterable[Path] = (),
        terminal: tuple[bool, bool, bool] = (False, False, False),
        size: tuple[int, int] = (24, 80),
        core: int | None = None,
        environment: Mapping[str, str] | None = None,
        given: bytes | None = None,
        seed: int | None = None,
    ) -> None:
        kernel, init = find_kernel(), places.find("guest").path
        if environment is None:
            environment = {name: value for name, value in os.environ.items() if name not in ("TMPDIR", "TMP", "TEMP")}
        job = {
            "words": list(words),
            "environment": [f"{name}={value}" for name, value in sorted({**environment, MARK: clock}.items())],
            "folder": str(Path.cwd()),
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "groups": os.getgroups(),
            "writable": [str(folder.resolve()) for folder in writable],
            "virtual": clock == "virtual",
            "terminal": terminal,
            "size": size,
            "given": given is not None,
        }
        self._kernel = kernel.path
        self._received = b""
        self._to_send = b""
        self._credit = 2 * _CREDIT
        self._log = b""
        folder = _memory_folder()
        self._job = _JobFile(folder, json.dumps(job).encode() + b"\n" + (given or b""))
        with contextlib.ExitStack() as ends:
            theirs_in, ours_in = os.pipe()
            ours_out, theirs_out = os.pipe()
            ours_log, theirs_log = os.pipe()
            for end in (theirs_in, theirs_out, theirs_log):
                ends.callback(os.close, end)
            fcntl.fcntl(theirs_out, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)  # or the guest would wait for this process
            self._process = subprocess.Popen(
                [
                    *(private.tool("setpriv"), "--pdeathsig", "KILL", "--", str(kernel.path)),
                    *_kernel_words(init, clock, self._job.path, seed),
                ],
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=theirs_log,
                env={"TMPDIR": str(folder), "PATH": os.defpath},
                start_new_session=True,  # a terminal's signals are for the command in it
            )
        self.pid = self._process.pid
        self._in, self.out, self.log = ours_in, ours_out, ours_log
        if core is not None:
            with contextlib.suppress(OSError):  # fewer cores are ours than there are
                os.sched_setaffinity(self.pid, {core})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Send it a frame: `0` standard input, `S` a signal's number, `W` the terminal's size."""
        self._to_send += _HEAD.pack(kind, len(payload)) + payload
        self._send_some()

    def _send_some(self) -> None:
        """As much as it may be sent by now; its console loses what comes faster than it is read."""
        some, self._to_send = self._to_send[: self._credit], self._to_send[self._credit :]
        self._credit -= len(some)
        with contextlib.suppress(BrokenPipeError):  # its end is told by what it sends, or does not send, last
            os.write(self._in, some)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """The frames that have come, after `out` was readable.

        Raises
        ------
        GuestDied
            Where it has ended without a command's exit status.
        GuestError
            Where its init could not run the command.
        """
        part = os.read(self.out, 1 << 16)
        self._received += part
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
                raise GuestError(f"the guest cannot run it: {payload.decode()}", next_step="See docs/clocks.md.")
            yield kind, payload
        if not part:
            raise self.died()

    def read_log(self) -> bool:
        """Keep the end of what its kernel says, after `log` was readable; False at its end."""
        part = os.read(self.log, 1 << 16)
        self._log = (self._log + part)[-_LOG_BYTES:]
        return bool(part)

    def check_programs(self) -> None:
        """Whether each of its programs can have more memory; one that cannot tries again for ever, and nothing ends.

        Raises
        ------
        GuestDied
            Where one has all the mappings that the host allows a process. The guest is killed.
        """
        allowed = int(_MAPPINGS_FILE.read_text(encoding="ascii"))
        for pid in self._programs():
            with contextlib.suppress(OSError):  # one that ended meanwhile
                _, resident, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
                if int(resident) < allowed // 2:  # each mapping has a page: spares counting those of most
                    continue
                if Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") >= allowed:
                    self._process.kill()
                    raise GuestDied(
                        f"a program in the guest has {allowed} mappings, as many as this machine allows a process",
                        where=str(_MAPPINGS_FILE),
                        next_step="It needs too much memory in pieces: spare it some, or have this machine's "
                        "administrator raise vm.max_map_count.",
                    )

    def _programs(self) -> list[str]:
        """Processes of the host that are its programs, by number."""
        found: list[str] = []
        for file in Path(f"/proc/{self.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += file.read_text(encoding="ascii").split()
        return found

    def died(self) -> GuestDied:
        """The fault of a guest that ended by itself, with its last words."""
        self._process.kill()
        status = self._process.wait()
        with contextlib.suppress(OSError):
            while self.read_log():
                pass
        said = " | ".join(line for line in map(str.strip, self._log.decode(errors="replace").splitlines()[-5:]) if line)
        return GuestDied(
            f"the guest ended with status {status}",
            where=str(self._kernel),
            next_step=f"Its last words: {said}" if said else "It said nothing.",
        )

    def close(self) -> None:
        """Wait for a guest that has ended to power off; kill one that has not."""
        if self._in >= 0:
            os.close(self._in)
            self._in = -1
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2)  # it powers off when its input ends
            self._process.kill()
            self._process.wait()
            os.close(self.out)
            os.close(self.log)
            self._job.remove()


class _JobFile:
    """What a guest is to do, in a file that it reads when it is up: by its clock no time may pass until it knows.

    Locked while its owner lives; whoever makes the next one removes what a killed owner left.
    """

    def __init__(self, folder: Path, content: bytes) -> None:
        for left in folder.glob(f"{_JOB}*"):
            with contextlib.suppress(OSError), left.open("rb") as file:  # of another user, or removed meanwhile
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()
        while True:
            descriptor, path = tempfile.mkstemp(prefix=_JOB, dir=folder)
            self.path, self._file = Path(path), os.fdopen(descriptor, "wb")
            fcntl.flock(self._file, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:  # nobody took it for one that was left
                break
            self._file.close()
        self._file.write(content)
        self._file.flush()

    def remove(self) -> None:
        """The guest has read it, or never will."""
        self.path.unlink(missing_ok=True)
        self._file.close()


def _kernel_words(init: Path, clock: Clock, job: Path, seed: int | None) -> list[str]:
    words = [
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
        "uml_dir=/dev/null/",  # no control socket, and no folder that a kill would leave behind
        "seccomp=auto",
        f'crosslayer_job="{job}"',  # TMPDIR may have a space
    ]
    if clock == "virtual":
        words.append("time-travel=inf-cpu")
        if seed is not None:
            words += [f"seed={seed}", f"time-travel-start={_DATE_S * 10**9}"]
    return words


def _memory_folder() -> Path:
    """Where the file goes that is the guest's memory: it has to be large enough and to allow executable mappings.

    Raises
    ------
    GuestError
        Where there is no such folder.
    """
    for name in (os.environ.get("TMPDIR", ""), "/dev/shm", "/tmp", "/var/tmp"):
        with contextlib.suppress(OSError):
            about = os.statvfs(name)
            room = about.f_bavail * about.f_frsize
            if os.access(name, os.W_OK) and not about.f_flag & os.ST_NOEXEC and room >= MEMORY_BYTES // 2:
                return Path(name)
    raise GuestError(
        f"no folder for the guest's memory: it takes {MEMORY_BYTES >> 31} GB and must not be mounted noexec",
        where="/dev/shm, /tmp",
        next_step="Name one by TMPDIR.",
    )
