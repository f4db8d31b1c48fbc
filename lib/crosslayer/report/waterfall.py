"""One load as a waterfall: lookup, connection, requests, events at the server, and packets, on one time axis.

Packets are drawn from data that is readable without keys: time, size and QUIC packet types. The TLS keys in the capture
file are not used here; with them, Wireshark decrypts the packets.
"""

from __future__ import annotations

import math
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2

from crosslayer.campaign.tables import TABLES
from crosslayer.dns.capture import Packet, read_frame
from crosslayer.figures.style import BLUE, BROWN, GREEN, GREY, INK, PURPLE, RED
from crosslayer.packets import PACKETS, About, Frame, PacketsError, read_about, read_kept
from crosslayer.vocabulary import Role

WIDTH, LABELS, ROW, LANE = 1160, 250, 18, 58
"""Width of the picture and of the labels at its left, height of a row and of a connection's packets, px."""
PACKETS_MOST = 6000
"""Maximum number of packets drawn per load; the capture file has all."""
_FULL_BYTES, _FULL_PX = 1500, 24
_ROWS_MOST = 400
_NUMBER_MOST = 1e19
"""Limit for the numbers in a capture's description: a number that reaches it counts as missing.

Times in ns since 1970 are below the limit.
"""
_SYN, _ACK = 0x02, 0x10
_RTT_PX, _RTTS_MOST = 42, 60

KINDS = {
    "Initial": RED,
    "0-RTT": GREEN,
    "Handshake": PURPLE,
    "Retry": INK,
    "1-RTT": BLUE,
    "TCP": BROWN,
    "DNS": GREY,
    "UDP": GREY,
    "padding": "#c4c4c4",
}
"""Colours by kind of packet."""
BARS = {"lookup": GREY, "connection": PURPLE, "waiting": "#c9dff0", "body": BLUE, "server": INK}
_LONG_TYPES = {1: ("Initial", "0-RTT", "Handshake", "Retry"), 0x6B3343CF: ("Retry", "Initial", "0-RTT", "Handshake")}
_PHASES = {  # label, from, to, kind of bar
    "resolved_loads": (
        ("Name", "", "resolved_ms", "lookup"),
        ("Document: waiting", "resolved_ms", "response_start_ms", "waiting"),
        ("Document: its bytes", "response_start_ms", "document_ms", "body"),
        ("Rest of the page", "document_ms", "load_complete_ms", "body"),
    ),
    "page_loads": (
        ("Lookup", "domain_lookup_start_ms", "domain_lookup_end_ms", "lookup"),
        ("Connection", "connect_start_ms", "connect_ms", "connection"),
        ("Document: waiting", "request_start_ms", "response_start_ms", "waiting"),
        ("Document: its bytes", "response_start_ms", "response_end_ms", "body"),
    ),
    "dns_exchanges": (
        ("Handshake", "", "handshake_ms", "connection"),
        ("Query", "handshake_ms", "total_ms", "lookup"),
    ),
    "tcp_rtts": (("TCP connect", "", "rtt_ms", "connection"),),
}
_LENGTHS = ("load_complete_ms", "plt_ms", "total_ms", "rtt_ms")
_MARKS = {"fcp_ms": "FCP", "plt_ms": "PLT", "load_complete_ms": "page complete", "settings_ms": "SETTINGS"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar in a row: a time span, in ms."""

    start: float
    end: float
    kind: str
    text: str


@dataclass(slots=True)
class Row:
    """A row of the waterfall."""

    label: str
    bars: list[Bar] = field(default_factory=list)
    text: str = ""
    """The label without shortening."""


@dataclass(slots=True)
class Flow:
    """The packets between two addresses and ports: of one TCP or QUIC connection, or of DNS over UDP."""

    label: str
    ends: str
    packets: list[tuple[float, Packet, list[tuple[str, int]]]] = field(default_factory=list)
    """For each packet: its time in ms, the packet, and kind and bytes of each of its parts."""

    @property
    def counted(self) -> str:
        """Number of packets and bytes in each direction, as text."""
        up, down = ([p.bytes for _, p, _ in self.packets if p.sent is way] for way in (True, False))
        return f"\N{UPWARDS ARROW} {len(up)}, {sum(up):,} B  \N{DOWNWARDS ARROW} {len(down)}, {sum(down):,} B"


def waterfall(file: Path) -> str:
    """Draw a capture as a self-contained HTML page.

    Parameters
    ----------
    file
        A `.pcapng` file of `crosslayer measure --capture` or `crosslayer link --capture`.

    Raises
    ------
    PacketsError
        If the file cannot be read, or the direction of its packets cannot be determined.
    """
    about, recorded = read_kept(file)
    about = about or About(condition=file.stem, profile={}, clock="wall")
    own = [row for row in about.rows.get(about.table, ()) if row.get("role") != Role.PRIMING]
    row: Mapping[str, Any] = own[0] if own else {}
    began = _number(row.get("started_s"))
    read = [(frame, packet) for frame in recorded.frames if (packet := _packet(frame)) is not None]
    packets = _of_known_side(read, file)
    first_ns = packets[0][1].at_ns if packets else 0
    zero_ns = first_ns if began is None else round(began * 1e9)
    spans = [*_phases(about.table, row), *_lookups(about, zero_ns), *_resources(about)]
    ends = [bar.end for line in spans for bar in line.bars]
    marks = {label: at for name, label in _MARKS.items() if (at := _number(row.get(name))) is not None}
    ends += marks.values()
    flows, last = _flows(packets[:PACKETS_MOST], zero_ns, about)
    end = max([0.0, *(ends or [last])]) * 1.04 + 1
    late = sum(at > end for flow in flows for at, _, _ in flow.packets) + max(0, len(packets) - PACKETS_MOST)
    late += len(read) - len(packets)
    begin = min([0.0, *(at for flow in flows for at, _, _ in flow.packets)])
    rtt = max(0.0, _number(about.profile.get("rtt_ms")) or 0.0)
    scale, rtts = Scale(begin, end), _rtts(rtt, end)
    page = jinja2.Environment(
        loader=jinja2.PackageLoader("crosslayer.report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("waterfall.html")
    where = [str(row[key]) for key in ("page", "campaign") if row.get(key)]
    round_ = [f"round {row['round']}"] if isinstance(row.get("round"), int) else []
    return page.render(
        about=about,
        where=[*where, *round_],
        link=about.profile.get("title") or about.profile.get("name") or "",
        rtt=rtt,
        facts={name: value for name, value in row.items() if name.endswith("_ms") and _number(value) is not None},
        error=row.get("error"),
        spans=spans[:_ROWS_MOST],
        server=_served(about, zero_ns, end)[:_ROWS_MOST],
        flows=flows,
        marks=sorted(marks.items(), key=lambda mark: mark[1]),
        late=late,
        scale=scale,
        ticks=_ticks(begin, end),
        rtts=rtts,
        every=math.ceil(_RTT_PX * (end - begin) / (rtt * (WIDTH - LABELS))) if rtts else 1,
        sticks=_sticks,
        kinds={kind: colour for kind, colour in KINDS.items() if kind in _kinds(flows)},
        bars={kind: colour for kind, colour in BARS.items() if kind in _bars(spans, about)},
        keys=bool(recorded.keys),
        file=file.name,
        KINDS=KINDS,
        BARS=BARS,
        WIDTH=WIDTH,
        LABELS=LABELS,
        ROW=ROW,
        LANE=LANE,
    )


@dataclass(frozen=True, slots=True)
class WaterfallLoad:
    """A capture of an observation, e.g. of a page load or an exchange."""

    file: Path
    length_ms: float | None
    """Duration of the observation, ms; None if unknown."""
    conditions: Mapping[str, str | int | bool]
    """Conditions of the observation: values of the key columns of its table."""


def captured(folder: Path) -> list[WaterfallLoad]:
    """Captures in a folder and its subfolders, sorted by link and page, then from the slowest to the fastest."""
    collected = []
    for file in folder.rglob(f"*{PACKETS}"):
        about = read_about(file)
        row = (
            next((row for row in about.rows.get(about.table, ()) if row.get("role") != Role.PRIMING), {})
            if about
            else {}
        )
        lengths = [_number(row.get(name)) for name in _LENGTHS]
        table = TABLES.get(about.table) if about else None
        keys = [column.name for column in table.columns if column.key] if table else []
        conditions = {key: row[key] for key in keys if isinstance(row.get(key), str | int)}
        collected.append(
            WaterfallLoad(file, next((length for length in lengths if length is not None), None), conditions)
        )

    def offset(load: WaterfallLoad) -> tuple[str, str, float, Path]:
        link, page = (str(load.conditions.get(name, "")) for name in ("link", "page"))
        return link, page, -(load.length_ms or 0.0), load.file

    return sorted(collected, key=offset)


@dataclass(frozen=True, slots=True)
class Scale:
    """Scale of the time axis, from ms to px."""

    begin: float
    end: float

    def __call__(self, ms: float) -> float:
        """Distance of a time from the left edge of the picture, px."""
        share = (min(max(ms, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LABELS + share * (WIDTH - LABELS - 12), 2)


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and abs(value) < _NUMBER_MOST else None  # type: ignore[arg-type]


def _bar(start: object, end: object, kind: str, what: str) -> list[Bar]:
    begin, over = _number(start), _number(end)
    if begin is None or over is None or over < begin:
        return []
    return [Bar(begin, over, kind, f"{what}: {begin:.2f} to {over:.2f} ms ({over - begin:.2f} ms)")]


def _phases(table: str, row: Mapping[str, Any]) -> Iterator[Row]:
    # A document that is requested together with its name does not wait for the answer.
    at_once = row.get("condition") in ("at-once", "at-once-no-token")
    for label, start, end, kind in _PHASES.get(table, ()):
        begin = 0.0 if not start or (at_once and kind == "waiting") else row.get(start)
        if bars := _bar(begin, row.get(end), kind, label):
            yield Row(label, bars)


def _lookups(about: About, zero_ns: int) -> Iterator[Row]:
    for row in about.rows.get("lookups", ()):
        began, took = _number(row.get("started_s")), _number(row.get("total_ms"))
        if began is not None and took is not None:
            at = began * 1e3 - zero_ns / 1e6
            label = f"{row.get('type', '')} {row.get('name', '')}"
            yield Row(_short(label), _bar(at, at + took, "lookup", label), label)


def _resources(about: About) -> Iterator[Row]:
    for row in about.rows.get("resources", ()):
        url = str(row.get("url", ""))
        parts = urlsplit(url) if url.isprintable() and "[" not in url else urlsplit("")
        bars = _bar(row.get("request_start_ms"), row.get("response_start_ms"), "waiting", "waiting")
        bars += _bar(row.get("response_start_ms"), row.get("response_end_ms"), "body", "its bytes")
        if bars:
            yield Row(_short(parts.path or url), bars, url)


def _served(about: About, zero_ns: int, end: float) -> list[Row]:
    """Rows of the server log: one per query, request or connection."""
    collected = []
    for event in about.server:
        at_ns, done_ns = _number(event.get("time")), _number(event.get("done"))
        at = None if at_ns is None else (int(event["time"]) - zero_ns) / 1e6
        if at is None or not -1e3 < at <= end:
            continue
        done = at if done_ns is None else (int(event["done"]) - zero_ns) / 1e6
        early = "" if event.get("handshake_complete", True) else ", early data"
        what = event.get("event")
        if what == "request":
            label = f"{event.get('method', '')} {event.get('path', '')}{early}"
        elif what == "query":
            label = f"{event.get('type', '')} {event.get('name', '')} ({event.get('listener', '')}{early})"
        elif what == "connection":
            label = f"handshake complete ({event.get('listener', '')}{', resumed' if event.get('resumed') else ''})"
        else:
            continue
        collected.append(Row(_short(label), _bar(at, min(done, end), "server", label), label))
    return sorted(collected, key=lambda row: row.bars[0].start if row.bars else 0.0)


def _packet(frame: Frame) -> Packet | None:
    return read_frame(frame.data, at_ns=frame.at_ns, sent=bool(frame.sent), interface=frame.interface)


def _of_known_side(packets: list[tuple[Frame, Packet]], file: Path) -> list[tuple[Frame, Packet]]:
    """The packets that the client sent or received, each with its direction.

    If the file does not record the directions, as is common for captures of other programs, they are derived. The
    client is then the sender of any packet that begins a connection: a QUIC Initial, a SYN without ACK, or a query to
    port 53. The address of the client determines the direction of all other packets. Packets whose direction stays
    unknown are left out.

    Raises
    ------
    PacketsError
        If directions are missing and the capture contains no start of a connection.
    """
    if all(frame.sent is not None for frame, _ in packets):
        return packets
    first: dict[tuple[int, frozenset[tuple[str, int]]], Packet] = {}
    for _, packet in packets:
        first.setdefault((packet.ip_protocol, frozenset((packet.source, packet.destination))), packet)
    clients = {packet.source for packet in first.values() if _begins(packet)}
    if not clients:
        raise PacketsError(
            "has no direction of its packets, and no connection begins in it",
            where=str(file),
            next_step="Start the capture before the first connection, or use `crosslayer link --capture`.",
        )
    addresses = {address for address, _ in clients}
    collected = []
    for frame, packet in packets:
        ends, sent = (packet.source, packet.destination), frame.sent
        for sides in ([end in clients for end in ends], [end[0] in addresses for end in ends]):
            if sent is None and sides[0] != sides[1]:
                sent = sides[0]
        if sent is not None:
            collected.append((frame, replace(packet, sent=sent)))
    return collected


def _begins(packet: Packet) -> bool:
    """Whether a packet is of the kind that a client sends first on a connection."""
    if packet.ip_protocol == socket.IPPROTO_TCP:
        return packet.flags & (_SYN | _ACK) == _SYN
    parts = quic_packets(packet.payload, packet.bytes - 8)
    return packet.destination[1] == 53 or (bool(parts) and parts[0][0] == "Initial")


def _flows(packets: Iterable[tuple[Frame, Packet]], zero_ns: int, about: About) -> tuple[list[Flow], float]:
    """Connections with their packets, and the time of the last packet, ms.

    The connections are in the order of the first packet of each connection.
    """
    named = {str(event.get("remote")): event for event in about.server if event.get("event") == "connection"}
    flows: dict[tuple[Any, ...], Flow] = {}
    last = 0.0
    for frame, packet in packets:
        near, far = (packet.source, packet.destination) if packet.sent else (packet.destination, packet.source)
        if frame.interface == "lo" and packet.source[1] != 53:  # on loopback, the client queries port 53
            near, far, packet = packet.source, packet.destination, replace(packet, sent=True)
        flow = flows.get(key := (packet.ip_protocol, near, far))
        if flow is None:
            event = named.get(f"{near[0]}:{near[1]}", {})
            transport = "TCP" if packet.ip_protocol == socket.IPPROTO_TCP else "UDP" if far[1] == 53 else "QUIC"
            name = str(event.get("server_name") or far[0])
            flows[key] = flow = Flow(_short(f"{transport} to {name}"), f"{far[0]}:{far[1]}, our port {near[1]}")
        at = (packet.at_ns - zero_ns) / 1e6
        last = max(last, at)
        flow.packets.append((at, packet, list(_parts(packet, far[1]))))
    return list(flows.values()), last


def _parts(packet: Packet, port: int) -> Iterator[tuple[str, int]]:
    """Parts of a datagram or segment: kind and bytes of each."""
    if packet.ip_protocol == socket.IPPROTO_TCP:
        yield "TCP", packet.bytes
    elif port == 53:
        yield "DNS", packet.bytes
    else:
        left = packet.bytes - 8
        for kind, size in quic_packets(packet.payload, left):
            left -= size
            yield kind, size
        if left > 0:
            yield "padding" if left < packet.bytes - 8 else "UDP", left


def quic_packets(datagram: bytes, length: int) -> list[tuple[str, int]]:
    """Type and bytes of each QUIC packet in a datagram (RFC 9000, section 17), up to the first unreadable one."""
    collected: list[tuple[str, int]] = []
    offset = 0
    try:
        while offset < length:
            first = datagram[offset]
            if not first & 0x80:
                if first & 0x40:  # a packet with a short header fills the datagram; a zero byte is padding
                    collected.append(("1-RTT", length - offset))
                break
            version = int.from_bytes(_of(datagram, offset + 1, 4))
            types = _LONG_TYPES.get(version)
            if types is None:
                break
            kind = types[first >> 4 & 3]
            at = offset + 5
            for _ in range(2):  # both connection IDs
                at += 1 + datagram[at]
            if kind == "Retry":
                collected.append((kind, length - offset))
                break
            if kind == "Initial":
                token, at = _varint(datagram, at)
                at += token
            rest, at = _varint(datagram, at)
            size = min(at + rest, length) - offset
            collected.append((kind, size))
            offset += size
    except (IndexError, struct.error):
        pass
    return collected


def _varint(data: bytes, at: int) -> tuple[int, int]:
    size = 1 << (data[at] >> 6)
    return int.from_bytes(_of(data, at, size)) & (1 << (8 * size - 2)) - 1, at + size


def _of(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError(at)
    return data[at : at + size]


def _sticks(flow: Flow, scale: Scale) -> Iterator[tuple[str, str, str]]:
    """Yield CSS class, SVG path and label of each part of each packet.

    Parts of sent packets point up from the middle, those of received packets down.
    """
    middle = LANE / 2
    for at, packet, parts in flow.packets:
        if at > scale.end:
            continue
        kinds = " + ".join(kind for kind, _ in parts)
        label = f"{at:.3f} ms, {'sent' if packet.sent else 'received'}, {packet.bytes} bytes: {kinds}"
        way, y = (-1 if packet.sent else 1), middle + (-1 if packet.sent else 1)
        for kind, size in parts:
            height = max(1.5, size / _FULL_BYTES * _FULL_PX)
            yield kind, f"M{scale(at):g} {y:.1f}v{way * height:.1f}", label
            y += way * height


def _kinds(flows: Iterable[Flow]) -> set[str]:
    return {kind for flow in flows for _, _, parts in flow.packets for kind, _ in parts}


def _bars(rows: Iterable[Row], about: About) -> set[str]:
    return {bar.kind for row in rows for bar in row.bars} | ({"server"} if about.server else set())


def _ticks(begin: float, end: float) -> list[float]:
    """Times of the ticks on the time axis, ms: at most eleven multiples of a step such as 1, 2, 5 or 10 ms."""
    step = 10.0 ** math.floor(math.log10((end - begin) / 4))
    while (end - begin) / step > 10:
        step *= 2 if (end - begin) / step <= 20 else 2.5 if (end - begin) / step <= 25 else 5
    return [n * step for n in range(math.ceil(begin / step), math.floor(end / step) + 1)]


def _rtts(rtt: float, end: float) -> list[float]:
    """Times of whole round-trips, ms; empty if there are too many to be distinguished."""
    if not rtt or end / rtt > _RTTS_MOST:
        return []
    return [n * rtt for n in range(math.floor(end / rtt) + 1)]


def _short(label: str, most: int = 36) -> str:
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[-most // 2 :]}"
