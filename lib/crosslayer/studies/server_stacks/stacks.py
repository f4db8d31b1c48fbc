"""The compared servers, and their names in the column `condition`."""

from __future__ import annotations

FIRST, SECOND, WIDE = STACKS = ("quic-go", "aioquic", "aioquic with the window of quic-go")
"""QUIC at the server: first implementation, second one, and second one with the first one's initial window."""

WINDOW = 32
"""Datagrams of the initial congestion window of quic-go; aioquic and RFC 9002, section 7.2 have 10."""

PREFIXES = {FIRST: "", SECOND: "aioquic: ", WIDE: "aioquic-window: "}
"""Prefixes of the column `condition` in the rows of each server."""


def labelled(stack: str, condition: str) -> str:
    """Value of the column `condition` for a condition with one of the servers."""
    return PREFIXES[stack] + condition
