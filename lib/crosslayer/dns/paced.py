"""Queries at a fixed pace in an open loop: each leaves at its time, whatever became of those before it.

One thread sends and receives over UDP. An answer's time is the kernel's, so a late wake-up of this process does not
count; how late a query left is told, and its time starts when it left.
"""

from __future__ import annotations

import contextlib
import gc
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crosslayer.dns.errors import DnsError

_SO_TIMESTAMPNS = 35
_LEAD_NS = 20_000_000
"""Time before the first query, to get ready in."""


@dataclass(frozen=True, slots=True)
class Due:
    """A query and its time."""

    at_ms: float
    """After the start of the load, ms."""
    asker: int
    """Which socket asks."""


@dataclass(slots=True)
class Asked:
    """A query that was sent, and its answer."""

    due: Due
    sent_ns: int
    """Unix time, ns."""
    late_ms: float
    """How much later than its time it left, ms."""
    answered_ns: int | None = None
    """Arrival of the answer, Unix time by the kernel, ns; None without one."""
    answer: bytes = b""

    @property
    def response_ms(self) -> float | None:
        """Query sent to answer received, ms; None without an answer."""
        return None if self.answered_ns is None else (self.answered_ns - self.sent_ns) / 1e6


class Asker:
    """A UDP socket that asks one server; made in the network namespace of the calling thread.

    Raises
    ------
    DnsError
        Where the server's address cannot be reached.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self.socket.connect(server)
        except OSError as error:
            self.socket.close()
            raise DnsError(f"cannot be asked ({error.strerror})", where=f"{server[0]}:{server[1]}") from error
        self.port = int(self.socket.getsockname()[1])

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def ask_at_pace(
    askers: Sequence[Asker],
    schedule: Sequence[Due],
    query: bytes,
    *,
    timeout_s: float,
    answered: Callable[[int], None] = lambda _asker: None,
) -> list[Asked]:
    """Send every query of a schedule at its time, and collect the answers.

    Parameters
    ----------
    askers
        Sockets by number.
    schedule
        What is sent and when.
    query
        A DNS message; its ID is replaced by one of each query's own.
    timeout_s
        How long to wait for answers after the last query, s.
    answered
        Called with the asker's number when one of its answers has come; must not block.

    Returns
    -------
    list of Asked
        In the order of the schedule by time.
    """
    pending: dict[tuple[int, int], Asked] = {}
    numbers = {asker.socket: number for number, asker in enumerate(askers)}
    queue = sorted(schedule, key=lambda due: due.at_ms)
    asked: list[Asked] = []
    with _undisturbed():
        start_ns = time.time_ns() + _LEAD_NS
        last_ns = start_ns + round(queue[-1].at_ms * 1e6) if queue else start_ns
        while len(asked) < len(queue) or (pending and time.time_ns() < last_ns + timeout_s * 1e9):
            ends_ns = last_ns + round(timeout_s * 1e9)
            if len(asked) < len(queue):
                due = queue[len(asked)]
                ends_ns = start_ns + round(due.at_ms * 1e6)
                if (now := time.time_ns()) >= ends_ns:
                    identifier = len(asked) & 0xFFFF
                    sent = Asked(due, now, (now - ends_ns) / 1e6)
                    asked.append(sent)
                    pending[due.asker, identifier] = sent
                    with contextlib.suppress(OSError):  # refused by whom it asks: a query without an answer
                        askers[due.asker].socket.send(struct.pack("!H", identifier) + query[2:])
                    continue
            # Unlike epoll's, the timeout of select is not rounded to whole milliseconds.
            readable, _, _ = select.select(numbers, [], [], max(0.0, (ends_ns - time.time_ns()) / 1e9))
            for ready in readable:
                number = numbers[ready]
                with contextlib.suppress(OSError):
                    wire, when_ns = _receive(ready)
                    found = pending.pop((number, int.from_bytes(wire[:2])), None)
                    if found is not None:
                        found.answered_ns, found.answer = when_ns, wire
                        answered(number)
    return asked


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Without garbage collection, whose pauses would make queries late."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _receive(end: socket.socket) -> tuple[bytes, int]:
    """A datagram and the kernel's receive time, ns since the Unix epoch."""
    data, ancillary, _flags, _sender = end.recvmsg(4096, 64)
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", value)
            return data, seconds * 1_000_000_000 + nanoseconds
    return data, time.time_ns()
