"""How late the wire was with the packets of an observation, by both of its ends and one clock.

Each packet that crosses the link is seen where it comes in and where it goes out. In between stands netem, whose rule
(Linux, `sch_netem.c`) says when it was to go out: its delay after it came in, or when the one before it was through,
and then its time at the rate. What is beyond that is the wire's own: a process that has to wake up, a busy processor.
"""

from __future__ import annotations

import builtins
import mmap
import socket
import struct
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosslayer.testbed import network, private
from crosslayer.words import Way

# From <linux/if_packet.h>, <linux/if_ether.h>; Python names none of them.
_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_TPACKET_V2 = 1
_PACKET_OUTGOING = 4
_STATUS_USER = 1
_HEADER = struct.Struct("=IIIHHII")
"""struct tpacket2_hdr: status, length, captured length, where the frame and its packet begin, seconds, nanoseconds."""
_PACKET_TYPE_AT = 32 + 10
"""sll_pkttype of the struct sockaddr_ll behind it."""

_SLOT_BYTES, _BLOCK_BYTES, _BLOCKS = 256, 1 << 16, 256
"""A ring of 65,536 packets, of each what tells it from others: a socket's queue holds fewer than a page has."""
_PORTS = {Way.UP: (network.CLIENT, network.SERVER), Way.DOWN: (network.SERVER, network.CLIENT)}
"""Sides at which packets of a way come in and go out."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame where it came in or went out."""

    at_ns: int
    bytes: int
    """Of the whole frame, Ethernet's header among them, as netem counts it."""
    start: builtins.bytes
    """What tells it from others."""


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


class _Ring:
    """Packets of one device of the link's namespace, kept by the kernel until they are asked for (packet(7))."""

    def __init__(self, device: str) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
        slots = _BLOCK_BYTES * _BLOCKS // _SLOT_BYTES
        size = struct.pack("=IIII", _BLOCK_BYTES, _BLOCKS, _SLOT_BYTES, slots)
        self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, size)
        self._memory = mmap.mmap(self._socket.fileno(), _BLOCK_BYTES * _BLOCKS)
        self._slots, self._next = slots, 0
        self._socket.bind((device, _ETH_P_ALL))

    def close(self) -> None:
        self._memory.close()
        self._socket.close()

    @property
    def dropped(self) -> int:
        """Packets that found no room since the last look."""
        _, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return int(dropped)

    def taken(self) -> Iterator[tuple[bool, Seen]]:
        """What waits: whether it went out at the device, and the frame."""
        while True:
            at = self._next * _SLOT_BYTES
            status, length, captured, frame_at, _, seconds, nanoseconds = _HEADER.unpack_from(self._memory, at)
            if not status & _STATUS_USER:
                return
            start = self._memory[at + frame_at : at + frame_at + captured]
            outgoing = self._memory[at + _PACKET_TYPE_AT] == _PACKET_OUTGOING
            struct.pack_into("=I", self._memory, at, 0)
            self._next = (self._next + 1) % self._slots
            yield outgoing, Seen(seconds * 1_000_000_000 + nanoseconds, length, start)


class Tap:
    """Rings at both ends of the wire of the testbed that is open; close it with the testbed."""

    def __init__(self) -> None:
        with private.namespace(network.LINK):
            self._rings = {side: _Ring(f"to-{side}") for side in (network.CLIENT, network.SERVER)}

    def close(self) -> None:
        """Give the rings back."""
        for ring in self._rings.values():
            ring.close()

    def clear(self) -> None:
        """Forget what was seen."""
        for ring in self._rings.values():
            deque(ring.taken(), maxlen=0)
            _ = ring.dropped

    def lateness(self, down: Rule, up: Rule) -> list[Lateness]:
        """What was seen since `clear`, held against netem's rules.

        Ways without packets are left out; so are both where there were more packets than a ring has room for.
        """
        came: dict[str, list[Seen]] = {}
        went: dict[str, list[Seen]] = {}
        for side, ring in self._rings.items():
            came[side], went[side] = [], []
            for outgoing, seen in ring.taken():
                (went if outgoing else came)[side].append(seen)
        if sum(ring.dropped for ring in self._rings.values()):
            return []
        found = []
        for way, rule in ((Way.DOWN, down), (Way.UP, up)):
            near, far = _PORTS[way]
            if late := lateness(came[near], went[far], rule):
                p50, p99, most = np.quantile(late, [0.5, 0.99, 1.0])
                found.append(Lateness(way, len(late), float(p50), float(p99), float(most)))
        return found


def lateness(came: Sequence[Seen], went: Sequence[Seen], rule: Rule) -> list[float]:
    """How much later each packet went out than netem's rule has it, ms; packets that did not go out have no value.

    Parameters
    ----------
    came, went
        Frames of one way with the times of one clock, each in the order of time.
    rule
        What netem does with them; in order, without loss or jitter.
    """
    out: dict[bytes, deque[int]] = defaultdict(deque)
    for seen in went:
        out[seen.start].append(seen.at_ns)
    through_ns, found = 0.0, []
    for seen in came:
        through_ns = max(seen.at_ns + rule.delay_ms * 1e6, through_ns)
        if rule.rate_mbit is not None:
            through_ns += seen.bytes * 8e3 / rule.rate_mbit
        if waiting := out.get(seen.start):
            found.append((waiting.popleft() - through_ns) / 1e6)
    return found
