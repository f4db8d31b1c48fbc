"""Listeners on UDP sockets, and the protocols that they serve: DoUDP, DoQ and HTTP/3."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar

from aioquic._buffer import Buffer
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import ErrorCode, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import SMALLEST_MAX_DATAGRAM_SIZE, QuicConfiguration
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    ProtocolNegotiated,
    QuicEvent,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.packet import QuicPacketType, encode_quic_version_negotiation, pull_quic_header
from aioquic.tls import CipherSuite

from crosslayer.pages import normal_path
from crosslayer.testbed.aioquic_server.answers import MESSAGE_TYPE, DnsZone, MalformedError, doh_query, doq_query
from crosslayer.testbed.aioquic_server.connection import ServerConnection, Tickets, Tokens
from crosslayer.testbed.aioquic_server.events import EventLog
from crosslayer.testbed.aioquic_server.site import Site, SiteResponse, headers_for

DNS_PATH = "/dns-query"
_MOST_CONNECTIONS = 200
"""Maximum number of connections of a listener; further clients get no answer."""
_MOST_BODY_BYTES = 65535
_MOST_HEADER_BYTES = 16 << 10
_MOST_STREAM_BYTES = 2 + 65535
_DOQ_PROTOCOL_ERROR, _DOQ_REQUEST_CANCELLED = 0x2, 0x3
_HTTP_TOO_EARLY = 425


@dataclass(slots=True)
class ServerState:
    """State that all listeners share."""

    zone: DnsZone
    site: Site
    events: EventLog
    initial_window: int = 0
    """Initial congestion window of each connection, see `Configuration`."""
    tickets: Tickets = field(default_factory=Tickets)
    tokens: Tokens = field(default_factory=Tokens)
    connections: set[ClientProtocol] = field(default_factory=set)
    """Open connections of all listeners."""


def configuration(certificate: str, key: str, alpn: str, idle_timeout_s: float) -> QuicConfiguration:
    """QUIC configuration of a listener: aioquic's defaults, with two cipher suites.

    All clients support the first suite. Both this server and the testbed's first server (`testbed.server`) prefer it.
    """
    made = QuicConfiguration(
        is_client=False,
        alpn_protocols=[alpn],
        idle_timeout=idle_timeout_s,
        cipher_suites=[CipherSuite.AES_128_GCM_SHA256, CipherSuite.AES_256_GCM_SHA384],
    )
    made.load_cert_chain(certificate, key)
    return made


class ClientProtocol(QuicConnectionProtocol):
    """One connection of a client, driven by aioquic's asyncio protocol."""

    listener: ClassVar[str]
    """Name of the listener in events."""
    no_error: ClassVar[int]
    """Code with which the application protocol closes a connection if there is no error, e.g. H3_NO_ERROR."""
    _quic: ServerConnection

    def __init__(self, quic: ServerConnection, shared: ServerState, local: str, remote: str) -> None:
        super().__init__(quic)
        self._shared, self._local, self.remote = shared, local, remote
        self.handshake_over = asyncio.Event()
        shared.connections.add(self)

    async def close_politely(self, patience_s: float) -> None:
        """Wait for the end of the handshake, at most `patience_s`, then close the connection with the code `no_error`.

        Without the wait, the client would not receive this code (RFC 9000, section 10.2.3).
        """
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.handshake_over.wait(), patience_s)
        self.leave(self.no_error, "")

    def leave(self, code: int, reason: str) -> None:
        """Close the connection with an error code of the application and a reason."""
        self._shared.connections.discard(self)
        self.close(code, reason)

    def quic_event_received(self, event: QuicEvent) -> None:
        """Log the success or failure of the handshake; pass other events to the application protocol."""
        if isinstance(event, HandshakeCompleted):
            self._report_connection()
        elif isinstance(event, ConnectionTerminated):
            self._shared.connections.discard(self)
            if not self.handshake_over.is_set():
                self._report_connection(event.reason_phrase or f"code {event.error_code:#x}")
        else:
            self.take(event)

    @abstractmethod
    def take(self, event: QuicEvent) -> None:
        """Process a QUIC event in the application protocol."""

    @property
    def evidence(self) -> dict[str, Any]:
        """Properties of the connection, for the events of its requests and queries."""
        return {
            "remote": self.remote,
            "resumed": self._quic.resumed,
            "address_validated": self._quic.address_validated,
            "key_share": self._quic.key_share,
            "initials": self._quic.initials,
        }

    def is_early(self, stream: int) -> bool:
        """Whether data of a stream arrived as early data."""
        return not self._quic.handshake_complete or stream in self._quic.early_streams

    def report_query(self, listener: str, arrival: int, stream: int, answer: Any) -> None:
        """Write the event of a query, with the response code of its answer."""
        self._shared.events.write(
            "query",
            listener,
            time=arrival,
            name=answer.name,
            type=answer.type,
            rcode=answer.rcode,
            handshake_complete=not self.is_early(stream),
            **self.evidence,
        )

    def _report_connection(self, error: str = "") -> None:
        self.handshake_over.set()
        self._shared.events.write(
            "connection",
            self.listener,
            remote=self.remote,
            local=self._local,
            alpn=self._quic.tls.alpn_negotiated or "",
            server_name="",  # aioquic's server does not store the name
            resumed=self._quic.resumed,
            early_data=self._quic.early_data_accepted,
            address_validated=self._quic.address_validated,
            quic_version=self._quic.version_name,
            tls_version="TLSv1.3",
            error=error,
        )


class DoqProtocol(ClientProtocol):
    """DNS over QUIC (RFC 9250)."""

    listener = "doq"
    no_error = 0x0

    def __init__(self, quic: ServerConnection, shared: ServerState, local: str, remote: str) -> None:
        super().__init__(quic, shared, local, remote)
        quic._local_max_streams_uni.value = 0  # DoQ has no unidirectional streams
        self._streams: dict[int, bytearray] = {}

    def take(self, event: QuicEvent) -> None:
        """Answer the query of each stream that has ended; a violation of the protocol closes the connection."""
        if isinstance(event, StreamReset):
            self._streams.pop(event.stream_id, None)
            self._quic.reset_stream(event.stream_id, _DOQ_REQUEST_CANCELLED)
        elif isinstance(event, StreamDataReceived):
            received = self._streams.setdefault(event.stream_id, bytearray())
            received += event.data
            try:
                if len(received) > _MOST_STREAM_BYTES:
                    raise MalformedError("more than one message on the stream")
                if event.end_stream:
                    self._answer(event.stream_id, bytes(self._streams.pop(event.stream_id)))
            except MalformedError as error:
                self._quic.close(error_code=_DOQ_PROTOCOL_ERROR, reason_phrase=str(error))

    def _answer(self, stream: int, received: bytes) -> None:
        arrival = time.time_ns()
        answer = self._shared.zone.answer(doq_query(received), encrypted=True, early=self.is_early(stream))
        self.report_query(self.listener, arrival, stream, answer)
        self._quic.send_stream_data(stream, len(answer.wire).to_bytes(2) + answer.wire, end_stream=True)


@dataclass(slots=True)
class _Request:
    """An HTTP request that has not been answered yet."""

    arrival: int
    headers: Mapping[bytes, bytes]
    early: bool
    body: bytearray = field(default_factory=bytearray)
    refused: int = 0
    """HTTP status with which the request will be refused; 0 for no refusal so far."""

    def field(self, name: bytes) -> str:
        """Value of a header field; empty if the request lacks it."""
        return self.headers.get(name, b"").decode("latin-1")


class Http3Protocol(ClientProtocol):
    """HTTP/3 (RFC 9114): the pages of the site, and DNS at `/dns-query` (RFC 8484)."""

    listener = "h3"
    no_error = int(ErrorCode.H3_NO_ERROR)

    def __init__(self, quic: ServerConnection, shared: ServerState, local: str, remote: str) -> None:
        super().__init__(quic, shared, local, remote)
        self._http: H3Connection | None = None
        self._requests: dict[int, _Request] = {}

    def take(self, event: QuicEvent) -> None:
        """Send SETTINGS once the application protocol is negotiated, and answer each request once it is complete."""
        if isinstance(event, ProtocolNegotiated):
            self._http = H3Connection(self._quic)
            return
        if self._http is None:
            return
        if isinstance(event, StreamReset):
            self._requests.pop(event.stream_id, None)
        for part in self._http.handle_event(event):
            if isinstance(part, HeadersReceived):
                self._begin(part)
            elif isinstance(part, DataReceived) and (request := self._requests.get(part.stream_id)):
                request.body += part.data
                if len(request.body) > _MOST_BODY_BYTES:
                    request.body.clear()
                    request.refused = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            if isinstance(part, HeadersReceived | DataReceived) and part.stream_ended:
                self._respond(part.stream_id, self._requests.pop(part.stream_id))

    def _begin(self, part: HeadersReceived) -> None:
        request = self._requests.get(part.stream_id)
        if request is None:  # otherwise these are trailers, which are ignored
            early = self.is_early(part.stream_id)
            request = self._requests[part.stream_id] = _Request(time.time_ns(), dict(part.headers), early)
            if sum(len(name) + len(value) for name, value in part.headers) > _MOST_HEADER_BYTES:
                request.refused = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE

    def _respond(self, stream: int, request: _Request) -> None:
        assert self._http is not None, "a request before the protocol is negotiated"
        method, authority = request.field(b":method"), request.field(b":authority")
        path, _, query = request.field(b":path").partition("?")
        path = normal_path(path)
        status, response = self._decide(stream, request, method, authority, path, query)
        body = b"" if method == "HEAD" else response.body
        self._shared.events.write(
            "request",
            self.listener,
            time=request.arrival,
            done=time.time_ns(),
            server_name="",
            host=authority,
            method=method,
            path=path,
            status=int(status),
            bytes=len(body),
            handshake_complete=not request.early,
            **self.evidence,
        )
        headers = [(b":status", str(int(status)).encode())]
        headers += [(name.encode(), value.encode()) for name, value in response.headers]
        self._http.send_headers(stream, headers, end_stream=not body)
        if body:
            self._http.send_data(stream, body, end_stream=True)

    def _decide(
        self, stream: int, request: _Request, method: str, authority: str, path: str, query: str
    ) -> tuple[int, SiteResponse]:
        if request.refused:
            return _failure(request.refused)
        if request.early and method not in ("GET", "HEAD"):  # must not be replayed (RFC 8470, section 3)
            return _failure(_HTTP_TOO_EARLY)
        if path == DNS_PATH:
            return self._resolve(stream, request, method, query)
        host = authority.lower().removesuffix(":443").removesuffix(".")
        paths = self._shared.site.get(host)
        if paths is None:
            return _failure(HTTPStatus.MISDIRECTED_REQUEST)
        if path not in paths:
            return _failure(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _failure(HTTPStatus.METHOD_NOT_ALLOWED)
        return HTTPStatus.OK, paths[path]

    def _resolve(self, stream: int, request: _Request, method: str, query: str) -> tuple[int, SiteResponse]:
        wire = doh_query(method, query, request.headers, bytes(request.body))
        if isinstance(wire, int):
            return _failure(wire)
        try:
            answer = self._shared.zone.answer(wire, encrypted=True, early=request.early)
        except MalformedError:
            return _failure(HTTPStatus.BAD_REQUEST)
        self.report_query("doh3", request.arrival, stream, answer)
        headers = (
            ("content-type", MESSAGE_TYPE),
            ("content-length", str(len(answer.wire))),
            ("cache-control", f"max-age={answer.ttl_s}"),
        )
        return HTTPStatus.OK, SiteResponse(headers, answer.wire)


def _failure(status: int) -> tuple[int, SiteResponse]:
    phrase = "too early" if status == _HTTP_TOO_EARLY else HTTPStatus(status).phrase.lower()
    body = f"{phrase}\n".encode()
    return status, SiteResponse(headers_for("text/plain; charset=utf-8", len(body)), body)


class QuicListener(asyncio.DatagramProtocol):
    """A UDP socket that passes datagrams to QUIC connections by the destination connection ID."""

    def __init__(self, configuration: QuicConfiguration, protocol: type[ClientProtocol], shared: ServerState) -> None:
        self._configuration, self._protocol, self._shared = configuration, protocol, shared
        self._by_id: dict[bytes, ClientProtocol] = {}

    def connection_made(self, transport: Any) -> None:
        """Store the socket and its address."""
        self._transport: asyncio.DatagramTransport = transport
        host, port = transport.get_extra_info("sockname")[:2]
        self._local = f"{host}:{port}"

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Pass a datagram to its connection. An Initial in a datagram of at least 1200 bytes opens a connection."""
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=self._configuration.connection_id_length)
        except ValueError:
            return
        protocol = self._by_id.get(header.destination_cid)
        if protocol is None:
            if len(data) < SMALLEST_MAX_DATAGRAM_SIZE or header.version is None:
                return
            if header.packet_type is QuicPacketType.VERSION_NEGOTIATION:
                return
            if header.version not in self._configuration.supported_versions:
                self._negotiate_version(header, addr)
                return
            open_here = sum(one.listener == self._protocol.listener for one in self._shared.connections)
            if header.packet_type is not QuicPacketType.INITIAL or open_here >= _MOST_CONNECTIONS:
                return
            protocol = self._begin(header, addr)
        protocol.datagram_received(data, addr)

    def _negotiate_version(self, header: Any, addr: Any) -> None:
        offer = encode_quic_version_negotiation(
            source_cid=header.destination_cid,
            destination_cid=header.source_cid,
            supported_versions=self._configuration.supported_versions,
        )
        self._transport.sendto(offer, addr)

    def _begin(self, header: Any, addr: Any) -> ClientProtocol:
        host, remote = addr[0], f"{addr[0]}:{addr[1]}"
        shared, listener = self._shared, self._protocol.listener

        def token_sent(behind_ticket: bool) -> None:
            if self._protocol is Http3Protocol:  # like the first server, which reports no other tokens
                shared.events.write("token", listener, remote=remote, behind_ticket=behind_ticket)

        connection = ServerConnection(
            self._configuration,
            header.destination_cid,
            address_validated=shared.tokens.proves(host, header.token),
            tickets=shared.tickets,
            new_token=lambda: shared.tokens.issue(host),
            token_sent=token_sent,
            initial_window=shared.initial_window,
        )
        protocol = self._protocol(connection, shared, self._local, remote)
        protocol.connection_made(self._transport)
        self._by_id |= {header.destination_cid: protocol, connection.host_cid: protocol}

        def issued(identifier: bytes) -> None:
            self._by_id[identifier] = protocol

        def retired(identifier: bytes) -> None:
            self._by_id.pop(identifier, None)

        def terminated() -> None:
            self._by_id = {identifier: one for identifier, one in self._by_id.items() if one is not protocol}

        protocol._connection_id_issued_handler = issued
        protocol._connection_id_retired_handler = retired
        protocol._connection_terminated_handler = terminated
        return protocol


class UdpListener(asyncio.DatagramProtocol):
    """DNS over UDP."""

    def __init__(self, shared: ServerState) -> None:
        self._shared = shared

    def connection_made(self, transport: Any) -> None:
        """Store the socket."""
        self._transport: asyncio.DatagramTransport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a query; ignore other datagrams."""
        arrival = time.time_ns()
        try:
            answer = self._shared.zone.answer(data, encrypted=False)
        except MalformedError:
            return
        self._shared.events.write(
            "query",
            "udp",
            time=arrival,
            remote=f"{addr[0]}:{addr[1]}",
            name=answer.name,
            type=answer.type,
            rcode=answer.rcode,
            handshake_complete=True,
            resumed=False,
            address_validated=False,
        )
        self._transport.sendto(answer.wire, addr)
