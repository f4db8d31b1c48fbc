"""The router of a box: it forwards, delays, rewrites and drops packets according to the box's description.

This file is a program that imports only the standard library: `router.py CONFIG NEAR FAR`. CONFIG is a JSON file. NEAR
and FAR are the file descriptors of two inherited packet sockets. NEAR leads to the clients, FAR to the hosts. Standard
input is a control socket. Each command is a line of JSON, and its answer is `ok`. {"start": NS} sets the moment from
which the times of all scheduled events count; NS is in ns since the Unix epoch. {"flush": true} writes the rows that
the router otherwise keeps until it ends. The router appends the truth (the box's record of true values) to the file
that CONFIG names.

A packet's departure time is its kernel receive timestamp plus half the RTT of its path. If the sending host has jitter,
a random delay is added to packets towards clients.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_PR_SET_TIMERSLACK = 29
_FRAME_BYTES = 1 << 16
_AT_ONCE = 64
_ETHER = 14
_IPV4, _IPV6 = 0x0800, 0x86DD
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
_NAMES = {_TCP: "tcp", _UDP: "udp", _ICMP: "icmp", _ICMP6: "icmp"}
_CHECKSUM_AT = {_TCP: 16, _UDP: 6}
_SHORT_S, _SHARE = 1e-4, 0.99
"""A wait of at most `_SHORT_S` (s) is one call of `select`. In a longer wait, each call takes `_SHARE` of the rest.

Linux prolongs a wait of `select` by up to 0.1 %. So the router first makes most of a long wait, and then the rest.
"""
_FIRST_PORT, _PORTS = 20_000, 40_000
_CLOCK_SET_NS = 1_000_000
"""If the difference between time of day and monotonic time changes by more than this (ns), the time of day was set."""
_CLOCK_CONTROL = "/dev/crosslayer-clock"


@dataclass(slots=True)
class IpPacket:
    """An IP packet; addresses are in network byte order."""

    data: bytearray
    family: int
    """IP version: 4 or 6."""
    protocol: int
    at: int
    """Offset of the transport header, bytes."""
    source: bytes
    destination: bytes
    source_port: int = 0
    destination_port: int = 0


def parse(data: bytes) -> IpPacket | None:
    """Parse an Ethernet frame; None unless it contains a unicast IPv4 or IPv6 packet."""
    if len(data) < _ETHER + 20 or data[0] & 1:
        return None
    kind, ip = int.from_bytes(data[12:14], "big"), bytearray(data[_ETHER:])
    if kind == _IPV4:
        packet = IpPacket(ip, 4, ip[9], (ip[0] & 15) * 4, bytes(ip[12:16]), bytes(ip[16:20]))
    elif kind == _IPV6 and len(ip) >= 40:
        packet = IpPacket(ip, 6, ip[6], 40, bytes(ip[8:24]), bytes(ip[24:40]))
    else:
        return None
    if packet.protocol in _CHECKSUM_AT and len(ip) >= packet.at + 8:
        packet.source_port, packet.destination_port = struct.unpack_from("!HH", ip, packet.at)
    return packet


def rewrite(
    packet: IpPacket,
    *,
    source: bytes | None = None,
    destination: bytes | None = None,
    source_port: int | None = None,
    destination_port: int | None = None,
) -> None:
    """Change addresses and ports of a packet, and its checksums (RFC 1624)."""
    width, first = (4, 12) if packet.family == 4 else (16, 8)
    addresses = [(first, source), (first + width, destination)]
    changes = [(at, bytes(packet.data[at : at + width]), new) for at, new in addresses if new is not None]
    if packet.family == 4:
        for _, old, new in changes:
            _adjust(packet.data, 10, old, new)
    ports = [(packet.at, source_port), (packet.at + 2, destination_port)]
    changes += [(at, bytes(packet.data[at : at + 2]), new.to_bytes(2, "big")) for at, new in ports if new is not None]
    checksum = packet.at + _CHECKSUM_AT[packet.protocol] if packet.protocol in _CHECKSUM_AT else None
    if packet.protocol == _UDP and checksum is not None and packet.data[checksum : checksum + 2] == b"\0\0":
        checksum = None
    for at, old, new in changes:
        packet.data[at : at + len(new)] = new
        if checksum is not None:
            _adjust(packet.data, checksum, old, new)
    packet.source, packet.destination = source or packet.source, destination or packet.destination
    packet.source_port = packet.source_port if source_port is None else source_port
    packet.destination_port = packet.destination_port if destination_port is None else destination_port


def _adjust(data: bytearray, at: int, old: bytes, new: bytes) -> None:
    total = ~int.from_bytes(data[at : at + 2], "big") & 0xFFFF
    for offset in range(0, len(old), 2):
        total += (~int.from_bytes(old[offset : offset + 2], "big") & 0xFFFF) + int.from_bytes(
            new[offset : offset + 2], "big"
        )
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    data[at : at + 2] = (~total & 0xFFFF).to_bytes(2, "big")


def _wire(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _text(address: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


@dataclass(slots=True)
class FarEnd:
    """A host at the far end."""

    name: str
    mac: bytes
    path: list[tuple[float, float]]
    """RTT of the host's path, as pairs (t, rtt): from t seconds after the start of the events, it is rtt ms."""
    own: dict[int, bytes]
    """The host's addresses by IP version, if the host is an interceptor; else empty.

    An interceptor receives packets whose destination is another address. The router replaces that destination by one of
    these addresses.
    """
    jitter_ms: float = 0.0
    """Mean of the random delay of the host's packets towards the client, ms."""
    last_due_ns: dict[int, int] = field(default_factory=dict)
    """Departure time of the host's latest packet to each client, ns, by the client's number; empty without jitter."""
    packets: int = 0
    late_ns: list[int] = field(default_factory=list)

    def rtt_ms(self, after_s: float) -> float:
        """RTT of the host's path, ms, at a time after the start of the events, s."""
        return [rtt for at, rtt in self.path if at <= max(after_s, 0.0)][-1]


@dataclass(slots=True)
class NearEnd:
    """A client of the box."""

    number: int
    mac: bytes
    addresses: set[bytes]
    rtt_ms: float = 0.0
    """Time added to the RTT of every path that is not in `paths`, ms."""
    paths: dict[int, float] = field(default_factory=dict)
    """RTT between this client and a host, ms, by the host's number; it replaces the RTT of the host's path."""


@dataclass(slots=True)
class CompiledRule:
    """A rule for packets towards some addresses, protocols and ports; the first matching rule applies."""

    addresses: set[bytes]
    """Destination addresses; empty for all."""
    protocol: int | None
    ports: set[int]
    """Destination ports; empty for all."""
    family: int | None
    from_s: float
    until_s: float
    hosts: list[int]
    """Numbers of the hosts over which flows are distributed; if empty, packets are dropped.

    All packets of a flow go to the same host.
    """
    reason: str
    of_client: bool
    """Whether the rule applies only to packets from clients, not to packets from hosts."""

    def matches(self, packet: IpPacket, after_s: float, *, of_client: bool) -> bool:
        """Whether the rule matches a packet. `after_s` is the time after the start of the events, s.

        `of_client` is True if a client sent the packet, and False if a host sent it.
        """
        return (
            (of_client or not self.of_client)
            and (not self.addresses or packet.destination in self.addresses)
            and self.protocol in (None, packet.protocol)
            and (not self.ports or packet.destination_port in self.ports)
            and self.family in (None, packet.family)
            and self.from_s <= max(after_s, 0.0) < self.until_s
        )


@dataclass(slots=True)
class Mapping:
    """A NAT's mapping of one flow."""

    address: bytes
    port: int
    last_ns: int


class Translator:
    """The NAT: translates the first client's IPv4 addresses and ports, and forgets idle UDP flows.

    Parameters
    ----------
    outside
        The NAT's addresses in order of use.
    timeout_s
        Idle time after which a UDP flow is forgotten, s; None for never.
    drop
        Whether the client's packets of a forgotten flow are dropped; otherwise they get another port.
    """

    def __init__(self, outside: list[bytes], timeout_s: float | None, *, drop: bool) -> None:
        self._inside, self._outside = b"", outside
        self._timeout_ns = None if timeout_s is None else round(timeout_s * 1e9)
        self._drop = drop
        self._flows: dict[tuple[Any, ...], Mapping] = {}
        self._back: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._next = 0

    def renumber(self) -> None:
        """Use the NAT's next address from now on, and forget all mappings."""
        self._outside.append(self._outside.pop(0))
        self._flows.clear()
        self._back.clear()

    def out(self, packet: IpPacket, now_ns: int) -> str:
        """Translate a packet from the client; returns a reason to drop the packet, or an empty text to forward it."""
        if packet.family != 4:
            return ""
        if packet.protocol not in _CHECKSUM_AT:
            self._inside = packet.source
            rewrite(packet, source=self._outside[0])
            return ""
        key = (packet.protocol, packet.source, packet.source_port, packet.destination, packet.destination_port)
        mapping = self._flows.get(key)
        if mapping is not None and self._expired(packet, mapping, now_ns):
            if self._drop:
                return "nat-forgot"
            self._back.pop((packet.protocol, packet.destination, packet.destination_port, mapping.port), None)
            mapping = None
        if mapping is None:
            mapping = self._flows[key] = Mapping(self._outside[0], _FIRST_PORT + self._next % _PORTS, now_ns)
            self._next += 1
            self._back[packet.protocol, packet.destination, packet.destination_port, mapping.port] = key
        mapping.last_ns = now_ns
        rewrite(packet, source=mapping.address, source_port=mapping.port)
        return ""

    def back(self, packet: IpPacket, now_ns: int) -> str:
        """Translate a packet to the client; returns a reason to drop the packet, or an empty text to forward it."""
        if packet.family != 4:
            return ""
        if packet.protocol not in _CHECKSUM_AT:
            if not self._inside:
                return "nat-unknown"
            rewrite(packet, destination=self._inside)
            return ""
        key = self._back.get((packet.protocol, packet.source, packet.source_port, packet.destination_port))
        if key is None or self._flows[key].address != packet.destination:
            return "nat-unknown"
        if self._expired(packet, self._flows[key], now_ns):
            return "nat-forgot"
        self._flows[key].last_ns = now_ns
        rewrite(packet, destination=key[1], destination_port=key[2])
        return ""

    def _expired(self, packet: IpPacket, mapping: Mapping, now_ns: int) -> bool:
        return packet.protocol == _UDP and self._timeout_ns is not None and now_ns - mapping.last_ns > self._timeout_ns


class Router:
    """Forwards packets between clients and hosts, and between hosts.

    Parameters
    ----------
    config
        Configuration from `hosts.HostPlan.router`.
    near, far
        Packet sockets towards the clients and towards the hosts.
    truth
        File descriptor of the truth.
    """

    def __init__(self, config: dict[str, Any], near: socket.socket, far: socket.socket, truth: int) -> None:
        self._near, self._far, self._truth = near, far, truth
        self._mac = bytes.fromhex(config["mac"])
        client = config["client"]
        outside = [_wire(address) for address in client["outside"]]
        first = NearEnd(0, bytes.fromhex(client["mac"]), {*outside, *(_wire(one) for one in client["addresses"])})
        self._clients = [first]
        for number, one in enumerate(config["vantages"], start=1):
            paths = {int(host): rtt for host, rtt in one["paths"].items()}
            own = {_wire(address) for address in one["addresses"]}
            self._clients.append(NearEnd(number, bytes.fromhex(one["mac"]), own, one["rtt_ms"], paths))
        self._client_by_mac = {client.mac: client for client in self._clients}
        self._client_at = {address: client for client in self._clients for address in client.addresses}
        self._hosts = [
            FarEnd(
                host["name"],
                bytes.fromhex(host["mac"]),
                [(at, rtt) for at, rtt in host["path"]],
                {(6 if ":" in address else 4): _wire(address) for address in host["own"]},
                host["jitter_ms"],
            )
            for host in config["hosts"]
        ]
        self._by_mac = {host.mac: number for number, host in enumerate(self._hosts)}
        self._rules = [
            CompiledRule(
                {_wire(address) for address in rule["addresses"]},
                {"tcp": _TCP, "udp": _UDP, "": None}[rule["protocol"]],
                set(rule["ports"]),
                rule["family"],
                rule["from_s"],
                float("inf") if rule["until_s"] is None else rule["until_s"],
                rule["hosts"],
                rule["reason"],
                rule["of_client"],
            )
            for rule in config["rules"]
        ]
        nat = config["nat"]
        self._nat = nat and Translator(outside, nat["udp_timeout_s"], drop=nat["drop"])
        self._renumber_s = sorted(nat["address_changes_s"]) if nat else []
        self._clock_steps = [(at_s, by_s) for at_s, by_s in config["clock_steps"]]
        self._boot_ns = _time_of_boot_ns()
        self._rewritten: dict[tuple[Any, ...], bytes] = {}
        self._seed = config["seed"]
        self._random = random.Random(self._seed)
        self._keep_packets = config["packets"]
        self._rows: list[dict[str, Any]] = []
        self._start_ns: int | None = None
        self._waiting: list[tuple[int, int, socket.socket, bytes, FarEnd, dict[str, Any] | None]] = []
        self._number = 0

    def run(self, control: socket.socket) -> None:
        """Forward packets and execute commands until the other end closes the control socket."""
        commands = b""
        while True:
            wait_s = max(0, self._waiting[0][0] - self._now_ns()) / 1e9 if self._waiting else None
            if wait_s is not None and wait_s > _SHORT_S:
                wait_s *= _SHARE
            ready, _, _ = select.select([self._near, self._far, control], [], [], wait_s)
            self._send_due()
            for end in (self._near, self._far):
                if end in ready:
                    self._receive(end)
            if control in ready:
                if not (part := control.recv(1 << 16)):
                    self.flush()
                    return
                *lines, commands = (commands + part).split(b"\n")
                for line in lines:
                    command = json.loads(line)
                    if "start" in command:
                        self._start_ns = command["start"]
                    else:
                        self.flush()
                    control.sendall(b"ok\n")

    def flush(self) -> None:
        """Write the rows of packets that are kept in memory, and for each host a row about the lateness of its packets.

        The lateness of a packet is the time from its due time to its departure.
        """
        for row in self._rows:
            self._write(row)
        self._rows = []
        for host in self._hosts:
            late = sorted(host.late_ns)
            if late:
                quantiles = {f"late_{name}_ms": late[int(share * (len(late) - 1))] / 1e6 for name, share in _QUANTILES}
                self._write({"event": "path", "host": host.name, "packets": len(late), **quantiles})
            host.late_ns = []

    def _now_ns(self) -> int:
        """Time of day, ns, as if the clock had not been set since the start of the router."""
        return time.time_ns() + self._not_set_ns()

    def _not_set_ns(self) -> int:
        """Time to add to the time of day, ns, to undo the steps of the clock since the start of the router."""
        set_ns = _time_of_boot_ns() - self._boot_ns
        return -set_ns if abs(set_ns) > _CLOCK_SET_NS else 0

    def _send_due(self) -> None:
        while self._waiting and self._waiting[0][0] <= (now := self._now_ns()):
            due, _, out, frame, host, row = heapq.heappop(self._waiting)
            with contextlib.suppress(BlockingIOError):  # a full device drops the packet
                out.send(frame)
            host.late_ns.append(now - due)
            if row is not None:
                row["left_ns"] = now

    def _receive(self, end: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                frame, ancillary, _flags, _sender = end.recvmsg(_FRAME_BYTES, 64)
            except BlockingIOError:
                return
            came_ns = time.time_ns()
            for level, kind, value in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                    seconds, nanoseconds = _TIMESPEC.unpack(value)
                    came_ns = seconds * 1_000_000_000 + nanoseconds
            came_ns += self._not_set_ns()
            packet = parse(frame)
            if packet is not None:
                client = self._client_by_mac.get(frame[6:12]) if end is self._near else None
                self._forward(packet, came_ns, client, None if end is self._near else self._by_mac.get(frame[6:12]))

    def _forward(self, packet: IpPacket, came_ns: int, client: NearEnd | None, sender: int | None) -> None:
        """Execute the scheduled events that are due, then forward a packet of `client` or of host number `sender`."""
        after_s = -1.0 if self._start_ns is None else (came_ns - self._start_ns) / 1e9
        while self._nat and self._renumber_s and self._renumber_s[0] <= after_s:
            self._renumber_s.pop(0)
            self._nat.renumber()
            self._write({"event": "address-change", "time_ns": came_ns})
        while self._clock_steps and self._clock_steps[0][0] <= after_s:
            _, by_s = self._clock_steps.pop(0)
            self._write({"event": "clock-step", "time_ns": came_ns, "by_s": by_s})
            Path(_CLOCK_CONTROL).write_text(f"{round(by_s * 1e9)}\n", encoding="ascii")
        if sender is not None and (receiver := self._client_at.get(packet.destination)) is not None:
            self._to_client(packet, came_ns, after_s, sender, receiver)
        else:
            self._to_host(packet, came_ns, after_s, client, sender)

    def _rtt_ms(self, client: NearEnd | None, host: int, after_s: float) -> float:
        """RTT between a client and a host, ms.

        For packets between hosts, `client` is None, and the result is the RTT of the path of `host`.
        """
        if client is None:
            return self._hosts[host].rtt_ms(after_s)
        if host in client.paths:
            return client.paths[host]
        return self._hosts[host].rtt_ms(after_s) + client.rtt_ms

    def _to_client(self, packet: IpPacket, came_ns: int, after_s: float, sender: int, client: NearEnd) -> None:
        host = self._hosts[sender]
        back = (host.mac, packet.protocol, packet.source, packet.source_port, packet.destination_port)
        if (original := self._rewritten.get(back)) is not None:
            rewrite(packet, source=original)
        reason = self._nat.back(packet, came_ns) if self._nat and client is self._clients[0] else ""
        row = self._row(packet, came_ns, "down", host.name, reason)
        if not reason:
            due_ns = came_ns + round(self._rtt_ms(client, sender, after_s) * 5e5)
            if host.jitter_ms:
                due_ns += round(self._random.expovariate(1 / host.jitter_ms) * 1e6)
                due_ns = max(due_ns, host.last_due_ns.get(client.number, 0))
                host.last_due_ns[client.number] = due_ns
            self._queue(self._near, client.mac, packet, due_ns, host, row)

    def _to_host(
        self, packet: IpPacket, came_ns: int, after_s: float, client: NearEnd | None, sender: int | None
    ) -> None:
        reason, receiver, number = "no-route", None, -1
        for rule in self._rules:
            if rule.matches(packet, after_s, of_client=sender is None):
                reason = rule.reason
                if rule.hosts:
                    flow = struct.pack(
                        f"!I{len(packet.source)}s{len(packet.destination)}sBHH",
                        self._seed, packet.source, packet.destination, packet.protocol, packet.source_port,
                        packet.destination_port,
                    )  # fmt: skip
                    number = rule.hosts[zlib.crc32(flow) % len(rule.hosts)]
                    receiver = self._hosts[number]
                break
        if receiver is not None:
            reason = self._nat.out(packet, came_ns) if self._nat and client is self._clients[0] else ""
        row = self._row(
            packet, came_ns, "up" if sender is None else "across", receiver.name if receiver else "", reason
        )
        if reason or receiver is None:
            return
        own = receiver.own.get(packet.family)
        if own is not None and own != packet.destination:
            back = (receiver.mac, packet.protocol, own, packet.destination_port, packet.source_port)
            self._rewritten[back] = packet.destination
            rewrite(packet, destination=own)
        # Between two hosts, the path is that of the authoritative server, which is either sender or receiver.
        if sender is not None and self._hosts[sender].name == "authority":
            number = sender
        due_ns = came_ns + round(self._rtt_ms(client, number, after_s) * 5e5)
        self._queue(self._far, receiver.mac, packet, due_ns, receiver, row)

    def _queue(
        self, out: socket.socket, mac: bytes, packet: IpPacket, at_ns: int, host: FarEnd, row: dict[str, Any] | None
    ) -> None:
        kind = (_IPV4 if packet.family == 4 else _IPV6).to_bytes(2, "big")
        self._number += 1
        heapq.heappush(self._waiting, (at_ns, self._number, out, mac + self._mac + kind + packet.data, host, row))

    def _row(self, packet: IpPacket, came_ns: int, way: str, host: str, reason: str) -> dict[str, Any] | None:
        """Make the row of the truth for a packet.

        If `reason` is not empty, the packet is dropped, and this method writes the row at once. Returns the row of a
        forwarded packet if the box keeps such rows, else None.
        """
        if not reason and not self._keep_packets:
            return None
        row = {
            "event": "drop" if reason else "packet",
            "time_ns": came_ns,
            "way": way,
            "host": host,
            "protocol": _NAMES.get(packet.protocol, str(packet.protocol)),
            "source": _text(packet.source),
            "source_port": packet.source_port,
            "destination": _text(packet.destination),
            "destination_port": packet.destination_port,
            "bytes": len(packet.data),
            **({"reason": reason} if reason else {}),
        }
        if reason:
            self._write(row)
            return None
        self._rows.append(row)
        return row

    def _write(self, row: dict[str, Any]) -> None:
        os.write(self._truth, json.dumps(row).encode() + b"\n")


def _time_of_boot_ns() -> int:
    return time.time_ns() - time.monotonic_ns()


_QUANTILES = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))


if __name__ == "__main__":
    gc.disable()
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)
    configuration = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    near_end, far_end = (socket.socket(fileno=int(word)) for word in sys.argv[2:])
    for one in (near_end, far_end):
        one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        one.setblocking(False)
    output = os.open(configuration["truth"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    Router(configuration, near_end, far_end, output).run(socket.socket(fileno=0))
