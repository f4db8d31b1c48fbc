"""Wakes a User-Mode Linux guest that may have gone to sleep with a packet pending.

The program is a file of its own and imports only the standard library. `heartbeat.py PIDFD` receives an inherited file
descriptor of the guest's process. The program ends with the guest.

The guest receives SIGIO when a packet arrives. If the signal arrives between the guest's last check for work and its
sleep, the packet waits for the next timer. This wait can be as long as the link's one-way delay. `os_idle_sleep` of
Linux 6.1 blocks SIGALRM in this interval, but no other signal. So this program sends SIGIO every millisecond, with or
without a packet.
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
