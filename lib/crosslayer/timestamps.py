"""Kernel receive timestamps (SO_TIMESTAMPNS), which exclude the scheduling delay of this process."""

from __future__ import annotations

import socket
import struct
import time

_SO_TIMESTAMPNS = 35
"""Socket option for kernel timestamps, from <asm-generic/socket.h>; Python has no constant for it."""
_TIMESPEC = struct.Struct("@qq")
_DATAGRAM_BYTES = 4096


def stamp_arrivals(end: socket.socket) -> None:
    """Enable kernel timestamps for the datagrams that a socket receives."""
    end.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)


def receive(end: socket.socket) -> tuple[bytes, int]:
    """Receive a datagram; returns it with its arrival time, ns since the Unix epoch."""
    data, ancillary, _flags, _sender = end.recvmsg(_DATAGRAM_BYTES, 64)
    return data, arrival_ns(ancillary)


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Arrival time of a datagram, ns since the Unix epoch; the current time if its ancillary data has no timestamp."""
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
            seconds, nanoseconds = _TIMESPEC.unpack(value)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return time.time_ns()
