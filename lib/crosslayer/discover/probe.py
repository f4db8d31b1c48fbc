"""Encode the QUIC probe (a packet with an unsupported version) and decode its answer (Version Negotiation). No I/O.

Kosek et al. (IMC 2022, section 2) sent a QUIC Initial of version 0. Version 0 identifies Version Negotiation packets,
which a server must not answer (RFC 9000, section 6.1; RFC 8999, section 6). Current servers do not answer them. So this
probe uses a version reserved to force negotiation (RFC 9000, section 15); all else is as in their probe.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

FORCING_VERSION = 0x1A2A3A4A
"""A version reserved to force negotiation: no server supports it (RFC 9000, section 15; pattern 0x?a?a?a?a)."""
PROBE_BYTES = 1200
"""UDP payload of the probe, bytes: below it, a server need not answer (RFC 9000, sections 6.1 and 14.1)."""
CONNECTION_ID_BYTES = 8
"""Length of both connection IDs, bytes: the minimum for a client's first destination ID (RFC 9000, section 7.2)."""

_LONG_HEADER = 0x80
_INITIAL = 0xC0
_RESERVED_MASK = 0x0F0F0F0F
_RESERVED = 0x0A0A0A0A
_DRAFT_MASK = 0xFFFFFF00
_DRAFT = 0xFF000000
_NAMES = {0x00000001: "v1", 0x6B3343CF: "v2"}


def encode_probe(destination_id: bytes, source_id: bytes) -> bytes:
    """The probe: an Initial's long header of `FORCING_VERSION`, padded with zeros to `PROBE_BYTES`.

    The server's answer must contain both connection IDs. Each ID is `CONNECTION_ID_BYTES` random bytes.
    """
    header = struct.pack("!BI", _INITIAL, FORCING_VERSION)
    for connection_id in (destination_id, source_id):
        header += bytes([len(connection_id)]) + connection_id
    return header.ljust(PROBE_BYTES, b"\0")


def decode_version_negotiation(datagram: bytes, *, destination_id: bytes, source_id: bytes) -> tuple[int, ...]:
    """Versions that a Version Negotiation packet offers, in the server's order, including reserved ones.

    The answer has the probe's connection IDs swapped (RFC 9000, section 17.2.1). `ValueError` states why a datagram is
    not an answer to the probe.
    """
    if len(datagram) < 5:
        raise ValueError("shorter than a long header")
    first, version = struct.unpack_from("!BI", datagram)
    if not first & _LONG_HEADER:
        raise ValueError("no long header")
    if version != 0:
        raise ValueError(f"a packet of version {version:#010x}")
    rest = datagram[5:]
    for expected, name in ((source_id, "destination"), (destination_id, "source")):
        length = rest[0] if rest else 0
        if not rest or len(rest) < 1 + length:
            raise ValueError(f"ends inside the {name} connection ID")
        if rest[1 : 1 + length] != expected:
            raise ValueError(f"another {name} connection ID")
        rest = rest[1 + length :]
    if not rest or len(rest) % 4:
        raise ValueError(f"{len(rest)} bytes are no list of versions")
    versions = struct.unpack(f"!{len(rest) // 4}I", rest)
    if FORCING_VERSION in versions:
        raise ValueError("offers the version it refuses")  # RFC 9000, section 6.2
    return versions


def version_names(versions: Iterable[int]) -> tuple[str, ...]:
    """Names of versions, e.g. v1, v2, draft-29, 0x51303530.

    Each name occurs once; versions that are reserved to force negotiation are left out.
    """
    names = [_name(version) for version in versions if version & _RESERVED_MASK != _RESERVED]
    return tuple(dict.fromkeys(names))


def _name(version: int) -> str:
    if version & _DRAFT_MASK == _DRAFT:
        return f"draft-{version & 0xFF:02}"
    return _NAMES.get(version, f"{version:#010x}")
