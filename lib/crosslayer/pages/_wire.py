"""Exact sizes on the wire.

zlib builds differ in what they make of the same input, so a body that is compressed here is brought to its stated size
by padding that every decoder skips: the extra field of a gzip header (RFC 1952 section 2.3.1.1).
"""

from __future__ import annotations

import struct
import zlib

GZIP_PADDING = range(6, 65538)
"""Bytes a gzip header can be padded by, besides none: a 16-bit length and at least one empty subfield."""

_FEXTRA = 4


def gzip_compress(body: bytes) -> bytes:
    """Compress a body; the header names no file and no time."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return b"".join(
        (
            struct.pack("<2sBBIBB", b"\x1f\x8b", 8, 0, 0, 2, 255),
            compressor.compress(body),
            compressor.flush(),
            struct.pack("<II", zlib.crc32(body), len(body) & 0xFFFFFFFF),
        )
    )


def pad_gzip(stream: bytes, padding: int) -> bytes:
    """Insert an extra field of `padding` bytes (a member of `GZIP_PADDING`) into what `gzip_compress` made."""
    extra = struct.pack("<H2sH", padding - 2, b"cl", padding - 6) + bytes(padding - 6)
    return stream[:3] + bytes((_FEXTRA,)) + stream[4:10] + extra + stream[10:]
