"""QUIC probes on UDP sockets: which ports of which hosts answer with Version Negotiation."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from crosslayer.discover.pace import Pace
from crosslayer.discover.probe import CONNECTION_ID_BYTES, decode_version_negotiation, encode_probe
from crosslayer.testbed import outside

ATTEMPTS = 3
"""Number of probes to a port that does not answer."""

_MAX_DATAGRAM_BYTES = 65535
_BUFFER_BYTES = 1 << 20

Endpoint = tuple[str, int]
"""Address and UDP port."""


def negotiate(
    endpoints: Iterable[Endpoint], pace: Pace, *, timeout_s: float, progress: Callable[[int], object]
) -> dict[Endpoint, tuple[int, ...]]:
    """Probe endpoints for QUIC; returns the QUIC versions of each endpoint that answered.

    There are `ATTEMPTS` rounds of probes, each to the endpoints that have not answered yet. A wait of `timeout_s /
    ATTEMPTS` follows each round. Addresses must be in canonical form. `progress` receives the number of newly finished
    endpoints.
    """
    probing = _Probing(endpoints)
    with ExitStack() as stack:
        probing.open(stack)
        for _attempt in range(ATTEMPTS):
            for endpoint in probing.silent():
                progress(probing.receive(time.monotonic() + pace.reserve(1, time.monotonic())))
                probing.send(endpoint)
            progress(probing.receive(time.monotonic() + timeout_s / ATTEMPTS))
    progress(len(probing.silent()))
    return probing.answers


class _Probing:
    """Probes in progress and their answers."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self.answers: dict[Endpoint, tuple[int, ...]] = {}
        self._ids = {
            endpoint: (os.urandom(CONNECTION_ID_BYTES), os.urandom(CONNECTION_ID_BYTES)) for endpoint in endpoints
        }
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self._poll = select.poll()

    def open(self, stack: ExitStack) -> None:
        """Open one socket for each address family in use; `OutsideError` for an address without the user's consent."""
        for address in {address for address, _port in self._ids}:
            outside.check(address)
        for family, address in {_family(address): address for address, _port in self._ids}.items():
            own = stack.enter_context(outside.open_socket(address, socket.SOCK_DGRAM))
            own.setblocking(False)
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._poll.register(own, select.POLLIN)
            self._sockets[family] = own

    def silent(self) -> list[Endpoint]:
        """Endpoints without an answer so far."""
        return [endpoint for endpoint in self._ids if endpoint not in self.answers]

    def send(self, endpoint: Endpoint) -> None:
        """Probe one endpoint, unless it has already answered."""
        if endpoint in self.answers:
            return
        with suppress(OSError):  # no route: treated as silence; the transports tried afterwards report it
            self._sockets[_family(endpoint[0])].sendto(encode_probe(*self._ids[endpoint]), endpoint)

    def receive(self, until_s: float) -> int:
        """Receive answers until `until_s`, or until every endpoint has answered; returns the number of new answers."""
        before = len(self.answers)
        while len(self.answers) < len(self._ids):
            ready = self._poll.poll(max(0.0, until_s - time.monotonic()) * 1000)
            if not ready:
                break
            for own in self._sockets.values():
                with suppress(OSError):
                    while True:
                        datagram, sender = own.recvfrom(_MAX_DATAGRAM_BYTES)
                        self._take(datagram, (sender[0], sender[1]))
        return len(self.answers) - before

    def _take(self, datagram: bytes, sender: Endpoint) -> None:
        if sender in self._ids:
            destination_id, source_id = self._ids[sender]
            with suppress(ValueError):
                self.answers[sender] = decode_version_negotiation(
                    datagram, destination_id=destination_id, source_id=source_id
                )


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
