"""Run a command in a guest with this process's standard streams, terminal, signals and exit status."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import stat
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crosslayer.guest.guest import LOOK_S, Clock, Guest

_WHOLE_BYTES = 1 << 20
"""Maximum size of a file on standard input that the guest receives as a whole, bytes."""
_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGWINCH)


def run_attached(
    command: Sequence[str],
    *,
    clock: Clock,
    writable: Iterable[Path] = (),
    seed: int | None = None,
    settable_clock: bool = False,
) -> int:
    """Run a command in a guest and return its exit status (128 + signal if a signal ended it).

    Parameters
    ----------
    command
        The command; its first element is a path.
    clock
        `virtual`: the clock stands still while any process computes. `wall`: the host's clock.
    writable
        Folders of the host that the command may write to.
    seed, settable_clock
        As in `Guest`.

    Raises
    ------
    GuestError
        If this machine cannot run a guest, or the guest ends without an exit status.
    """
    # A background process must not read the terminal.
    foreground = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    terminal = (foreground, os.isatty(1), os.isatty(2))
    given = _whole_input()
    sys.stdout.flush()
    sys.stderr.flush()
    with (
        _signals() as signals,
        Guest(
            command,
            clock=clock,
            writable=writable,
            terminal=terminal,
            size=_size(),
            standard_input=given,
            seed=seed,
            settable_clock=settable_clock,
        ) as guest,
        selectors.SelectSelector() as ready,  # unlike epoll, select accepts regular files
        contextlib.ExitStack() as undo,
    ):
        for source in (guest.out, guest.log, signals):
            ready.register(source, selectors.EVENT_READ)
        running, next_check = False, time.monotonic() + LOOK_S
        while True:
            if time.monotonic() >= next_check:
                guest.check_programs()
                next_check = time.monotonic() + LOOK_S
            for key, _events in ready.select(LOOK_S):
                if key.fileobj == guest.out:
                    for kind, payload in guest.frames():
                        if kind == b"X":
                            return int(payload)
                        if kind in (b"1", b"2"):
                            _write(int(kind), payload)
                        elif kind in (b"R", b"A"):
                            if kind == b"R":
                                running = True
                                if foreground:
                                    _make_raw(undo)
                            if given is not None:
                                continue
                            if foreground or not os.isatty(0):
                                ready.register(0, selectors.EVENT_READ)
                            else:
                                guest.send(b"0")
                elif key.fileobj == guest.log:
                    if not guest.read_log():
                        ready.unregister(guest.log)
                elif key.fileobj == 0:
                    ready.unregister(0)  # until the command has consumed this input, so that no input queues up
                    guest.send(b"0", _read())
                else:
                    for number in signals.recv(64):
                        if number == signal.SIGWINCH:
                            guest.send(b"W", struct.pack(">HH", *_size()))
                        elif running:
                            guest.send(b"S", str(number).encode())
                        else:
                            return 128 + number


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal, in place of the signal's usual effect."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, lambda *_: None) for number in _PASSED_ON}
    fd_before = signal.set_wakeup_fd(writer.fileno())
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(fd_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _make_raw(undo: contextlib.ExitStack) -> None:
    """Set the host's terminal to raw mode, so that every key reaches the guest; `undo` restores the former mode."""
    undo.callback(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
    tty.setraw(0)


def _whole_input() -> bytes | None:
    """The complete standard input, or None if its bytes are sent as they arrive.

    If the guest receives the complete input at its start, no event in the guest depends on when input arrives at the
    host. None for pipes, sockets, terminals and large files.
    """
    try:
        status = os.fstat(0)
        if os.path.samestat(status, Path(os.devnull).stat()):
            return b""
        if stat.S_ISREG(status.st_mode) and status.st_size <= _WHOLE_BYTES:
            return sys.stdin.buffer.read()
    except OSError:  # closed
        return b""
    return None


def _size() -> tuple[int, int]:
    """Rows and columns of the first standard stream that is a terminal."""
    for stream in range(3):
        with contextlib.suppress(OSError):
            rows, columns, *_ = struct.unpack("HHHH", fcntl.ioctl(stream, termios.TIOCGWINSZ, bytes(8)))
            return rows, columns
    return 24, 80


def _read() -> bytes:
    try:
        return os.read(0, 1 << 15)
    except OSError:  # the terminal was hung up, or standard input is closed
        return b""


def _write(stream: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # the reader has closed its end; the command continues, as with `| head`
        while data:
            data = data[os.write(stream, data) :]
