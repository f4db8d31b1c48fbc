"""Read and write pcapng (draft-ietf-opsawg-pcapng): frames with the TLS keys that decrypt them. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crosslayer.errors import CrosslayerError

_SECTION, _INTERFACE, _PACKET, _SECRETS = 0x0A0D0D0A, 0x00000001, 0x00000006, 0x0000000A
_BYTE_ORDER = 0x1A2B3C4D
_ETHERNET = 1
_TLS_KEY_LOG = 0x544C534B
_COMMENT, _NAME, _FLAGS, _RESOLUTION = 1, 2, 2, 9
_INBOUND, _OUTBOUND = 1, 2
_DIRECTIONS = {True: _OUTBOUND, False: _INBOUND, None: 0}
_OPTION_BYTES = 0xFFFF
_HEAD = struct.Struct("<II")
_OF_PACKET = struct.Struct("<IIIII")


class PacketsError(CrosslayerError):
    """A capture cannot be made or read."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One Ethernet frame."""

    at_ns: int
    """Timestamp of the kernel, nanoseconds since the Unix epoch."""
    interface: str
    sent: bool | None
    """Whether the capturing host sent the frame (True) or received it (False); None if the file has no direction."""
    data: bytes
    """The captured part of the frame."""
    bytes: int
    """Length of the whole frame, bytes."""


@dataclass(frozen=True, slots=True)
class PacketCapture:
    """Content of a pcapng file written by `write_pcapng`."""

    frames: tuple[Frame, ...]
    keys: str
    """TLS keys in the format of SSLKEYLOGFILE, one per line."""
    comment: str
    """Comment of the file's section."""


def write_pcapng(frames: Iterable[Frame], *, keys: str = "", comment: str = "") -> bytes:
    """Content of a pcapng file with one interface for each interface name of the frames.

    Times are in nanoseconds. The keys precede the first frame.
    """
    options = _option(_COMMENT, comment.encode()[:_OPTION_BYTES]) if comment else b""
    blocks = [_block(_SECTION, struct.pack("<IHHq", _BYTE_ORDER, 1, 0, -1) + _terminated(options))]
    frames = list(frames)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(frame.interface for frame in frames))}
    for name in numbers:
        block_options = _option(_NAME, name.encode()) + _option(_RESOLUTION, b"\x09")
        blocks.append(_block(_INTERFACE, struct.pack("<HHI", _ETHERNET, 0, 0) + _terminated(block_options)))
    if keys:
        log = keys.encode()
        blocks.append(_block(_SECRETS, struct.pack("<II", _TLS_KEY_LOG, len(log)) + _padded(log)))
    for frame in frames:
        block_options = _option(_FLAGS, struct.pack("<I", _DIRECTIONS[frame.sent]))
        head = (numbers[frame.interface], frame.at_ns >> 32, frame.at_ns & 0xFFFFFFFF, len(frame.data), frame.bytes)
        blocks.append(_block(_PACKET, _OF_PACKET.pack(*head) + _padded(frame.data) + _terminated(block_options)))
    return b"".join(blocks)


def read_pcapng(data: bytes, *, where: str) -> PacketCapture:
    """Read a file made by `write_pcapng`.

    Parameters
    ----------
    data
        Content of the file.
    where
        Name of the file in errors.

    Raises
    ------
    PacketsError
        If the data is not the content of such a file, or is truncated or inconsistent.
    """
    interfaces: list[str] = []
    frames: list[Frame] = []
    keys, comment = "", ""
    try:
        for number, (kind, body) in enumerate(_blocks(data)):
            if (kind == _SECTION) != (number == 0):
                raise ValueError("it is not one section of a pcapng file")
            if kind == _SECTION:
                order, major = struct.unpack_from("<IH", body)
                if order != _BYTE_ORDER or major != 1:
                    raise ValueError("it is of another byte order or version")
                comment = dict(_options(body[16:])).get(_COMMENT, b"").decode()
            elif kind == _INTERFACE:
                link, _, _ = struct.unpack_from("<HHI", body)
                options = dict(_options(body[8:]))
                if link != _ETHERNET or options.get(_RESOLUTION) != b"\x09":
                    raise ValueError("an interface is not Ethernet with times in ns")
                interfaces.append(options.get(_NAME, b"").decode())
            elif kind == _SECRETS:
                of, length = struct.unpack_from("<II", body)
                if of == _TLS_KEY_LOG:
                    keys += _part(body, 8, length).decode()
            elif kind == _PACKET:
                device, high, low, kept, length = _OF_PACKET.unpack_from(body)
                frame = _part(body, _OF_PACKET.size, kept)
                flags = dict(_options(body[_OF_PACKET.size + kept + -kept % 4 :])).get(_FLAGS, bytes(4))
                sent = {_OUTBOUND: True, _INBOUND: False}.get(struct.unpack("<I", flags)[0] & 3)
                frames.append(Frame(high << 32 | low, interfaces[device], sent, frame, length))
        if not data:
            raise ValueError("it is empty")
    except (ValueError, struct.error, IndexError) as fault:
        raise PacketsError(
            f"is not a capture made by crosslayer: {fault}",
            where=where,
            next_step="Name a .pcapng file of `crosslayer measure --capture pcap` or `crosslayer link --capture`.",
        ) from None
    return PacketCapture(tuple(frames), keys, comment)


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        kind, length = _HEAD.unpack_from(data, offset)
        if length < 12 or length % 4 or offset + length > len(data):
            raise ValueError(f"a block of {length} bytes at {offset}")
        if struct.unpack_from("<I", data, offset + length - 4)[0] != length:
            raise ValueError(f"a block at {offset} whose two lengths differ")
        yield kind, data[offset + 8 : offset + length - 4]
        offset += length


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(data):
        code, length = struct.unpack_from("<HH", data, offset)
        if code == 0:
            return
        yield code, _part(data, offset + 4, length)
        offset += 4 + length + -length % 4


def _part(data: bytes, start: int, length: int) -> bytes:
    if start + length > len(data):
        raise ValueError(f"{length} bytes where there are {max(0, len(data) - start)}")
    return data[start : start + length]


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return _HEAD.pack(kind, length) + body + struct.pack("<I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _terminated(options: bytes) -> bytes:
    return options + bytes(4) if options else b""


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
