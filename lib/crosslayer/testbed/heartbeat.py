"""Wakes a User-Mode Linux guest that may have fallen asleep over a packet.

Run as a file of its own, beside nothing but the standard library: `heartbeat.py PIDFD`, a file descriptor of the
guest's process that it inherits. It ends with the guest.

A guest tells a packet by SIGIO. Where that comes between its last look at what is to do and its sleep (`os_idle_sleep`
of Linux 6.1 holds back SIGALRM there, and no other signal), the packet waits for the guest's next timer: that of the
packet before it, a way's whole delay. So SIGIO comes every millisecond, whether there is a packet or not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import time

_EVERY_S = 0.001
_PR_SET_TIMERSLACK = 29


def main() -> None:
    """Send SIGIO until the guest has ended."""
    guest = int(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    gc.freeze()
    with contextlib.suppress(ProcessLookupError):
        while True:
            signal.pidfd_send_signal(guest, signal.SIGIO)
            time.sleep(_EVERY_S)


if __name__ == "__main__":
    main()
