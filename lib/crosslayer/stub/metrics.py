"""Metrics of a query, as the stub writes them. No I/O, no clock."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crosslayer.dns import Protocol
from crosslayer.stub.errors import StubError


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """One query of a client and what its answer took; written before the answer leaves.

    If a query was asked again (`retries`), phases are those of the last time and only `total_ms` has all of it.
    """

    time_ns: int
    """Arrival of the query, Unix time in nanoseconds."""
    client: str
    """Client's address and port."""
    client_protocol: str
    """udp or tcp."""
    name: str
    """Name asked for, with its final dot; empty if the query could not be read."""
    type: str
    """Mnemonic of the record type."""
    protocol: Protocol
    """Transport to the upstream."""
    connection: int
    """Number of the upstream connection since the start; 0 if there was none."""
    new_connection: bool
    """This query set the connection up. Others that come meanwhile wait for it, and have a `handshake_ms` too."""
    local_port: int
    """The stub's port towards the upstream: with it a row finds the server's events and the packets; 0 without one."""
    handshake_ms: float
    """Time this query waited for a connection to be set up; 0 if one stood, for DoUDP and with early data."""
    query_ms: float
    """Query sent to answer complete; with early data from the start of the connection."""
    total_ms: float
    """Arrival of the query to its answer ready to leave."""
    resumed: bool | None
    """The connection resumed a TLS session; None without TLS or where the handshake did not end."""
    early_data: bool
    """The query was sent before the handshake was complete."""
    early_data_accepted: bool | None
    """The server accepted it as early data; None if it was none. The server log is the evidence."""
    rcode: str
    """Response code of the answer to the client; empty if it got none."""
    query_bytes: int
    """DNS message to the upstream, padding included and framing not; 0 if none was sent."""
    answer_bytes: int
    """DNS message from the upstream, likewise."""
    retries: int
    """Further times the query was sent: after a fault, a loss, or too long without an answer on its connection."""
    silence_ms: float
    """On an idle connection: the wait for a packet (one PTO) before the query was also sent over a new one; 0 if it
    was sent over one only."""
    tcp_fallback: bool
    """DoUDP got a truncated answer and the query was asked again over TCP."""
    error: str
    """Why there is no good answer, short and stable; empty if there is one, whatever its response code."""


def parse_metrics(line: str) -> QueryMetrics:
    """One line of the stub's metrics as its dataclass; `StubError` where this version does not know it."""
    try:
        values = json.loads(line)
        values["time_ns"] = values.pop("time")
        values["protocol"] = Protocol(values["protocol"])
        return QueryMetrics(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StubError(
            f"the stub wrote metrics that cannot be read: {line!r}",
            next_step="The stub has another version, or the disk is full. Build the stub again with `make setup`.",
        ) from error
