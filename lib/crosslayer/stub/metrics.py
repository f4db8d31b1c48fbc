"""Metrics of a query, as the stub writes them. This module does no I/O and reads no clock."""

from __future__ import annotations

import json
from dataclasses import dataclass

from crosslayer.dns import Protocol
from crosslayer.stub.errors import StubError


@dataclass(frozen=True, slots=True)
class QueryMetrics:
    """Metrics of one query of a client; the stub writes them before it sends the answer.

    If the stub repeated the query (`retries`), `handshake_ms` and `query_ms` describe the attempt that gave the result.
    Over DoUDP, `query_ms` includes all retransmissions. `total_ms` always includes all attempts.
    """

    time_ns: int
    """Arrival of the query, Unix time in nanoseconds."""
    client: str
    """Address and port of the client."""
    client_protocol: str
    """Protocol between client and stub: udp or tcp."""
    name: str
    """Queried name, with its final dot; empty if the query could not be read."""
    type: str
    """Mnemonic of the record type."""
    protocol: Protocol
    """Transport between stub and upstream."""
    connection: int
    """Number of the upstream connection, counted since the start of the stub; 0 if there was none."""
    new_connection: bool
    """Whether this query caused the connection setup.

    Other queries may wait for the same setup. Their `handshake_ms` is the time of this wait.
    """
    local_port: int
    """Local port from which the stub sent the query to the upstream; 0 if it sent none.

    The port identifies the packets and the server events of the query.
    """
    handshake_ms: float
    """Time for which the query waited for a connection; 0 on an existing connection, for DoUDP and with early data."""
    query_ms: float
    """Time from the moment when the query is sent until its answer is complete.

    With early data, this time includes the wait for the connection.
    """
    total_ms: float
    """Time from the arrival of the query until its answer is ready to be sent."""
    resumed: bool | None
    """Whether the connection resumed a TLS session; None without TLS, or if the handshake did not end."""
    early_data: bool
    """Whether the query was sent before the handshake was complete."""
    early_data_accepted: bool | None
    """Whether, according to the stub, the server accepted the query as early data; only the server log proves it.

    None if the query was not sent as early data, or if the handshake did not end.
    """
    rcode: str
    """Response code of the answer to the client; empty without an answer."""
    query_bytes: int
    """Size of the DNS message for the upstream, with padding, without framing; 0 if the stub refused the query."""
    answer_bytes: int
    """Size of the DNS message from the upstream, with padding, without framing; 0 if no message arrived."""
    retries: int
    """Number of times that the stub sent the query again.

    The reasons are a fault, a loss, or a connection that gave no answer for too long.
    """
    silence_ms: float
    """Time for which the stub waited for a packet on an idle connection before it also sent the query over a new one.

    It is one PTO of the idle connection. 0 if the query was not sent over a new connection for this reason.
    """
    tcp_fallback: bool
    """Whether the query was repeated over TCP, because the answer over DoUDP was truncated."""
    error: str
    """Short reason why there is no valid answer; empty if there is one, whatever its response code."""


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
