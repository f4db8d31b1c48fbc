"""What this machine does with its processors: ours, everything else, what the hypervisor takes. Linux's /proc only."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_MS_PER_TICK = 1e3 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processors did between two moments; times are summed over all of them."""

    started_s: float
    """Seconds since the Unix epoch."""
    duration_ms: float
    cores: int
    ours_ms: float
    """CPU time of the processes of this PID namespace, those that have ended included."""
    others_ms: float
    """CPU time of every other process of the machine, without interrupts, which may be ours."""
    steal_ms: float
    """Time in which the hypervisor gave the processors to others."""
    pressure_ms: float | None
    """Time in which something waited for a processor (PSI, `some`); None where the kernel does not tell."""


class Meter:
    """Reads the counters when it is made, and again for `usage`; their resolution is a clock tick, 10 ms."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._started_s, self._started = time.time(), time.monotonic()
        self._before = self._read()

    def usage(self) -> Usage:
        """What happened since this meter was made."""
        ours, busy, steal, pressure = (
            None if now is None or before is None else now - before
            for now, before in zip(self._read(), self._before, strict=True)
        )
        assert ours is not None
        assert busy is not None
        assert steal is not None
        return Usage(
            started_s=self._started_s,
            duration_ms=(time.monotonic() - self._started) * 1e3,
            cores=os.cpu_count() or 1,
            ours_ms=ours,
            others_ms=max(0.0, busy - ours),
            steal_ms=max(0.0, steal),  # some hypervisors take back what they told
            pressure_ms=pressure,
        )

    def _read(self) -> tuple[float, float, float, float | None]:
        """Ours, all processes, steal, pressure; ms."""
        fields = (self._proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, fields[:8])
        ours, busy = ticks_used(self._proc) * _MS_PER_TICK, (user + nice + system) * _MS_PER_TICK
        return ours, busy, steal * _MS_PER_TICK, self._pressure_ms()

    def _pressure_ms(self) -> float | None:
        try:
            some = (self._proc / "pressure" / "cpu").read_text(encoding="ascii").splitlines()[0]
        except OSError:
            return None
        return int(some.rpartition("total=")[2]) / 1e3


def ticks_used(proc: Path = _PROC) -> int:
    """CPU time of every process of this PID namespace so far, and of those that have ended, in clock ticks.

    proc(5), fields 14 to 17 of `stat`: its own time, and that of the children it has waited for.
    """
    total = 0
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that has ended meanwhile
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total
