"""Timing of clients: `Timeline.phase` times every phase of every client."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


class PhaseName(StrEnum):
    """The two phases of an exchange."""

    HANDSHAKE = "handshake"
    QUERY = "query"


@dataclass(slots=True)
class Phase:
    """One timed phase."""

    started_at_ns: int
    """Start on the wall clock, nanoseconds since the Unix epoch: the scale of the capture's timestamps."""
    started_ns: int
    """Start on the monotonic clock."""
    cpu_ns: int = 0
    """CPU time of this thread in the phase."""
    ended_ns: int | None = None
    """End on the monotonic clock; None while the phase runs, and if the phase failed."""
    ended_at_ns: int | None = None

    @property
    def duration_ms(self) -> float | None:
        """Duration, ms; None if the phase did not end."""
        return None if self.ended_ns is None else (self.ended_ns - self.started_ns) / 1e6


@dataclass(slots=True)
class Timeline:
    """The latest phase of each `PhaseName`, and the CPU time of preparation."""

    phases: dict[PhaseName, Phase] = field(default_factory=dict)
    preparation_cpu_ns: int = 0
    """CPU time of work for the connection before its first packet."""

    @contextmanager
    def preparation(self) -> Iterator[None]:
        """Add the CPU time of the block, which runs before the clock starts, to `preparation_cpu_ns`."""
        cpu_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self.preparation_cpu_ns += time.thread_time_ns() - cpu_ns

    @contextmanager
    def phase(self, name: PhaseName) -> Iterator[None]:
        """Time the block as a phase. If the block raises, the phase has no end."""
        started_at_ns = time.time_ns()
        cpu_ns = time.thread_time_ns()
        self.phases[name] = phase = Phase(started_at_ns, time.perf_counter_ns())
        try:
            yield
            phase.ended_ns = time.perf_counter_ns()
            phase.ended_at_ns = time.time_ns()
        finally:
            phase.cpu_ns = time.thread_time_ns() - cpu_ns

    @property
    def cpu_ms(self) -> float:
        """CPU time of this thread in preparation and phases, ms."""
        return (self.preparation_cpu_ns + sum(phase.cpu_ns for phase in self.phases.values())) / 1e6

    def duration_ms(self, name: PhaseName) -> float | None:
        """Duration of a phase, ms; None if it did not happen or did not end."""
        phase = self.phases.get(name)
        return None if phase is None else phase.duration_ms


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector during the block, since one collection takes as long as a handshake."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
