"""A middlebox: forwards the packets of both directions, except those that its rules drop, reject or answer.

The program is a file of its own and imports only the standard library. `middlebox.py NEAR FAR` receives two inherited
packet sockets, the first towards the client. Standard input is a control socket. Each command is a line of JSON:
{"rules": [...]} sets the rules (`PathFault.command`). {"begin": NS} sets the start from which the `after_ns` of the
rules is counted; NS is in ns since the Unix epoch. The answer to every command is a line with the number of packets
that each rule has matched since it was set; {"count": true} only requests this answer.

Rules apply to UDP and TCP over IPv4 without options and over IPv6 without extension headers. Rules with the selector
`ipv6` apply to every IPv6 packet. QUIC packets are recognised by the first long header of a datagram.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import select
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_PR_SET_TIMERSLACK = 29
_FRAME_BYTES = 1 << 16
_AT_ONCE = 64
_ETHERNET_BYTES, _IP_BYTES, _IPV6_BYTES = 14, 20, 40
_LEAST_BYTES = {socket.IPPROTO_UDP: 8, socket.IPPROTO_TCP: 20}
_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = b"\x08\x00", b"\x86\xdd"
_SYN, _RST, _ACK = 0x02, 0x04, 0x10
_PORT_UNREACHABLE = bytes([3, 3])
_PORT_UNREACHABLE6, _NO_ROUTE6 = bytes([1, 4]), bytes([1, 0])
_ICMPV6_QUOTED_BYTES = 1232
_FIRST_ICMPV6_REQUEST = b"\x80"
"""First ICMPv6 type that is not an error (RFC 4443, section 2.1)."""
_QUIC_INITIAL, _QUIC_0RTT = 0, 1
_QUIC_V2 = 0x6B3343CF
_HANDSHAKE_RECORD, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ECH = 0, 0xFE0D
_DNS_RESPONSE_TRUNCATED = 0x8280
"""DNS flags QR, TC and RA; glibc ignores an empty answer without RA."""
_HELLO_MOST_BYTES = 1 << 14


@dataclass(slots=True)
class Segment:
    """A UDP or TCP packet over IPv4 or IPv6, or an IPv6 packet with another payload.

    For another payload, both ports are 0.
    """

    frame: bytes
    to_server: bool
    protocol: int
    server: str
    """Address at the server's end."""
    client_port: int
    server_port: int
    payload: bytes
    flags: int = 0
    sequence: int = 0
    acknowledgment: int = 0

    @property
    def flow(self) -> tuple[str, int, int]:
        """Key of a TCP segment's connection: server address, server port and client port."""
        return self.server, self.server_port, self.client_port

    @property
    def ipv6(self) -> bool:
        """Whether the packet is IPv6."""
        return self.frame[12:14] == _ETHERTYPE_IPV6

    @property
    def addresses(self) -> tuple[bytes, bytes]:
        """Source and destination address."""
        return (self.frame[22:38], self.frame[38:54]) if self.ipv6 else (self.frame[26:30], self.frame[30:34])


def read_segment(frame: bytes, *, to_server: bool) -> Segment | None:
    """Parse a frame with IPv6, or with unfragmented UDP or TCP over IPv4 without options; None for any other frame."""
    if len(frame) < _ETHERNET_BYTES + _IP_BYTES + 8:
        return None
    if frame[12:14] == _ETHERTYPE_IPV4 and frame[14] == 0x45:
        total, fragment, protocol = struct.unpack_from("!H2xHxB", frame, 16)
        if fragment & 0x3FFF:
            return None
        start, end, family = _ETHERNET_BYTES + _IP_BYTES, _ETHERNET_BYTES + total, socket.AF_INET
    elif frame[12:14] == _ETHERTYPE_IPV6 and len(frame) >= _ETHERNET_BYTES + _IPV6_BYTES:
        length, protocol = struct.unpack_from("!HB", frame, 18)
        start, family = _ETHERNET_BYTES + _IPV6_BYTES, socket.AF_INET6
        end = start + length
    else:
        return None
    transport = frame[start:end]
    segment = Segment(frame, to_server, protocol, "", 0, 0, b"")
    segment.server = socket.inet_ntop(family, segment.addresses[to_server])
    least = _LEAST_BYTES.get(protocol)
    if least is None or len(transport) < least:
        return segment if segment.ipv6 else None
    source_port, destination_port = struct.unpack_from("!HH", transport)
    ports = (source_port, destination_port) if to_server else (destination_port, source_port)
    segment.client_port, segment.server_port = ports
    segment.payload = transport[8:]
    if protocol == socket.IPPROTO_TCP:
        segment.sequence, segment.acknowledgment = struct.unpack_from("!II", transport, 4)
        segment.flags = transport[13]
        segment.payload = transport[(transport[12] >> 4) * 4 :]
    return segment


def long_header(payload: bytes) -> tuple[int, int] | None:
    """Packet type, numbered as in QUIC version 1, and QUIC version of a long header; None without a long header."""
    if len(payload) < 7 or payload[0] & 0xC0 != 0xC0:
        return None
    (version,) = struct.unpack_from("!I", payload, 1)
    kind = payload[0] >> 4 & 3
    return (kind - 1) & 3 if version == _QUIC_V2 else kind, version


def hello_with_ech(stream: bytes) -> str | None:
    """Server name of a TLS ClientHello with the ECH extension; None without ECH, or if incomplete or malformed."""
    with contextlib.suppress(IndexError, struct.error):
        return _server_name_with_ech(stream)
    return None


def _server_name_with_ech(stream: bytes) -> str | None:
    if len(stream) < 9 or stream[0] != _HANDSHAKE_RECORD or stream[5] != _CLIENT_HELLO:
        return None
    hello, position = b"", 0
    while position + 5 <= len(stream) and stream[position] == _HANDSHAKE_RECORD:
        (length,) = struct.unpack_from("!H", stream, position + 3)
        hello += stream[position + 5 : position + 5 + length]
        position += 5 + length
    if len(hello) < 4 + int.from_bytes(hello[1:4], "big"):
        return None
    position = 4 + 2 + 32
    position += 1 + hello[position]
    position += 2 + int.from_bytes(hello[position : position + 2], "big")
    position += 1 + hello[position]
    end = position + 2 + int.from_bytes(hello[position : position + 2], "big")
    position += 2
    name, ech = "", False
    while position + 4 <= end:
        kind, length = struct.unpack_from("!HH", hello, position)
        value = hello[position + 4 : position + 4 + length]
        if kind == _SERVER_NAME and length > 5:
            name = value[5:].decode("ascii", "replace")
        ech = ech or kind == _ECH
        position += 4 + length
    return name if ech else None


class BlockRule:
    """One rule, which selects packets, and the number of packets that it has matched."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.matched = 0
        self._hellos: dict[tuple[str, int, int], dict[int, bytes]] = {}
        self._blocked: set[tuple[str, int, int]] = set()

    def matches(self, segment: Segment, since_begin_ns: int) -> bool:
        """Whether the rule applies to a packet; if it does, `matched` is increased.

        `since_begin_ns` is the packet's arrival time minus the time that the command `begin` set, ns.
        """
        if since_begin_ns < self.values["after_ns"]:
            return False
        if self.values["addresses"] and segment.server not in self.values["addresses"]:
            return False
        applies = self._selects(segment)
        self.matched += applies
        return applies

    def _selects(self, segment: Segment) -> bool:
        selector, udp = self.values["selector"], segment.protocol == socket.IPPROTO_UDP
        if selector == "ipv6":
            return segment.ipv6
        if segment.protocol not in _LEAST_BYTES:
            return False
        if selector in ("udp", "tcp"):
            return udp is (selector == "udp") and segment.server_port == self.values["port"]
        if not segment.to_server:
            return False
        if selector == "syn":
            first = segment.flags & (_SYN | _ACK) == _SYN
            return not udp and first and segment.server_port == self.values["port"]
        if selector == "ech":
            return not udp and self._has_ech(segment)
        header = long_header(segment.payload) if udp else None
        if header is None:
            return False
        kind, version = header
        if selector == "quic-version":
            return bool(version == self.values["version"])
        if selector == "quic-0rtt":
            return kind == _QUIC_0RTT
        return kind == _QUIC_INITIAL and len(segment.payload) >= self.values["least_bytes"]

    def _has_ech(self, segment: Segment) -> bool:
        """Whether the flow up to this segment has a whole ClientHello with ECH (and the rule's server name, if any)."""
        flow = segment.flow
        if segment.flags & _SYN:
            self._blocked.discard(flow)
            self._hellos[flow] = {}
        if flow in self._blocked:
            return True
        parts = self._hellos.get(flow)
        if parts is None or not segment.payload:
            return False
        parts[segment.sequence] = segment.payload
        stream = b"".join(payload for _, payload in sorted(parts.items()))
        if len(stream) > _HELLO_MOST_BYTES:
            del self._hellos[flow]
        name = hello_with_ech(stream)
        if name is None or self.values["name"] not in ("", name):
            return False
        self._blocked.add(flow)
        return True


def reply(segment: Segment, action: str, selector: str) -> bytes | None:
    """The frame that the middlebox sends to the client instead of forwarding a packet; None if it sends nothing."""
    if action == "drop" or not segment.to_server:
        return None
    if action == "truncate":
        return _truncated(segment)
    if selector == "ipv6":
        return None if _is_icmpv6_error(segment) else _unreachable6(segment, _NO_ROUTE6)
    if segment.protocol == socket.IPPROTO_TCP:
        return None if segment.flags & _RST else _reset(segment)
    if segment.ipv6:
        return _unreachable6(segment, _PORT_UNREACHABLE6)
    message = bytes(4) + segment.frame[14 : 14 + _IP_BYTES + 8]
    head = _PORT_UNREACHABLE + struct.pack("!H", _checksum(_PORT_UNREACHABLE + bytes(2) + message))
    return _to_client(segment, socket.IPPROTO_ICMP, head + message)


def _is_icmpv6_error(segment: Segment) -> bool:
    """Whether a packet is an ICMPv6 error, to which no ICMPv6 error may be sent (RFC 4443, section 2.4)."""
    return segment.protocol == socket.IPPROTO_ICMPV6 and segment.frame[54:55] < _FIRST_ICMPV6_REQUEST


def _unreachable6(segment: Segment, kind: bytes) -> bytes:
    """ICMPv6 destination unreachable that quotes the packet (RFC 4443, section 3.1)."""
    message = bytes(4) + segment.frame[_ETHERNET_BYTES:][:_ICMPV6_QUOTED_BYTES]
    pseudo = _pseudo_header(segment, socket.IPPROTO_ICMPV6, 4 + len(message))
    head = kind + struct.pack("!H", _checksum(pseudo + kind + bytes(2) + message))
    return _to_client(segment, socket.IPPROTO_ICMPV6, head + message)


def _reset(segment: Segment) -> bytes:
    """A TCP reset as the server's kernel would send it (RFC 9293, section 3.5.2)."""
    after = segment.sequence + len(segment.payload) + bool(segment.flags & _SYN)
    has_ack = bool(segment.flags & _ACK)
    sequence, flags = (segment.acknowledgment, _RST) if has_ack else (0, _RST | _ACK)
    acknowledgment = 0 if has_ack else after & 0xFFFFFFFF
    tcp = bytearray(
        struct.pack(
            "!HHIIBBHHH", segment.server_port, segment.client_port, sequence, acknowledgment, 5 << 4, flags, 0, 0, 0
        )
    )
    pseudo = _pseudo_header(segment, socket.IPPROTO_TCP, len(tcp))
    struct.pack_into("!H", tcp, 16, _checksum(pseudo + tcp))
    return _to_client(segment, socket.IPPROTO_TCP, bytes(tcp))


def _truncated(segment: Segment) -> bytes | None:
    """A truncated DNS answer without records, which makes the client repeat its query over TCP.

    None if the payload is too short for a query.
    """
    if len(segment.payload) < 12:
        return None
    number, flags, questions = struct.unpack_from("!HHH", segment.payload)
    end = 12
    while end < len(segment.payload) and segment.payload[end]:
        end += 1 + segment.payload[end]
    question = segment.payload[12 : end + 5]
    message = struct.pack("!HHHHHH", number, flags | _DNS_RESPONSE_TRUNCATED, questions, 0, 0, 0) + question
    udp = struct.pack("!HHHH", segment.server_port, segment.client_port, 8 + len(message), 0) + message
    checksum = _checksum(_pseudo_header(segment, socket.IPPROTO_UDP, len(udp)) + udp) or 0xFFFF
    return _to_client(segment, socket.IPPROTO_UDP, udp[:6] + struct.pack("!H", checksum) + message)


def _pseudo_header(segment: Segment, protocol: int, length: int) -> bytes:
    """Pseudo-header for the checksum of a packet to the client (RFC 9293, section 3.1; RFC 8200, section 8.1)."""
    source, destination = segment.addresses
    end = struct.pack("!I3xB", length, protocol) if segment.ipv6 else struct.pack("!xBH", protocol, length)
    return destination + source + end


def _to_client(segment: Segment, protocol: int, payload: bytes) -> bytes:
    """An Ethernet frame from the server's addresses to the client's."""
    frame, (source, destination) = segment.frame, segment.addresses
    ethernet = frame[6:12] + frame[0:6] + frame[12:14]
    if segment.ipv6:
        head = struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64)
        return ethernet + head + destination + source + payload
    ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, _IP_BYTES + len(payload), 0, 0x4000, 64, protocol, 0))
    ip += destination + source
    struct.pack_into("!H", ip, 10, _checksum(bytes(ip)))
    return ethernet + bytes(ip) + payload


def _checksum(data: bytes) -> int:
    """Internet checksum (RFC 1071)."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return int(~total & 0xFFFF)


class PacketFilter:
    """Applies the rules to frames."""

    def __init__(self) -> None:
        self._rules: list[BlockRule] = []
        self._begin_ns = 0

    def execute(self, command: Mapping[str, Any]) -> Any:
        """Execute a command; returns its answer."""
        if "rules" in command:
            self._rules = [BlockRule(values) for values in command["rules"]]
        if "begin" in command:
            self._begin_ns = command["begin"]
        return [rule.matched for rule in self._rules]

    def decide(self, frame: bytes, *, to_server: bool, now_ns: int) -> tuple[bool, bytes | None]:
        """Whether to forward a frame; if not, also the frame to send to the client, or None to send nothing."""
        segment = read_segment(frame, to_server=to_server) if self._rules else None
        if segment is None:
            return True, None
        for rule in self._rules:
            if rule.matches(segment, now_ns - self._begin_ns):
                return False, reply(segment, rule.values["action"], rule.values["selector"])
        return True, None


def forward(near: socket.socket, far: socket.socket, control: socket.socket) -> None:
    """Forward packets until the other end closes the control socket."""
    middlebox = PacketFilter()
    commands = b""
    while True:
        ready, _, _ = select.select([near, far, control], [], [])
        if control in ready:
            if not (part := control.recv(1 << 16)):
                return
            *lines, commands = (commands + part).split(b"\n")
            for line in lines:
                control.sendall(json.dumps(middlebox.execute(json.loads(line))).encode() + b"\n")
        for end, other in ((near, far), (far, near)):
            if end not in ready:
                continue
            for _ in range(_AT_ONCE):
                try:
                    frame = end.recv(_FRAME_BYTES)
                except BlockingIOError:
                    break
                passes, answer = middlebox.decide(frame, to_server=end is near, now_ns=time.time_ns())
                with contextlib.suppress(BlockingIOError):  # a full device drops the packet
                    if passes:
                        other.send(frame)
                    elif answer is not None:
                        near.send(answer)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    near_end, far_end = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    for one in (near_end, far_end):
        one.setblocking(False)
    forward(near_end, far_end, socket.socket(fileno=0))
