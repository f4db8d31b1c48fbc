"""Exact sizes on the wire.

zlib builds differ in what they make of the same input, so a body that is compressed here is brought to its stated size
by padding that every decoder skips: the extra field of a gzip header (RFC 1952 section 2.3.1.1).
"""

from __future__ import annotations

import struct
import zlib

from crosslayer.pages._errors import PageError

PADDING_SHARE = 0.06
"""Most of a body's wire size that may be padding: more, and its content no longer weighs what it claims."""
PADDING_LEAST = 64
"""Padding always allowed, in bytes: small bodies cannot be written to the byte."""
GZIP_PADDING = range(6, 65538)
"""Bytes a gzip header can be padded by, besides none: a 16-bit length and at least one empty subfield."""

_FEXTRA = 4


def fitted(content: bytes, wire_bytes: int, *, where: str) -> bytes:
    """Compress content to a gzip stream of exactly `wire_bytes`.

    Raises
    ------
    PageError
        If that takes more padding than may be, or the content is too large; says which sizes would do.
    """
    body = gzip_compress(content)
    padding = wire_bytes - len(body)
    if padding == 0:
        return body
    most = min(max(PADDING_LEAST, int(PADDING_SHARE * wire_bytes)), GZIP_PADDING[-1])
    if not GZIP_PADDING[0] <= padding <= most:
        raise PageError(
            f"the compressed content has {len(body)} bytes, which cannot be brought to 'wire_bytes' {wire_bytes}",
            where=where,
            next_step=f"Change the content (or 'wire_bytes') so that it has {wire_bytes - most} to "
            f"{wire_bytes - GZIP_PADDING[0]}, or exactly {wire_bytes} bytes",
        )
    return pad_gzip(body, padding)


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
