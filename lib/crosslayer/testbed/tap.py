"""How late the wire was with the packets of an observation, by both of its ends and one clock.

Each packet that crosses the link is seen where it comes in and where it goes out. In between stands netem, whose rule
(Linux, `sch_netem.c`) says when it was to go out: its delay after it came in, or when the one before it was through,
and then its time at the rate. What is beyond that is the wire's own: a process that has to wake up, a busy processor.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosslayer.packets import Frame, Ring
from crosslayer.testbed import network, private
from crosslayer.words import Way

_FRAMES, _FRAME_BYTES = 1 << 16, 256
"""More than the largest page has packets; of each what tells it from others."""
_STEP_MS = 1.0
"""A wall clock that changes by more during an observation was set meanwhile, and packets have the time of it."""
_PORTS = {Way.UP: (network.CLIENT, network.SERVER), Way.DOWN: (network.SERVER, network.CLIENT)}
"""Sides at which packets of a way come in and go out."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What netem does with one way of a link."""

    delay_ms: float
    rate_mbit: float | None


@dataclass(frozen=True, slots=True)
class Lateness:
    """How much later than by netem's rule packets of one way went out, ms."""

    way: Way
    packets: int
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float


class Tap:
    """Rings at both ends of the wire of the testbed that is open; close it with the testbed."""

    def __init__(self) -> None:
        with private.namespace(network.LINK):
            self._rings = {
                side: Ring(f"to-{side}", frames=_FRAMES, frame_bytes=_FRAME_BYTES)
                for side in (network.CLIENT, network.SERVER)
            }

    def close(self) -> None:
        """Give the rings back."""
        for ring in self._rings.values():
            ring.close()

    def start(self) -> None:
        """Watch from now on."""
        self._clock_ms = _clock_ms()
        for ring in self._rings.values():
            ring.start()

    def lateness(self, down: Rule, up: Rule) -> list[Lateness]:
        """What was seen since `start`, held against netem's rules; nothing more is watched.

        Ways without packets are left out; so are both where there were more packets than a ring has room for, and
        where the clock was set.
        """
        taken = {side: ring.take() for side, ring in self._rings.items()}
        if any(dropped for _, dropped in taken.values()) or abs(_clock_ms() - self._clock_ms) > _STEP_MS:
            return []
        came, went = (
            {side: [frame for frame in frames if frame.sent is sent] for side, (frames, _) in taken.items()}
            for sent in (False, True)
        )
        found = []
        for way, rule in ((Way.DOWN, down), (Way.UP, up)):
            near, far = _PORTS[way]
            if late := lateness(came[near], went[far], rule):
                p50, p99, most = np.quantile(late, [0.5, 0.99, 1.0])
                found.append(Lateness(way, len(late), float(p50), float(p99), float(most)))
        return found


def _clock_ms() -> float:
    """How far the clock that packets are stamped with is ahead of one that nobody sets."""
    return (time.time_ns() - time.monotonic_ns()) / 1e6


def lateness(came: Sequence[Frame], went: Sequence[Frame], rule: Rule) -> list[float]:
    """How much later each packet went out than netem's rule has it, ms; packets that did not go out have no value.

    Parameters
    ----------
    came, went
        Frames of one way with the times of one clock, each in the order of time.
    rule
        What netem does with them; in order, without loss or jitter.
    """
    out: dict[bytes, deque[int]] = defaultdict(deque)
    for frame in went:
        out[frame.data].append(frame.at_ns)
    through_ns, found = 0.0, []
    for frame in came:
        through_ns = max(frame.at_ns + rule.delay_ms * 1e6, through_ns)
        if rule.rate_mbit is not None:
            through_ns += frame.bytes * 8e3 / rule.rate_mbit
        waiting = out[frame.data]
        while waiting and waiting[0] < frame.at_ns:  # the same bytes, that came in before all that was seen
            waiting.popleft()
        if waiting:
            found.append((waiting.popleft() - through_ns) / 1e6)
    return found
