"""DoUDP: DNS over UDP (RFC 1035, section 4.2.1; EDNS, RFC 6891)."""

from __future__ import annotations

import socket
import time

from crosslayer.dns.client import Client
from crosslayer.dns.message import MAX_MESSAGE_BYTES, Query, check_answer, matches
from crosslayer.dns.model import Protocol


class DoUdpClient(Client):
    """Client of DoUDP. It returns a truncated answer as it is.

    It does not repeat the query over TCP, because DNS over TCP is measured separately, as DoTCP.
    """

    protocol = Protocol.DOUDP
    ip_protocol = socket.IPPROTO_UDP

    def _open(self, first: Query | None) -> None:
        connection = self._new_socket(socket.SOCK_DGRAM)
        connection.connect(self._address)
        self.local_port = connection.getsockname()[1]

    def _handshake(self) -> None:
        """Do nothing: UDP has no handshake, so `handshake_ms` is 0."""

    def _ask(self, query: Query) -> bytes:
        connection = self._socket
        stray: bytes | None = None
        while True:
            connection.send(query.wire)
            resend_at = time.monotonic() + self.settings.udp_retransmit_s
            while (wait_s := resend_at - time.monotonic()) > 0:
                try:
                    connection.settimeout(min(wait_s, self._remaining_s()))
                    wire = connection.recv(MAX_MESSAGE_BYTES)
                except TimeoutError:
                    if time.monotonic() < self._deadline:
                        break
                    if stray is None:
                        raise
                    raise self._fault(check_answer(stray, query).error or "timeout") from None
                if matches(wire, query):
                    return wire
                stray = wire
