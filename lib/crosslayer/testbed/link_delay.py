"""Additional delay of the emulated link during an observation, measured at both of its ends with one clock.

Each packet is captured where it enters and where it leaves the link. The packet's expected departure follows from
netem's rule (Linux, `sch_netem.c`). Transmission starts at the later of two times: the packet's arrival plus the link's
delay, and the previous packet's departure. The departure is one transmission time later. Any further delay comes from
the emulation: a process that must wake up, or a busy processor.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosslayer.packets import Frame, Ring
from crosslayer.testbed import namespaces, network
from crosslayer.vocabulary import Direction

_FRAMES, _FRAME_BYTES = 1 << 16, 256
"""Number of slots of a capture ring, and size of a slot in bytes.

A load of the largest page has fewer packets than the ring has slots. A slot has enough bytes to identify a packet.
"""
_STEP_MS = 1.0
"""Maximum change of the clock's offset during an observation, ms.

If the change is larger, the clock was set, and the timestamps are unusable.
"""
_PORTS = {Direction.UP: (network.CLIENT, network.SERVER), Direction.DOWN: (network.SERVER, network.CLIENT)}
"""Sides at which packets of a direction enter and leave the link."""


@dataclass(frozen=True, slots=True)
class NetemRule:
    """netem's parameters for one direction of a link."""

    delay_ms: float
    rate_mbit: float | None


@dataclass(frozen=True, slots=True)
class ExtraDelay:
    """Additional delay of one direction's packets: departure minus the departure that netem's rule gives, ms."""

    direction: Direction
    packets: int
    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float


class DelayMeter:
    """Measures the link's additional delay by captures at both ends; close it when the testbed is closed."""

    def __init__(self) -> None:
        with namespaces.namespace(network.LINK):
            self._rings = {
                side: Ring(f"to-{side}", frames=_FRAMES, frame_bytes=_FRAME_BYTES)
                for side in (network.CLIENT, network.SERVER)
            }

    def close(self) -> None:
        """Free the capture rings."""
        for ring in self._rings.values():
            ring.close()

    def start(self) -> None:
        """Start capturing."""
        self._clock_offset_ms = _clock_offset_ms()
        for ring in self._rings.values():
            ring.start()

    def extra_delays_ms(self, down: NetemRule, up: NetemRule) -> list[ExtraDelay]:
        """Stop capturing; returns, per direction, the additional delay of the captured packets.

        Directions without packets are omitted. The list is empty if a ring overflowed or the clock was set.
        """
        taken = {side: ring.take() for side, ring in self._rings.items()}
        if any(dropped for _, dropped in taken.values()) or abs(_clock_offset_ms() - self._clock_offset_ms) > _STEP_MS:
            return []
        entered, departed = (
            {side: [frame for frame in frames if frame.sent is sent] for side, (frames, _) in taken.items()}
            for sent in (False, True)
        )
        delays = []
        for direction, rule in ((Direction.DOWN, down), (Direction.UP, up)):
            near, far = _PORTS[direction]
            if values := extra_delays_ms(entered[near], departed[far], rule):
                p50, p99, maximum = np.quantile(values, [0.5, 0.99, 1.0])
                delays.append(ExtraDelay(direction, len(values), float(p50), float(p99), float(maximum)))
        return delays


def _clock_offset_ms() -> float:
    """Offset of the timestamps' clock from the monotonic clock, ms."""
    return (time.time_ns() - time.monotonic_ns()) / 1e6


def extra_delays_ms(entered: Sequence[Frame], departed: Sequence[Frame], rule: NetemRule) -> list[float]:
    """Additional delay of each packet: departure minus the departure that netem's rule gives, ms.

    Packets that did not leave the link are omitted.

    Parameters
    ----------
    entered, departed
        Frames of one direction in time order, with times of the same clock.
    rule
        netem's parameters; packets stay in order, without loss or jitter.
    """
    departures: dict[bytes, deque[int]] = defaultdict(deque)
    for frame in departed:
        departures[frame.data].append(frame.at_ns)
    expected_ns, delays_ms = 0.0, []
    for frame in entered:
        expected_ns = max(frame.at_ns + rule.delay_ms * 1e6, expected_ns)
        if rule.rate_mbit is not None:
            expected_ns += frame.bytes * 8e3 / rule.rate_mbit
        waiting = departures[frame.data]
        while waiting and waiting[0] < frame.at_ns:  # an identical packet that entered before the capture started
            waiting.popleft()
        if waiting:
            delays_ms.append((waiting.popleft() - expected_ns) / 1e6)
    return delays_ms
