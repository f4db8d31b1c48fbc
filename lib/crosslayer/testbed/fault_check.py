"""Verification of a path's faults: each fault blocks the packets that it must block, and no similar packets."""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from crosslayer.packets import Ring
from crosslayer.path_faults import PathFault
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.backends import Middlebox

PROBES = 5
"""Number of packets that a check sends to test that a fault blocks them.

The check also sends the same number of similar packets, which the fault must not block.
"""
_RING_FRAMES = 512
_WAIT_S = 0.1
_LATER_NS = 3_600_000_000_000
_OTHER_PORT_OFFSET = 1
_OTHER_VERSION = 0x1A2A3A4A
_ETHERNET_BYTES, _IP_BYTES, _IPV6_BYTES = 14, 20, 40
_ETHERTYPE_IPV4, _ETHERTYPE_IPV6 = b"\x08\x00", b"\x86\xdd"
_IPV6_RECVERR = 25  # from <linux/in6.h>; without it the kernel reports no ICMPv6 errors of UDP sockets
_REFUSED = (errno.ECONNREFUSED, errno.ECONNRESET, errno.ENETUNREACH, errno.EHOSTUNREACH)


@dataclass(frozen=True, slots=True)
class _Probe:
    """A packet to send."""

    transport: str
    """Kind of the packet: `udp`, `syn` (TCP) or `hello` (TLS ClientHello)."""
    port: int
    payload: bytes = b""
    address: str = ""
    """Destination; empty for the address given to `verify`."""


@dataclass(frozen=True, slots=True)
class FaultCounts:
    """Result of a check of faults."""

    probes: int
    """Number of probes sent that a fault must block."""
    passed: int
    """Number of these probes that crossed the link."""
    deviations: tuple[str, ...]
    """Differences between the faults that were set and the path's behaviour; empty if there are none."""


def verify(
    middlebox: Middlebox,
    faults: Sequence[PathFault],
    rtt_ms: float,
    address: str = network.SERVER_ADDRESS,
    addresses: Sequence[str] = (),
) -> FaultCounts:
    """Set and verify each fault alone, by probes through the middlebox; at the end, set all faults together.

    Parameters
    ----------
    rtt_ms
        RTT of the link.
    address
        Address at the server's end to which probes are sent, IPv4 or IPv6.
    addresses
        Addresses to which the faults are restricted; none for no restriction.
    """
    sent = passed = 0
    deviations: list[str] = []
    for fault in faults:
        middlebox.block([fault], addresses)
        middlebox.begin(time.time_ns() - round(fault.after_s * 1e9) - 1)
        blocked, others = _probes(fault, addresses)
        crossed, rejected = _send(blocked, address, rtt_ms)
        sent, passed = sent + PROBES, passed + crossed
        if crossed:
            deviations.append(f"{fault}: {crossed} of {PROBES} packets passed")
        if (fault.action == "drop") is bool(rejected):
            deviations.append(f"{fault}: {rejected} of {PROBES} packets were answered by the path")
        crossed, _ = _send(others, address, rtt_ms)
        if crossed < PROBES:
            deviations.append(f"{fault}: {PROBES - crossed} of {PROBES} other packets did not pass")
        if fault.after_s:
            middlebox.begin(time.time_ns() + _LATER_NS)
            crossed, _ = _send(blocked, address, rtt_ms)
            if crossed < PROBES:
                deviations.append(f"{fault}: {PROBES - crossed} of {PROBES} packets did not pass before its moment")
    middlebox.block(faults, addresses)
    return FaultCounts(sent, passed, tuple(deviations))


def _probes(fault: PathFault, addresses: Sequence[str]) -> tuple[_Probe, _Probe]:
    """A packet that a fault must block, and a similar one that it must not block; `addresses` as in `verify`."""
    port = fault.port or 443
    match fault.selector:
        case "udp":
            query = struct.pack("!HHHHHH", 1, 0x0100, 1, 0, 0, 0) + b"\0" + struct.pack("!HH", 1, 1)
            return _Probe("udp", port, query), _Probe("udp", port + _OTHER_PORT_OFFSET, query)
        case "tcp" | "syn":
            return _Probe("syn", port), _Probe("syn", port + _OTHER_PORT_OFFSET)
        case "quic-initial":
            size = max(fault.least_bytes, 64)
            other = _quic(0, 1, size - 1) if fault.least_bytes else _quic(2, 1, size)
            return _Probe("udp", port, _quic(0, 1, size)), _Probe("udp", port, other)
        case "quic-0rtt":
            return _Probe("udp", port, _quic(1, 1, 64)), _Probe("udp", port, _quic(0, 1, 64))
        case "quic-version":
            assert fault.version is not None
            blocked = _quic(0, fault.version, 64)
            return _Probe("udp", port, blocked), _Probe("udp", port, _quic(0, _OTHER_VERSION, 64))
        case "ipv6":
            six = next((address for address in addresses if ":" in address), network.SERVER_ADDRESS6)
            return _Probe("udp", port, bytes(64), six), _Probe("udp", port, bytes(64), network.SERVER_ADDRESS)
        case "ech":
            name = fault.name or "public.example"
            return _Probe("hello", 0, _hello(name, ech=True)), _Probe("hello", 0, _hello(name, ech=False))


def _quic(kind: int, version: int, size: int) -> bytes:
    """A datagram of `size` bytes that starts with a QUIC long header; no server can decrypt it."""
    return (bytes([0xC0 | kind << 4]) + struct.pack("!I", version) + b"\x08crosslay\0\0").ljust(size, b"\0")


def _hello(name: str, *, ech: bool) -> bytes:
    """A TLS record of a ClientHello with a server name and, with `ech`, the extension of Encrypted Client Hello."""
    host = name.encode("ascii")
    server_name = struct.pack("!HBH", len(host) + 3, 0, len(host)) + host
    extensions = struct.pack("!HH", 0, len(server_name)) + server_name
    extensions += struct.pack("!HH", 0xFE0D, 4) + bytes(4) if ech else b""
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\x00\x02\x13\x01" + b"\x01\0"
    body += struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack("!H", len(message)) + message


def _send(probe: _Probe, address: str, rtt_ms: float) -> tuple[int, int]:
    """Send a probe `PROBES` times; returns how many crossed the link, and how many the path answered."""
    address = probe.address or address
    family, own_address = (
        (socket.AF_INET6, network.CLIENT_ADDRESS6) if ":" in address else (socket.AF_INET, network.CLIENT_ADDRESS)
    )
    with _server_frames() as frames, ExitStack() as stack:
        own: list[tuple[int, socket.socket]] = []
        listener = stack.enter_context(_listening(address)) if probe.transport == "hello" else None
        target = (address, listener.getsockname()[1] if listener else probe.port)
        for _ in range(PROBES):
            kind = socket.SOCK_DGRAM if probe.transport == "udp" else socket.SOCK_STREAM
            with namespaces.namespace(network.CLIENT):
                end = stack.enter_context(socket.socket(family, kind))
            if family == socket.AF_INET6:
                end.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVERR, 1)
            end.bind((own_address, 0))
            end.setblocking(probe.transport == "hello")
            end.settimeout(_WAIT_S + rtt_ms / 1e3 if probe.transport == "hello" else 0)
            own.append((end.getsockname()[1], end))
            with suppress(BlockingIOError):
                end.connect(target)
            if probe.payload:
                with suppress(BlockingIOError):
                    end.send(probe.payload)
        time.sleep(_WAIT_S + 1.5 * rtt_ms / 1e3)
        answered = sum(_answered(end, probe) for _, end in own)
    ip_bytes = _IPV6_BYTES if family == socket.AF_INET6 else _IP_BYTES
    least = _ETHERNET_BYTES + ip_bytes + (8 + len(probe.payload) if probe.transport == "udp" else 20)
    carried = least + len(probe.payload) if probe.transport == "hello" else least
    crossed = {frame_port for frame_port, size in frames if size >= carried}
    return sum(port in crossed for port, _ in own), answered


def _answered(end: socket.socket, probe: _Probe) -> bool:
    """Whether the path, not the server, refused or answered a probe."""
    fault = end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if fault:
        return fault in _REFUSED
    if probe.transport == "syn":
        return False
    end.setblocking(False)
    try:
        return bool(end.recv(2048)) and probe.transport == "udp"
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno in _REFUSED


@contextmanager
def _server_frames() -> Iterator[list[tuple[int, int]]]:
    """Record the frames that arrive at the server's end while the body of the `with` statement runs.

    Yields a list. It is empty until the body ends; then it has the source port and the length in bytes of each frame.
    """
    frames: list[tuple[int, int]] = []
    with namespaces.namespace(network.SERVER):
        ring = Ring("eth0", frames=_RING_FRAMES)
    try:
        ring.start()
        yield frames
        taken, _missing = ring.take()
        for frame in taken:
            start = {_ETHERTYPE_IPV4: _ETHERNET_BYTES + _IP_BYTES, _ETHERTYPE_IPV6: _ETHERNET_BYTES + _IPV6_BYTES}.get(
                frame.data[12:14]
            )
            if not frame.sent and start is not None and len(frame.data) >= start + 4:
                frames.append((struct.unpack_from("!H", frame.data, start)[0], frame.bytes))
    finally:
        ring.close()


@contextmanager
def _listening(address: str) -> Iterator[socket.socket]:
    with namespaces.namespace(network.SERVER):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
    with listener:
        listener.bind((address, 0))
        listener.listen(PROBES)
        yield listener
