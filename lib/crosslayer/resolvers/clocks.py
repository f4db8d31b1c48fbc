"""Clocks of the measuring machine, which show whether it slept or its time of day was set during a measurement."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

from crosslayer.vocabulary import EventKind

_LEAST_S = 0.1
"""Least duration of a sleep and least size of a clock step that count as a disturbance, s."""
_SLEW = 0.001
"""Share of the elapsed time. A deviation of the time of day above this share plus `_LEAST_S` is a clock step.

Without a step, Linux corrects its time of day by at most 500 ppm of the elapsed time. This share is twice as large.
"""
_TOGETHER_S = 0.001
_ATTEMPTS = 10


def elapsed_s() -> float:
    """Time since the boot, sleep included, s. Setting the time of day does not change it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Three clocks at one moment, seconds."""

    awake_s: float
    """Time since the boot, sleep excluded (CLOCK_MONOTONIC)."""
    boot_s: float
    """Time since the boot, sleep included (CLOCK_BOOTTIME)."""
    day_s: float
    """Time of day (CLOCK_REALTIME)."""

    @classmethod
    def now(cls) -> Self:
        """Read the clocks; read them again if the process was interrupted between the readings."""
        for _ in range(_ATTEMPTS):
            before_s = time.clock_gettime(time.CLOCK_MONOTONIC)
            boot_s, day_s = time.clock_gettime(time.CLOCK_BOOTTIME), time.clock_gettime(time.CLOCK_REALTIME)
            if time.clock_gettime(time.CLOCK_MONOTONIC) - before_s < _TOGETHER_S:
                break
        return cls(before_s, boot_s, day_s)

    def disturbed(self, later: ClockReading) -> tuple[EventKind, str] | None:
        """Whether the machine slept or its clock was set between this reading and `later`.

        Returns the kind of the event with the evidence as text, or None without such an event.
        """
        awake_s, boot_s = later.awake_s - self.awake_s, later.boot_s - self.boot_s
        if (slept_s := boot_s - awake_s) > _LEAST_S:
            return EventKind.SLEPT, f"the machine slept for {slept_s:.1f} s"
        step_s = later.day_s - self.day_s - boot_s
        if abs(step_s) > _LEAST_S + _SLEW * boot_s:
            return EventKind.CLOCK_STEPPED, f"the time of day was set by {step_s:+.1f} s"
        return None
