"""The two ends of cross-traffic. The program is a file of its own and imports only the standard library.

`cross_traffic.py receive tcp|udp ADDRESS` prints its port. When its standard input ends, it prints two numbers: the
payload bytes received, and a time in ns. The time begins when the TCP connection is accepted or the first UDP datagram
arrives. `cross_traffic.py send tcp|udp ADDRESS PORT MBIT` sends until it is killed. TCP has no rate limit and uses
CUBIC, or Reno if the kernel lacks CUBIC.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time

_CHUNK_BYTES = 1 << 16
_DATAGRAM_BYTES = 1200
_FILLS_QUEUES = (b"cubic", b"reno")
"""Loss-based congestion controls; the first available one is used. BBR, some machines' default, keeps queues empty."""
_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def receive(kind: str, address: str) -> None:
    """Receive cross-traffic until standard input ends."""
    end = socket.socket(socket.AF_INET, _KINDS[kind])
    end.bind((address, 0))
    if kind == "tcp":
        end.listen()
    print(end.getsockname()[1], flush=True)
    received, first, watched = 0, None, [sys.stdin, end]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if sys.stdin in ready:
            break
        if kind == "tcp" and first is None:
            end, _sender = end.accept()
            watched[1:] = [end]
        elif data := end.recv(_CHUNK_BYTES):
            received += len(data)
        else:
            watched.remove(end)  # the sender has ended
        first = first or time.monotonic_ns()
    print(received, time.monotonic_ns() - (first or 0), flush=True)


def _fill_queues(end: socket.socket) -> None:
    for algorithm in _FILLS_QUEUES:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm)
            return
    raise SystemExit("TCP has neither CUBIC nor Reno here")


def send(kind: str, address: str, port: int, mbit: float) -> None:
    """Send cross-traffic until the process is killed."""
    end = socket.socket(socket.AF_INET, _KINDS[kind])
    if kind == "tcp":
        _fill_queues(end)
    end.connect((address, port))
    if kind == "tcp":
        while True:
            end.sendall(bytes(_CHUNK_BYTES))
    begin, number = time.monotonic(), 0
    while True:
        if (wait_s := begin + number * _DATAGRAM_BYTES * 8 / (mbit * 1e6) - time.monotonic()) > 0:
            time.sleep(wait_s)
        with contextlib.suppress(ConnectionRefusedError):
            end.send(bytes(_DATAGRAM_BYTES))
        number += 1


if __name__ == "__main__":
    role, kind, address, *more = sys.argv[1:]
    if role == "receive":
        receive(kind, address)
    else:
        with contextlib.suppress(ConnectionError):
            send(kind, address, int(more[0]), float(more[1]))
    os._exit(0)
