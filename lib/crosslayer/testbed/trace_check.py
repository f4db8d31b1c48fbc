"""Verification of a trace: replays a part of it, and compares the result with the trace's file.

It compares the delivered bytes and the packets' arrival times.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from crosslayer.links import FRAME_BYTES, Profile
from crosslayer.testbed.trace_replay import Schedule, schedules
from crosslayer.traces import Course, Line

RATE_TOLERANCE = 0.05
"""Maximum difference between the delivered bytes and the bytes that the trace gives, as a share of the latter.

Two frames are allowed in addition.
"""
STRETCH_MS = 1000.0
"""Length of the part of the trace that a check plays in each direction, ms."""
_LATE_MS = 1.0
_AHEAD_FRAMES = 16
_OFFERED = 1.06
_MOST_FRAMES = 20_000
_PROBES = 50
_PROBE_MS = 10.0
_PROBE_BYTES = 64
_BEGIN_MS = 20.0


class Pacing(Protocol):
    """The part of `Prober` that this module uses."""

    def paced(self, direction: str, at_ns: Sequence[int], frame_bytes: int) -> tuple[list[int], dict[int, int]]:
        """Send frames at given times; returns their departure times, and their arrival times by frame number, ns."""


@dataclass(frozen=True, slots=True)
class Playing:
    """Control of the link's trace: the position at which a check starts it, and the function that starts it."""

    offset_ms: float
    """Position in the trace from which a check replays it, ms."""
    play: Callable[[int], None]
    """Function that starts the trace at a time, ns since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class TraceMeasurement:
    """Measured values of a trace by direction, `down` and `up`."""

    mbit: dict[str, float] = field(default_factory=dict)
    nominal_mbit: dict[str, float] = field(default_factory=dict)
    """Rate that the trace has over the measured time, Mbit/s."""
    late_ms: dict[str, float] = field(default_factory=dict)
    """99th percentile of the packets' lateness: departure minus the departure that the trace gives; ms."""


def replay_format(course: Course, profile: Profile) -> dict[str, Any]:
    """Rates and RTT over time, in the format of the command `course` of `trace_replay`."""

    def line(points: Line | None) -> dict[str, Any] | None:
        return (
            None
            if points is None
            else {
                "at_ns": [round(ms * 1e6) for ms in points.at_ms],
                "bytes": points.delivered_bytes,
                "overhead": points.overhead_bytes,
                "limit": profile.queue_packets,
            }
        )

    delay: dict[str, list[int]] | None = None
    if course.rtts:
        delay = {"at_ns": [0], "extra_ns": []}
        for duration_ms, rtt_ms in course.rtts:
            delay["at_ns"].append(delay["at_ns"][-1] + round(duration_ms * 1e6))
            delay["extra_ns"].append(round((rtt_ms - profile.rtt_ms) / 2 * 1e6))
    return {"down": line(course.down), "up": line(course.up), "delay": delay}


def measure_trace(
    prober: Pacing, profile: Profile, playing: Playing, delays_ms: tuple[float, float]
) -> tuple[TraceMeasurement, list[str]]:
    """Replay a part of the trace in each direction; returns the measured values and the deviations from the trace.

    `delays_ms` are the configured delays, towards client and server. The trace is replayed at the client's end of the
    link.
    """
    course, measured, faults = profile.course, TraceMeasurement(), []
    assert course is not None
    course_format = replay_format(course, profile)
    playing.play(time.time_ns())  # routing packets through the replay program takes a moment
    exact = profile.arriving == 1 and not (profile.jitter_ms or profile.reorder_percent)
    for name, line, before_ms, after_ms in (
        ("down", course.down, delays_ms[0], 0.0),
        ("up", course.up, 0.0, delays_ms[1]),
    ):
        stretch = _Stretch(prober, profile, playing, course_format, name, round(before_ms * 1e6), round(after_ms * 1e6))
        extra = list(stretch.probes()) if course.rtts else []
        if line is not None:
            nominal, rate, extra_delays = stretch.train()
            measured.mbit[name], measured.nominal_mbit[name] = rate, nominal
            extra += extra_delays
            if abs(rate - nominal) > RATE_TOLERANCE * nominal + 2 * FRAME_BYTES * 8e-3 / STRETCH_MS:
                faults.append(f"{name}link {rate:.2f} Mbit/s, trace {nominal:.2f} Mbit/s")
        if exact and len(extra) > 1:
            measured.late_ms[name] = statistics.quantiles(extra, n=100, method="inclusive")[-1]
            if abs(middle := statistics.median(extra)) > _LATE_MS:
                faults.append(f"{name}link: packets leave {middle:.2f} ms after the trace's time")
    return measured, faults


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One direction of the link while its trace plays from `Playing.offset_ms`."""

    prober: Pacing
    profile: Profile
    playing: Playing
    replayed: dict[str, Any]
    name: str
    before_ns: int
    """Delay from the sender to the replay program, ns."""
    after_ns: int

    def _start(self) -> tuple[int, Schedule]:
        epoch_ns = time.time_ns() - round(self.playing.offset_ms * 1e6)
        self.playing.play(epoch_ns)
        schedule = schedules(self.replayed)[self.name == "up"]
        schedule.start(epoch_ns)
        return epoch_ns, schedule

    def _extra_delays_ms(
        self, schedule: Schedule, sent: list[int], arrived: dict[int, int], frame_bytes: int
    ) -> Iterator[float]:
        """Lateness of each packet that arrived: its departure minus the departure that the trace gives; ms."""
        for number, left_ns in enumerate(sent):
            leaves_ns = schedule.leaves_ns(left_ns + self.before_ns, frame_bytes)
            if leaves_ns is not None and number in arrived:
                yield (arrived[number] - self.after_ns - leaves_ns) / 1e6

    def probes(self) -> Iterator[float]:
        """Lateness of small packets, ms; it shows errors of the replayed RTT."""
        _epoch_ns, schedule = self._start()
        begin_ns = time.time_ns() + round(_PROBE_MS * 1e6)
        due = [begin_ns + round(number * _PROBE_MS * 1e6) for number in range(_PROBES)]
        return self._extra_delays_ms(schedule, *self.prober.paced(self.name, due, _PROBE_BYTES), _PROBE_BYTES)

    def train(self) -> tuple[float, float, list[float]]:
        """Send full frames while the trace plays.

        Returns the trace's rate and the measured rate, Mbit/s, and the lateness of each frame that arrived, ms. The
        first frames are sent all at once, and the others a little faster than the trace's rate. So the queue is never
        empty.
        """
        epoch_ns, schedule = self._start()
        frame = FRAME_BYTES + self.replayed[self.name]["overhead"]
        most_extra_ns = max(self.replayed["delay"]["extra_ns"]) if self.replayed["delay"] else 0
        early_ns = self.before_ns + most_extra_ns
        start_ns = round((self.playing.offset_ms + _BEGIN_MS) * 1e6) + early_ns
        offered = frame * self.profile.arriving / _OFFERED
        ahead = min(_AHEAD_FRAMES, max(1, self.profile.queue_packets // 2))
        end_ns, already, due = start_ns + round(STRETCH_MS * 1e6), schedule.deliverable(start_ns), []
        for number in range(_MOST_FRAMES):
            at_ns = start_ns if number <= ahead else schedule.when(already + (number - ahead) * offered)
            if at_ns > end_ns:
                break
            due.append(epoch_ns + at_ns - early_ns)
        sent, arrived = self.prober.paced(self.name, due, FRAME_BYTES)
        # These times are midway between delivery opportunities, which are at whole ms.
        first_ns, last_ns = (
            round(ns / 1e6) * 1_000_000 + 500_000 for ns in (start_ns + most_extra_ns + 5_000_000, end_ns)
        )
        came = sum(first_ns < when - self.after_ns - epoch_ns <= last_ns for when in arrived.values())
        kept = self.profile.arriving if self.name == "up" else 1.0
        per_mbit = (last_ns - first_ns) / 8e3
        nominal = (schedule.deliverable(last_ns) - schedule.deliverable(first_ns)) * kept / per_mbit
        return nominal, came * frame / per_mbit, list(self._extra_delays_ms(schedule, sent, arrived, FRAME_BYTES))
