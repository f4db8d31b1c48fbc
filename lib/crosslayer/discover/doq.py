"""A DoQ client that also supports the drafts of DoQ, because some resolvers still use a draft."""

from __future__ import annotations

from crosslayer.dns.message import Query
from crosslayer.dns.quic import DoQClient
from crosslayer.dns.quic_core import DoQCore

DRAFTS = tuple(f"doq-i{draft:02}" for draft in range(11, -1, -1))
"""ALPN identifiers of draft-ietf-dprive-dnsoquic, from -11 to -00."""
_WITHOUT_LENGTH = frozenset(DRAFTS[-3:])
"""ALPN identifiers of the drafts before -03, which have no length field before a message."""


class AnyDoQCore(DoQCore):
    """Protocol core for DoQ of RFC 9250 or any draft, as agreed on with the server."""

    alpns = ("doq", *DRAFTS)

    def ask(self, query: Query) -> int:
        """Queue a query in the format of the agreed protocol; returns the ID of its stream."""
        if self.agreed_alpn not in _WITHOUT_LENGTH:
            return super().ask(query)
        stream = self._quic.get_next_available_stream_id()
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, query.wire, end_stream=True)
        return stream

    def answer(self, stream: int) -> bytes | None:
        """The answer; None while it is incomplete. Without a length field, the end of the stream completes it."""
        if self.agreed_alpn not in _WITHOUT_LENGTH or stream in self._reset:
            return super().answer(stream)
        return bytes(self._received[stream]) if stream in self._ended else None


class AnyDoQClient(DoQClient):
    """Client of DoQ by RFC 9250 or any draft."""

    core_class = AnyDoQCore

    def _handshake(self) -> None:
        super()._handshake()
        if self.agreed_alpn not in AnyDoQCore.alpns:  # possible if the server's QUIC stack ignores ALPN
            raise self._fault("the server does not speak DoQ")
