"""DoTCP: DNS over TCP (RFC 7766)."""

from __future__ import annotations

import socket

from crosslayer.dns.client import Client
from crosslayer.dns.message import Query, framed, unframed
from crosslayer.dns.model import Protocol
from crosslayer.dns.timing import PhaseName

_READ_BYTES = 65536


class DoTcpClient(Client):
    """Client of DoTCP."""

    protocol = Protocol.DOTCP
    ip_protocol = socket.IPPROTO_TCP

    def _open(self, first: Query | None) -> None:
        connection = self._new_socket(socket.SOCK_STREAM)
        # Nagle's algorithm would hold the query back until the handshake's last segment is acknowledged.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Bind before connecting, so that the port is known even if the connection fails.
        connection.bind(("", 0))
        self.local_port = connection.getsockname()[1]

    def _handshake(self) -> None:
        with self.timeline.phase(PhaseName.HANDSHAKE):
            self._connect_tcp()

    def _ask(self, query: Query) -> bytes:
        self._send(framed(query.wire))
        buffer = bytearray()
        while (wire := unframed(buffer)) is None:
            buffer += self._receive()
        if len(buffer) > len(wire) + 2:
            raise self._fault("malformed")
        return wire

    def _connect_tcp(self) -> None:
        self._socket.settimeout(self._remaining_s())
        self._socket.connect(self._address)

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._remaining_s())
        self._socket.sendall(data)

    def _receive(self) -> bytes:
        """Receive at least one byte; `DnsError` if the server has closed the connection."""
        self._socket.settimeout(self._remaining_s())
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise self._fault("connection closed by the server")
        return data
