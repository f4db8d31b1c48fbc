"""A DoQ client that also supports the drafts, because some resolvers still use one."""

from __future__ import annotations

from crosslayer.dns.message import Query
from crosslayer.dns.quic import DoQClient
from crosslayer.dns.quic_core import DoQCore

DRAFTS = tuple(f"doq-i{draft:02}" for draft in range(11, -1, -1))
"""ALPN of draft-ietf-dprive-dnsoquic-11 to -00."""
_WITHOUT_LENGTH = frozenset(DRAFTS[-3:])
"""Drafts before -03 have no length field before a message."""


class AnyDoQCore(DoQCore):
    """DoQ of RFC 9250 or any draft, as agreed on with the server."""

    alpns = ("doq", *DRAFTS)

    def ask(self, query: Query) -> int:
        """Queue a query in the format of the agreed protocol."""
        if self.agreed_alpn not in _WITHOUT_LENGTH:
            return super().ask(query)
        stream = self._quic.get_next_available_stream_id()
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, query.wire, end_stream=True)
        return stream

    def answer(self, stream: int) -> bytes | None:
        """The answer; without a length field it is complete at the end of its stream."""
        if self.agreed_alpn not in _WITHOUT_LENGTH or stream in self._reset:
            return super().answer(stream)
        return bytes(self._received[stream]) if stream in self._ended else None


class AnyDoQClient(DoQClient):
    """DoQ of RFC 9250 or any draft."""

    core_class = AnyDoQCore

    def _handshake(self) -> None:
        super()._handshake()
        if self.agreed_alpn not in AnyDoQCore.alpns:  # possible if the server's QUIC stack ignores ALPN
            raise self._fault("the server does not speak DoQ")
