"""A User-Mode Linux guest in which everything is measured, by a clock that stands still while anything computes.

Also where the host refuses namespaces, then by the wall clock. It runs commands; what they measure may not enter here.
See docs/clocks.md.
"""

from crosslayer.guest.attached import run_attached
from crosslayer.guest.errors import GuestDied, GuestError
from crosslayer.guest.kernel import Kernel, find_kernel
from crosslayer.guest.machine import LOOK_S, Clock, Machine, check_mappings, inside

__all__ = [
    "LOOK_S",
    "Clock",
    "GuestDied",
    "GuestError",
    "Kernel",
    "Machine",
    "check_mappings",
    "find_kernel",
    "inside",
    "run_attached",
]
