"""A suspend of the machine is detected by the kernel's clocks.

A time namespace emulates the suspend: it adds an offset to the time since boot. A guest in virtual time is never
suspended.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crosslayer.resolvers.clocks import ClockReading

_CLONE_NEWTIME = 0x80
_SLEPT_S = 600


def sleep() -> None:
    """In a user namespace: enter a time namespace with the offset of a suspend, and print the detected event."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = ClockReading.now()
    assert before.disturbed(ClockReading.now()) is None
    assert libc.unshare(_CLONE_NEWTIME) == 0, os.strerror(ctypes.get_errno())
    Path("/proc/self/timens_offsets").write_text(f"boottime {_SLEPT_S} 0\n", encoding="ascii")
    namespace = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
    assert libc.setns(namespace, _CLONE_NEWTIME) == 0, os.strerror(ctypes.get_errno())
    print(before.disturbed(ClockReading.now()))


def test_a_sleep_of_the_machine_is_recognised() -> None:
    root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    done = subprocess.run([*root, sys.executable, __file__], capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("this machine refuses time namespaces")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(<EventKind.SLEPT: 'slept'>, 'the machine slept for 600.0 s')\n"


if __name__ == "__main__":
    sleep()
