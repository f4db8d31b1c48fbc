"""A trace proves itself: what comes through while it plays, and when, against what its file says."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from crosslayer.links import FRAME_BYTES, Profile
from crosslayer.testbed.player import Way, ways
from crosslayer.traces import Course, Line

RATE_TOLERANCE = 0.05
"""How far the bytes that came through may be from those of the trace."""
STRETCH_MS = 1000.0
"""How much of a trace a check plays, each way."""
_LATE_MS = 1.0
_AHEAD_FRAMES = 16
_OFFERED = 1.06
_MOST_FRAMES = 20_000
_PROBES = 50
_PROBE_MS = 10.0
_PROBE_BYTES = 64
_BEGIN_MS = 20.0


class Pacing(Protocol):
    """What a `Prober` does here."""

    def paced(self, direction: str, at_ns: Sequence[int], frame_bytes: int) -> tuple[list[int], dict[int, int]]:
        """Send frames at given times; when they left, and when those arrived that did."""


@dataclass(frozen=True, slots=True)
class Playing:
    """The trace of the link as it is."""

    offset_ms: float
    """Where in it a look begins."""
    play: Callable[[int], None]
    """Has it begin at a time, ns since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a trace, by `down` and `up`."""

    mbit: dict[str, float] = field(default_factory=dict)
    nominal_mbit: dict[str, float] = field(default_factory=dict)
    """Of the trace, over the time that was looked at."""
    late_ms: dict[str, float] = field(default_factory=dict)
    """How much later than by the trace 99 of 100 packets left at most."""


def as_played(course: Course, profile: Profile) -> dict[str, Any]:
    """The course of a link as its player takes it."""

    def line(told: Line | None) -> dict[str, Any] | None:
        return (
            None
            if told is None
            else {
                "at_ns": [round(ms * 1e6) for ms in told.at_ms],
                "bytes": told.delivered_bytes,
                "overhead": told.overhead_bytes,
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


def look(prober: Pacing, profile: Profile, playing: Playing, delays_ms: tuple[float, float]) -> tuple[Seen, list[str]]:
    """Play a stretch of the trace each way; what was seen, and what was out of tolerance.

    `delays_ms` are configured, towards client and server; the trace is played at the client's end of the link.
    """
    course, seen, faults = profile.course, Seen(), []
    assert course is not None
    told = as_played(course, profile)
    playing.play(time.time_ns())  # the player takes its place in the link, which takes a while
    exact = not (profile.loss_percent or profile.jitter_ms or profile.reorder_percent)
    for name, line, before_ms, after_ms in (
        ("down", course.down, delays_ms[0], 0.0),
        ("up", course.up, 0.0, delays_ms[1]),
    ):
        stretch = _Stretch(prober, profile, playing, told, name, round(before_ms * 1e6), round(after_ms * 1e6))
        late = list(stretch.probes()) if course.rtts else []
        if line is not None:
            due, came, found = stretch.train()
            seen.mbit[name], seen.nominal_mbit[name] = came, due
            late += found
            if abs(came - due) > RATE_TOLERANCE * due + 2 * FRAME_BYTES * 8e-3 / STRETCH_MS:
                faults.append(f"{name}link {came:.2f} Mbit/s, trace {due:.2f} Mbit/s")
        if exact and len(late) > 1:
            seen.late_ms[name] = statistics.quantiles(late, n=100, method="inclusive")[-1]
            if abs(middle := statistics.median(late)) > _LATE_MS:
                faults.append(f"{name}link: packets leave {middle:.2f} ms after the trace's time")
    return seen, faults


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A way of the link while its trace plays from the offset on."""

    prober: Pacing
    profile: Profile
    playing: Playing
    told: dict[str, Any]
    name: str
    before_ns: int
    """From the sender to the player."""
    after_ns: int

    def _begun(self) -> tuple[int, Way]:
        epoch_ns = time.time_ns() - round(self.playing.offset_ms * 1e6)
        self.playing.play(epoch_ns)
        way = ways(self.told)[self.name == "up"]
        way.start(epoch_ns)
        return epoch_ns, way

    def _late(self, way: Way, sent: list[int], arrived: dict[int, int], frame_bytes: int) -> Iterator[float]:
        """How much later than by the trace each arrived, ms."""
        for number, left_ns in enumerate(sent):
            leaves_ns = way.leaves_ns(left_ns + self.before_ns, frame_bytes)
            if leaves_ns is not None and number in arrived:
                yield (arrived[number] - self.after_ns - leaves_ns) / 1e6

    def probes(self) -> Iterator[float]:
        """Lateness of small packets, by which the delay shows."""
        _epoch_ns, way = self._begun()
        begin_ns = time.time_ns() + round(_PROBE_MS * 1e6)
        due = [begin_ns + round(number * _PROBE_MS * 1e6) for number in range(_PROBES)]
        return self._late(way, *self.prober.paced(self.name, due, _PROBE_BYTES), _PROBE_BYTES)

    def train(self) -> tuple[float, float, list[float]]:
        """Rate of the trace and what full frames had of it, Mbit/s, and their lateness, ms.

        They are sent as the trace lets them through, and a few ahead, so that some always wait.
        """
        epoch_ns, way = self._begun()
        frame = FRAME_BYTES + self.told[self.name]["overhead"]
        most_extra_ns = max(self.told["delay"]["extra_ns"]) if self.told["delay"] else 0
        early_ns = self.before_ns + most_extra_ns
        start_ns = round((self.playing.offset_ms + _BEGIN_MS) * 1e6) + early_ns
        offered = frame * (1 - self.profile.loss_percent / 100) / _OFFERED
        ahead = min(_AHEAD_FRAMES, max(1, self.profile.queue_packets // 2))
        end_ns, already, due = start_ns + round(STRETCH_MS * 1e6), way.deliverable(start_ns), []
        for number in range(_MOST_FRAMES):
            at_ns = start_ns if number <= ahead else way.when(already + (number - ahead) * offered)
            if at_ns > end_ns:
                break
            due.append(epoch_ns + at_ns - early_ns)
        sent, arrived = self.prober.paced(self.name, due, FRAME_BYTES)
        # Between opportunities, which are at whole ms.
        first_ns, last_ns = (
            round(ns / 1e6) * 1_000_000 + 500_000 for ns in (start_ns + most_extra_ns + 5_000_000, end_ns)
        )
        came = sum(first_ns < when - self.after_ns - epoch_ns <= last_ns for when in arrived.values())
        kept = 1 - self.profile.loss_percent / 100 if self.name == "up" else 1.0
        per_mbit = (last_ns - first_ns) / 8e3
        nominal = (way.deliverable(last_ns) - way.deliverable(first_ns)) * kept / per_mbit
        return nominal, came * frame / per_mbit, list(self._late(way, sent, arrived, FRAME_BYTES))
