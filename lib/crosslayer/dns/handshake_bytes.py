"""Bytes of handshake and query, split by the content of packets as in the analysis of IMC22 (`single.query.sizes.py`).

Over TCP, the following bytes count as handshake: SYN, SYN-ACK, acknowledgements before the first data, and TLS records
other than application data. The TCP header counts as handshake in SYN, SYN-ACK and these acknowledgements, and in each
packet in which such a record ends. In TLS 1.3, these records are little more than the two hellos; the encrypted rest of
the handshake counts with the query or its answer. Over QUIC, every datagram that begins with a long header counts as
handshake. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crosslayer.dns.capture import Packet
from crosslayer.dns.model import Protocol

SYN, ACK = 0x02, 0x10
_FLAGS = 0x3F
_RECORD_HEADER_BYTES = 5
_APPLICATION_DATA = 23
_LONG_HEADER = 0x80


@dataclass(slots=True)
class _Stream:
    """One direction of a TCP connection."""

    next: int | None = None
    """Next expected sequence number."""
    pending: bytes = b""
    """Bytes of a record that is not complete yet."""


@dataclass(slots=True)
class Parts:
    """Counts the handshake bytes of one TCP connection; takes its packets in the order of their times."""

    tls: bool
    _streams: dict[bool, _Stream] = field(default_factory=lambda: {True: _Stream(), False: _Stream()})
    _data: bool = False

    def of_tcp(self, packet: Packet) -> int:
        """Bytes of a TCP packet that belong to the handshake."""
        stream = self._streams[packet.sent]
        if packet.flags & SYN:
            stream.next = (packet.sequence + 1) % 2**32
            return packet.bytes
        if not packet.payload:
            first = packet.flags & _FLAGS == ACK and not self._data
            return packet.bytes if first else 0
        self._data = True
        if not self.tls or packet.sequence != stream.next:
            return 0  # retransmitted, so already counted; or out of order, which is never counted
        stream.next = (packet.sequence + len(packet.payload)) % 2**32
        clear = self._clear(stream, packet.payload)
        return clear + packet.bytes - len(packet.payload) if clear else 0

    def _clear(self, stream: _Stream, payload: bytes) -> int:
        """Bytes of the cleartext records that this packet completes."""
        stream.pending += payload
        clear = 0
        while len(stream.pending) >= _RECORD_HEADER_BYTES:
            size = _RECORD_HEADER_BYTES + int.from_bytes(stream.pending[3:5])
            if len(stream.pending) < size:
                break
            clear += size if stream.pending[0] != _APPLICATION_DATA else 0
            stream.pending = stream.pending[size:]
        return clear


def of_quic(packet: Packet) -> int:
    """Bytes of a QUIC datagram that belong to the handshake: all or none."""
    return packet.bytes if packet.payload and packet.payload[0] & _LONG_HEADER else 0


def of_handshake(protocol: Protocol) -> Callable[[Packet], int]:
    """Make a function that returns the handshake bytes of a packet of the given transport.

    Call the returned function for every packet of one connection, in the order of their times.
    """
    if protocol is Protocol.DOUDP:
        return lambda _packet: 0
    if protocol.transport.over_quic:
        return of_quic
    return Parts(tls=protocol.transport.encrypted).of_tcp
