"""The description of a box, its plan, and its router without a network."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from crosslayer.box.description import load_box
from crosslayer.box.errors import BoxError
from crosslayer.box.hosts import plan
from crosslayer.box.listing import listing
from crosslayer.box.router import IpPacket, Translator, parse, rewrite

BOXES = Path(__file__).parents[2] / "emulation/boxes"
TCP, UDP = 6, 17


def load(text: str, folder: Path) -> None:
    box = folder / "box.toml"
    box.write_text(text, encoding="utf-8")
    load_box(box)


RESOLVER = '[[resolver]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "key 'resolver'", "is missing"),
        ("resolver = []", "key 'resolver'", "length of at least 1"),
        ('[[resolver]]\nname = "A b"', "key 'resolver[0].name'", "must be of the form"),
        (RESOLVER + "rtt_ms = -1", "key 'resolver[0].rtt_ms'", "must not be negative"),
        (RESOLVER + "rtt_ms = 1e9", "key 'resolver[0].rtt_ms'", "must be at most 2000"),
        (RESOLVER + "rtt = 1", "key 'resolver[0].rtt'", "Did you mean 'rtt_ms'?"),
        (RESOLVER + RESOLVER, "key 'resolver'", "has 'a' twice"),
        ('[[resolver]]\nname = "authority"', "key 'resolver'", "a name of the box itself"),
        (RESOLVER + 'make = "bind9"\ntransports = ["doq"]', "key 'resolver[0].transports'", "bind9 does not speak"),
        (RESOLVER + 'make = "bind9"\ncaches = 2', "key 'resolver[0].caches'", "needs make"),
        (RESOLVER + 'make = "bind9"\nipv6 = true', "key 'resolver[0].ipv6'", "needs make"),
        (RESOLVER + 'make = "powerdns"', "key 'resolver[0].make'", "is 'powerdns'"),
        (RESOLVER + 'route = [{ site = "x" }]', "key 'resolver[0].route[0].site'", "which is no site"),
        (
            RESOLVER + 'site = [{ name = "x", rtt_ms = 1 }, { name = "x", rtt_ms = 2 }]',
            "key 'resolver[0].site'",
            "twice",
        ),
        (RESOLVER + 'caches = 2\nsite = [{ name = "x", rtt_ms = 1 }]', "key 'resolver[0].caches'", "excludes site"),
        (
            RESOLVER + 'path_change = [{ at_s = 1, rtt_ms = 2 }]\nsite = [{ name = "x", rtt_ms = 1 }]',
            "key 'resolver[0].path_change'",
            "excludes site",
        ),
        (RESOLVER + "rate_limit = { queries_per_s = 0.5 }", "queries_per_s", "must be at least 1"),
        ('system_resolver = "b"\n' + RESOLVER, "key 'system_resolver'", "which is no resolver"),
        (RESOLVER + '[network]\nblocked = ["icmp"]', "key 'network.blocked", "must be of the form"),
        (RESOLVER + '[network]\nblocked = ["udp/70000"]', "key 'network.blocked", "70000"),
        (
            RESOLVER + '[[network.interception]]\ntransports = ["dot"]\nresolvers = ["b"]',
            "key 'network.interception[0].resolvers'",
            "which is no resolver",
        ),
        (RESOLVER + '[zone]\nname = "x"', "key 'zone.name'", "must be of the form"),
        ('[[origin]]\nname = "a.example"\nrtt_ms = 1\n' * 201 + RESOLVER, "key 'resolver'", "need 202 hosts"),
        ("resolver = [", "box.toml", "is not TOML"),
    ],
)
def test_a_wrong_box_is_refused_by_file_and_key(text: str, where: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BoxError) as error:
        load(text, tmp_path)
    assert "box.toml" in error.value.where
    assert where in error.value.where
    assert what in str(error.value)
    assert error.value.next_step


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BoxError, match="cannot be read"):
        load_box(tmp_path / "none.toml")


@pytest.mark.parametrize("box", sorted(BOXES.glob("*.toml")), ids=lambda box: box.stem)
def test_every_committed_box_can_be_planned(box: Path) -> None:
    description = load_box(box)
    planned = plan(description)
    addresses = [address for own in planned.addresses.values() for address in own]
    assert len(set(addresses)) == len(addresses)
    covered = {address for rule in planned.rules for address in rule.addresses}
    assert covered >= set(addresses)
    assert all(resolver.name in listing(description) for resolver in description.resolver)


def packet(protocol: int, payload: bytes, source: str, destination: str, ports: tuple[int, int]) -> IpPacket:
    """A whole packet with correct checksums, parsed from its frame."""
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    ends = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
    if protocol == UDP:
        segment = bytearray(struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload)
        at = 6
    else:
        segment = bytearray(struct.pack("!HHIIBBHHH", *ports, 1, 2, 0x50, 0x18, 1000, 0, 0) + payload)
        at = 16
    pseudo = ends + struct.pack("!IHH", len(segment), 0, protocol)
    segment[at : at + 2] = checksum(pseudo + segment).to_bytes(2, "big")
    if family == socket.AF_INET:
        head = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 7, 0, 64, protocol, 0) + ends)
        head[10:12] = checksum(head).to_bytes(2, "big")
        frame = bytes(12) + b"\x08\x00" + head + segment
    else:
        frame = bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(segment), protocol, 64) + ends + segment
    parsed = parse(bytes(frame))
    assert parsed is not None
    return parsed


def checksum(data: bytes | bytearray) -> int:
    """Internet checksum (RFC 1071); 0 over data that contains a correct one."""
    data = bytes(data) + b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def correct(one: IpPacket) -> bool:
    """Whether every checksum of a packet is correct."""
    segment = one.data[one.at :]
    pseudo = one.source + one.destination + struct.pack("!IHH", len(segment), 0, one.protocol)
    return checksum(pseudo + segment) == 0 and (one.family == 6 or checksum(one.data[: one.at]) == 0)


@pytest.mark.parametrize("protocol", [TCP, UDP])
@pytest.mark.parametrize("ends", [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")])
def test_rewritten_packets_have_correct_checksums(protocol: int, ends: tuple[str, str]) -> None:
    for number in range(200):
        one = packet(protocol, bytes(range(number % 50)), *ends, (1000 + number * 300, 53))
        assert correct(one)
        other = socket.inet_pton(socket.AF_INET6 if one.family == 6 else socket.AF_INET, ends[1])
        rewrite(one, source=other, source_port=number * 257 % 65536, destination_port=853)
        assert one.source == other
        assert struct.unpack_from("!HH", one.data, one.at) == (number * 257 % 65536, 853)
        assert correct(one)


def test_a_udp_packet_without_checksum_keeps_none() -> None:
    one = packet(UDP, b"abc", "192.0.2.1", "192.0.2.2", (1, 2))
    one.data[one.at + 6 : one.at + 8] = b"\0\0"
    rewrite(one, source_port=9)
    assert one.data[one.at + 6 : one.at + 8] == b"\0\0"


def test_what_is_no_unicast_ip_packet_is_ignored() -> None:
    assert parse(b"short") is None
    assert parse(bytes(12) + b"\x08\x06" + bytes(40)) is None
    assert parse(b"\x33\x33" + bytes(10) + b"\x86\xdd" + bytes(60)) is None
    assert parse(bytes(12) + b"\x86\xdd" + bytes(20)) is None


CLIENT, OUTSIDE, SECOND, SERVER = (socket.inet_aton(f"192.0.2.{number}") for number in range(1, 5))


def out(nat: Translator, at_s: float, protocol: int = UDP, port: int = 4000) -> tuple[str, bytes, int]:
    one = packet(protocol, b"q", "192.0.2.1", "192.0.2.4", (port, 53))
    reason = nat.out(one, round(at_s * 1e9))
    return reason, one.source, one.source_port


def back(nat: Translator, at_s: float, to: tuple[bytes, int], protocol: int = UDP) -> tuple[str, bytes, int]:
    one = packet(protocol, b"r", "192.0.2.4", socket.inet_ntoa(to[0]), (53, to[1]))
    reason = nat.back(one, round(at_s * 1e9))
    return reason, one.destination, one.destination_port


@pytest.mark.parametrize("drop", [False, True])
def test_a_nat_forgets_idle_udp_flows_and_no_others(drop: bool) -> None:
    nat = Translator([OUTSIDE, SECOND], 30, drop=drop)
    _, address, port = out(nat, 0)
    assert address == OUTSIDE
    assert back(nat, 29, (address, port)) == ("", CLIENT, 4000)
    assert out(nat, 58) == ("", OUTSIDE, port)  # the answer counted as use
    assert back(nat, 89, (address, port))[0] == "nat-forgot"
    reason, _, later = out(nat, 90)
    assert reason == ("nat-forgot" if drop else "")
    assert later == (4000 if drop else port + 1)
    _, _, tcp = out(nat, 0, TCP)
    assert back(nat, 1000, (OUTSIDE, tcp), TCP) == ("", CLIENT, 4000)


def test_a_nat_has_a_flow_for_each_inside_address() -> None:
    nat = Translator([OUTSIDE], None, drop=False)
    _, _, first = out(nat, 0)
    other = packet(UDP, b"q", "192.0.2.9", "192.0.2.4", (4000, 53))
    assert nat.out(other, 0) == ""
    assert other.source_port != first
    assert back(nat, 1, (OUTSIDE, first)) == ("", CLIENT, 4000)
    assert back(nat, 1, (OUTSIDE, other.source_port))[1] == socket.inet_aton("192.0.2.9")


def test_a_nat_lets_nothing_in_that_was_not_asked_for() -> None:
    nat = Translator([OUTSIDE, SECOND], None, drop=False)
    assert back(nat, 0, (OUTSIDE, 20_000))[0] == "nat-unknown"
    _, address, port = out(nat, 0)
    nat.renumber()
    assert back(nat, 1, (address, port))[0] == "nat-unknown"
    assert out(nat, 2)[1] == SECOND
