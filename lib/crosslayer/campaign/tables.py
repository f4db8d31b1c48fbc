"""The tables of a dataset: one class per table, one line per column.

The classes determine the SQLite store, the Parquet files, the frames of the analysis, and the checks of a dataset that
is opened. They also determine which values of a row are copied from a result of browser, DNS client or stub.
`docs/reference/columns.md` is the output of `python -m crosslayer.campaign.tables`. A column may be added at any time.
A new name or meaning of a column requires a new `SCHEMA_VERSION`. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import EnumType
from typing import TYPE_CHECKING, Any, ClassVar

from crosslayer.vocabulary import (
    Browser,
    CacheUse,
    ClientKind,
    Clock,
    Connection,
    Coupling,
    Direction,
    EventKind,
    Http3,
    LocatedKind,
    PathEvent,
    Protocol,
    QueryState,
    Resumption,
    Role,
    Sharing,
)

if TYPE_CHECKING:
    import polars
    import pyarrow

SCHEMA_VERSION = 3
"""Version of the tables and of `campaign.json`. It increases if a column or key gets another name or meaning.

Since version 3, rows have `condition` and `role`.
"""

EXCHANGE = "Exchange"
"""Source of columns: the result of a DNS exchange (`dns.ExchangeResult`)."""
STUB = "QueryMetrics"
"""Source of columns: the stub's metrics of a query (`stub.QueryMetrics`)."""
LOAD = "PageLoad"
"""Source of columns: a browser's report of a load (`browser.PageLoad`).

The three constants below name parts of such a report, as the W3C names them.
"""
NAVIGATION = "PerformanceNavigationTiming"
PAINT = "PerformancePaintTiming"
RESOURCE = "PerformanceResourceTiming"
ASKED = "Asked"
"""Source of columns: a query of the load generator (`dns.Asked`)."""
MACHINE = "Usage"
"""Source of columns: CPU load during a round (`cpu_load.Usage`)."""
LATENESS = "ExtraDelay"
"""Source of columns: delay of packets beyond netem's delay (`testbed.ExtraDelay`)."""
CHECK = "LinkCheck"
"""Source of columns: a check of the link (`testbed.LinkCheck`)."""

_RESUMED = f"{STUB}.resumed"
_UNITS = {"_ms": "ms", "_s": "s", "_mbit": "Mbit/s", "_bytes": "bytes"}
_TYPES: dict[Any, tuple[str, str]] = {  # in words, and in SQLite
    int: ("integer", "INTEGER"),
    float: ("real", "REAL"),
    str: ("text", "TEXT"),
    bool: ("boolean", "INTEGER"),
    list[float]: ("list of real", "TEXT"),
}


@dataclass(slots=True)
class Column:
    """One column of a table."""

    type: Any
    """Type of the values: int, float, str, bool, list[float], or an enum of all allowed values."""
    meaning: str
    source: str = ""
    """Kind of result from which the value is copied (see `Table.taken`), e.g. `Exchange`; empty if it is not copied.

    If the column has another name than the result's field, the source is `KIND.FIELD`, e.g.
    `PerformanceNavigationTiming.connectEnd`.
    """
    required: bool = False
    """Whether every row must have a value, even the row of a failed observation."""
    key: bool = False
    """Whether the column belongs to the key that identifies a condition; a round measures each condition once."""
    success: bool | str = False
    """Which successful observations (those with a null in `error`) must have a value in this column.

    True: all of them. The name of another column: those that have a value in the other column. False: none.
    """
    signed: bool = False
    """Whether the value may be negative, e.g. a difference; other numbers may not."""
    present: bool | None = None
    """Whether every file must have the column.

    The default, None, becomes True if `required`, `key` or `success` is set, else False.
    """
    name: str = field(default="", init=False)

    def __set_name__(self, owner: object, name: str) -> None:
        self.name = name
        if self.present is None:
            self.present = bool(self.required or self.key or self.success)

    @property
    def description(self) -> str:
        """Meaning, allowed values, and the part of a result that the column is taken from, if any."""
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.meaning}{values}" + (f": {self.source}" if "." in self.source else "")

    @property
    def values(self) -> tuple[str, ...]:
        """Allowed values; empty if any value of the type is allowed."""
        return tuple(map(str, self.type)) if isinstance(self.type, EnumType) else ()

    @property
    def stored(self) -> Any:
        """Type of the stored values: int, float, str (also for an enum), bool or list[float]."""
        return str if self.values else self.type

    @property
    def sql(self) -> str:
        """Type of the column in SQLite, which stores a list as JSON."""
        return _TYPES[self.stored][1]

    @property
    def unit(self) -> str:
        """Unit that the end of the column's name states. If it states none: `count` for integers, else empty."""
        known = (unit for ending, unit in _UNITS.items() if self.name.endswith(ending))
        return next(known, "count" if self.type is int else "")


TABLES: dict[str, type[Table]] = {}
"""Every table by name. A dataset folder holds `TABLE/link=LINK/part-0.parquet` and `campaign.json`."""


class Table:
    """A table of a dataset; its subclasses are never instantiated."""

    table: ClassVar[str]
    """Name of the table, and of the folder of its Parquet files."""
    columns: ClassVar[tuple[Column, ...]]
    observed: ClassVar[bool]
    """Whether the rows are observations, so that a round has each condition once."""

    def __init_subclass__(cls, table: str = "") -> None:
        cls.table = table
        cls.columns = tuple(c for base in reversed(cls.mro()) for c in vars(base).values() if isinstance(c, Column))
        cls.observed = any(column.success for column in cls.columns)
        if table:
            TABLES[table] = cls

    @classmethod
    def taken(cls, source: str, result: object) -> dict[str, Any]:
        """Copy values unchanged from a result; returns them by the name of the column that stores them.

        Parameters
        ----------
        source
            Kind of the result: a value of `Column.source` without the field, e.g. `EXCHANGE`.
        result
            An object with the fields as attributes, or a mapping with the fields as keys.

        Raises
        ------
        AttributeError, KeyError
            If the result lacks a field.
        """
        return {
            name: result[key] if isinstance(result, Mapping) else getattr(result, key)
            for name, key in cls.sources(source).items()
        }

    @classmethod
    def sources(cls, source: str) -> dict[str, str]:
        """Columns that are copied unchanged from a kind of result, each with the name of the result's field."""
        parts = [(column.name, *column.source.partition(".")) for column in cls.columns]
        return {name: key or name for name, of, _, key in parts if of == source}

    @classmethod
    def identity(cls, row: Mapping[str, Any]) -> dict[str, Any]:
        """Values of this table's required columns, taken from the row of another table for the same observation."""
        return {c.name: row[c.name] for c in cls.columns if c.required and c.name in row}

    @classmethod
    def arrow_schema(cls) -> pyarrow.Schema:
        """Arrow schema of every Parquet file of the table.

        Returns
        -------
        pyarrow.Schema
            One field per column, in order; a required column is not nullable, so writing a null there fails.
            Field metadata: `description`, and `unit` if there is one. Schema metadata: `table`, `schema_version`.
        """
        import pyarrow as pa  # here, because the command line imports this module and importing pyarrow is slow

        types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
        types[list[float]] = pa.list_(pa.float64())
        fields = [
            pa.field(
                column.name,
                types[column.stored],
                nullable=not column.required,
                metadata={"description": column.description} | ({"unit": column.unit} if column.unit else {}),
            )
            for column in cls.columns
        ]
        return pa.schema(fields, metadata={"table": cls.table, "schema_version": str(SCHEMA_VERSION)})

    @classmethod
    def polars_schema(cls) -> dict[str, polars.DataType]:
        """Column names and types of the table's polars frame."""
        import polars as pl

        return dict(pl.DataFrame(cls.arrow_schema().empty_table()).schema)


_ERROR = Column(str, "failure of the observation; null if it succeeded", present=True)
_POSITION = Column(int, "position of the condition in the random order of its round, from 0", required=True)
_STARTED = Column(float, "start of the observation, seconds since the Unix epoch", required=True)
_KEY_SHARE = Column(str, "group of the TLS key exchange, e.g. X25519MLKEM768 (server log); null without QUIC")
_INITIAL_PACKETS = Column(int, "Initial packets that carried the ClientHello (server log); null without QUIC")
_RESOLVER = "public resolver of live pages; null on the testbed"
_LOAD_POSITION = Column(int, "position of the load in its round", required=True)
_LOAD_CONDITION = Column(str, "condition of the load", required=True, key=True)
_ROLE = Column(Role, "role of the observation in its round", required=True, key=True)
_LOAD_ROLE = Column(Role, "role of the load", required=True, key=True)


class _OfStudy(Table):
    campaign = Column(str, "identifier of the campaign", required=True, key=True)
    round = Column(int, "repetition of the cell, from 0", required=True)
    link = Column(str, "name of the link profile", required=True, key=True)
    study = Column(str, "study of the campaign", required=True, key=True)
    clock = Column(Clock, "clock of the campaign; a file without this column was measured in real time", present=False)
    host = Column(
        str,
        "machine that measured the row, as in `campaign.json`; a file without this column has one machine",
        present=False,
    )


class DnsExchanges(_OfStudy, table="dns_exchanges"):
    """A DNS resolution on a new connection."""

    page = Column(str, "page whose host name was queried; null if the cell has no page", key=True)
    protocol = Column(Protocol, "DNS transport", EXCHANGE, required=True, key=True)
    resumption = Column(Resumption, "intended use of an earlier session", EXCHANGE, required=True, key=True)
    role = Column(
        Role,
        "role in the round; priming: fetches ticket and token for the next exchange",
        EXCHANGE,
        required=True,
        key=True,
    )
    condition = Column(str, "main, or the name of a variation of client or server", required=True, key=True)
    server_certificate_bytes = Column(
        int, "configured size of the server's TLS Certificate message; null if the study does not set it", key=True
    )
    position = _POSITION
    started_s = Column(float, _STARTED.meaning, EXCHANGE, required=True)
    handshake_ms = Column(
        float,
        "time from the start of the connection to the end of its handshake; 0 for DoUDP and early data",
        EXCHANGE,
        success="query_ms",
    )
    query_ms = Column(float, "time from sending the query to the complete answer", EXCHANGE, success="handshake_ms")
    total_ms = Column(float, "time from the start of the connection to the complete answer", EXCHANGE, success=True)
    cpu_ms = Column(float, "CPU time of the client during the exchange", EXCHANGE)
    handshake_sent_bytes = Column(int, "IP payload, client to server, before the query was sent", EXCHANGE)
    handshake_received_bytes = Column(int, "IP payload, server to client, before the query was sent", EXCHANGE)
    query_sent_bytes = Column(int, "IP payload, client to server, from the query to the end", EXCHANGE)
    query_received_bytes = Column(int, "IP payload, server to client, from the query to the end", EXCHANGE)
    handshake_sent_bytes_by_record = Column(
        int,
        "IP payload, client to server, of packets and records of the handshake, up to the answer (DoTCP: to the close)",
        EXCHANGE,
    )
    handshake_received_bytes_by_record = Column(int, "as handshake_sent_bytes_by_record, server to client", EXCHANGE)
    query_sent_bytes_by_record = Column(
        int,
        "IP payload, client to server, of all other packets and records, up to the answer (DoTCP: to the close)",
        EXCHANGE,
    )
    query_received_bytes_by_record = Column(int, "as query_sent_bytes_by_record, server to client", EXCHANGE)
    handshake_sent_packets = Column(int, "packets, client to server, before the query was sent", EXCHANGE)
    handshake_received_packets = Column(int, "packets, server to client, before the query was sent", EXCHANGE)
    query_sent_packets = Column(int, "packets, client to server, from the query to the end", EXCHANGE)
    query_received_packets = Column(int, "packets, server to client, from the query to the end", EXCHANGE)
    first_flight_bytes = Column(int, "IP payload, client to server, before the first packet from the server", EXCHANGE)
    first_flight_packets = Column(int, "packets, client to server, before the first packet from the server", EXCHANGE)
    session_resumed = Column(bool, "the TLS session was resumed; null without TLS", EXCHANGE)
    early_data_accepted = Column(
        bool,
        "the server received the query before the end of the handshake (server log; in a file without "
        "`address_validated`: TLS of the client); null without QUIC",
        EXCHANGE,
    )
    address_validated = Column(
        bool, "the client's first packet had a valid address-validation token (server log); null without QUIC"
    )
    key_share = _KEY_SHARE
    initial_packets = _INITIAL_PACKETS
    retry_received = Column(bool, "the server requested address validation by a Retry; null without QUIC", EXCHANGE)
    certificate_bytes = Column(
        int, "size of the received TLS Certificate message; 0 in a resumed session, null without TLS", EXCHANGE
    )
    quic_version = Column(str, "QUIC version on the wire, e.g. v1; null without QUIC", EXCHANGE)
    tls_version = Column(str, "TLS version, e.g. TLSv1.3; null without TLS", EXCHANGE)
    error = Column(str, _ERROR.meaning, EXCHANGE, present=True)


class TcpRtts(_OfStudy, table="tcp_rtts"):
    """A TCP connect to the page's server."""

    page = Column(str, "page of the cell", key=True)
    position = _POSITION
    started_s = _STARTED
    rtt_ms = Column(
        float, "time from sending a TCP SYN to the page's server to the arrival of its SYN-ACK (connect)", success=True
    )
    error = _ERROR


class PageLoads(_OfStudy, table="page_loads"):
    """A load of a page in a browser; times count from the start of the navigation."""

    page = Column(str, "name of the page, e.g. example.org", required=True, key=True)
    h3 = Column(Http3, "intended HTTP/3 handshake; early_data_accepted has the evidence", required=True, key=True)
    coupling = Column(Coupling, "whether the browser resolves by itself", required=True, key=True)
    dns_protocol = Column(Protocol, "transport of the browser's own lookups; null when decoupled", key=True)
    resolver = Column(str, _RESOLVER, key=True, present=False)
    condition = Column(
        str,
        "main, or the name of a variation of browser, server or path (no-token: 0-RTT without the token)",
        required=True,
        key=True,
    )
    role = Column(
        Role,
        "role in the round; self-check: a second load of this condition (A/A); control: primed as for 0-RTT, with a "
        "ticket that the server refused",
        required=True,
        key=True,
    )
    browser = Column(
        Browser, "browser of the load; a file without this column was measured in Chromium", key=True, present=False
    )
    position = _POSITION
    started_s = Column(float, _STARTED.meaning, LOAD, required=True)
    plt_ms = Column(
        float,
        "page load time (PLT); for curl, the time of the document's last byte",
        f"{NAVIGATION}.loadEventStart",
        success=True,
    )
    fcp_ms = Column(float, "first contentful paint; null if nothing was painted", f"{PAINT}.first-contentful-paint")
    connect_start_ms = Column(float, "start of the connection", f"{NAVIGATION}.connectStart", success=True)
    connect_ms = Column(
        float, "end of the handshake, even if the request was sent earlier", f"{NAVIGATION}.connectEnd", success=True
    )
    secure_connection_start_ms = Column(float, "start of the TLS handshake", f"{NAVIGATION}.secureConnectionStart")
    fetch_start_ms = Column(float, "start of the fetch of the document", f"{NAVIGATION}.fetchStart")
    domain_lookup_start_ms = Column(float, "start of the lookup", f"{NAVIGATION}.domainLookupStart")
    domain_lookup_end_ms = Column(float, "end of the lookup", f"{NAVIGATION}.domainLookupEnd")
    request_start_ms = Column(float, "request sent", f"{NAVIGATION}.requestStart", success=True)
    response_start_ms = Column(float, "first byte of the response", f"{NAVIGATION}.responseStart", success=True)
    response_end_ms = Column(float, "last byte of the document", f"{NAVIGATION}.responseEnd")
    dom_interactive_ms = Column(float, "document parsed", f"{NAVIGATION}.domInteractive")
    dom_content_loaded_ms = Column(float, "DOMContentLoaded", f"{NAVIGATION}.domContentLoadedEventStart")
    dom_complete_ms = Column(float, "document and resources complete", f"{NAVIGATION}.domComplete")
    transfer_bytes = Column(int, "transferred bytes of document and header", f"{NAVIGATION}.transferSize")
    resource_count = Column(int, "resources that the page fetched in addition to its document")
    lookup_count = Column(int, "host names that the browser looked up; null when decoupled")
    stub_lookup_ms = Column(
        float, "time from the first query for the page's host at the stub to the last answer; null when decoupled"
    )
    early_data_accepted = Column(
        bool,
        "the server received the request before the end of the handshake (server log)",
        success="session_resumed",
    )
    session_resumed = Column(
        bool, "the TLS session of the connection was resumed (server log)", success="early_data_accepted"
    )
    address_validated = Column(bool, "the client's first packet had a valid address-validation token (server log)")
    ech_accepted = Column(bool, "the server decrypted the client's ClientHello (server log)")
    document_protocol = Column(str, "protocol of the document: h3 or h2", f"{NAVIGATION}.nextHopProtocol")
    netlog_handshake_ms = Column(
        float,
        "time from the first Initial to the last Handshake packet that Chromium sent (its netlog); null if the plan "
        "captures no netlog",
    )
    key_share = _KEY_SHARE
    initial_packets = _INITIAL_PACKETS
    connection_count = Column(int, "QUIC connections of lookups and requests (server log); null if not counted")
    server_ms = Column(
        float, "time from the arrival of the document's request until its body was handed to the transport (server log)"
    )
    browser_idle = Column(
        bool,
        "the browser was idle before the measured load; false: it was still busy at the end of the maximum wait",
        LOAD,
    )
    setup_ms = Column(
        float, "duration of context, priming, connection close and warm-up before the measured load", LOAD
    )
    navigation = Column(str, "the raw navigation and paint entries, JSON", f"{LOAD}.raw")
    error = _ERROR


class Resources(_OfStudy, table="resources"):
    """A resource of a page load; times count from the start of the navigation."""

    page = Column(str, "name of the page", required=True, key=True)
    h3 = Column(Http3, "condition of the load", required=True, key=True)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    position = _LOAD_POSITION
    url = Column(str, "URL fetched", f"{RESOURCE}.name", required=True)
    initiator = Column(str, "what caused the fetch", f"{RESOURCE}.initiatorType")
    alpn = Column(str, "protocol of the response, e.g. h3", f"{RESOURCE}.nextHopProtocol")
    start_ms = Column(float, "start of the fetch", f"{RESOURCE}.startTime")
    request_start_ms = Column(float, "request sent", f"{RESOURCE}.requestStart")
    response_start_ms = Column(float, "first byte of the response", f"{RESOURCE}.responseStart")
    response_end_ms = Column(float, "last byte of the response", f"{RESOURCE}.responseEnd")
    transfer_bytes = Column(int, "body and header", f"{RESOURCE}.transferSize")
    encoded_bytes = Column(int, "body as it was on the wire", f"{RESOURCE}.encodedBodySize")
    server_ms = Column(
        float, "time from the arrival of the request until the body was handed to the transport (server log)"
    )


class Lookups(_OfStudy, table="lookups"):
    """A query that the stub received during a page load."""

    page = Column(str, "name of the page", required=True, key=True)
    dns_protocol = Column(
        Protocol, "transport between stub and upstream; `dns_protocol` of the load", required=True, key=True
    )
    resolver = Column(str, _RESOLVER, key=True, present=False)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    position = _LOAD_POSITION
    number = Column(int, "number of the query in its load, by arrival at the stub, from 0", required=True)
    started_s = Column(float, "arrival of the query at the stub, seconds since the Unix epoch", required=True)
    name = Column(str, "queried name, with its final dot", STUB, required=True)
    type = Column(str, "queried record type: A, HTTPS", STUB, required=True)
    connection_id = Column(
        int, "number of the upstream connection, counted from the start of the stub; 0: none", f"{STUB}.connection"
    )
    new_connection = Column(bool, "this query caused the connection setup; others may have waited for it too", STUB)
    handshake_ms = Column(
        float, "wait for a connection; 0 on an existing connection, for DoUDP and for early data", STUB
    )
    query_ms = Column(float, "time from sending the query upstream to the complete answer", STUB)
    total_ms = Column(float, "time from the arrival of the query until its answer was ready to be sent", STUB)
    session_resumed = Column(bool, "the connection resumed a TLS session; null without TLS", _RESUMED)
    early_data_accepted = Column(
        bool, "the upstream accepted the query as early data; null if it was not sent as early data", STUB
    )
    rcode = Column(str, "response code of the answer", STUB)
    query_bytes = Column(int, "DNS message to the upstream, with padding, without framing", STUB)
    answer_bytes = Column(int, "DNS message from the upstream, with padding, without framing", STUB)
    retries = Column(int, "repetitions of the query by the stub", STUB)
    tcp_fallback = Column(bool, "answer truncated over UDP, query repeated over TCP", STUB)
    error = _ERROR


class Attempts(_OfStudy, table="attempts"):
    """A client's lookup of a page's host or attempt to connect to it, seen in packets; times count from `started_s`."""

    page = Column(str, "name of the page", required=True, key=True)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    browser = Column(Browser, "browser that loaded the page", key=True)
    position = _LOAD_POSITION
    number = Column(int, "number of the attempt in its load, from 0", required=True)
    started_s = Column(float, "first packet of the load's attempts, seconds since the Unix epoch", required=True)
    kind = Column(str, "A, AAAA, HTTPS: a lookup over UDP; quic, tcp: a connection", required=True)
    address = Column(str, "destination address", required=True)
    family = Column(int, "IP version of that address: 4 or 6")
    started_ms = Column(float, "first packet of the attempt", required=True)
    sent_ms = Column(list[float], "times of the client's packets before an answer, at most 32; for TCP only SYNs")
    answered_ms = Column(float, "first packet from the other end; null if none arrived")
    refused_ms = Column(float, "ICMP unreachable or TCP reset; null if none arrived")


class ResolvedLoads(_OfStudy, table="resolved_loads"):
    """The lookup of a name and then the load of its page, by crosslayer's own clients; times count from `started_s`."""

    page = Column(str, "name of the page", required=True, key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    resumption = Column(Resumption, "intended use of an earlier session by the DNS connection", required=True, key=True)
    connections = Column(Sharing, "connection of the page: its own, or that of DNS", required=True, key=True)
    h3 = Column(Http3, "handshake of the page's connection; 0-rtt: resumed with early data", required=True, key=True)
    condition = Column(
        str,
        "main; no-token: without address-validation token; at-once: query and request are sent together, in "
        "at-once-no-token without that token; settings: no request before the server's SETTINGS arrived; certificate, "
        "certificate-token, certificate-no-token: with a certificate of a configured size; prefix `aioquic: `: with "
        "the second server; prefix `aioquic-window: `: with the second server and the first server's initial window",
        required=True,
        key=True,
    )
    role = _ROLE
    server_certificate_bytes = Column(
        int, "configured size of the server's TLS Certificate message; null if the study does not set it", key=True
    )
    position = _POSITION
    started_s = _STARTED
    resolved_ms = Column(float, "arrival of the complete answer for the name", success=True)
    settings_ms = Column(float, "arrival of the server's SETTINGS on the page's connection")
    response_start_ms = Column(float, "arrival of the header of the document's response", success=True)
    document_ms = Column(float, "last byte of the document", success=True)
    load_complete_ms = Column(float, "last byte of the last resource", success=True)
    arrived_ms = Column(list[float], "times at which more of the document had arrived")
    arrived_bytes = Column(list[float], "bytes of the body that had arrived at each of these times")
    received_bytes = Column(list[float], "UDP payload that the page's connection had received at each of these times")
    first_flight_bytes = Column(int, "UDP payload that the page's connection sent before it received any")
    certificate_bytes = Column(
        int, "size of the TLS Certificate message on the page's connection; 0 in a resumed session"
    )
    connection_count = Column(int, "QUIC connections of query and requests (server log)")
    query_early = Column(
        bool, "the server received the query before the end of the handshake (server log); null without QUIC"
    )
    early_data_accepted = Column(
        bool, "the server received the document's request before the end of the handshake (server log)"
    )
    session_resumed = Column(bool, "the TLS session of the page's connection was resumed (server log)")
    address_validated = Column(
        bool, "the first packet of the page's connection had a valid address-validation token (server log)"
    )
    error = _ERROR


class PacedQueries(_OfStudy, table="paced_queries"):
    """A query of a client that sends queries at a fixed interval, to the stub or to dnsproxy."""

    page = Column(str, "always null, because these queries belong to no page", key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    connection_mode = Column(
        Connection, "connection of the query; new and 0-rtt: closed after each query", required=True, key=True
    )
    client = Column(int, "number of the client, from 0", required=True, key=True)
    number = Column(int, "query of this client in this round, from 0; 0 is the warm-up", required=True, key=True)
    role = Column(
        Role, "role in the round; priming: sets up the connection or fetches a ticket", required=True, key=True
    )
    position = Column(int, "position of the transport in the random order of its round", required=True)
    started_s = _STARTED
    send_delay_ms = Column(float, "delay of sending the query after its scheduled time", ASKED, success=True)
    response_ms = Column(
        float,
        "time from sending the query at the client to the arrival of its answer there, through the stub or dnsproxy",
        ASKED,
        success=True,
    )
    authority_ms = Column(
        float,
        "mean response time of BIND in the round, for the same query from BIND's own host; null without a BIND of the "
        "testbed",
    )
    path_rtt_ms = Column(float, "RTT of the path to a real server, by a TCP connect before the round; null on a link")
    handshake_ms = Column(
        float, "wait in the stub for a connection; 0 on an existing connection, for DoUDP and for early data", STUB
    )
    query_ms = Column(
        float, "time from sending the query at the stub to the complete answer", STUB, success="handshake_ms"
    )
    new_connection = Column(bool, "the query caused a connection setup: first use, idle timeout or reconnect", STUB)
    session_resumed = Column(bool, "the TLS session was resumed; null without TLS", _RESUMED)
    early_data_accepted = Column(bool, "the server received the query before the end of the handshake (server log)")
    retries = Column(int, "repetitions of the query by the stub", STUB)
    query_bytes = Column(int, "DNS message from the stub, with padding, without framing", STUB)
    answer_bytes = Column(int, "DNS message to the stub, with padding, without framing", STUB)
    error = _ERROR


class IdleRecoveries(_OfStudy, table="idle_recoveries"):
    """The first query of a client after its connection was idle."""

    page = Column(str, "name of the page whose host is queried", required=True, key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    client = Column(ClientKind, "client that keeps the connection", required=True, key=True)
    path_event = Column(PathEvent, "event in the middle of the idle time", required=True, key=True)
    idle_s = Column(float, "idle time: seconds without a query", required=True, key=True)
    position = _POSITION
    started_s = _STARTED
    answer_ms = Column(
        float,
        "time from the client's first query after the idle time to a valid answer, repetitions included",
        success=True,
    )
    asked = Column(
        int,
        "number of queries up to this answer; the client repeats a query at once after a failure, and after 5 s "
        "without an answer",
    )
    silence_ms = Column(
        float,
        "time that the stub waited for a packet before it also used a new connection; null for other clients",
        STUB,
    )
    new_connection = Column(bool, "the answer came on a connection set up after the idle time; null for dnsproxy", STUB)
    session_resumed = Column(bool, "the TLS session of that connection was resumed; null without TLS", _RESUMED)
    early_data_accepted = Column(bool, "the server received the query before the end of the handshake (server log)")
    retries = Column(int, "repetitions of the query by the stub", STUB)
    error = _ERROR


class ResolverQueries(_OfStudy, table="resolver_queries"):
    """A query from a vantage point to one of the listed resolvers; `link` and `host` name the vantage point."""

    page = Column(str, "name of the queries that hit the cache", required=True, key=True)
    target = Column(
        int, "number of the target (resolver, address and transport) in the list of the plan", required=True, key=True
    )
    resolver = Column(str, "name of the resolver in its list", required=True, key=True)
    operator = Column(str, "operator of the resolver; all resolvers of an operator share one rate limit", required=True)
    address = Column(str, "address of the resolver", required=True, key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    port = Column(int, "port of the resolver", required=True)
    state = Column(
        QueryState,
        "connection of the query; cold: new, without a ticket; kept: that of the query before; resumed: new, with a "
        "ticket; early-data: new, the query in early data; idle: that of the query before, after an idle time; "
        "idle-search: as idle, with an idle time that serves to find when the network forgets the connection",
        required=True,
        key=True,
    )
    cache = Column(
        CacheUse,
        "hit: an earlier query filled the cache; miss: a new name below a zone of the user",
        required=True,
        key=True,
    )
    idle_s = Column(
        float,
        "intended idle time before the query; null in states other than idle and idle-search",
        key=True,
        present=False,
    )
    attempt = Column(
        int,
        "attempt at the round, from 0; an event of `resolver_events` voids an earlier one; null in older campaigns, "
        "which means 0",
        key=True,
        present=False,
    )
    role = Column(
        Role,
        "role in the round; self-check: a second measurement of the same resolver, as if it were another one (A/A)",
        required=True,
        key=True,
    )
    position = Column(int, "position of the visit (all queries to a target) in the order of its round", required=True)
    started_s = Column(float, "start of the visit, seconds since the Unix epoch", required=True)
    handshake_ms = Column(
        float,
        "time from the start of the connection to the end of its handshake; 0 for DoUDP, early data and a kept "
        "connection",
        success=True,
    )
    query_ms = Column(float, "time from sending the query to the complete answer", success=True)
    total_ms = Column(
        float,
        "time to the complete answer, from the start of a new connection or from sending the query on a kept one",
        success=True,
    )
    session_resumed = Column(
        bool, "the TLS session was resumed, according to the client; null without TLS", present=True
    )
    measured_idle_s = Column(
        float, "measured idle time before the query; null in states other than idle and idle-search"
    )
    moved = Column(
        bool,
        "the server validated another address or port of the client (RFC 9000, section 9.3), according to the client; "
        "idle, idle-search: after this query; cold: on this connection before any idle time; null in other states and "
        "without QUIC",
    )
    rtt_ms = Column(float, "RTT of the path: TCP connect to the same address before the visit; null without a TCP port")
    handshake_sent_bytes_by_record = Column(
        int,
        "IP payload, client to server, of packets and records of the handshake, up to the answer; null for early data, "
        "for a query that is not the first one on its connection, and without a capture",
    )
    handshake_received_bytes_by_record = Column(int, "as handshake_sent_bytes_by_record, server to client")
    query_sent_bytes_by_record = Column(
        int,
        "IP payload, client to server, of all other packets and records, up to the answer; null in the "
        "same rows as handshake_sent_bytes_by_record",
    )
    query_received_bytes_by_record = Column(int, "as query_sent_bytes_by_record, server to client")
    site = Column(str, "name server identifier of the answer (RFC 5001); null if it has none")
    error = _ERROR


class ResolverEvents(_OfStudy, table="resolver_events"):
    """An event during a comparison of resolvers; the queries are rows of `resolver_queries`."""

    page = Column(str, "name of the queries that hit the cache", required=True)
    kind = Column(EventKind, "kind of the event", required=True, key=True)
    when_s = Column(float, "time of the event, seconds since the Unix epoch", required=True)
    subject = Column(str, "affected operator or address", required=True, key=True)
    site = Column(str, "name server identifier of an answer that nobody should have given; null otherwise")
    attempt = Column(
        int, "attempt at the round that the event voids: the round is measured again; null if it voids none"
    )
    reason = Column(str, "evidence", required=True)


class ResolverLocations(_OfStudy, table="resolver_locations"):
    """Data from the user: location and autonomous system of a resolver's address, or location of a vantage point."""

    page = Column(str, "name of the queries that hit the cache", required=True)
    kind = Column(LocatedKind, "what is located", required=True, key=True)
    subject = Column(str, "address of the resolver, or name of the vantage point", required=True, key=True)
    asn = Column(int, "number of the autonomous system of the address; null if it is not known")
    as_name = Column(str, "name of this autonomous system; null if it is not known")
    latitude = Column(float, "degrees north; null if it is not known", signed=True)
    longitude = Column(float, "degrees east; null if it is not known", signed=True)


class HostLoads(_OfStudy, table="host_load"):
    """CPU load of the host during a round of a cell."""

    page = Column(str, "page of the cell", key=True)
    started_s = Column(float, "start of the round, seconds since the Unix epoch", MACHINE, required=True)
    duration_ms = Column(float, "length of the round", MACHINE, required=True)
    cores = Column(int, "processors of the machine", MACHINE, required=True)
    own_cpu_ms = Column(float, "CPU time of the processes of the measurement", MACHINE, required=True)
    others_ms = Column(float, "CPU time of all other processes, without interrupts", MACHINE)
    steal_ms = Column(float, "time in which the hypervisor used the processors for other guests (steal)", MACHINE)
    pressure_ms = Column(float, "time in which at least one process waited for a processor (PSI, some)", MACHINE)


class ForwardingDelays(_OfStudy, table="forwarding_delay"):
    """Lateness of an observation's packets in one direction: departure minus the departure that netem computes."""

    page = Column(str, "page of the cell", key=True)
    position = Column(int, "position of the observation in its round, from 0", required=True)
    direction = Column(Direction, "towards the client or the server", LATENESS, required=True, key=True)
    packets = Column(int, "counted packets on the link", LATENESS, required=True)
    late_p50_ms = Column(float, "lateness: median", LATENESS, required=True, signed=True)
    late_p99_ms = Column(float, "lateness: 99th percentile", LATENESS, required=True, signed=True)
    late_max_ms = Column(float, "lateness: maximum", LATENESS, required=True, signed=True)


_LEVELS = "5th, 25th, 50th, 75th and 95th percentile"


class LinkChecks(Table, table="link_checks"):
    """A check of the emulated link. A failed check and its repetition after a new calibration are two rows."""

    campaign = _OfStudy.campaign
    round = Column(int, "round before or after which the link was checked; -1 before the campaign", required=True)
    link = _OfStudy.link
    clock = _OfStudy.clock
    host = _OfStudy.host
    page = Column(str, "page of the cell; null for the check before the campaign")
    when_s = Column(float, "time of the check, seconds since the Unix epoch", CHECK, required=True)
    backend = Column(str, "netem or uml", CHECK, required=True)
    rtt_samples_ms = Column(list[float], "idle RTT of each UDP echo probe that returned")
    probes = Column(int, "UDP echo probes sent", CHECK)
    rtt_ms = Column(float, "median idle RTT", CHECK, present=True)
    nominal_rtt_ms = Column(float, "RTT of the profile", CHECK, key=True)
    down_mbit = Column(float, "measured rate towards the client; null if not measured", CHECK)
    up_mbit = Column(float, "measured rate towards the server; null if not measured", CHECK)
    nominal_down_mbit = Column(float, "downlink rate of the profile; null without a limit", CHECK)
    nominal_up_mbit = Column(float, "uplink rate of the profile; null without a limit", CHECK)
    configured_down_delay_ms = Column(float, "netem delay towards the client, after calibration", CHECK)
    configured_up_delay_ms = Column(float, "netem delay towards the server, after calibration", CHECK)
    loss_probes = Column(
        int, "small packets sent to the server to measure loss; the server echoed those that arrived", CHECK
    )
    nominal_loss_percent = Column(float, "loss of the profile in each direction, percent; null without loss", CHECK)
    lost_down = Column(int, "echoes lost on the way to the client", CHECK)
    lost_up = Column(int, "probes lost on the way to the server", CHECK)
    bursts_down = Column(int, "runs of lost packets towards the client", CHECK)
    bursts_up = Column(int, "runs of lost packets towards the server", CHECK)
    delay_quantiles_down_ms = Column(list[float], f"one-way delay to the client: {_LEVELS}; null without jitter")
    delay_quantiles_up_ms = Column(list[float], f"one-way delay to the server: {_LEVELS}; null without jitter")
    queueing_down_ms = Column(
        float, "delay that the downlink's queue adds to packets of another flow under a load of twice its rate", CHECK
    )
    queueing_up_ms = Column(
        float, "delay that the uplink's queue adds to packets of another flow under a load of twice its rate", CHECK
    )
    trace_offset_ms = Column(
        float, "offset in the trace at which each observation of the round begins; null without a trace", CHECK
    )
    trace_late_down_ms = Column(
        float,
        "99th percentile of the time by which packets to the client left later than in the trace; null if not measured",
        CHECK,
        signed=True,
    )
    trace_late_up_ms = Column(
        float,
        "99th percentile of the time by which packets to the server left later than in the trace",
        CHECK,
        signed=True,
    )
    cross_mbit = Column(float, "throughput (payload) of cross-traffic during the round", CHECK)
    nominal_faults = Column(str, "faults of the path, as in the profile; null without faults", CHECK)
    fault_probes = Column(int, "packets sent that the faults must block", CHECK)
    fault_probes_passed = Column(int, "of these, packets that crossed the link; 0 if the check passed", CHECK)
    verdict = Column(str, "pass, or the value out of tolerance", CHECK, required=True)


_COMMON = ("campaign", "round", "link", "study", "clock", "host", "position", "started_s", "error")
"""Columns that `to_markdown` describes once for all tables, except where a table gives them another meaning."""


def to_markdown() -> str:
    """Content of `docs/reference/columns.md`."""
    common = {name: getattr(DnsExchanges, name) for name in _COMMON}
    enums = {c.type.__name__: c.type for table in TABLES.values() for c in table.columns if c.values}
    lines = [
        "# Columns",
        "",
        "A dataset holds `campaign.json` and `TABLE/link=LINK/*.parquet`. The metadata of each Parquet file also",
        "describe its columns. `python -m crosslayer.campaign.tables > docs/reference/columns.md` writes this page.",
        "",
        "| table | a row is | columns |",
        "|---|---|---:|",
        *(
            f"| [{table.table}](#{table.table}) | {_row_of(table)} | {len(table.columns)} |"
            for table in TABLES.values()
        ),
        "",
        "A name ends in its unit: `_ms`, `_s`, `_mbit` (Mbit/s), `_bytes`. Times since the Unix epoch are those of the",
        "campaign's clock; in virtual time each guest begins on 1 January 2026 ([clocks](clocks.md)).",
        "",
        '| in the column "value" | meaning |',
        "|---|---|",
        "| always | Every row has a value, also the row of a failed observation. |",
        "| success | An observation without `error` has a value; two columns that belong together may both be null. |",
        "| key | The column belongs to the key that identifies a condition. A round measures each condition once. |",
        "",
        '"Taken from" names the result from which the value is copied unchanged, e.g. `Exchange`. If the field of the',
        "result has another name than the column, a dot and the name of the field follow. The fields of",
        "`PerformanceNavigationTiming` and similar results are defined by the W3C.",
        "",
        "## Types with fixed values",
        "",
        "| type | values |",
        "|---|---|",
        *(f"| {name} | {', '.join(f'`{word}`' for word in enums[name])} |" for name in sorted(enums)),
        "",
        "## Columns of several tables",
        "",
        *_markdown_columns(list(common.values()), sources=False),
    ]
    for table in TABLES.values():
        shared = [c.name for c in table.columns if c.name in common and c.meaning == common[c.name].meaning]
        own = [c for c in table.columns if c.name not in shared]
        lines += ["", f"## {table.table}", "", table.__doc__ or "", ""]
        lines += [f"Also: {', '.join(f'`{name}`' for name in shared)}.", "", *_markdown_columns(own)]
    return "\n".join(lines) + "\n"


def _row_of(table: type[Table]) -> str:
    """Description of a row of a table: the first sentence of the table's docstring, up to a semicolon."""
    return (table.__doc__ or "").partition(";")[0].partition(".")[0]


def _markdown_columns(columns: list[Column], *, sources: bool = True) -> list[str]:
    lines = ["| column | type | value | meaning |", "|---|---|---|---|"]
    if sources:
        lines = ["| column | type | value | meaning | taken from |", "|---|---|---|---|---|"]
    for column in columns:
        kind = column.type.__name__ if column.values else _TYPES[column.stored][0]
        marks = (("always", column.required), ("key", column.key), ("success", column.success))
        value = ", ".join(mark for mark, on in marks if on)
        cells = [f"`{column.name}`", kind, value, column.meaning]
        if sources:
            cells.append(f"`{column.source}`" if column.source else "")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print(to_markdown(), end="")
