"""Names of what IMC 2022, section 3.1, reports of single queries: transports and parts of an exchange."""

from __future__ import annotations

PAPER_SERIES = ("DoUDP", "DoTCP", "DoQ", "DoH", "DoT")
"""What IMC22 measured, in the order of its Table 1: encrypted transports with session resumption."""

DURATIONS = {"handshake": "handshake_ms", "resolve": "query_ms", "exchange": "total_ms"}
"""Durations of an exchange, and the columns that have them."""

SIZES = {
    "handshake, client to resolver": "handshake_sent_bytes_by_record",
    "handshake, resolver to client": "handshake_received_bytes_by_record",
    "query": "query_sent_bytes_by_record",
    "response": "query_received_bytes_by_record",
}
"""Parts of IMC22 Table 1, and the columns that have them, split as there; bytes are IP payload."""
