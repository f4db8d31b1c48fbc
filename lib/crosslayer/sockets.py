"""When a packet arrived, by the kernel's clock: a late wake-up of this process does not count then."""

from __future__ import annotations

import socket
import struct
import time

_SO_TIMESTAMPNS = 35
"""From <asm-generic/socket.h>; Python does not name it."""
_TIMESPEC = struct.Struct("@qq")
_DATAGRAM_BYTES = 4096


def stamp_arrivals(end: socket.socket) -> None:
    """Have the kernel tell when each datagram of a socket arrives."""
    end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(end: socket.socket) -> tuple[bytes, int]:
    """A datagram and its arrival, ns since the Unix epoch."""
    data, ancillary, _flags, _sender = end.recvmsg(_DATAGRAM_BYTES, 64)
    return data, arrival_ns(ancillary)


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Arrival of a datagram, ns since the Unix epoch, from its ancillary data; now, where the kernel says nothing."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return time.time_ns()
