"""Replays a trace: delays the packets of both directions and releases them at the times of the trace.

The program is a file of its own and imports only the standard library. `trace_replay.py NEAR FAR` receives two
inherited packet sockets, the first towards the client. Standard input is a control socket. Each command is a line of
JSON, and its answer is `ok`. {"course": {"down": ..., "up": ..., "delay": ...}} sets the trace. {"play": NS} sets its
start, ns since the Unix epoch. Before the first start, packets pass unchanged.

A packet's departure time is computed from the kernel's receive timestamp. So a late wake-up does not delay later
packets.
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


class Schedule:
    """Departure times of the packets of one direction.

    The curve of a trace (`line`) gives the total bytes that the path could have delivered until each time. A packet
    departs when the curve has risen by the packet's size since the later of two times: the end of the packet's
    additional delay, and the previous departure. Capacity that no packet used is lost, as with the delivery
    opportunities of Mahimahi.

    Parameters
    ----------
    line
        `at_ns` and `bytes`: points of that curve, from 0 to the end of the trace. `overhead`: bytes of a packet in
        addition to its frame. `limit`: maximum length of the queue, packets. If `line` is None, there is no rate limit.
    delay
        `extra_ns`: additional delays, each from its `at_ns` on. The last `at_ns` is the end of the trace. If `delay` is
        None, there is no additional delay.
    """

    def __init__(self, line: Mapping[str, Any] | None, delay: Mapping[str, Any] | None) -> None:
        self._line, self._delay = line, delay
        self._leaving: deque[int] = deque()
        self._ready, self._last_departure = 0, 0
        self._epoch: int | None = None
        self._done = 0.0

    def start(self, epoch_ns: int) -> None:
        """Set the start of the trace, ns since the Unix epoch; before the first call packets pass unchanged."""
        self._epoch = epoch_ns
        self._done = 0.0
        self._leaving.clear()

    def leaves_ns(self, came_ns: int, frame_bytes: int) -> int | None:
        """Departure time of a frame, ns since the Unix epoch; None if the frame is dropped.

        Frames must be given in order of arrival. `came_ns` is the arrival time, ns since the Unix epoch.
        """
        if self._epoch is None:
            self._last_departure = max(came_ns, self._last_departure)
            return self._last_departure
        self._ready = max(self._ready, came_ns + self._extra_ns(came_ns - self._epoch))
        if self._line is None:
            self._last_departure = max(self._ready, self._last_departure)
            return self._last_departure
        while self._leaving and self._leaving[0] <= self._ready:
            self._leaving.popleft()
        if len(self._leaving) >= self._line["limit"]:
            return None
        since = max(self._done, self.deliverable(self._ready - self._epoch))
        self._done = since + frame_bytes + self._line["overhead"]
        self._last_departure = max(self._epoch + self.when(self._done), self._last_departure)
        self._leaving.append(self._last_departure)
        return self._last_departure

    def deliverable(self, after_ns: int) -> float:
        """Bytes that the path could have delivered in the first `after_ns` after the start of the trace."""
        assert self._line is not None
        at, amounts = self._line["at_ns"], self._line["bytes"]
        turns, rest = divmod(after_ns, at[-1])
        index = bisect.bisect_right(at, rest)
        share = (rest - at[index - 1]) / (at[index] - at[index - 1])
        return float(turns * amounts[-1] + amounts[index - 1] + share * (amounts[index] - amounts[index - 1]))

    def when(self, amount: float) -> int:
        """Time after the start of the trace at which an amount of bytes can be delivered, ns."""
        assert self._line is not None
        at, amounts = self._line["at_ns"], self._line["bytes"]
        turns, rest = divmod(amount, amounts[-1])
        if not rest:
            turns, rest = turns - 1, amounts[-1]
        index = bisect.bisect_left(amounts, rest)
        share = (rest - amounts[index - 1]) / (amounts[index] - amounts[index - 1])
        return int(turns * at[-1] + math.ceil(at[index - 1] + share * (at[index] - at[index - 1])))

    def _extra_ns(self, after_ns: int) -> int:
        if self._delay is None:
            return 0
        at = self._delay["at_ns"]
        return int(self._delay["extra_ns"][bisect.bisect_right(at, after_ns % at[-1]) - 1])


def schedules(course: Mapping[str, Any]) -> tuple[Schedule, Schedule]:
    """Schedules of both directions, towards the client and towards the server."""
    return Schedule(course["down"], course["delay"]), Schedule(course["up"], course["delay"])


def play(near: socket.socket, far: socket.socket, control: socket.socket) -> None:
    """Replay the trace until the other end closes the control socket."""
    down, up = Schedule(None, None), Schedule(None, None)
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
        for end, schedule, queue in ((far, down, waiting[0]), (near, up, waiting[1])):
            if end in ready:
                _take(end, schedule, queue)
        if control in ready:
            if not (part := control.recv(1 << 16)):
                return
            *lines, commands = (commands + part).split(b"\n")
            for line in lines:
                command = json.loads(line)
                if "course" in command:
                    down, up = schedules(command["course"])
                else:
                    down.start(command["play"])
                    up.start(command["play"])
                control.sendall(b"ok\n")


def _take(end: socket.socket, schedule: Schedule, queue: deque[tuple[int, bytes]]) -> None:
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
        leaves_ns = schedule.leaves_ns(came_ns, len(frame))
        if leaves_ns is not None:
            queue.append((leaves_ns, frame))


def _send(out: socket.socket, frame: bytes) -> None:
    with contextlib.suppress(BlockingIOError):  # a full device drops the packet
        out.send(frame)


if __name__ == "__main__":
    gc.disable()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    near_end, far_end = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    for one in (near_end, far_end):
        one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        one.setblocking(False)
    play(near_end, far_end, socket.socket(fileno=0))
