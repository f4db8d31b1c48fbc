"""CPU time of this host: crosslayer's own processes, all others, and hypervisor steal time. Linux only (/proc)."""

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
    """CPU use of the host between two moments; CPU and steal times are sums over all processors."""

    started_s: float
    """Seconds since the Unix epoch."""
    duration_ms: float
    cores: int
    own_cpu_ms: float
    """CPU time of the processes in this PID namespace, ended ones included, ms."""
    others_ms: float
    """CPU time of all other processes of the host, ms.

    It excludes the time of interrupts, because crosslayer may have caused them.
    """
    steal_ms: float
    """Time in which the hypervisor gave the processors to other guests, ms."""
    pressure_ms: float | None
    """Time in which at least one task waited for a processor (PSI, `some`), ms; None if the kernel has no PSI."""


class Meter:
    """Measures CPU use from its construction to a call of `usage`. Resolution: one clock tick, 10 ms."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._started_s, self._started = time.time(), time.monotonic()
        self._before = self._read()

    def usage(self) -> Usage:
        """CPU use since this meter was constructed."""
        own, busy, steal, pressure = (
            None if now is None or before is None else now - before
            for now, before in zip(self._read(), self._before, strict=True)
        )
        assert own is not None
        assert busy is not None
        assert steal is not None
        return Usage(
            started_s=self._started_s,
            duration_ms=(time.monotonic() - self._started) * 1e3,
            cores=os.cpu_count() or 1,
            own_cpu_ms=own,
            others_ms=max(0.0, busy - own),
            steal_ms=max(0.0, steal),  # the steal counter of some hypervisors decreases
            pressure_ms=pressure,
        )

    def _read(self) -> tuple[float, float, float, float | None]:
        """Counters so far, ms: own processes, all processes, steal, pressure."""
        fields = (self._proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _iowait, _irq, _softirq, steal = map(int, fields[:8])
        own, busy = ticks_used(self._proc) * _MS_PER_TICK, (user + nice + system) * _MS_PER_TICK
        return own, busy, steal * _MS_PER_TICK, self._pressure_ms()

    def _pressure_ms(self) -> float | None:
        try:
            some = (self._proc / "pressure" / "cpu").read_text(encoding="ascii").splitlines()[0]
        except OSError:
            return None
        return int(some.rpartition("total=")[2]) / 1e3


def ticks_used(proc: Path = _PROC) -> int:
    """Sum of the CPU times until now of all processes of this PID namespace, ended ones included, in clock ticks.

    Source: proc(5), fields 14 to 17 of `stat`: a process's own time, and the time of the children it has waited for.
    """
    total = 0
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total
