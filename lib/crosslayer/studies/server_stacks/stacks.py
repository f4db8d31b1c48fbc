"""The servers that are compared, and how the column `condition` names them."""

from __future__ import annotations

FIRST, SECOND, WIDE = STACKS = ("quic-go", "aioquic", "aioquic with the window of quic-go")
"""QUIC at the server: the first server's, another implementation, and that with the first one's initial window."""

WINDOW = 32
"""Datagrams of the initial congestion window of quic-go; aioquic and RFC 9002, section 7.2 have 10."""

PREFIXES = {FIRST: "", SECOND: "aioquic: ", WIDE: "aioquic-window: "}
"""What the column `condition` of their rows begins with."""


def labelled(stack: str, condition: str) -> str:
    """The column `condition` of a condition with one of the servers."""
    return PREFIXES[stack] + condition
