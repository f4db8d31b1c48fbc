"""Compress bodies to exact sizes on the wire.

Different builds of zlib compress the same input to different sizes. A compressed body is therefore padded to its stated
size. The padding is an extra field in the gzip header; every decoder skips this field (RFC 1952, section 2.3.1.1).
"""

from __future__ import annotations

import struct
import zlib

from crosslayer.pages._errors import PageError

PADDING_SHARE = 0.06
"""Maximum share of padding in a body's wire size. Most of the size is thus that of the compressed content."""
PADDING_LEAST = 64
"""Padding that is allowed at any wire size, in bytes, because `PADDING_SHARE` of a small size is too little."""
GZIP_PADDING = range(6, 65538)
"""Possible sizes of a gzip header's padding, in bytes, besides 0.

The smallest padding consists of the 16-bit length of the extra field and one empty subfield.
"""

_FEXTRA = 4


def fitted(content: bytes, wire_bytes: int, *, where: str) -> bytes:
    """Compress content to a gzip stream of exactly `wire_bytes`.

    Raises
    ------
    PageError
        If the compressed content is too large for `wire_bytes`, or so small that it needs more padding than is
        allowed. The message names the sizes of compressed content that fit.
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
    """Compress a body to a gzip stream whose header has no file name and no time."""
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
    """Insert an extra field of `padding` bytes (a member of `GZIP_PADDING`) into a stream of `gzip_compress`."""
    extra = struct.pack("<H2sH", padding - 2, b"cl", padding - 6) + bytes(padding - 6)
    return stream[:3] + bytes((_FEXTRA,)) + stream[4:10] + extra + stream[10:]
