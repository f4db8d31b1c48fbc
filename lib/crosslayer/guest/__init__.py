"""Run commands in a User-Mode Linux guest, in virtual time or in real time.

In virtual time, the clock stands still while a process computes, and it skips idle time. So the inputs determine every
measurement in the guest. In real time, a guest is used on a host that refuses namespaces, because the guest has its
own. This package is independent of the commands. See docs/reference/clocks.md.
"""

from crosslayer.guest.attached import run_attached
from crosslayer.guest.errors import GuestDied, GuestError
from crosslayer.guest.guest import CLOCK_CONTROL, LOOK_S, Clock, Guest, inside
from crosslayer.guest.kernel import Kernel, find_kernel

__all__ = [
    "CLOCK_CONTROL",
    "LOOK_S",
    "Clock",
    "Guest",
    "GuestDied",
    "GuestError",
    "Kernel",
    "find_kernel",
    "inside",
    "run_attached",
]
