"""Capture the packets of an exchange with an AF_PACKET socket, and count its bytes and packets.

`Capture` does the I/O; `read_frame` and `measure` are pure functions.
"""

from __future__ import annotations

import builtins
import ctypes
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields

from crosslayer.dns.errors import DnsError
from crosslayer.dns.model import Sizes
from crosslayer.timestamps import arrival_ns, stamp_arrivals

ETHERNET_HEADER_BYTES = 14
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD

_IPV6_HEADER_BYTES = 40
_UDP_HEADER_BYTES = 8
_SNAP_BYTES = 65535
"""Maximum number of captured bytes per frame: enough for whole frames, because `handshake_bytes` reads payloads."""

# From <linux/if_packet.h>, <linux/if_ether.h>, <asm-generic/socket.h>, <linux/virtio_net.h>; Python does not have them.
_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_VNET_HDR = 15
_SO_ATTACH_FILTER = 26
_PACKET_OUTGOING = 4
_VIRTIO_NET_HEADER = struct.Struct("=BBHHHH")
_BPF_RETURN = 0x06


@dataclass(frozen=True, slots=True)
class Packet:
    """One captured frame; with TCP segmentation offload (GSO, GRO), it can stand for several packets on the wire."""

    at_ns: int
    """Kernel timestamp, nanoseconds since the Unix epoch."""
    sent: bool
    """True if the frame leaves this namespace, False if it arrives."""
    interface: str
    ip_protocol: int
    """socket.IPPROTO_TCP or socket.IPPROTO_UDP."""
    source: tuple[str, int]
    destination: tuple[str, int]
    bytes: int
    """IP payload (IP total length without the IP header), bytes; the sum over all packets that the frame stands for."""
    packets: int
    """Number of packets on the wire that the frame stands for."""
    payload: builtins.bytes = b""
    """TCP or UDP payload; only its captured part if the frame was truncated."""
    flags: int = 0
    """TCP flags; 0 for UDP."""
    sequence: int = 0
    """TCP sequence number; 0 for UDP."""


def read_frame(frame: bytes, *, at_ns: int, sent: bool, interface: str, segment_bytes: int = 0) -> Packet | None:
    """Read an Ethernet frame; None unless it carries TCP or UDP over IPv4 or IPv6.

    The frame may be truncated after the transport header. `segment_bytes` is the TCP payload of each segment if the
    frame has several segments (GSO, GRO); otherwise it is 0.
    """
    if len(frame) < ETHERNET_HEADER_BYTES:
        return None
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    ip = frame[ETHERNET_HEADER_BYTES:]
    if ethertype == ETHERTYPE_IPV4 and len(ip) >= 20:
        header_bytes = (ip[0] & 0x0F) * 4
        (total_bytes,) = struct.unpack_from("!H", ip, 2)
        payload_bytes, ip_protocol = total_bytes - header_bytes, ip[9]
        addresses = [socket.inet_ntop(socket.AF_INET, ip[start : start + 4]) for start in (12, 16)]
    elif ethertype == ETHERTYPE_IPV6 and len(ip) >= _IPV6_HEADER_BYTES:
        header_bytes = _IPV6_HEADER_BYTES
        (payload_bytes,) = struct.unpack_from("!H", ip, 4)
        ip_protocol = ip[6]
        addresses = [socket.inet_ntop(socket.AF_INET6, ip[start : start + 16]) for start in (8, 24)]
    else:
        return None
    transport = ip[header_bytes:]
    if ip_protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP) or len(transport) < 8:
        return None
    ports = struct.unpack_from("!HH", transport)
    packets, start, flags, sequence = 1, _UDP_HEADER_BYTES, 0, 0
    end = payload_bytes  # further bytes are the padding of a short frame
    if ip_protocol == socket.IPPROTO_TCP and len(transport) >= 20:
        start, flags, (sequence,) = (transport[12] >> 4) * 4, transport[13], struct.unpack_from("!I", transport, 4)
        if segment_bytes:
            packets = max(1, -(-(payload_bytes - start) // segment_bytes))
            payload_bytes += (packets - 1) * start
    source, destination = zip(addresses, ports, strict=True)
    payload = transport[start:end]
    return Packet(
        at_ns, sent, interface, ip_protocol, source, destination, payload_bytes, packets, payload, flags, sequence
    )


def measure(
    packets: list[Packet],
    *,
    ip_protocol: int,
    local_port: int,
    server: tuple[str, int],
    query_at_ns: int | None,
    answered_at_ns: int | None,
    closed_at_ns: int,
    of_handshake: Callable[[Packet], int] = lambda _packet: 0,
    split_to_close: bool = False,
) -> Sizes:
    """Count the packets and bytes of an exchange by phase (handshake, query) and direction.

    Packets before `query_at_ns` belong to the handshake; without a query (None), all packets do. Sent packets count up
    to the client's close. Received packets count up to the complete answer, since the number of later ones depends on
    how long the client receives. Without an answer, they count up to the close. Times are Unix time, ns; None for an
    event that did not happen.

    `of_handshake` returns how many bytes of a packet belong to the handshake according to the packet's content. The
    sizes whose names end in `_by_record` count these bytes as handshake and all others as query. In both directions,
    they count packets up to the answer. Without an answer, or if `split_to_close` is true, they count packets up to the
    close.
    """
    counts = Counter[str]()
    interface: str | None = None
    for packet in sorted(packets, key=lambda packet: packet.at_ns):
        local, remote = (packet.source, packet.destination) if packet.sent else (packet.destination, packet.source)
        if packet.ip_protocol != ip_protocol or local[1] != local_port or remote != server:
            continue
        # In a bridged namespace, the same packet appears on several devices: count that of the first packet only.
        interface = interface or packet.interface
        if packet.interface != interface:
            continue
        end_ns = closed_at_ns if packet.sent or answered_at_ns is None else answered_at_ns
        if packet.at_ns > end_ns:
            continue
        phase = "handshake" if query_at_ns is None or packet.at_ns < query_at_ns else "query"
        direction = "sent" if packet.sent else "received"
        parts = [f"{phase}_{direction}"]
        if packet.sent and not (counts["handshake_received_packets"] or counts["query_received_packets"]):
            parts.append("first_flight")
        for part in parts:
            counts[f"{part}_bytes"] += packet.bytes
            counts[f"{part}_packets"] += packet.packets
        if split_to_close or answered_at_ns is None or packet.at_ns <= answered_at_ns:
            counts[f"handshake_{direction}_bytes_by_record"] += (handshake := of_handshake(packet))
            counts[f"query_{direction}_bytes_by_record"] += packet.bytes - handshake
    return Sizes(**{column.name: counts[column.name] for column in fields(Sizes)})


@dataclass(slots=True)
class PacketRecording:
    """Packets captured during one block of `Capture.record`; they are available after the block."""

    packets: list[Packet] = field(default_factory=list)
    complete: bool = False
    """True after a recording from which the kernel dropped no packets; False before its end."""


class Capture:
    """A packet socket in the current network namespace; it receives frames only while it records.

    Open it once and use it for many exchanges, because the kernel waits for all CPU cores when a packet socket closes.
    `DnsError` if the namespace does not allow packet sockets.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        except PermissionError:
            raise DnsError(
                "packets cannot be captured here",
                where="AF_PACKET",
                next_step="Run inside the testbed, which has its own network namespace, or go without sizes.",
            ) from None
        self._socket.setblocking(False)
        self._attach(accept_bytes=0)
        self._discard()
        self._socket.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        stamp_arrivals(self._socket)

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; the capture cannot be used again."""
        self._socket.close()

    @contextmanager
    def record(self) -> Iterator[PacketRecording]:
        """Record every packet of the namespace while the block runs."""
        recording = PacketRecording()
        self._attach(accept_bytes=_SNAP_BYTES)
        try:
            yield recording
        finally:
            self._attach(accept_bytes=0)
            recording.packets = self._drain()
            recording.complete = not self._dropped()

    def _attach(self, *, accept_bytes: int) -> None:
        """Replace the filter by one that keeps the given number of bytes of every frame; 0 keeps none."""
        program = ctypes.create_string_buffer(struct.pack("=HBBI", _BPF_RETURN, 0, 0, accept_bytes), 8)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))

    def _discard(self) -> None:
        """Discard frames that arrived before the filter was set.

        Call it before `_PACKET_VNET_HDR` is set. With that option, the kernel refuses a buffer that is shorter than
        the virtio header (EINVAL).
        """
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def _drain(self) -> list[Packet]:
        packets: list[Packet] = []
        while True:
            try:
                data, ancillary, _, address = self._socket.recvmsg(_SNAP_BYTES + 64, 64)
            except BlockingIOError:
                return packets
            _, gso_type, _, gso_bytes, _, _ = _VIRTIO_NET_HEADER.unpack_from(data)
            packet = read_frame(
                data[_VIRTIO_NET_HEADER.size :],
                at_ns=arrival_ns(ancillary),
                sent=address[2] == _PACKET_OUTGOING,
                interface=address[0],
                segment_bytes=gso_bytes if gso_type else 0,
            )
            if packet is not None:
                packets.append(packet)

    def _dropped(self) -> int:
        """Number of packets that the kernel dropped since the last call; reading resets the kernel's counter."""
        _, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return int(dropped)
