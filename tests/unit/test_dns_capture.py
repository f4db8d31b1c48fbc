"""Frames to packets, packets to sizes per phase and direction."""

from __future__ import annotations

import socket
import struct
from dataclasses import replace

import pytest

from crosslayer.dns import handshake_bytes
from crosslayer.dns.capture import Packet, measure, read_frame
from crosslayer.dns.model import Protocol, Sizes

CLIENT = ("10.53.0.1", 40000)
SERVER = ("10.53.0.2", 853)


def ethernet(ethertype: int, payload: bytes) -> bytes:
    return bytes(12) + struct.pack("!H", ethertype) + payload


def ipv4(protocol: int, payload: bytes, *, options: bytes = b"", total_bytes: int | None = None) -> bytes:
    header_bytes = 20 + len(options)
    return ethernet(
        0x0800,
        struct.pack(
            "!BBHHHBBH4s4s",
            0x40 | header_bytes // 4,
            0,
            total_bytes or header_bytes + len(payload),
            0,
            0,
            64,
            protocol,
            0,
            socket.inet_aton(CLIENT[0]),
            socket.inet_aton(SERVER[0]),
        )
        + options
        + payload,
    )


def udp(payload: bytes) -> bytes:
    return struct.pack("!HHHH", CLIENT[1], SERVER[1], 8 + len(payload), 0) + payload


def tcp(payload: bytes, options: bytes = b"") -> bytes:
    header_units = 5 + len(options) // 4
    return struct.pack("!HHIIBBHHH", CLIENT[1], SERVER[1], 0, 0, header_units << 4, 0, 0, 0, 0) + options + payload


def read(frame: bytes, segment_bytes: int = 0) -> Packet | None:
    return read_frame(frame, at_ns=7, sent=True, interface="eth0", segment_bytes=segment_bytes)


def test_udp_over_ipv4_counts_the_ip_payload() -> None:
    packet = read(ipv4(socket.IPPROTO_UDP, udp(b"x" * 44)))
    assert packet == Packet(7, True, "eth0", socket.IPPROTO_UDP, CLIENT, SERVER, 52, 1, b"x" * 44)


def test_ip_options_are_header_not_payload() -> None:
    packet = read(ipv4(socket.IPPROTO_UDP, udp(b"x" * 44), options=bytes(8)))
    assert packet is not None
    assert (packet.source, packet.bytes) == (CLIENT, 52)


def test_a_frame_cut_after_its_headers_still_has_its_size() -> None:
    frame = ipv4(socket.IPPROTO_TCP, tcp(b"x" * 1000, bytes(12)))
    packet = read(frame[:70])
    assert packet is not None
    assert (packet.bytes, packet.packets) == (1032, 1)


def test_udp_over_ipv6() -> None:
    source, destination = socket.inet_pton(socket.AF_INET6, "fd00::1"), socket.inet_pton(socket.AF_INET6, "fd00::2")
    payload = udp(b"x" * 44)
    frame = ethernet(0x86DD, struct.pack("!IHBB", 0x60000000, len(payload), 17, 64) + source + destination + payload)
    packet = read(frame)
    assert packet is not None
    assert (packet.source, packet.destination, packet.bytes) == (("fd00::1", 40000), ("fd00::2", 853), 52)


def test_an_offloaded_frame_counts_as_the_segments_it_becomes() -> None:
    # 3000 bytes of payload in segments of 1448: three packets, each with the 32 bytes of a TCP header with options.
    packet = read(ipv4(socket.IPPROTO_TCP, tcp(b"x" * 3000, bytes(12))), segment_bytes=1448)
    assert packet is not None
    assert (packet.packets, packet.bytes) == (3, 3000 + 3 * 32)


def test_an_acknowledgement_without_payload_is_one_packet_whatever_the_offload_says() -> None:
    packet = read(ipv4(socket.IPPROTO_TCP, tcp(b"")), segment_bytes=1448)
    assert packet is not None
    assert (packet.packets, packet.bytes) == (1, 20)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(13),
        ethernet(0x0806, bytes(28)),
        ipv4(socket.IPPROTO_ICMP, bytes(16)),
        ipv4(socket.IPPROTO_UDP, udp(b""))[:36],
        ethernet(0x0800, bytes(19)),
        ethernet(0x86DD, bytes(39)),
    ],
    ids=["empty", "short", "arp", "icmp", "cut in the udp header", "cut in the ipv4 header", "cut in the ipv6 header"],
)
def test_other_frames_are_not_packets(frame: bytes) -> None:
    assert read(frame) is None


def packet(at_ns: int, size: int, *, sent: bool, interface: str = "eth0") -> Packet:
    source, destination = (CLIENT, SERVER) if sent else (SERVER, CLIENT)
    return Packet(at_ns, sent, interface, socket.IPPROTO_UDP, source, destination, size, 1)


def sizes(packets: list[Packet], query_at_ns: int | None = 50, answered_at_ns: int | None = 90) -> Sizes:
    return measure(
        packets,
        ip_protocol=socket.IPPROTO_UDP,
        local_port=CLIENT[1],
        server=SERVER,
        query_at_ns=query_at_ns,
        answered_at_ns=answered_at_ns,
        closed_at_ns=200,
    )


EXCHANGE = [
    packet(10, 1208, sent=True),
    packet(20, 1300, sent=False),
    packet(30, 1208, sent=True),
    packet(50, 190, sent=True),
    packet(80, 386, sent=False),
    packet(95, 40, sent=True),
    packet(99, 50, sent=False),
    packet(201, 32, sent=True),
]


def test_the_start_of_the_query_parts_the_phases_and_the_answer_ends_what_is_received() -> None:
    assert sizes(EXCHANGE) == Sizes(2416, 1300, 230, 386, 2, 1, 2, 1, 1208, 1, 0, 0, 2606, 1686)


def test_without_a_query_everything_is_handshake() -> None:
    assert sizes(EXCHANGE, None, None) == Sizes(2646, 1736, 0, 0, 4, 3, 0, 0, 1208, 1, 0, 0, 2646, 1736)


def test_early_data_has_no_handshake_packets() -> None:
    assert sizes(EXCHANGE, 0) == Sizes(0, 0, 2646, 1686, 0, 0, 4, 2, 1208, 1, 0, 0, 2606, 1686)


def test_the_first_flight_ends_with_the_first_packet_that_comes_back() -> None:
    results = sizes([packet(9, 1208, sent=True), *EXCHANGE])
    assert (results.first_flight_bytes, results.first_flight_packets) == (2416, 2)


def test_a_packet_seen_on_two_devices_counts_once() -> None:
    # Out through the bridge, then its port; in the other way round.
    ports = [replace(p, interface="port", at_ns=p.at_ns + (1 if p.sent else -1)) for p in EXCHANGE]
    assert sizes([*EXCHANGE, *ports]) == sizes(EXCHANGE)


@pytest.mark.parametrize(
    "change",
    [
        {"ip_protocol": socket.IPPROTO_TCP},
        {"source": ("10.53.0.1", 40001)},
        {"destination": ("10.53.0.2", 443)},
        {"destination": ("10.53.0.3", 853)},
    ],
)
def test_packets_of_others_do_not_count(change: dict[str, object]) -> None:
    other = replace(EXCHANGE[0], **change)  # type: ignore[arg-type]
    assert sizes([*EXCHANGE, other]) == sizes(EXCHANGE)


# Told apart by what packets carry


def segment(payload: bytes, *, sent: bool, flags: int = 0x18, sequence: int = 1, size: int | None = None) -> Packet:
    carried = {"payload": payload, "flags": flags, "sequence": sequence}
    source, destination = (CLIENT, SERVER) if sent else (SERVER, CLIENT)
    size = size or 32 + len(payload)
    return Packet(0, sent, "eth0", socket.IPPROTO_TCP, source, destination, size, 1, **carried)  # type: ignore[arg-type]


def record(kind: int, size: int) -> bytes:
    return bytes((kind, 3, 3)) + size.to_bytes(2) + bytes(size)


SYN, ACK = 0x02, 0x10
OPENED = [
    (segment(b"", sent=True, flags=SYN, sequence=2**32 - 1, size=40), 40),
    (segment(b"", sent=False, flags=SYN | ACK, sequence=8, size=40), 40),
    (segment(b"", sent=True, flags=ACK, sequence=0), 32),
]


def test_what_tls_sends_in_clear_is_the_handshake_with_the_header_of_its_packet() -> None:
    """A ServerHello in two packets, the second with the encrypted rest; the query behind the Finished."""
    hello, rest = record(22, 122), record(20, 1) + record(23, 300)
    conversation = [
        *OPENED,
        (segment(record(22, 400), sent=True, sequence=0), 32 + 405),
        (segment(hello[:100], sent=False, sequence=9), 0),
        (segment(hello[100:] + rest, sent=False, sequence=109), 32 + 127 + 6),
        (segment(hello[100:] + rest, sent=False, sequence=109), 0),  # sent again
        (segment(record(20, 1) + record(23, 69) + record(23, 60), sent=True, sequence=405), 32 + 6),
        (segment(b"", sent=False, flags=ACK, sequence=441), 0),
        (segment(record(23, 100), sent=False, sequence=441), 0),
    ]
    of_handshake = handshake_bytes.of_handshake(Protocol.DOT)
    assert [of_handshake(packet) for packet, _ in conversation] == [expected for _, expected in conversation]


def test_without_tls_only_the_opening_of_the_connection_is_the_handshake() -> None:
    of_handshake = handshake_bytes.of_handshake(Protocol.DOTCP)
    query = segment(record(22, 30), sent=True, sequence=0)
    assert [of_handshake(packet) for packet, _ in [*OPENED, (query, 0)]] == [40, 40, 32, 0]


@pytest.mark.parametrize(
    ("protocol", "first", "expected"),
    [("DoQ", 0xC3, 1208), ("DoQ", 0x43, 0), ("DoH3", 0xE0, 1208), ("DoUDP", 0xC3, 0)],
)
def test_over_quic_long_headers_tell(protocol: str, first: int, expected: int) -> None:
    datagram = replace(packet(10, 1208, sent=True), payload=bytes([first]))
    assert handshake_bytes.of_handshake(Protocol(protocol))(datagram) == expected
