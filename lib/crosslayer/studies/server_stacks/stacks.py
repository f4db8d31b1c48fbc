"""The compared servers, and their names in the column `condition`."""

from __future__ import annotations

FIRST, SECOND, WIDE = STACKS = ("quic-go", "aioquic", "aioquic with the window of quic-go")
"""Names of the servers: quic-go, aioquic, and aioquic with quic-go's initial congestion window."""

WINDOW = 32
"""Initial congestion window of quic-go, datagrams; aioquic and RFC 9002, section 7.2 have 10."""

PREFIXES = {FIRST: "", SECOND: "aioquic: ", WIDE: "aioquic-window: "}
"""Prefix of the column `condition` by server."""


def labelled(stack: str, condition: str) -> str:
    """Value of the column `condition` in the rows of a condition with server `stack`."""
    return PREFIXES[stack] + condition
