"""The server's QUIC connection: aioquic's, extended by tickets, address-validation tokens and a record of early data.

aioquic's own server sends no NEW_TOKEN frame (RFC 9000, section 8.1.3) and accepts only tokens of Retry packets. This
module sends NEW_TOKEN frames and accepts their tokens. Once the handshake is complete, ticket and token are sent in
random order, as quic-go does.
"""

from __future__ import annotations

import ipaddress
import os
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aioquic._buffer import Buffer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import QuicFrameType
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.tls import Epoch, SessionTicket
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_MOST_TICKETS = 4096
_TOKEN_AGE_S = 24 * 3600
_NONCE_BYTES = 12
_STAMP = struct.Struct("!d")
_FRAME_HEADER_BYTES = 3
"""Maximum size in bytes of a NEW_TOKEN frame without the token: 1 byte for the type, 2 bytes for the length."""


class Tickets:
    """Session tickets, issued by any listener and not used yet; at most `_MOST_TICKETS`.

    If there are more, the oldest are removed. A ticket is used once, so that early data cannot be replayed (RFC 8446,
    section 8.1). If `take` returns a ticket, aioquic accepts early data without a check of the application protocol. So
    `take` makes this check: it returns a ticket only to a connection with the protocol for which the ticket was issued
    (RFC 8446, section 4.2.10).
    """

    def __init__(self) -> None:
        self._issued: OrderedDict[bytes, tuple[str | None, SessionTicket]] = OrderedDict()

    def add(self, alpn: str | None, ticket: SessionTicket) -> None:
        """Store a ticket."""
        self._issued[ticket.ticket] = alpn, ticket
        while len(self._issued) > _MOST_TICKETS:
            self._issued.popitem(last=False)

    def take(self, alpn: str | None, identity: bytes) -> SessionTicket | None:
        """Return a ticket and remove it; None if it is unknown or was issued for another protocol."""
        issued_for, ticket = self._issued.get(identity, (None, None))
        if ticket is None or issued_for != alpn:
            return None
        del self._issued[identity]
        return ticket

    def clear(self) -> None:
        """Remove all tickets, so that they are refused."""
        self._issued.clear()


class Tokens:
    """Issues and verifies address-validation tokens.

    A token contains the client's address and the time of issue, encrypted with a key of this process.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._aead = AESGCM(AESGCM.generate_key(bit_length=128))

    def issue(self, address: str) -> bytes:
        """Create a token for an address."""
        nonce = os.urandom(_NONCE_BYTES)
        content = _STAMP.pack(self._now()) + ipaddress.ip_address(address).packed
        return nonce + self._aead.encrypt(nonce, content, None)

    def proves(self, address: str, token: bytes) -> bool:
        """Whether this server issued a token for this address, at most `_TOKEN_AGE_S` ago."""
        if len(token) <= _NONCE_BYTES:
            return False
        try:
            content = self._aead.decrypt(token[:_NONCE_BYTES], token[_NONCE_BYTES:], None)
        except InvalidTag:
            return False
        (issued,) = _STAMP.unpack_from(content)
        return content[_STAMP.size :] == ipaddress.ip_address(address).packed and self._now() - issued <= _TOKEN_AGE_S


class ServerConnection(QuicConnection):
    """The server's end of one client's QUIC connection.

    Parameters
    ----------
    configuration
        Configuration of the listener.
    original_destination_connection_id
        Destination connection ID of the client's first packet.
    address_validated
        Whether the client's first packet had a token that proves its address.
    tickets
        Tickets of all listeners.
    new_token
        Function that creates a token for the client.
    token_sent
        Function called when a token is about to be sent. Its argument is True if the session ticket precedes the token.
    initial_window
        Initial congestion window, datagrams; 0 selects aioquic's default.
    """

    def __init__(
        self,
        configuration: QuicConfiguration,
        original_destination_connection_id: bytes,
        *,
        address_validated: bool,
        tickets: Tickets,
        new_token: Callable[[], bytes],
        token_sent: Callable[[bool], None],
        initial_window: int = 0,
    ) -> None:
        super().__init__(
            configuration=configuration,
            original_destination_connection_id=original_destination_connection_id,
            session_ticket_fetcher=lambda identity: tickets.take(self.tls.alpn_negotiated, identity),
            session_ticket_handler=lambda ticket: tickets.add(self.tls.alpn_negotiated, ticket),
        )
        if initial_window:
            self._loss._cc.congestion_window = initial_window * configuration.max_datagram_size
        self.address_validated = address_validated
        self.initials = 0
        """Number of Initial packets that carried parts of the client's hello."""
        self.early_streams: set[int] = set()
        """IDs of the streams with data in 0-RTT packets."""
        self._new_token = new_token
        self._token_sent = token_sent
        self._token_due = True
        self._token_first = bool(os.urandom(1)[0] & 1)
        self._hello_packet: object = None

    @property
    def handshake_complete(self) -> bool:
        """Whether the handshake is complete; application data received earlier is early data."""
        return self._handshake_complete

    @property
    def resumed(self) -> bool:
        """Whether the TLS session was resumed."""
        return bool(self.tls.session_resumed)

    @property
    def early_data_accepted(self) -> bool:
        """Whether the client offered early data and the server accepted it."""
        return bool(self.tls.early_data_accepted)

    @property
    def key_share(self) -> str:
        """Group of the key exchange, as Go's crypto/tls names it, e.g. CurveP256; empty before the group is chosen."""
        if self.tls._x25519_private_key is not None:
            return "X25519"
        curves = {key.curve.name for key in self.tls._ec_private_keys}
        return {ec.SECP256R1.name: "CurveP256"}.get(*curves, *curves) if len(curves) == 1 else ""

    @property
    def version_name(self) -> str:
        """QUIC version, e.g. v1."""
        return {0x00000001: "v1", 0x6B3343CF: "v2"}.get(self._version or 0, "")

    def _find_network_path(self, addr: Any) -> Any:
        path = super()._find_network_path(addr)
        if self.address_validated and not self._network_paths:  # the first datagram contained the token
            path.is_validated = True
        return path

    def _handle_crypto_frame(self, context: Any, frame_type: int, buf: Buffer) -> None:
        if context.epoch is Epoch.INITIAL and context is not self._hello_packet:  # a hello can have several frames
            self._hello_packet = context
            self.initials += 1
        super()._handle_crypto_frame(context, frame_type, buf)

    def _handle_stream_frame(self, context: Any, frame_type: int, buf: Buffer) -> None:
        if context.epoch is Epoch.ZERO_RTT:
            start = buf.tell()
            self.early_streams.add(buf.pull_uint_var())
            buf.seek(start)
        super()._handle_stream_frame(context, frame_type, buf)

    def _write_handshake_done_frame(self, builder: Any) -> None:
        super()._write_handshake_done_frame(builder)
        if self._token_first:  # Chromium stores no token before a ticket, so it then has none
            self._write_new_token(builder, behind_ticket=False)

    def _write_crypto_frame(self, builder: Any, space: Any, stream: Any) -> bool:
        written: bool = super()._write_crypto_frame(builder, space, stream)
        if written and space is self._spaces[Epoch.ONE_RTT]:
            self._write_new_token(builder)
        return written

    def _write_connection_limits(self, builder: Any, space: Any) -> None:
        super()._write_connection_limits(builder, space)
        if self._crypto_streams[Epoch.ONE_RTT].sender.buffer_is_empty:  # the ticket was sent
            self._write_new_token(builder)

    def _write_new_token(self, builder: Any, *, behind_ticket: bool = True) -> None:
        if not self._token_due:
            return
        token = self._new_token()
        buffer = builder.start_frame(
            QuicFrameType.NEW_TOKEN, _FRAME_HEADER_BYTES + len(token), handler=self._on_token_delivery
        )
        buffer.push_uint_var(len(token))
        buffer.push_bytes(token)
        self._token_due = False
        self._token_sent(behind_ticket)

    def _on_token_delivery(self, delivery: QuicDeliveryState) -> None:
        self._token_due = delivery != QuicDeliveryState.ACKED
