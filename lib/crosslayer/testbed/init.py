"""The two guardians of the private namespaces, run as a file of its own: nothing but the standard library here.

    crosslayer = outside -- unshare -- inside (PID 1 of the namespaces) -- the real command

`inside`: a process that is PID 1 itself ignores every signal it has no handler for and inherits Chromium's orphans, and
a fork of a process that has threads (pyarrow's, polars') may hang at its end. `outside`: unshare blocks signals while
it waits, so whoever has only the number of the `crosslayer` process could not end it.

A terminal, or a kill of the whole group, reaches the command directly; then it must not come a second time from here.
So `outside` passes signal n on as SIGRTMIN + n, and `inside`, which is in the group too, passes that on as n unless it
got n itself: with a signal to the group its own is there first.
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
    """Run unshare, which dies with this process, and mark the signals this process gets for `inside`."""
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
    """Run the command, pass signals on to it, reap."""
    everything: set[int] = {*PASSED_ON, *_MARKED, signal.SIGCHLD}
    # A script's shell has its background commands ignore SIGINT; sent to this one by its number, it is meant.
    child = os.posix_spawn(command[0], command, os.environ, setsigmask=(), setsigdef=(signal.SIGINT,))
    while True:
        number = signal.sigwait(everything)
        if number in _MARKED:
            os.kill(child, _MARKED[number])
        elif number != signal.SIGCHLD:
            marked = signal.sigtimedwait([signal.SIGRTMIN + number], _GROUP_S)
            if marked is None:  # for this process alone
                os.kill(child, number)
        elif (status := _status(child)) is not None:
            return status  # whatever still runs is killed by the kernel with this PID namespace


def _status(child: int) -> int | None:
    """Reap what has ended; the exit status of the child (128 + signal where one ended it), None while it runs."""
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
    # Before anything is started: what comes meanwhile waits, also for a process that is still to be (exec keeps this).
    signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, *_MARKED, signal.SIGCHLD})
    role, *words = sys.argv[1:]
    sys.exit(outside(words) if role == "outside" else inside(words))
