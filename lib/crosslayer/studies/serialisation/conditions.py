"""DoQ conditions by name (column `condition`): size of the client's handshake datagrams, and padding of the query."""

from typing import NamedTuple


class DoqSizes(NamedTuple):
    """Sizes that the DoQ client sends."""

    series: str
    """Name of the condition in figures."""
    datagram_bytes: int
    """UDP payload of each datagram of the handshake (RFC 9000, section 14.1)."""
    padding_bytes: int
    """Padding block: the query is padded to a multiple of this size (RFC 8467, section 4.1)."""


DOQ_SIZES = {
    "main": DoqSizes("DoQ", 1200, 128),
    "datagram-1400-padding-128": DoqSizes("DoQ, datagrams of 1400", 1400, 128),
    "datagram-1200-padding-512": DoqSizes("DoQ, query padded to 512", 1200, 512),
    "datagram-1200-padding-1024": DoqSizes("DoQ, query padded to 1024", 1200, 1024),
}
