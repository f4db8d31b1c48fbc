"""Plays a trace: takes the packets of both ways off the link and lets them go when the trace has it.

Run as a file of its own, beside nothing but the standard library: `player.py NEAR FAR`, two packet sockets that it
inherits, the first towards the client. Standard input is a socket that says what to do, a line of JSON each, answered
by `ok`: {"course": {"down": ..., "up": ..., "delay": ...}}, and {"play": NS}: the trace began then, in ns since the
Unix epoch. Before that packets pass.

When a packet is to leave is known when it comes, by the kernel's stamp of its arrival, so a late wake-up moves one
packet and none after it.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import gc
import json
import math
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_PR_SET_TIMERSLACK = 29
_FRAME_BYTES = 1 << 16
_AT_ONCE = 64


class Way:
    """When packets of one way are through.

    The line of a trace says what could be delivered until a time. A packet is through when the line has risen by its
    bytes since it came, or since the one before it was through; what could be delivered while nobody waited is lost,
    as with Mahimahi's opportunities.

    Parameters
    ----------
    line
        `at_ns` and `bytes`, points of that line from 0 to the end of the trace; `overhead`, bytes of a packet beside
        its frame; `limit`, packets that wait before the next is dropped. None: no rate.
    delay
        `at_ns` and `extra_ns`: what is added to the delay from then on, and last the end of the trace. None: nothing.
    """

    def __init__(self, line: Mapping[str, Any] | None, delay: Mapping[str, Any] | None) -> None:
        self._line, self._delay = line, delay
        self._leaving: deque[int] = deque()
        self._ready, self._left = 0, 0
        self._epoch: int | None = None
        self._done = 0.0

    def start(self, epoch_ns: int) -> None:
        """The trace began at that time; before the first call packets pass."""
        self._epoch = epoch_ns
        self._done = 0.0
        self._leaving.clear()

    def leaves_ns(self, came_ns: int, frame_bytes: int) -> int | None:
        """When a frame leaves that came after all before it; None where it is dropped."""
        if self._epoch is None:
            self._left = max(came_ns, self._left)
            return self._left
        self._ready = max(self._ready, came_ns + self._extra_ns(came_ns - self._epoch))
        if self._line is None:
            self._left = max(self._ready, self._left)
            return self._left
        while self._leaving and self._leaving[0] <= self._ready:
            self._leaving.popleft()
        if len(self._leaving) >= self._line["limit"]:
            return None
        since = max(self._done, self.deliverable(self._ready - self._epoch))
        self._done = since + frame_bytes + self._line["overhead"]
        self._left = max(self._epoch + self.when(self._done), self._left)
        self._leaving.append(self._left)
        return self._left

    def deliverable(self, after_ns: int) -> float:
        """Bytes that could be delivered until so long after the trace began."""
        assert self._line is not None
        at, amounts = self._line["at_ns"], self._line["bytes"]
        turns, rest = divmod(after_ns, at[-1])
        place = bisect.bisect_right(at, rest)
        share = (rest - at[place - 1]) / (at[place] - at[place - 1])
        return float(turns * amounts[-1] + amounts[place - 1] + share * (amounts[place] - amounts[place - 1]))

    def when(self, amount: float) -> int:
        """How long after the trace began so many bytes can be delivered, ns."""
        assert self._line is not None
        at, amounts = self._line["at_ns"], self._line["bytes"]
        turns, rest = divmod(amount, amounts[-1])
        if not rest:
            turns, rest = turns - 1, amounts[-1]
        place = bisect.bisect_left(amounts, rest)
        share = (rest - amounts[place - 1]) / (amounts[place] - amounts[place - 1])
        return int(turns * at[-1] + math.ceil(at[place - 1] + share * (at[place] - at[place - 1])))

    def _extra_ns(self, after_ns: int) -> int:
        if self._delay is None:
            return 0
        at = self._delay["at_ns"]
        return int(self._delay["extra_ns"][bisect.bisect_right(at, after_ns % at[-1]) - 1])


def ways(course: Mapping[str, Any]) -> tuple[Way, Way]:
    """Those towards the client and the server."""
    return Way(course["down"], course["delay"]), Way(course["up"], course["delay"])


def play(near: socket.socket, far: socket.socket, control: socket.socket) -> None:
    """Until the control socket is closed at its other end."""
    down, up = Way(None, None), Way(None, None)
    waiting: tuple[deque[tuple[int, bytes]], ...] = (deque(), deque())
    commands = b""
    while True:
        nexts = [queue[0][0] for queue in waiting if queue]
        wait_s = max(0, min(nexts) - time.time_ns()) / 1e9 if nexts else None
        ready, _, _ = select.select([near, far, control], [], [], wait_s)
        now = time.time_ns()
        for queue, out in zip(waiting, (near, far), strict=True):
            while queue and queue[0][0] <= now:
                _send(out, queue.popleft()[1])
        for end, way, queue in ((far, down, waiting[0]), (near, up, waiting[1])):
            if end in ready:
                _take(end, way, queue)
        if control in ready:
            if not (part := control.recv(1 << 16)):
                return
            *lines, commands = (commands + part).split(b"\n")
            for line in lines:
                told = json.loads(line)
                if "course" in told:
                    down, up = ways(told["course"])
                else:
                    down.start(told["play"])
                    up.start(told["play"])
                control.sendall(b"ok\n")


def _take(end: socket.socket, way: Way, queue: deque[tuple[int, bytes]]) -> None:
    for _ in range(_AT_ONCE):
        try:
            frame, ancillary, _flags, _sender = end.recvmsg(_FRAME_BYTES, 64)
        except BlockingIOError:
            return
        came_ns = time.time_ns()
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack(value)
                came_ns = seconds * 1_000_000_000 + nanoseconds
        leaves_ns = way.leaves_ns(came_ns, len(frame))
        if leaves_ns is not None:
            queue.append((leaves_ns, frame))


def _send(out: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(BlockingIOError):  # a full device drops, as any other does
        out.send(frame)


if __name__ == "__main__":
    gc.disable()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    near_end, far_end = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    for one in (near_end, far_end):
        one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        one.setblocking(False)
    play(near_end, far_end, socket.socket(fileno=0))
