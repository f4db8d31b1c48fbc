"""The two supervisor processes of the private namespaces.

This program is a file of its own and imports only the standard library.

    crosslayer = outside -- unshare -- inside (PID 1 of the namespaces) -- the real command

`inside` exists so that the command is not PID 1. PID 1 ignores every signal for which it has no handler, and inherits
orphaned processes, e.g. Chromium's. `inside` is a separate program because a process with threads (pyarrow's, polars')
may hang after a fork. `outside` exists because unshare blocks signals while it waits: a signal to the `crosslayer`
process alone would have no effect.

A signal from the terminal or to the whole process group reaches the command directly and must not be delivered twice.
So `outside` forwards signal n to `inside` as SIGRTMIN + n. `inside` is in the group too. It receives a signal to the
group twice, first as n and then as SIGRTMIN + n, and ignores both. If only one of the two arrives, the signal was not
sent to the group, and `inside` delivers n to the command.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_MARKED = {signal.SIGRTMIN + number: number for number in PASSED_ON}
_GROUP_S = 0.2
_PR_SET_PDEATHSIG = 1


def outside(command: list[str]) -> int:
    """Run unshare, which ends with this process, and forward each signal n to `inside` as SIGRTMIN + n.

    Returns the exit status (128 + signal if a signal ended the command).
    """
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.execv(command[0], command)
    while True:
        number = signal.sigwait({*PASSED_ON, signal.SIGCHLD})
        if number != signal.SIGCHLD:
            inner = Path(f"/proc/{child}/task/{child}/children").read_text(encoding="ascii").split()
            if inner:
                os.kill(int(inner[0]), signal.SIGRTMIN + number)
            else:  # nothing has been started yet
                os.kill(child, signal.SIGKILL)
        elif (status := _status(child)) is not None:
            return status


def inside(command: list[str]) -> int:
    """Run the command, forward signals to it, and reap ended processes; returns the command's exit status."""
    everything: set[int] = {*PASSED_ON, *_MARKED, signal.SIGCHLD}
    # Background commands of a shell script ignore SIGINT. Undo this: a SIGINT to this process alone must take effect.
    child = os.posix_spawn(command[0], command, os.environ, setsigmask=(), setsigdef=(signal.SIGINT,))
    while True:
        number = signal.sigwait(everything)
        if number in _MARKED:
            os.kill(child, _MARKED[number])
        elif number != signal.SIGCHLD:
            marked = signal.sigtimedwait([signal.SIGRTMIN + number], _GROUP_S)
            if marked is None:  # sent to this process alone
                os.kill(child, number)
        elif (status := _status(child)) is not None:
            return status  # the kernel kills all remaining processes with this PID namespace


def _status(child: int) -> int | None:
    """Reap ended processes; returns the child's exit status (128 + signal if a signal ended it), None while it runs."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == 0:
            return None
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    # Block signals before starting anything: they stay pending, also for processes started later (exec keeps the mask).
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, *_MARKED, signal.SIGCHLD})
    role, *arguments = sys.argv[1:]
    sys.exit(outside(arguments) if role == "outside" else inside(arguments))
