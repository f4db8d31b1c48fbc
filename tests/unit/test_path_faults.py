"""The notation of a path's faults, what the middlebox does with frames, and attempts read from packets."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from crosslayer.campaign.attempts import read_attempts
from crosslayer.decode import FieldError
from crosslayer.links import LinkError, load_profiles, varied
from crosslayer.packets import Frame
from crosslayer.path_faults import parse_fault
from crosslayer.testbed.fault_check import _hello, _quic
from crosslayer.testbed.middlebox import PacketFilter, hello_with_ech

CLIENT, HOST, RESOLVER = "10.53.0.1", "10.53.1.1", "10.53.0.2"
NAME = "www.example.org"


def frame(protocol: int, transport: bytes, *, sent: bool = True, host: str = HOST) -> bytes:
    """An Ethernet frame with an IPv4 packet between the client and a host."""
    source, destination = (CLIENT, host) if sent else (host, CLIENT)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(transport), 0, 0, 64, protocol, 0)
    return bytes(12) + b"\x08\x00" + ip + socket.inet_aton(source) + socket.inet_aton(destination) + transport


def udp(local: int, remote: int, payload: bytes, *, sent: bool = True, host: str = HOST) -> bytes:
    ports = (local, remote) if sent else (remote, local)
    return frame(17, struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload, sent=sent, host=host)


def tcp(local: int, remote: int, flags: int, payload: bytes = b"", *, sent: bool = True, sequence: int = 1) -> bytes:
    ports = (local, remote) if sent else (remote, local)
    return frame(6, struct.pack("!HHIIBBHHH", *ports, sequence, 7, 5 << 4, flags, 0, 0, 0) + payload, sent=sent)


def box(*texts: str, addresses: tuple[str, ...] = ()) -> PacketFilter:
    middlebox = PacketFilter()
    middlebox.execute({"rules": [parse_fault(text).command(addresses) for text in texts], "begin": 0})
    return middlebox


def passes(middlebox: PacketFilter, data: bytes, *, now_ns: int = 1) -> bool:
    return middlebox.decide(data, to_server=True, now_ns=now_ns)[0]


@pytest.mark.parametrize(
    "text",
    [
        "drop udp/443",
        "reject syn/443",
        "truncate udp/53",
        "drop quic-initial:1250@2s",
        "drop quic-version:0x6b3343cf",
        "drop quic-0rtt",
        "drop ech",
        "reject ech:public.example@0.5s",
        "drop ipv6",
        "reject ipv6@2s",
    ],
)
def test_the_notation_of_a_fault_is_kept(text: str) -> None:
    assert str(parse_fault(text)) == text


@pytest.mark.parametrize(
    "text", ["drop", "drop udp", "drop udp/0", "drop udp/70000", "lose udp/443", "truncate udp/54"]
)
def test_what_is_no_fault_is_refused_with_the_key(text: str) -> None:
    with pytest.raises(FieldError):
        parse_fault(text)


def test_a_link_with_a_fault_is_named_by_it() -> None:
    link = varied(load_profiles()["4g"], faults=["drop udp/443"])
    assert (link.name, link.faults, link.shaped) == ("4g+drop udp/443", ("drop udp/443",), True)
    with pytest.raises(LinkError, match="not a fault of a path"):
        varied(load_profiles()["4g"], faults=["drop everything"])


def test_a_link_with_a_trace_has_no_faults() -> None:
    with pytest.raises(LinkError, match="cannot be set together with a trace"):
        varied(load_profiles()["leo"], faults=["drop udp/443"])


def test_initials_are_selected_by_the_size_of_their_datagram() -> None:
    middlebox = box("drop quic-initial:1200")
    assert not passes(middlebox, udp(5000, 443, _quic(0, 1, 1200)))
    assert passes(middlebox, udp(5000, 443, _quic(0, 1, 1199)))
    assert passes(middlebox, udp(5000, 443, _quic(2, 1, 1200)))
    assert middlebox.execute({"count": True}) == [1]


def test_types_of_version_2_are_other_numbers() -> None:
    initial, early = 1, 2  # RFC 9369, section 3.2
    assert not passes(box("drop quic-initial"), udp(5000, 443, _quic(initial, 0x6B3343CF, 1200)))
    assert not passes(box("drop quic-0rtt"), udp(5000, 443, _quic(early, 0x6B3343CF, 64)))


def test_a_fault_begins_at_its_moment_and_concerns_its_addresses() -> None:
    data = udp(5000, 443, b"data")
    assert passes(box("drop udp/443@2s"), data, now_ns=1_999_999_999)
    assert not passes(box("drop udp/443@2s"), data, now_ns=2_000_000_000)
    assert passes(box("drop udp/443", addresses=(RESOLVER,)), data)


def test_a_rejected_datagram_is_answered_by_icmp_that_quotes_it() -> None:
    data = udp(5000, 443, b"data")
    _, answer = box("reject udp/443").decide(data, to_server=True, now_ns=1)
    assert answer is not None
    assert (answer[23], tuple(answer[34:36])) == (socket.IPPROTO_ICMP, (3, 3))
    assert answer[42:70] == data[14:42]


CLIENT6, HOST6 = "2001:db8:53::1", "2001:db8:53:1::1"


def frame6(protocol: int, transport: bytes, *, sent: bool = True) -> bytes:
    """An Ethernet frame with an IPv6 packet between the client and a host."""
    source, destination = (CLIENT6, HOST6) if sent else (HOST6, CLIENT6)
    ip = struct.pack("!IHBB", 6 << 28, len(transport), protocol, 64)
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    return bytes(range(12)) + b"\x86\xdd" + ip + addresses + transport


UDP6 = frame6(17, struct.pack("!HHHH", 5000, 443, 12, 0) + b"data")
SYN6 = frame6(6, struct.pack("!HHIIBBHHH", 5000, 443, 9, 0, 5 << 4, 0x02, 0, 0, 0))


def folded(data: bytes) -> int:
    """Sum of the 16-bit words of data in ones' complement: 0xffff over data with its own checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data + bytes(len(data) % 2)))
    return (total & 0xFFFF) + (total >> 16)


def test_ipv6_is_blocked_and_ipv4_passes() -> None:
    middlebox = box("drop ipv6")
    assert not passes(middlebox, UDP6)
    assert not passes(middlebox, SYN6)
    assert passes(middlebox, udp(5000, 443, b"data"))
    assert middlebox.execute({"count": True}) == [2]


def test_a_fault_of_a_port_concerns_both_families() -> None:
    assert not passes(box("drop udp/443"), UDP6)
    assert passes(box("drop udp/443"), SYN6)
    assert not passes(box("drop syn/443"), SYN6)
    assert passes(box("drop udp/443", addresses=(HOST,)), UDP6)
    assert not passes(box("drop udp/443", addresses=(HOST6,)), UDP6)


@pytest.mark.parametrize(("text", "code"), [("reject udp/443", 4), ("reject ipv6", 0)])
def test_a_rejected_ipv6_datagram_is_answered_by_icmpv6_that_quotes_it(text: str, code: int) -> None:
    _, answer = box(text).decide(UDP6, to_server=True, now_ns=1)
    assert answer is not None
    assert (answer[:12], answer[20], tuple(answer[54:56])) == (UDP6[6:12] + UDP6[:6], socket.IPPROTO_ICMPV6, (1, code))
    assert (answer[22:38], answer[38:54]) == (UDP6[38:54], UDP6[22:38])
    assert answer[62:] == UDP6[14:]
    assert folded(answer[22:54] + struct.pack("!I3xB", len(answer) - 54, 58) + answer[54:]) == 0xFFFF


def test_a_rejected_ipv6_connect_is_answered_by_a_reset() -> None:
    _, answer = box("reject syn/443").decide(SYN6, to_server=True, now_ns=1)
    assert answer is not None
    assert struct.unpack_from("!HHIIBB", answer, 54) == (443, 5000, 0, 10, 5 << 4, 0x14)
    assert folded(answer[22:54] + struct.pack("!I3xB", len(answer) - 54, 6) + answer[54:]) == 0xFFFF


ECHO6 = frame6(58, b"\x80" + bytes(7))


@pytest.mark.parametrize("data", [ECHO6, frame6(0, bytes(16)), frame6(59, b"")])
def test_ipv6_means_every_ipv6_packet_and_other_faults_leave_them_alone(data: bytes) -> None:
    assert not passes(box("drop ipv6"), data)
    assert passes(box("drop udp/443", "drop tcp/443", "drop syn/443", "drop quic-initial", "drop ech"), data)


def test_an_icmpv6_error_is_not_answered_by_another() -> None:
    _, answer = box("reject ipv6").decide(ECHO6, to_server=True, now_ns=1)
    assert answer is not None
    assert tuple(answer[54:56]) == (1, 0)
    assert box("reject ipv6").decide(frame6(58, b"\x01" + bytes(7)), to_server=True, now_ns=1) == (False, None)


@pytest.mark.parametrize("data", [UDP6[:50], UDP6[:12] + b"\x08\x06", frame(1, bytes(8))])
def test_other_frames_pass(data: bytes) -> None:
    assert passes(box("drop ipv6", "drop udp/443"), data)


@pytest.mark.parametrize("cut", [1, 40, 80])
def test_a_hello_with_ech_in_two_segments_is_detected(cut: int) -> None:
    hello = _hello("public.example", ech=True)
    middlebox = box("drop ech:public.example")
    assert passes(middlebox, tcp(5000, 443, 0x02, sequence=99))
    assert passes(middlebox, tcp(5000, 443, 0x18, hello[:cut], sequence=100))
    assert not passes(middlebox, tcp(5000, 443, 0x18, hello[cut:], sequence=100 + cut))
    assert not passes(middlebox, tcp(5000, 443, 0x18, hello[:cut], sequence=100))  # a retransmission


def test_a_hello_without_ech_or_of_another_name_passes() -> None:
    assert hello_with_ech(_hello("public.example", ech=False)) is None
    middlebox = box("drop ech:public.example")
    passes(middlebox, tcp(5000, 443, 0x02, sequence=99))
    assert passes(middlebox, tcp(5000, 443, 0x18, _hello("other.example", ech=True), sequence=100))


def test_a_malformed_hello_passes() -> None:
    """Bytes from any client arrive here: an exception would end the middlebox, and so the link."""
    hello = _hello("public.example", ech=True)
    assert hello_with_ech(b"\x16\x03\x01\x00\x04\x01\x00\x00\x00") is None  # a ClientHello without a body
    for at in range(9, len(hello)):
        hello_with_ech(hello[:at] + b"\xff\xff" + hello[at + 2 :])
        record = hello[:3] + struct.pack("!H", at - 5) + b"\x01" + (at - 9).to_bytes(3, "big") + hello[9:at]
        hello_with_ech(record)


def test_attempts_over_ipv6_are_refused_by_icmpv6() -> None:
    refusal = frame6(58, bytes([1, 0]) + bytes(6) + UDP6[14:], sent=False)
    frames = [Frame(1, "eth0", True, UDP6, len(UDP6)), Frame(2, "eth0", False, refusal, len(refusal))]
    (attempt,) = read_attempts(iter(frames), [HOST, HOST6], RESOLVER, NAME)
    assert (attempt.kind, attempt.address, attempt.family, attempt.refused_ns) == ("quic", HOST6, 6, 2)


def test_attempts_are_read_with_their_repeats_and_answers() -> None:
    query = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\x03www\x07Example\x03org\0" + struct.pack("!HH", 65, 1)
    other = query.replace(b"www", b"api")
    icmp = bytes([3, 3]) + bytes(6) + udp(6000, 443, b"initial")[14:42]

    def frames() -> Iterator[Frame]:
        at = 0
        for data, sent in (
            (udp(5001, 53, other, host=RESOLVER), True),
            (udp(5000, 53, query, host=RESOLVER), True),
            (udp(5000, 53, query, sent=False, host=RESOLVER), False),
            (udp(6000, 443, b"initial"), True),
            (udp(6000, 443, b"initial"), True),
            (frame(1, icmp, sent=False), False),
            (tcp(7000, 443, 0x02), True),
            (tcp(7000, 443, 0x02), True),
            (tcp(7000, 443, 0x12, sent=False), False),
            (tcp(7000, 443, 0x10), True),
            (udp(8000, 443, b"elsewhere", host="10.53.1.2"), True),
        ):
            at += 1_000_000
            yield Frame(at, "eth0", sent, data, len(data))

    lookup, quic, connect = read_attempts(frames(), [HOST], RESOLVER, NAME)
    assert (lookup.kind, lookup.sent_ns, lookup.answered_ns) == ("HTTPS", [2_000_000], 3_000_000)
    assert (quic.kind, quic.sent_ns, quic.answered_ns, quic.refused_ns) == (
        "quic",
        [4_000_000, 5_000_000],
        None,
        6_000_000,
    )
    assert (connect.kind, connect.sent_ns, connect.answered_ns) == ("tcp", [7_000_000, 8_000_000], 9_000_000)
