"""The tables of a dataset: every column with its type, unit and meaning, in one place.

The SQLite store, the Parquet export, the checks on reading and the documentation are all made
from `TABLES`. Names are fixed by the design; columns may be added, never renamed. No I/O here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow

SCHEMA_VERSION = 1
"""Raised when a column changes its meaning; a reader refuses a dataset of another version."""


class Kind(StrEnum):
    """Logical type of a column; `JSON` is text that holds one JSON value."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    BOOLEAN = "boolean"
    JSON = "json"
    REAL_LIST = "list of real"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    description: str
    unit: str = ""
    required: bool = False
    """True where every row has a value, failed observations included."""


def _i(name: str, description: str, unit: str = "", *, required: bool = False) -> Column:
    return Column(name, Kind.INTEGER, description, unit, required)


def _r(name: str, description: str, unit: str = "ms", *, required: bool = False) -> Column:
    return Column(name, Kind.REAL, description, unit, required)


def _t(name: str, description: str, *, required: bool = False) -> Column:
    return Column(name, Kind.TEXT, description, required=required)


def _b(name: str, description: str) -> Column:
    return Column(name, Kind.BOOLEAN, description)


_IDENTITY = (
    _t("campaign", "identifier of the campaign", required=True),
    _i("round", "repetition of the cell, from 0", "count", required=True),
    _t("link", "name of the link profile", required=True),
    _t("study", "study the row belongs to: coalescing, single-query, web, authoritative", required=True),
)
_POSITION = _i("position", "place of the condition in the random order of its round, from 0", "count", required=True)
_STARTED = _r("started_s", "start of the observation, seconds since the Unix epoch", "s", required=True)
_ERROR = _t("error", "null where the observation succeeded, else what failed")

DNS_EXCHANGES = (
    *_IDENTITY,
    _t("page", "page whose host name was asked for; null outside page cells"),
    _t("protocol", "DoUDP, DoTCP, DoT, DoH, DoH3 or DoQ", required=True),
    _t("resumption", "none, ticket (PSK) or early-data (0-RTT)", required=True),
    _b("warming", "true for the exchange that only fetched the ticket: recorded, never analysed"),
    _t("variant", "main or null for the study's conditions, else what the client or the server did otherwise"),
    _POSITION,
    _STARTED,
    _r("handshake_ms", "start of the connection to the end of its handshake; 0 for DoUDP and for early data"),
    _r("query_ms", "query sent to answer complete"),
    _r("total_ms", "exchange: start of the connection to answer complete"),
    _r("cpu_ms", "CPU time of the client during the exchange"),
    _i("handshake_sent_bytes", "IP payload, client to server, before the query was sent", "bytes"),
    _i("handshake_received_bytes", "IP payload, server to client, before the query was sent", "bytes"),
    _i("query_sent_bytes", "IP payload, client to server, from the query on", "bytes"),
    _i("query_received_bytes", "IP payload, server to client, from the query on", "bytes"),
    _i("handshake_sent_packets", "packets, client to server, before the query was sent", "count"),
    _i("handshake_received_packets", "packets, server to client, before the query was sent", "count"),
    _i("query_sent_packets", "packets, client to server, from the query on", "count"),
    _i("query_received_packets", "packets, server to client, from the query on", "count"),
    _b("session_resumed", "the TLS session was resumed; null where there is none"),
    _b("early_data_accepted", "the server answered the query from early data, by its own word"),
    _b("retry_received", "the server asked for address validation by a Retry packet; null outside QUIC"),
    _t("quic_version", "QUIC version on the wire, e.g. v1; null without QUIC"),
    _t("tls_version", "TLS version, e.g. TLSv1.3; null without TLS"),
    _ERROR,
)

TCP_RTTS = (
    *_IDENTITY,
    _t("page", "page of the cell"),
    _POSITION,
    _STARTED,
    _r("rtt_ms", "TCP SYN sent to SYN-ACK received (connect) against the page's server"),
    _ERROR,
)

_NAVIGATION = (
    "connect_start_ms",
    "connect_ms",
    "secure_connection_start_ms",
    "fetch_start_ms",
    "domain_lookup_start_ms",
    "domain_lookup_end_ms",
    "request_start_ms",
    "response_start_ms",
    "response_end_ms",
    "dom_interactive_ms",
    "dom_content_loaded_ms",
    "dom_complete_ms",
)
_NAVIGATION_MEANING = {
    "connect_start_ms": "connectStart",
    "connect_ms": "connectEnd: the end of the QUIC handshake, also where the request left before it",
    "secure_connection_start_ms": "secureConnectionStart",
    "fetch_start_ms": "fetchStart",
    "domain_lookup_start_ms": "domainLookupStart",
    "domain_lookup_end_ms": "domainLookupEnd",
    "request_start_ms": "requestStart",
    "response_start_ms": "responseStart",
    "response_end_ms": "responseEnd",
    "dom_interactive_ms": "domInteractive",
    "dom_content_loaded_ms": "domContentLoadedEventStart",
    "dom_complete_ms": "domComplete",
}

PAGE_LOADS = (
    *_IDENTITY,
    _t("page", "name of the page, e.g. example.org", required=True),
    _t("h3", "1-rtt or 0-rtt: the condition asked for; evidence is in early_data_accepted", required=True),
    _t("coupling", "decoupled: address told to the browser; coupled: it resolves by itself", required=True),
    _t("dns_protocol", "transport of the browser's own lookups; null when decoupled"),
    _t("variant", "main for the study's conditions; aa-1 and aa-2 for the A/A self-check", required=True),
    _POSITION,
    _STARTED,
    _r("plt_ms", "PLT of the browser: loadEventStart after the navigation start"),
    _r("fcp_ms", "first contentful paint after the navigation start"),
    *(_r(name, f"navigation timing: {_NAVIGATION_MEANING[name]}, after the navigation start") for name in _NAVIGATION),
    _i("transfer_bytes", "navigation timing: transferSize of the document", "bytes"),
    _i("resource_count", "resources the page fetched besides its document", "count"),
    _i("lookup_count", "host names that the browser looked up; null when decoupled", "count"),
    _r("stub_lookup_ms", "lookup of the page's host by the stub's log, first query to last answer; null: decoupled"),
    _b("early_data_accepted", "the server received the document's request before the handshake was complete"),
    _b("session_resumed", "the TLS session of the document's connection was resumed, by the server's word"),
    _r("setup_ms", "context, priming, connection close and warm-up before the measured load"),
    Column("navigation", Kind.JSON, "the raw PerformanceNavigationTiming entry and the paint entries"),
    _ERROR,
)

RESOURCES = (
    *_IDENTITY,
    _t("page", "name of the page", required=True),
    _t("h3", "condition of the load: 1-rtt or 0-rtt", required=True),
    _t("variant", "variant of the load", required=True),
    _i("position", "place of the load in its round", "count", required=True),
    _t("url", "URL fetched", required=True),
    _t("initiator", "initiatorType of the resource timing entry"),
    _t("protocol", "nextHopProtocol, e.g. h3"),
    _r("start_ms", "startTime after the navigation start"),
    _r("request_start_ms", "requestStart after the navigation start"),
    _r("response_start_ms", "responseStart after the navigation start"),
    _r("response_end_ms", "responseEnd after the navigation start"),
    _i("transfer_bytes", "transferSize", "bytes"),
    _i("encoded_bytes", "encodedBodySize", "bytes"),
)

LOOKUPS = (
    *_IDENTITY,
    _t("page", "name of the page", required=True),
    _t("dns_protocol", "transport of the stub's upstream: that of the load", required=True),
    _t("variant", "variant of the load", required=True),
    _i("position", "place of the load in its round", "count", required=True),
    _i("number", "place of the query in its load, by arrival at the stub, from 0", "count", required=True),
    _r("started_s", "arrival of the query at the stub, seconds since the Unix epoch", "s", required=True),
    _t("name", "name asked for, with its final dot", required=True),
    _t("type", "record type asked for: A, HTTPS", required=True),
    _i("connection", "number of the upstream connection since the stub's start; 0 where there was none", "count"),
    _b("new_connection", "this query set the connection up; others that came meanwhile waited for it too"),
    _r("handshake_ms", "time the query waited for a connection; 0 where one stood, and for DoUDP"),
    _r("query_ms", "query sent upstream to answer complete"),
    _r("total_ms", "arrival of the query to its answer ready to leave"),
    _b("session_resumed", "the connection resumed a TLS session; null without TLS"),
    _b("early_data_accepted", "the upstream accepted the query as early data; null where it was none"),
    _t("rcode", "response code of the answer"),
    _i("query_bytes", "DNS message to the upstream, padding included and framing not", "bytes"),
    _i("answer_bytes", "DNS message from the upstream, likewise", "bytes"),
    _i("retries", "further times the stub sent the query", "count"),
    _b("tcp_fallback", "the answer over UDP was truncated and the query was asked again over TCP"),
    _ERROR,
)

PACED_QUERIES = (
    *_IDENTITY,
    _t("page", "always null: these queries belong to no page"),
    _t("protocol", "DoUDP, DoTCP, DoT, DoH, DoH3 or DoQ", required=True),
    _t("connection", "kept; new: closed after every query; 0-rtt: that, with the query as early data", required=True),
    _i("client", "who asked, from 0: each asks at its own pace", "count", required=True),
    _i("number", "query of this client in this round, from 0; 0 is the warm-up", "count", required=True),
    _b("warming", "true for the query that only sets the connection up or fetches the ticket: never analysed"),
    Column("position", Kind.INTEGER, "place of the transport in the random order of its round", "count", True),
    _STARTED,
    _r("late_ms", "how much later than its time the query left the generator"),
    _r("response_ms", "query sent by the client to answer received, through the stub"),
    _r("authority_ms", "the same asked of BIND on its own machine, without proxies and link: mean of the round"),
    _r("handshake_ms", "time the query waited in the stub for a connection; 0 where one stood"),
    _r("query_ms", "query sent by the stub to answer complete"),
    _b("new_connection", "the query set a connection up: first use, idle timeout or reconnect"),
    _b("session_resumed", "the TLS session was resumed; null where there is none"),
    _b("early_data_accepted", "the server received the query before the handshake was complete, by its own word"),
    _i("retries", "further times the stub sent the query", "count"),
    _i("query_bytes", "DNS message from the stub, padding included and framing not", "bytes"),
    _i("answer_bytes", "DNS message to the stub, likewise", "bytes"),
    _ERROR,
)

LINK_CHECKS = (
    _t("campaign", "identifier of the campaign", required=True),
    _i("round", "round before which the link was checked; -1 before the campaign", "count", required=True),
    _t("link", "name of the link profile", required=True),
    _t("page", "page of the cell about to be measured; null for the check before the campaign"),
    _r("when_s", "time of the check, seconds since the Unix epoch", "s", required=True),
    _t("backend", "netem or uml", required=True),
    Column("rtt_samples_ms", Kind.REAL_LIST, "idle RTT of every UDP echo probe that came back", "ms"),
    _i("probes", "UDP echo probes sent", "count"),
    _r("rtt_ms", "median idle RTT"),
    _r("nominal_rtt_ms", "RTT of the profile"),
    _r("down_mbit", "rate measured towards the client; null where it was not measured in this check", "Mbit/s"),
    _r("up_mbit", "rate measured towards the server; null where it was not measured in this check", "Mbit/s"),
    _r("nominal_down_mbit", "downlink rate of the profile; null where unshaped", "Mbit/s"),
    _r("nominal_up_mbit", "uplink rate of the profile; null where unshaped", "Mbit/s"),
    _r("configured_down_delay_ms", "netem delay towards the client, after calibration"),
    _r("configured_up_delay_ms", "netem delay towards the server, after calibration"),
    _t("verdict", "pass, or what was out of tolerance", required=True),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "dns_exchanges": DNS_EXCHANGES,
    "tcp_rtts": TCP_RTTS,
    "page_loads": PAGE_LOADS,
    "resources": RESOURCES,
    "lookups": LOOKUPS,
    "paced_queries": PACED_QUERIES,
    "link_checks": LINK_CHECKS,
}
"""Every table of a dataset, by name. A dataset folder holds `TABLE/link=LINK/part-0.parquet` and `campaign.json`."""


def arrow_schema(table: str) -> pyarrow.Schema:
    """Arrow schema of a table, as every Parquet file of a dataset has it.

    Parameters
    ----------
    table
        A key of `TABLES`.

    Returns
    -------
    pyarrow.Schema
        One field per column, in order; a required column is not nullable, so writing a null there fails.
        Field metadata: `description` and, where there is one, `unit`. Schema metadata: `table`, `schema_version`.
    """
    import pyarrow as pa  # here, because the command line imports this module and pyarrow takes its time

    types = {
        Kind.INTEGER: pa.int64(),
        Kind.REAL: pa.float64(),
        Kind.TEXT: pa.string(),
        Kind.BOOLEAN: pa.bool_(),
        Kind.JSON: pa.string(),
        Kind.REAL_LIST: pa.list_(pa.float64()),
    }
    fields = [
        pa.field(
            column.name,
            types[column.kind],
            nullable=not column.required,
            metadata={"description": column.description} | ({"unit": column.unit} if column.unit else {}),
        )
        for column in TABLES[table]
    ]
    return pa.schema(fields, metadata={"table": table, "schema_version": str(SCHEMA_VERSION)})
