"""Metrics of a query, as the stub writes them. No I/O, no clock."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crosslayer.dns import Protocol
from crosslayer.stub.errors import StubError


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """Metrics of one query of a client; the stub writes them before it sends the answer.

    If the stub repeated the query (`retries`), phases are those of the last attempt; only `total_ms` has all attempts.
    """

    time_ns: int
    """Arrival of the query, Unix time in nanoseconds."""
    client: str
    """Client's address and port."""
    client_protocol: str
    """udp or tcp."""
    name: str
    """Queried name, with its final dot; empty if the query could not be read."""
    type: str
    """Mnemonic of the record type."""
    protocol: Protocol
    """Transport to the upstream."""
    connection: int
    """Number of the upstream connection since the start; 0 if there was none."""
    new_connection: bool
    """This query caused the connection setup. Queries that arrive meanwhile also wait and have a `handshake_ms`."""
    local_port: int
    """The stub's port towards the upstream, which identifies the server's events and the packets; 0 without one."""
    handshake_ms: float
    """Time this query waited for a connection; 0 on an existing connection, for DoUDP and with early data."""
    query_ms: float
    """Query sent to answer complete; with early data, from the start of the connection."""
    total_ms: float
    """Arrival of the query to its answer ready to send."""
    resumed: bool | None
    """The connection resumed a TLS session; None without TLS, or if the handshake did not end."""
    early_data: bool
    """The query was sent before the handshake was complete."""
    early_data_accepted: bool | None
    """The server accepted the query as early data; None if it was not sent as such. The server log is the evidence."""
    rcode: str
    """Response code of the answer to the client; empty without an answer."""
    query_bytes: int
    """Size of the DNS message to the upstream, with padding, without framing; 0 if none was sent."""
    answer_bytes: int
    """Size of the DNS message from the upstream, likewise."""
    retries: int
    """Repetitions of the query: after a fault, a loss, or too long without an answer on its connection."""
    silence_ms: float
    """Wait for a packet on an idle connection (one PTO) before the query was also sent over a new connection; 0 if it
    was not."""
    tcp_fallback: bool
    """DoUDP got a truncated answer, and the query was repeated over TCP."""
    error: str
    """Why there is no good answer, short and stable; empty if there is one, whatever its response code."""


def parse_metrics(line: str) -> QueryMetrics:
    """Parse one line of the stub's metrics; `StubError` if it has another format."""
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
