"""Attempts of a client to reach a host, read from its packets: lookups, QUIC handshakes and TCP connects."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from crosslayer.dns.capture import Packet, read_frame
from crosslayer.packets import Frame

_DNS_PORT = 53
_TYPES = {1: "A", 28: "AAAA", 65: "HTTPS"}
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_PORT_UNREACHABLE = (3, 3)
_UNREACHABLE6 = 1
_ETHERNET_BYTES, _IP_BYTES, _IPV6_BYTES, _ICMP_BYTES = 14, 20, 40, 8
MOST_TIMES = 32
"""An attempt keeps the times of at most this number of packets (`Attempt.sent_ns`)."""


@dataclass(slots=True)
class Attempt:
    """One attempt of a client to reach a host: a lookup, a QUIC connection or a TCP connection."""

    kind: str
    """Record type of a lookup over UDP (`A`, `AAAA` or `HTTPS`), or kind of a connection (`quic` or `tcp`)."""
    address: str
    """Address that the client sent to."""
    local_port: int
    started_ns: int
    """Time of the first packet, ns since the Unix epoch."""
    sent_ns: list[int] = field(default_factory=list)
    """Times of the first `MOST_TIMES` packets that the client sent before an answer, ns. Over TCP, only SYNs count."""
    answered_ns: int | None = None
    """Time of the first packet from the other end, ns; None if none arrived."""
    refused_ns: int | None = None
    """Time of the first refusal, ns; None if none arrived.

    A refusal is an ICMP port unreachable, an ICMPv6 destination unreachable or a TCP reset.
    """

    @property
    def family(self) -> int:
        """IP version: 4 or 6."""
        return 6 if ":" in self.address else 4


def read_attempts(frames: Iterable[Frame], hosts: Collection[str], resolver: str, name: str) -> list[Attempt]:
    """Find a client's attempts to reach a host, and its lookups of the host's name, in the client's packets.

    Attempts are in the order of their first packets.

    Parameters
    ----------
    frames
        Frames that the client sent and received, in order of time.
    hosts
        IPv4 and IPv6 addresses of the host.
    resolver
        Address of the resolver. Queries with different message IDs are different lookups.
    name
        Name of the host. Lookups of other names, and lookups over TCP, are left out.
    """
    attempts: dict[tuple[object, ...], Attempt] = {}
    for frame in frames:
        if frame.sent is False and (refused := _unreachable(frame.data)) is not None:
            for key, attempt in attempts.items():
                if key[:3] == refused and attempt.refused_ns is None:
                    attempt.refused_ns = frame.at_ns
            continue
        packet = read_frame(frame.data, at_ns=frame.at_ns, sent=bool(frame.sent), interface=frame.interface)
        if packet is None:
            continue
        local, remote = (packet.source, packet.destination) if packet.sent else (packet.destination, packet.source)
        lookup = remote == (resolver, _DNS_PORT) and packet.ip_protocol == socket.IPPROTO_UDP
        if not lookup and remote[0] not in hosts:
            continue
        kind = _kind(packet, name if lookup else None)
        if kind is None:
            continue
        number = packet.payload[:2] if lookup else b""
        key = (packet.ip_protocol, local[1], remote[0], number)
        if key not in attempts:
            if not packet.sent or (kind == "tcp" and not packet.flags & _SYN):
                continue
            attempts[key] = Attempt(kind, remote[0], local[1], packet.at_ns)
        _note(attempts[key], packet)
    return sorted(attempts.values(), key=lambda attempt: attempt.started_ns)


def _note(attempt: Attempt, packet: Packet) -> None:
    if packet.sent:
        counts = attempt.kind != "tcp" or packet.flags & _SYN
        if attempt.answered_ns is None and counts and len(attempt.sent_ns) < MOST_TIMES:
            attempt.sent_ns.append(packet.at_ns)
    elif packet.ip_protocol == socket.IPPROTO_TCP and packet.flags & _RST:
        attempt.refused_ns = attempt.refused_ns or packet.at_ns
    elif attempt.answered_ns is None:
        attempt.answered_ns = packet.at_ns


def _kind(packet: Packet, name: str | None) -> str | None:
    """Kind of the attempt that a packet belongs to.

    `name` is the host's name if the packet belongs to a lookup, else None. The function returns None for a lookup of
    another name or record type.
    """
    if name is None:
        return "quic" if packet.ip_protocol == socket.IPPROTO_UDP else "tcp"
    asked = b"".join(bytes([len(label)]) + label for label in name.encode("ascii").split(b".")) + b"\0"
    end = 12 + len(asked)
    if packet.payload[12:end].lower() != asked or len(packet.payload) < end + 2:
        return None
    return _TYPES.get(struct.unpack_from("!H", packet.payload, end)[0])


def _unreachable(data: bytes) -> tuple[int, int, str] | None:
    """IP protocol, client's port and server's address of a refused packet, which an ICMP error in the frame quotes.

    None if the frame has no ICMP error that counts as a refusal (`Attempt.refused_ns`).
    """
    if data[12:14] == b"\x86\xdd":
        quoted = _ETHERNET_BYTES + _IPV6_BYTES + _ICMP_BYTES
        if len(data) < quoted + _IPV6_BYTES + 4 or data[20] != socket.IPPROTO_ICMPV6 or data[54] != _UNREACHABLE6:
            return None
        (port,) = struct.unpack_from("!H", data, quoted + _IPV6_BYTES)
        return data[quoted + 6], port, socket.inet_ntop(socket.AF_INET6, data[quoted + 24 : quoted + 40])
    quoted = _ETHERNET_BYTES + _IP_BYTES + _ICMP_BYTES
    if len(data) < quoted + _IP_BYTES + 4 or data[12:14] != b"\x08\x00" or data[23] != socket.IPPROTO_ICMP:
        return None
    if tuple(data[34:36]) != _PORT_UNREACHABLE:
        return None
    (port,) = struct.unpack_from("!H", data, quoted + _IP_BYTES)
    return data[quoted + 9], port, socket.inet_ntoa(data[quoted + 16 : quoted + 20])
