"""A DoQ client that also speaks the drafts: resolvers that nobody updated since are still resolvers."""

from __future__ import annotations

from crosslayer.dns.message import Query
from crosslayer.dns.quic import DoQClient
from crosslayer.dns.quic_core import DoQCore

DRAFTS = tuple(f"doq-i{draft:02}" for draft in range(11, -1, -1))
"""ALPN of draft-ietf-dprive-dnsoquic-11 to -00."""
_WITHOUT_LENGTH = frozenset(DRAFTS[-3:])
"""Drafts before -03 had no length before a message."""


class AnyDoQCore(DoQCore):
    """DoQ of RFC 9250 or any draft, whichever the server takes."""

    alpns = ("doq", *DRAFTS)

    def ask(self, query: Query) -> int:
        """Queue a query, as the protocol agreed on has it."""
        if self.agreed_alpn not in _WITHOUT_LENGTH:
            return super().ask(query)
        stream = self._quic.get_next_available_stream_id()
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, query.wire, end_stream=True)
        return stream

    def answer(self, stream: int) -> bytes | None:
        """The answer; without a length it is complete when its stream ends."""
        if self.agreed_alpn not in _WITHOUT_LENGTH or stream in self._reset:
            return super().answer(stream)
        return bytes(self._received[stream]) if stream in self._ended else None


class AnyDoQClient(DoQClient):
    """DoQ of RFC 9250 or any draft."""

    core_class = AnyDoQCore

    def _handshake(self) -> None:
        super()._handshake()
        if self.agreed_alpn not in AnyDoQCore.alpns:  # a QUIC stack that does not care about ALPN
            raise self._fault("the server does not speak DoQ")
