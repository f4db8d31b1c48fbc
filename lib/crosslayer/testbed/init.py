"""PID 1 of the private namespaces, run as a file of its own: starts the real command, passes signals on, reaps.

A process that is PID 1 itself ignores every signal it has no handler for and inherits Chromium's orphans; and a
fork of a process that has threads (pyarrow's, polars') may hang at its end. So the command gets a parent that is
this, and nothing but the standard library may be imported here.
"""

from __future__ import annotations

import os
import signal
import sys


def main(command: list[str]) -> int:
    """Run the command and return its exit status (128 + signal where one ended it)."""
    child = os.posix_spawn(command[0], command, os.environ)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the child as well
    while True:
        pid, status = os.wait()
        if pid == child:
            # Whatever still runs is killed by the kernel with this PID namespace.
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
