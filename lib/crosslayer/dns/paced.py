"""Queries at a fixed pace in an open loop: each is sent at its time, whether earlier ones are answered or not.

One thread sends and receives over UDP. Answers have kernel timestamps, which exclude the scheduling delay of this
process. The delay between scheduled and actual sending is recorded. The response time starts at the actual sending.
"""

from __future__ import annotations

import contextlib
import gc
import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crosslayer.dns.errors import DnsError
from crosslayer.dns.timing import collector_paused
from crosslayer.testbed import outside
from crosslayer.timestamps import receive, stamp_arrivals

_LEAD_NS = 20_000_000
"""Time for preparation before the first query, ns."""


@dataclass(frozen=True, slots=True)
class Due:
    """A scheduled query."""

    at_ms: float
    """Scheduled time of sending, ms after the start of the schedule."""
    asker: int
    """Index, in the argument `askers` of `ask_at_pace`, of the socket that sends the query."""


@dataclass(slots=True)
class Asked:
    """A query that was sent, and its answer."""

    due: Due
    sent_ns: int
    """Time of sending, Unix time, ns."""
    send_delay_ms: float
    """Time from the scheduled to the actual sending, ms."""
    answered_ns: int | None = None
    """Arrival of the answer, Unix time by the kernel, ns; None without an answer."""
    answer: bytes = b""

    @property
    def response_ms(self) -> float | None:
        """Time from sending the query to the arrival of its answer, ms; None without an answer."""
        return None if self.answered_ns is None else (self.answered_ns - self.sent_ns) / 1e6


class Asker:
    """A UDP socket for queries to one server, in the caller's network namespace; `DnsError` if there is no route."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.socket = outside.open_socket(server[0], socket.SOCK_DGRAM)
        try:
            stamp_arrivals(self.socket)
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
    """Send every query of a schedule at its time and collect the answers; returns the queries in the order of sending.

    Parameters
    ----------
    askers
        Sockets; `Due.asker` is an index of this sequence.
    query
        A DNS message; each query gets an ID of its own.
    timeout_s
        Time to wait for answers after the last query, s.
    answered
        Called with the index of the socket when an answer arrives; must not block.
    """
    pending: dict[tuple[int, int], Asked] = {}
    numbers = {asker.socket: number for number, asker in enumerate(askers)}
    queue = sorted(schedule, key=lambda due: due.at_ms)
    asked: list[Asked] = []
    gc.collect()
    with collector_paused():
        start_ns = time.monotonic_ns() + _LEAD_NS  # monotonic, since setting the Unix time would stop the load
        last_ns = start_ns + round(queue[-1].at_ms * 1e6) if queue else start_ns
        while len(asked) < len(queue) or (pending and time.monotonic_ns() < last_ns + timeout_s * 1e9):
            ends_ns = last_ns + round(timeout_s * 1e9)
            if len(asked) < len(queue):
                due = queue[len(asked)]
                ends_ns = start_ns + round(due.at_ms * 1e6)
                if (now := time.monotonic_ns()) >= ends_ns:
                    identifier = len(asked) & 0xFFFF
                    sent = Asked(due, time.time_ns(), (now - ends_ns) / 1e6)
                    asked.append(sent)
                    pending[due.asker, identifier] = sent
                    with contextlib.suppress(OSError):  # port closed: the query stays without an answer
                        askers[due.asker].socket.send(struct.pack("!H", identifier) + query[2:])
                    continue
            # Unlike epoll's, the timeout of select is not rounded to whole milliseconds.
            readable, _, _ = select.select(numbers, [], [], max(0.0, (ends_ns - time.monotonic_ns()) / 1e9))
            for ready in readable:
                number = numbers[ready]
                with contextlib.suppress(OSError):
                    wire, when_ns = receive(ready)
                    exchange = pending.pop((number, int.from_bytes(wire[:2])), None)
                    if exchange is not None:
                        exchange.answered_ns, exchange.answer = when_ns, wire
                        answered(number)
    return asked
