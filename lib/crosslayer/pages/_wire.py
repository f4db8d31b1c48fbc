"""Exact sizes on the wire.

zlib builds differ in what they make of the same input, so a compressed body is brought to its
stated size by padding that every decoder skips: the extra field of a gzip header (RFC 1952
section 2.3.1.1) or a private ancillary chunk of a PNG (PNG specification, section 5.4).
"""

from __future__ import annotations

import struct
import zlib

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
GZIP_PADDING = range(6, 65538)
"""Bytes a gzip header can be padded by, besides none: a 16-bit length and at least one empty subfield."""
PNG_PADDING = range(12, 1 << 20)
"""Bytes a PNG can be padded by, besides none: length, type and checksum of one chunk at least."""

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


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG: length, type, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pad_png(image: bytes, padding: int) -> bytes:
    """Insert a chunk of `padding` bytes (a member of `PNG_PADDING`) behind the header of a PNG.

    It stands before the pixels, so that the picture is complete only when its last byte is there.
    """
    header_end = len(PNG_SIGNATURE) + 25
    return image[:header_end] + png_chunk(b"paDd", bytes(padding - 12)) + image[header_end:]
