"""The tables of a dataset: a class each, a line per column, and everything that follows from them.

The SQLite store, the Parquet files, the frames of the analysis, what a reader refuses, what a row takes from the
results of browser, DNS client and stub, and `docs/reference/columns.md`, which is what
`python -m crosslayer.campaign.tables` prints. Columns may be added, never renamed. No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import EnumType
from typing import TYPE_CHECKING, Any, ClassVar

from crosslayer.vocabulary import (
    Browser,
    ClientKind,
    Clock,
    Connection,
    Coupling,
    Direction,
    Http3,
    PathEvent,
    Protocol,
    Resumption,
    Role,
    Sharing,
)

if TYPE_CHECKING:
    import polars
    import pyarrow

SCHEMA_VERSION = 3
"""Raised when a column or a key of `campaign.json` changes its name or meaning. 3: rows have `condition` and `role`."""

EXCHANGE = "Exchange"
"""A `dns.Exchange`."""
STUB = "QueryMetrics"
"""What the stub tells of a query (`stub.QueryMetrics`)."""
LOAD = "PageLoad"
"""A `browser.PageLoad`; next its parts, by the names of the W3C."""
NAVIGATION = "PerformanceNavigationTiming"
PAINT = "PerformancePaintTiming"
RESOURCE = "PerformanceResourceTiming"
ASKED = "Asked"
"""A query of the load generator (`dns.Asked`)."""
MACHINE = "Usage"
"""A `machine.Usage`."""
LATENESS = "ExtraDelay"
"""A `testbed.ExtraDelay`."""
CHECK = "LinkCheck"
"""A `testbed.LinkCheck`."""

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
    """int, float, str, bool, list[float], or the enum whose words it holds."""
    meaning: str
    source: str = ""
    """Result it is taken from as it is, see `Table.taken`: `Exchange` for the field of the column's name, else as
    `PerformanceNavigationTiming.connectEnd`."""
    required: bool = False
    """Every row has a value, failed observations included."""
    key: bool = False
    """One of those that say which condition a row is; a round measures each condition once."""
    success: bool | str = False
    """An observation without error has a value; given another column, then where that one has one."""
    signed: bool = False
    """A difference, which may be below 0; no other number may."""
    present: bool | None = None
    """A file must have the column; None: where it is required, of the key, or a success must have it."""
    name: str = field(default="", init=False)

    def __set_name__(self, owner: object, name: str) -> None:
        self.name = name
        if self.present is None:
            self.present = bool(self.required or self.key or self.success)

    @property
    def description(self) -> str:
        """Meaning, the words it may hold, and where a part of a result gives it, that part."""
        words = f" ({', '.join(self.words)})" if self.words else ""
        return f"{self.meaning}{words}" + (f": {self.source}" if "." in self.source else "")

    @property
    def words(self) -> tuple[str, ...]:
        """The words it may hold; none where it may hold anything."""
        return tuple(map(str, self.type)) if isinstance(self.type, EnumType) else ()

    @property
    def stored(self) -> Any:
        """The type of its values: int, float, str, bool or list[float]."""
        return str if self.words else self.type

    @property
    def sql(self) -> str:
        """Its type in SQLite; a list is JSON there."""
        return _TYPES[self.stored][1]

    @property
    def unit(self) -> str:
        """As its name says; of a whole number without one `count`, else empty."""
        known = (unit for ending, unit in _UNITS.items() if self.name.endswith(ending))
        return next(known, "count" if self.type is int else "")


class Table:
    """A table of a dataset; its subclasses are never instantiated."""

    table: ClassVar[str]
    """Its name, and that of the folder of its Parquet files."""
    columns: ClassVar[tuple[Column, ...]]
    observed: ClassVar[bool]
    """Its rows are observations: a round has each condition once."""

    def __init_subclass__(cls, table: str = "") -> None:
        cls.table = table
        cls.columns = tuple(c for base in reversed(cls.mro()) for c in vars(base).values() if isinstance(c, Column))
        cls.observed = any(column.success for column in cls.columns)

    @classmethod
    def taken(cls, source: str, result: object) -> dict[str, Any]:
        """The columns that a result gives as they are.

        Parameters
        ----------
        source
            What the result is: one of the names that columns have as `source`.
        result
            An object with such attributes, or a mapping with such keys.

        Raises
        ------
        AttributeError, KeyError
            Where the result lacks one.
        """
        return {
            name: result[key] if isinstance(result, Mapping) else getattr(result, key)
            for name, key in cls.sources(source).items()
        }

    @classmethod
    def sources(cls, source: str) -> dict[str, str]:
        """The columns that come from a result as they are, and what they are called there."""
        parts = [(column.name, *column.source.partition(".")) for column in cls.columns]
        return {name: key or name for name, of, _, key in parts if of == source}

    @classmethod
    def place(cls, row: Mapping[str, Any]) -> dict[str, Any]:
        """What a row of this table shares with `row` of another, of the same observation: its required columns."""
        return {c.name: row[c.name] for c in cls.columns if c.required and c.name in row}

    @classmethod
    def arrow_schema(cls) -> pyarrow.Schema:
        """Arrow schema, as every Parquet file of a dataset has it.

        Returns
        -------
        pyarrow.Schema
            One field per column, in order; a required column is not nullable, so writing a null there fails.
            Field metadata: `description` and, where there is one, `unit`. Schema metadata: `table`, `schema_version`.
        """
        import pyarrow as pa  # here, because the command line imports this module and pyarrow takes its time

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
        """Column names and types of the frames it is read as."""
        import polars as pl

        return dict(pl.DataFrame(cls.arrow_schema().empty_table()).schema)


_ERROR = Column(str, "null where the observation succeeded, else what failed", present=True)
_POSITION = Column(int, "place of the condition in the random order of its round, from 0", required=True)
_STARTED = Column(float, "start of the observation, seconds since the Unix epoch", required=True)
_KEY_SHARE = Column(str, "group of the TLS key exchange, by the server, e.g. X25519MLKEM768; null outside QUIC")
_INITIAL_PACKETS = Column(int, "Initial packets that the ClientHello arrived in, by the server log; null outside QUIC")
_LOAD_POSITION = Column(int, "place of the load in its round", required=True)
_LOAD_CONDITION = Column(str, "condition of the load", required=True, key=True)
_ROLE = Column(Role, "why it was observed", required=True, key=True)
_LOAD_ROLE = Column(Role, "role of the load", required=True, key=True)


class _OfStudy(Table):
    campaign = Column(str, "identifier of the campaign", required=True, key=True)
    round = Column(int, "repetition of the cell, from 0", required=True)
    link = Column(str, "name of the link profile", required=True, key=True)
    study = Column(str, "study the row belongs to: that of the campaign", required=True, key=True)
    clock = Column(Clock, "clock of the campaign; a file without it is by the wall clock", present=False)
    host = Column(
        str, "machine it was measured on, as `campaign.json` calls it; a file without it is of one", present=False
    )


class DnsExchanges(_OfStudy, table="dns_exchanges"):
    """A DNS resolution on a new connection."""

    page = Column(str, "page whose host name was asked for; null outside page cells", key=True)
    protocol = Column(Protocol, "DNS transport", EXCHANGE, required=True, key=True)
    resumption = Column(Resumption, "what it was to use of an earlier session", EXCHANGE, required=True, key=True)
    role = Column(
        Role,
        "why it was made; priming: only for the ticket and token of the next one",
        EXCHANGE,
        required=True,
        key=True,
    )
    condition = Column(str, "main, or the name of what client or server did otherwise", required=True, key=True)
    server_certificate_bytes = Column(
        int, "TLS Certificate message that the server was set to send; null where the study does not set it", key=True
    )
    position = _POSITION
    started_s = Column(float, _STARTED.meaning, EXCHANGE, required=True)
    handshake_ms = Column(
        float, "start of the connection to its handshake's end; 0: DoUDP, early data", EXCHANGE, success="query_ms"
    )
    query_ms = Column(float, "query sent to answer complete", EXCHANGE, success="handshake_ms")
    total_ms = Column(float, "exchange: start of the connection to answer complete", EXCHANGE, success=True)
    cpu_ms = Column(float, "CPU time of the client during the exchange", EXCHANGE)
    handshake_sent_bytes = Column(int, "IP payload, client to server, before the query was sent", EXCHANGE)
    handshake_received_bytes = Column(int, "IP payload, server to client, before the query was sent", EXCHANGE)
    query_sent_bytes = Column(int, "IP payload, client to server, from the query on", EXCHANGE)
    query_received_bytes = Column(int, "IP payload, server to client, from the query on", EXCHANGE)
    handshake_sent_bytes_by_record = Column(
        int,
        "IP payload, client to server, up to the answer (DoTCP: the close), of the handshake's packets and records",
        EXCHANGE,
    )
    handshake_received_bytes_by_record = Column(int, "the same, server to client", EXCHANGE)
    query_sent_bytes_by_record = Column(
        int, "IP payload, client to server, up to the answer (DoTCP: the close), of all else", EXCHANGE
    )
    query_received_bytes_by_record = Column(int, "the same, server to client", EXCHANGE)
    handshake_sent_packets = Column(int, "packets, client to server, before the query was sent", EXCHANGE)
    handshake_received_packets = Column(int, "packets, server to client, before the query was sent", EXCHANGE)
    query_sent_packets = Column(int, "packets, client to server, from the query on", EXCHANGE)
    query_received_packets = Column(int, "packets, server to client, from the query on", EXCHANGE)
    first_flight_bytes = Column(int, "IP payload, client to server, before the first packet came back", EXCHANGE)
    first_flight_packets = Column(int, "packets, client to server, before the first packet came back", EXCHANGE)
    session_resumed = Column(bool, "the TLS session was resumed; null where there is none", EXCHANGE)
    early_data_accepted = Column(
        bool,
        "the server got the query before the handshake's end (by the client's TLS where the file has no "
        "`address_validated`); null outside QUIC",
        EXCHANGE,
    )
    address_validated = Column(
        bool, "the client's first packet had a token that proves its address, by the server; null outside QUIC"
    )
    key_share = _KEY_SHARE
    initial_packets = _INITIAL_PACKETS
    retry_received = Column(bool, "the server asked for address validation by a Retry; null outside QUIC", EXCHANGE)
    certificate_bytes = Column(
        int, "TLS Certificate message that came from the server; 0 in a resumed session, null without TLS", EXCHANGE
    )
    quic_version = Column(str, "QUIC version on the wire, e.g. v1; null without QUIC", EXCHANGE)
    tls_version = Column(str, "TLS version, e.g. TLSv1.3; null without TLS", EXCHANGE)
    error = Column(str, _ERROR.meaning, EXCHANGE, present=True)


class TcpRtts(_OfStudy, table="tcp_rtts"):
    """A TCP connect to the page's server."""

    page = Column(str, "page of the cell", key=True)
    position = _POSITION
    started_s = _STARTED
    rtt_ms = Column(float, "TCP SYN sent to SYN-ACK received (connect) against the page's server", success=True)
    error = _ERROR


class PageLoads(_OfStudy, table="page_loads"):
    """A load of a page in a browser; times are after the navigation start."""

    page = Column(str, "name of the page, e.g. example.org", required=True, key=True)
    h3 = Column(Http3, "the condition asked for; evidence is in early_data_accepted", required=True, key=True)
    coupling = Column(Coupling, "whether the browser resolves by itself", required=True, key=True)
    dns_protocol = Column(Protocol, "transport of the browser's own lookups; null when decoupled", key=True)
    condition = Column(
        str,
        "main, or the name of what browser, server or path did otherwise (no-token: 0-RTT without the token)",
        required=True,
        key=True,
    )
    role = Column(
        Role,
        "why it was loaded; self-check: the measured load of this condition once more (A/A); control: primed as for "
        "0-RTT, with a ticket that the server refused",
        required=True,
        key=True,
    )
    browser = Column(Browser, "browser it was loaded in; a file without it is of Chromium", key=True, present=False)
    position = _POSITION
    started_s = Column(float, _STARTED.meaning, LOAD, required=True)
    plt_ms = Column(float, "PLT of the browser; of curl the last byte", f"{NAVIGATION}.loadEventStart", success=True)
    fcp_ms = Column(float, "first contentful paint; null where nothing was painted", f"{PAINT}.first-contentful-paint")
    connect_start_ms = Column(float, "start of the connection", f"{NAVIGATION}.connectStart", success=True)
    connect_ms = Column(
        float, "end of the handshake, also where the request left earlier", f"{NAVIGATION}.connectEnd", success=True
    )
    secure_connection_start_ms = Column(float, "start of the TLS handshake", f"{NAVIGATION}.secureConnectionStart")
    fetch_start_ms = Column(float, "the browser began to fetch the document", f"{NAVIGATION}.fetchStart")
    domain_lookup_start_ms = Column(float, "start of the lookup", f"{NAVIGATION}.domainLookupStart")
    domain_lookup_end_ms = Column(float, "end of the lookup", f"{NAVIGATION}.domainLookupEnd")
    request_start_ms = Column(float, "request sent", f"{NAVIGATION}.requestStart", success=True)
    response_start_ms = Column(float, "first byte of the response", f"{NAVIGATION}.responseStart", success=True)
    response_end_ms = Column(float, "last byte of the document", f"{NAVIGATION}.responseEnd")
    dom_interactive_ms = Column(float, "document parsed", f"{NAVIGATION}.domInteractive")
    dom_content_loaded_ms = Column(float, "DOMContentLoaded", f"{NAVIGATION}.domContentLoadedEventStart")
    dom_complete_ms = Column(float, "document and resources complete", f"{NAVIGATION}.domComplete")
    transfer_bytes = Column(int, "the document and its header", f"{NAVIGATION}.transferSize")
    resource_count = Column(int, "resources the page fetched besides its document")
    lookup_count = Column(int, "host names that the browser looked up; null when decoupled")
    stub_lookup_ms = Column(float, "page's host by the stub, first query to last answer; null when decoupled")
    early_data_accepted = Column(
        bool, "the server got the request before the handshake's end", success="session_resumed"
    )
    session_resumed = Column(
        bool, "the connection's TLS session was resumed, by the server", success="early_data_accepted"
    )
    address_validated = Column(bool, "the client's first packet had a token that proves its address, by the server")
    ech_accepted = Column(bool, "the client's hello came encrypted and was opened, by the server")
    document_protocol = Column(str, "what the document came over: h3, h2", f"{NAVIGATION}.nextHopProtocol")
    netlog_handshake_ms = Column(
        float, "first Initial to last Handshake packet sent, by Chromium's netlog; null where the plan captures none"
    )
    key_share = _KEY_SHARE
    initial_packets = _INITIAL_PACKETS
    connection_count = Column(int, "QUIC connections that lookups and requests came on, by the server; else null")
    server_ms = Column(float, "document: arrival of the request to the body handed to the transport, by the server")
    browser_idle = Column(
        bool, "the browser came to rest before the measured load; else it was not waited for longer", LOAD
    )
    setup_ms = Column(float, "context, priming, connection close and warm-up before the measured load", LOAD)
    navigation = Column(str, "the raw navigation and paint entries, JSON", f"{LOAD}.raw")
    error = _ERROR


class Resources(_OfStudy, table="resources"):
    """A resource of a page load; times are after the navigation start."""

    page = Column(str, "name of the page", required=True, key=True)
    h3 = Column(Http3, "condition of the load", required=True, key=True)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    position = _LOAD_POSITION
    url = Column(str, "URL fetched", f"{RESOURCE}.name", required=True)
    initiator = Column(str, "what had it fetched", f"{RESOURCE}.initiatorType")
    alpn = Column(str, "protocol of the response, e.g. h3", f"{RESOURCE}.nextHopProtocol")
    start_ms = Column(float, "start of the fetch", f"{RESOURCE}.startTime")
    request_start_ms = Column(float, "request sent", f"{RESOURCE}.requestStart")
    response_start_ms = Column(float, "first byte of the response", f"{RESOURCE}.responseStart")
    response_end_ms = Column(float, "last byte of the response", f"{RESOURCE}.responseEnd")
    transfer_bytes = Column(int, "body and header", f"{RESOURCE}.transferSize")
    encoded_bytes = Column(int, "body as it was on the wire", f"{RESOURCE}.encodedBodySize")
    server_ms = Column(float, "arrival of the request to the body handed to the transport, by the server")


class Lookups(_OfStudy, table="lookups"):
    """A query that the stub got during a page load."""

    page = Column(str, "name of the page", required=True, key=True)
    dns_protocol = Column(Protocol, "transport of the stub's upstream: that of the load", required=True, key=True)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    position = _LOAD_POSITION
    number = Column(int, "place of the query in its load, by arrival at the stub, from 0", required=True)
    started_s = Column(float, "arrival of the query at the stub, seconds since the Unix epoch", required=True)
    name = Column(str, "name asked for, with its final dot", STUB, required=True)
    type = Column(str, "record type asked for: A, HTTPS", STUB, required=True)
    connection_id = Column(
        int, "number of the upstream connection since the stub's start; 0: none", f"{STUB}.connection"
    )
    new_connection = Column(bool, "this query set the connection up; others may have waited for it too", STUB)
    handshake_ms = Column(float, "wait for a connection; 0 where one stood, and for DoUDP", STUB)
    query_ms = Column(float, "query sent upstream to answer complete", STUB)
    total_ms = Column(float, "arrival of the query to its answer ready to leave", STUB)
    session_resumed = Column(bool, "the connection resumed a TLS session; null without TLS", _RESUMED)
    early_data_accepted = Column(bool, "the upstream accepted it as early data; null where it was none", STUB)
    rcode = Column(str, "response code of the answer", STUB)
    query_bytes = Column(int, "DNS message to the upstream, padding included and framing not", STUB)
    answer_bytes = Column(int, "DNS message from the upstream, likewise", STUB)
    retries = Column(int, "further times the stub sent the query", STUB)
    tcp_fallback = Column(bool, "truncated over UDP and asked again over TCP", STUB)
    error = _ERROR


class Attempts(_OfStudy, table="attempts"):
    """What a client tried to reach a page's host, by its packets: a lookup or a connection; times after the first."""

    page = Column(str, "name of the page", required=True, key=True)
    condition = _LOAD_CONDITION
    role = _LOAD_ROLE
    browser = Column(Browser, "browser that loaded the page", key=True)
    position = _LOAD_POSITION
    number = Column(int, "place of the attempt in its load, from 0", required=True)
    started_s = Column(float, "first packet of the load's attempts, seconds since the Unix epoch", required=True)
    kind = Column(str, "A, AAAA, HTTPS: a lookup over UDP; quic, tcp: a connection", required=True)
    address = Column(str, "address that it was sent to", required=True)
    family = Column(int, "IP version of that address: 4 or 6")
    started_ms = Column(float, "first packet of the attempt", required=True)
    sent_ms = Column(list[float], "packets that the client sent before an answer, at most 32; of TCP its SYNs")
    answered_ms = Column(float, "first packet from the other end; null where none arrived")
    refused_ms = Column(float, "ICMP unreachable or TCP reset; null where none arrived")


class ResolvedLoads(_OfStudy, table="resolved_loads"):
    """A name resolved and then its page loaded, both by crosslayer's own clients; times are after the first packet."""

    page = Column(str, "name of the page", required=True, key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    resumption = Column(Resumption, "what the connection for DNS was to use of an earlier one", required=True, key=True)
    connections = Column(Sharing, "whether the page has a connection of its own", required=True, key=True)
    h3 = Column(Http3, "0-rtt: the page's connection is resumed with early data", required=True, key=True)
    condition = Column(
        str,
        "main; no-token: without the token that proves the client's address; at-once: the document is requested "
        "together with its name, in at-once-no-token without that token; settings: no request before the server's "
        "SETTINGS arrived; certificate, certificate-token, certificate-no-token: with a certificate of a set size",
        required=True,
        key=True,
    )
    role = _ROLE
    server_certificate_bytes = Column(
        int, "TLS Certificate message that the server was set to send; null where the study does not set it", key=True
    )
    position = _POSITION
    started_s = _STARTED
    resolved_ms = Column(float, "the name's answer was complete", success=True)
    settings_ms = Column(float, "the server's SETTINGS were there, on the page's connection")
    response_start_ms = Column(float, "header of the document's response", success=True)
    document_ms = Column(float, "last byte of the document", success=True)
    load_complete_ms = Column(float, "last byte of the last resource", success=True)
    arrived_ms = Column(list[float], "when more of the document was there")
    arrived_bytes = Column(list[float], "how much of it was there then: bytes of the body")
    received_bytes = Column(list[float], "and of the UDP payload that the page's connection had received")
    first_flight_bytes = Column(int, "UDP payload that the page's connection had sent before it received any")
    certificate_bytes = Column(
        int, "TLS Certificate message that came on the page's connection; 0 in a resumed session"
    )
    connection_count = Column(int, "QUIC connections that query and requests came on, by the server")
    query_early = Column(bool, "the server got the query before the handshake's end; null outside QUIC")
    early_data_accepted = Column(bool, "the server got the document's request before the handshake's end")
    session_resumed = Column(bool, "the TLS session of the page's connection was resumed, by the server")
    address_validated = Column(
        bool, "the first packet of the page's connection had a token that proves the client's address, by the server"
    )
    error = _ERROR


class PacedQueries(_OfStudy, table="paced_queries"):
    """A query of a client that keeps its pace, through the stub."""

    page = Column(str, "always null: these queries belong to no page", key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    connection_mode = Column(Connection, "new and 0-rtt: closed after every query", required=True, key=True)
    client = Column(int, "who asked, from 0: each asks at its own pace", required=True, key=True)
    number = Column(int, "query of this client in this round, from 0; 0 is the warm-up", required=True, key=True)
    role = Column(
        Role, "why it was sent; priming: only to set up the connection or to fetch a ticket", required=True, key=True
    )
    position = Column(int, "place of the transport in the random order of its round", required=True)
    started_s = _STARTED
    send_delay_ms = Column(float, "how much later than its time the query left the generator", ASKED, success=True)
    response_ms = Column(float, "query sent by the client to answer received, through the stub", ASKED, success=True)
    authority_ms = Column(float, "the same asked of BIND on its own machine: mean of the round")
    handshake_ms = Column(float, "wait in the stub for a connection; 0 where one stood", STUB)
    query_ms = Column(float, "query sent by the stub to answer complete", STUB, success="handshake_ms")
    new_connection = Column(bool, "the query set a connection up: first use, idle timeout, reconnect", STUB)
    session_resumed = Column(bool, "the TLS session was resumed; null where there is none", _RESUMED)
    early_data_accepted = Column(bool, "the server, by its own word, got the query before the handshake's end")
    retries = Column(int, "further times the stub sent the query", STUB)
    query_bytes = Column(int, "DNS message from the stub, padding included and framing not", STUB)
    answer_bytes = Column(int, "DNS message to the stub, likewise", STUB)
    error = _ERROR


class Rests(_OfStudy, table="rests"):
    """The next answer to a client, over a connection that has rested."""

    page = Column(str, "name of the page whose host is asked for", required=True, key=True)
    protocol = Column(Protocol, "DNS transport", required=True, key=True)
    keeper = Column(ClientKind, "who keeps the connection", required=True, key=True)
    mishap = Column(PathEvent, "what befell the connection, half-way through the rest", required=True, key=True)
    rest_s = Column(float, "how long nothing was asked", required=True, key=True)
    position = _POSITION
    started_s = _STARTED
    answer_ms = Column(float, "first query of the client to a good answer, its repeats included", success=True)
    asked = Column(int, "queries of the client until then: again at once after a failure, after 5 s without an answer")
    silence_ms = Column(
        float, "how long the stub waited for anything before it asked over a new connection too; null for others", STUB
    )
    new_connection = Column(bool, "the answer came on a connection set up after the rest; null for dnsproxy", STUB)
    session_resumed = Column(bool, "its TLS session was resumed; null where there is none", _RESUMED)
    early_data_accepted = Column(bool, "the server, by its own word, got the query before the handshake's end")
    retries = Column(int, "further times the stub sent the query", STUB)
    error = _ERROR


class HostLoads(_OfStudy, table="host_load"):
    """CPU load of the host during a round of a cell."""

    page = Column(str, "page of the cell", key=True)
    started_s = Column(float, "start of the round, seconds since the Unix epoch", MACHINE, required=True)
    duration_ms = Column(float, "length of the round", MACHINE, required=True)
    cores = Column(int, "processors of the machine", MACHINE, required=True)
    own_cpu_ms = Column(float, "CPU time of the measurement's own processes", MACHINE, required=True)
    others_ms = Column(float, "CPU time of everything else on the machine, interrupts left out", MACHINE)
    steal_ms = Column(float, "time in which the hypervisor gave the processors to others", MACHINE)
    pressure_ms = Column(float, "time in which something waited for a processor (PSI, some)", MACHINE)


class ForwardingDelays(_OfStudy, table="forwarding_delay"):
    """Delay of the packets of an observation beyond what netem's rule gives, per direction."""

    page = Column(str, "page of the cell", key=True)
    position = Column(int, "place of the observation in its round, from 0", required=True)
    direction = Column(Direction, "towards the client or the server", LATENESS, required=True, key=True)
    packets = Column(int, "packets that crossed the link and are counted", LATENESS, required=True)
    late_p50_ms = Column(float, "lateness: median", LATENESS, required=True, signed=True)
    late_p99_ms = Column(float, "lateness: 99th percentile", LATENESS, required=True, signed=True)
    late_max_ms = Column(float, "lateness: greatest", LATENESS, required=True, signed=True)


_LEVELS = "5th, 25th, 50th, 75th and 95th percentile"


class LinkChecks(Table, table="link_checks"):
    """A check of the emulated link; one that failed, and the next after a new calibration, are two rows."""

    campaign = _OfStudy.campaign
    round = Column(int, "round before or after which the link was checked; -1 before the campaign", required=True)
    link = _OfStudy.link
    clock = _OfStudy.clock
    host = _OfStudy.host
    page = Column(str, "page of the cell that is measured; null for the check before the campaign")
    when_s = Column(float, "time of the check, seconds since the Unix epoch", CHECK, required=True)
    backend = Column(str, "netem or uml", CHECK, required=True)
    rtt_samples_ms = Column(list[float], "idle RTT of every UDP echo probe that came back")
    probes = Column(int, "UDP echo probes sent", CHECK)
    rtt_ms = Column(float, "median idle RTT", CHECK, present=True)
    nominal_rtt_ms = Column(float, "RTT of the profile", CHECK, key=True)
    down_mbit = Column(float, "rate measured towards the client; null where it was not", CHECK)
    up_mbit = Column(float, "rate measured towards the server; null where it was not", CHECK)
    nominal_down_mbit = Column(float, "downlink rate of the profile; null where unshaped", CHECK)
    nominal_up_mbit = Column(float, "uplink rate of the profile; null where unshaped", CHECK)
    configured_down_delay_ms = Column(float, "netem delay towards the client, after calibration", CHECK)
    configured_up_delay_ms = Column(float, "netem delay towards the server, after calibration", CHECK)
    loss_probes = Column(int, "small packets sent up to see loss by; those that arrived were echoed", CHECK)
    nominal_loss_percent = Column(float, "loss of the profile on each direction, percent; null where none", CHECK)
    lost_down = Column(int, "of the echoes, those lost on the way to the client", CHECK)
    lost_up = Column(int, "of the probes, those lost on the way to the server", CHECK)
    bursts_down = Column(int, "runs of lost packets towards the client", CHECK)
    bursts_up = Column(int, "runs of lost packets towards the server", CHECK)
    delay_quantiles_down_ms = Column(list[float], f"one-way delay to the client: {_LEVELS}; null without jitter")
    delay_quantiles_up_ms = Column(list[float], f"one-way delay to the server: {_LEVELS}; null without jitter")
    queueing_down_ms = Column(float, "what the downlink's queue adds to others' packets at twice its rate", CHECK)
    queueing_up_ms = Column(float, "what the uplink's queue adds to others' packets at twice its rate", CHECK)
    trace_offset_ms = Column(
        float, "where in the link's trace each observation of the round begins; null without one", CHECK
    )
    trace_late_down_ms = Column(
        float,
        "how much later than by the trace 99 of 100 packets to the client left at most; null where not seen",
        CHECK,
        signed=True,
    )
    trace_late_up_ms = Column(float, "the same towards the server", CHECK, signed=True)
    cross_mbit = Column(float, "payload that cross-traffic delivered while the round was measured", CHECK)
    nominal_faults = Column(str, "faults of the path, as in the profile; null where none", CHECK)
    fault_probes = Column(int, "packets sent that the faults must block", CHECK)
    fault_probes_passed = Column(int, "of these, those that crossed the link: 0 where the check passed", CHECK)
    verdict = Column(str, "pass, or what was out of tolerance", CHECK, required=True)


TABLES: dict[str, type[Table]] = {
    table.table: table
    for table in (
        DnsExchanges,
        TcpRtts,
        PageLoads,
        Resources,
        Lookups,
        Attempts,
        ResolvedLoads,
        PacedQueries,
        Rests,
        HostLoads,
        ForwardingDelays,
        LinkChecks,
    )
}
"""Every table by name. A dataset folder holds `TABLE/link=LINK/part-0.parquet` and `campaign.json`."""


def to_markdown() -> str:
    """`docs/reference/columns.md`."""
    lines = [
        "# Columns",
        "",
        "Every table of a dataset. `python -m crosslayer.campaign.tables > docs/reference/columns.md` writes this.",
        "A dataset holds `campaign.json` and `TABLE/link=LINK/*.parquet`, whose metadata say the same. Times since the",
        "epoch are by the campaign's clock; by the virtual one each guest begins on 1 January 2026 (`clocks.md`).",
        "",
        "**r**: every row has a value. **k**: part of what says which condition a row is; a round has each once.",
        "**s**: every observation without `error` has a value, of two that go together both or neither.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.table}", "", f"{table.__doc__}", ""]
        lines += ["| column | type | unit | | meaning | taken from |", "|---|---|---|---|---|---|"]
        for column in table.columns:
            kind = " or ".join(f"`{word}`" for word in column.words) or _TYPES[column.stored][0]
            marks = "".join(m for m, on in (("r", column.required), ("k", column.key), ("s", column.success)) if on)
            source = f"`{column.source}`" if column.source else ""
            lines.append(f"| `{column.name}` | {kind} | {column.unit} | {marks} | {column.meaning} | {source} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(to_markdown(), end="")
