"""A command in a guest as if it ran here: this process's standard streams, terminal, signals and exit status."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import struct
import sys
import termios
import time
import tty
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crosslayer.guest.machine import LOOK_S, Clock, Machine

_PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGWINCH)


def run_attached(words: Sequence[str], *, clock: Clock, writable: Iterable[Path] = ()) -> int:
    """Run a command in a guest and return its exit status (128 + signal where one ended it).

    Parameters
    ----------
    words
        The command, its first word a path.
    clock
        `virtual` stands still while anything computes; `wall` is the host's.
    writable
        Folders of the host that it may write to.

    Raises
    ------
    GuestError
        Where this machine cannot run a guest, or the guest died.
    """
    # In the background a terminal is not ours to read.
    ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    terminal = (ours, os.isatty(1), os.isatty(2))
    sys.stdout.flush()
    sys.stderr.flush()
    with (
        _signals() as signals,
        Machine(words, clock=clock, writable=writable, terminal=terminal, size=_size()) as machine,
        selectors.SelectSelector() as ready,  # the one that takes files too
        contextlib.ExitStack() as undo,
    ):
        for source in (machine.out, machine.log, signals):
            ready.register(source, selectors.EVENT_READ)
        running, look = False, time.monotonic() + LOOK_S
        while True:
            if time.monotonic() >= look:
                machine.check_programs()
                look = time.monotonic() + LOOK_S
            for key, _events in ready.select(LOOK_S):
                if key.fileobj == machine.out:
                    for kind, payload in machine.frames():
                        if kind == b"X":
                            return int(payload)
                        if kind in (b"1", b"2"):
                            _write(int(kind), payload)
                        elif kind in (b"R", b"A"):
                            if kind == b"R":
                                running = True
                                if ours:
                                    _make_raw(undo)
                            if ours or not os.isatty(0):
                                ready.register(0, selectors.EVENT_READ)
                            else:
                                machine.send(b"0")
                elif key.fileobj == machine.log:
                    if not machine.read_log():
                        ready.unregister(machine.log)
                elif key.fileobj == 0:
                    ready.unregister(0)  # the next when the command has taken this: nothing piles up
                    machine.send(b"0", _read())
                else:
                    for number in signals.recv(64):
                        if number == signal.SIGWINCH:
                            machine.send(b"W", struct.pack(">HH", *_size()))
                        elif running:
                            machine.send(b"S", str(number).encode())
                        else:
                            return 128 + number


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that has the number of each signal that comes, instead of what it would do."""
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
    """Every key is for the terminal in the guest, until the end."""
    undo.callback(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
    tty.setraw(0)


def _size() -> tuple[int, int]:
    """Rows and columns of the terminal that one of the streams is."""
    for stream in range(3):
        with contextlib.suppress(OSError):
            rows, columns, *_ = struct.unpack("HHHH", fcntl.ioctl(stream, termios.TIOCGWINSZ, bytes(8)))
            return rows, columns
    return 24, 80


def _read() -> bytes:
    try:
        return os.read(0, 1 << 15)
    except OSError:  # a terminal that was hung up, or standard input that is closed
        return b""


def _write(stream: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # who reads has seen enough; the command goes on, as with `| head`
        while data:
            data = data[os.write(stream, data) :]
