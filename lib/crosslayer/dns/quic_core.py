"""DoQ (RFC 9250) and DoH3 (RFC 8484 over RFC 9114) as protocol cores on aioquic, without I/O.

Callers give the current time as an argument.

Three choices differ from aioquic's defaults, each to save client CPU time during the measurement: one key share instead
of four; one cipher suite and one QUIC version instead of several; a certificate check against a store that is built
beforehand (0.08 instead of 0.30 ms). aioquic's own check is off; this module checks the certificate. If the certificate
is invalid, the handshake fails before the client sends its Finished message or a query other than early data.
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from aioquic._buffer import Buffer
from aioquic.h3.connection import ErrorCode as H3ErrorCode
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection, QuicReceiveContext
from aioquic.quic.events import (
    ConnectionTerminated,
    HandshakeCompleted,
    QuicEvent,
    StreamDataReceived,
    StreamReset,
)
from aioquic.quic.logger import QuicLogger
from aioquic.quic.packet import QuicErrorCode, QuicFrameType, QuicProtocolVersion
from aioquic.quic.packet_builder import QuicDeliveryState
from aioquic.tls import AlertDescription, CipherSuite, Epoch, SessionTicket
from aioquic.tls import Group as TlsGroup
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.verification import VerificationError

from crosslayer.dns.certificates import CertificateVerifier
from crosslayer.dns.http import Response, request
from crosslayer.dns.keylog import key_log, wants_qlog
from crosslayer.dns.message import Query, framed, unframed
from crosslayer.dns.model import ClientSettings, Handshake, KeyShareGroup, Protocol, Resolver
from crosslayer.dns.sessions import Session
from crosslayer.dns.tls import certificate_message_bytes

INITIAL_RTT_S = 0.5
"""Initial RTT in aioquic, s. The first probe timeout is twice this: 1 s, as RFC 9002, section 6.2.2 recommends."""

_GROUPS = {KeyShareGroup.P256: TlsGroup.SECP256R1, KeyShareGroup.X25519: TlsGroup.X25519}
_VERSION_NAMES: dict[int, str] = {QuicProtocolVersion.VERSION_1: "v1", QuicProtocolVersion.VERSION_2: "v2"}
_ALERTS: dict[int, str] = {alert.value: alert.name for alert in AlertDescription}
_DOQ_NO_ERROR = 0x0

for _library in ("quic", "http3"):
    # Rows report faults of peers, which aioquic also logs. Without a handler, Python would print them on stderr.
    logging.getLogger(_library).addHandler(logging.NullHandler())


class _Connection(QuicConnection):
    """aioquic's connection with one key share; it also resends early data after a Retry and counts path validations."""

    def __init__(self, configuration: QuicConfiguration, core: QuicCore) -> None:
        super().__init__(
            configuration=configuration,
            session_ticket_handler=core.take_ticket,
            token_handler=core.take_token,
        )
        self._group = _GROUPS[core.settings.group]
        self.path_challenges = 0

    def _handle_path_challenge_frame(self, context: QuicReceiveContext, frame_type: int, buf: Buffer) -> None:
        self.path_challenges += 1
        super()._handle_path_challenge_frame(context, frame_type, buf)

    def _initialize(self, peer_cid: bytes) -> None:
        early = list(self._spaces[Epoch.ONE_RTT].sent_packets.values()) if self._spaces else []
        super()._initialize(peer_cid)
        self.tls._supported_groups = [self._group]
        # After a Retry, packet spaces are new: the data of the discarded 0-RTT packets must be sent again
        # (RFC 9000, section 17.2.5.3).
        for packet in early:
            for handler, arguments in packet.delivery_handlers:
                handler(QuicDeliveryState.LOST, *arguments)


class QuicCore(ABC):
    """One client connection, which can carry several queries at the same time.

    With `early_data`, queries that are queued before the first call of `datagrams` become early data. The argument
    `session` has the ticket and token of an earlier connection.
    """

    protocol: ClassVar[Protocol]
    alpns: ClassVar[tuple[str, ...]]
    """Application protocols offered, the preferred one first."""
    no_error: ClassVar[int]
    """Error code for a close without a fault."""

    def __init__(self, server: Resolver, settings: ClientSettings, *, session: Session, early_data: bool) -> None:
        self.server = server
        self.settings = settings
        self.handshake_complete = False
        self._session_resumed: bool | None = None
        self._early_data_accepted: bool | None = None
        self.error: str | None = None
        """What ended the connection; None while it is open."""
        self.age_s = 0
        """Time that the last answer spent in HTTP caches, s; 0 for DoQ."""
        self.session = Session()
        """Ticket and token that the server sent for the next connection."""
        self._verifier = CertificateVerifier(server) if server.verify else None
        ticket = session.ticket if isinstance(session.ticket, SessionTicket) else None
        if ticket is not None and not early_data:
            # aioquic offers early data whenever the ticket allows it.
            ticket = dataclasses.replace(ticket, max_early_data_size=None)
        self._qlog = QuicLogger() if wants_qlog() else None
        self._quic = _Connection(
            QuicConfiguration(
                is_client=True,
                alpn_protocols=list(self.alpns),
                server_name=server.server_name,
                session_ticket=ticket,
                token=session.token,
                idle_timeout=settings.idle_timeout_s or settings.timeout_s,
                max_datagram_size=settings.quic_datagram_bytes,
                initial_rtt=INITIAL_RTT_S,
                supported_versions=[QuicProtocolVersion.VERSION_1],
                # The cipher suite that every TLS 1.3 endpoint must have (RFC 8446, section 9.1).
                cipher_suites=[CipherSuite.AES_128_GCM_SHA256],
                # `_verify` checks the certificate, against a store built beforehand.
                verify_mode=ssl.CERT_NONE,
                secrets_log_file=key_log(),
                quic_logger=self._qlog,
            ),
            self,
        )

    @property
    def handshake(self) -> Handshake:
        """Result of the handshake; `quic_version` and `retry_received` are known from the start on."""
        version = self._quic._version
        return Handshake(
            session_resumed=self._session_resumed,
            early_data_accepted=self._early_data_accepted,
            quic_version=None if version is None else _VERSION_NAMES.get(version, f"{version:#010x}"),
            tls_version="TLSv1.3" if self.handshake_complete else None,  # never an older one (RFC 9001, section 4.2)
            retry_received=bool(self._quic._retry_count),
            certificate_bytes=self._certificate_bytes,
        )

    @property
    def _certificate_bytes(self) -> int | None:
        """Size of the Certificate message; None before the handshake ended."""
        if not self.handshake_complete:
            return None
        tls = self._quic.tls
        chain = [] if tls._peer_certificate is None else [tls._peer_certificate, *tls._peer_certificate_chain]
        return certificate_message_bytes(len(certificate.public_bytes(Encoding.DER)) for certificate in chain)

    @property
    def agreed_alpn(self) -> str | None:
        """Application protocol agreed on; None before the handshake ended, or if the server selected none."""
        return self._quic.tls.alpn_negotiated if self.handshake_complete else None

    @property
    def certificate(self) -> x509.Certificate | None:
        """The server's certificate; None before the handshake ended, and in a resumed session."""
        return self._quic.tls._peer_certificate if self.handshake_complete else None

    @property
    def path_challenges(self) -> int:
        """Number of path validations by the server so far."""
        return self._quic.path_challenges

    def start(self, now: float) -> None:
        """Make the client's hello; the next call of `datagrams` returns it."""
        self._quic.connect(self._address, now)

    @abstractmethod
    def ask(self, query: Query) -> int:
        """Queue a query; returns the ID of the stream on which its answer arrives."""

    @abstractmethod
    def answer(self, stream: int) -> bytes | None:
        """The answer on a stream; None while it is incomplete, `ValueError` with the fault if it is invalid."""

    def receive(self, datagram: bytes, now: float) -> None:
        """Process a received datagram."""
        try:
            self._quic.receive_datagram(datagram, self._address, now)
            self._handle_events()
        except Exception as fault:  # aioquic passes on any exception of its parsers of certificates and frames
            self.error = self.error or f"quic: malformed: {type(fault).__name__}: {fault}"

    def handle_timer(self, now: float) -> None:
        """Handle the timer that is due at `timer()`."""
        self._quic.handle_timer(now)
        self._handle_events()

    def timer(self) -> float | None:
        """Time at which `handle_timer` is due, on the clock of the arguments `now`; None if no timer runs."""
        return self._quic.get_timer()

    def datagrams(self, now: float) -> list[bytes]:
        """Datagrams to send now."""
        return [data for data, _ in self._quic.datagrams_to_send(now)]

    def close(self) -> None:
        """Close without a fault; the next call of `datagrams` returns the CONNECTION_CLOSE."""
        self._quic.close(error_code=self.no_error)

    def qlog(self) -> dict[str, Any] | None:
        """The qlog of the connection so far; None if QLOGDIR is not set."""
        return None if self._qlog is None else self._qlog.to_dict()

    def take_ticket(self, ticket: SessionTicket) -> None:
        """Store a ticket that the server sent."""
        self.session = dataclasses.replace(self.session, ticket=ticket)

    def take_token(self, token: bytes) -> None:
        """Store an address-validation token that the server sent."""
        self.session = dataclasses.replace(self.session, token=token)

    @property
    def _address(self) -> tuple[str, int]:
        return self.server.address, self.server.ports[self.protocol]

    def _handle_events(self) -> None:
        while (event := self._quic.next_event()) is not None:
            if isinstance(event, HandshakeCompleted):
                self._complete(event)
            elif self.error is None:
                self._handle(event)
        # aioquic reports a close by the server only after the draining period.
        if self.error is None and self._quic._close_event is not None:
            self.error = _close_reason(self._quic._close_event)

    def _complete(self, event: HandshakeCompleted) -> None:
        self._session_resumed = event.session_resumed
        self._early_data_accepted = event.early_data_accepted
        if self._verifier is not None and not event.session_resumed:
            self._verify(self._verifier)
        self.handshake_complete = self.error is None

    def _verify(self, verifier: CertificateVerifier) -> None:
        """Check the server's certificate; close the connection with an error if the certificate is invalid.

        A resumed session needs no check, because the certificate was checked on the connection that received the
        ticket.
        """
        leaf = self._quic.tls._peer_certificate
        try:
            if leaf is None:
                raise VerificationError("the server sent none")
            verifier.verify(leaf, self._quic.tls._peer_certificate_chain)
        except VerificationError as error:
            self.error = f"certificate: {error}"
            self._quic.close(
                error_code=QuicErrorCode.CRYPTO_ERROR + AlertDescription.bad_certificate,
                frame_type=QuicFrameType.CRYPTO,
                reason_phrase="certificate not trusted",
            )

    @abstractmethod
    def _handle(self, event: QuicEvent) -> None:
        """Process an event of the application protocol."""


def _close_reason(event: ConnectionTerminated) -> str:
    if event.reason_phrase == "Idle timeout":
        return "timeout"
    reason = f" {event.reason_phrase}" if event.reason_phrase else ""
    alert = _ALERTS.get(event.error_code - QuicErrorCode.CRYPTO_ERROR)
    if alert is not None:
        reason = f" (TLS alert {alert}){reason}"
    return f"quic: connection closed, code {event.error_code:#x}{reason}"


class DoQCore(QuicCore):
    """DoQ: one query per stream. A length of two bytes precedes each message."""

    protocol = Protocol.DOQ
    alpns: ClassVar[tuple[str, ...]] = (Protocol.DOQ.transport.alpn,)
    no_error = _DOQ_NO_ERROR

    def __init__(self, server: Resolver, settings: ClientSettings, *, session: Session, early_data: bool) -> None:
        super().__init__(server, settings, session=session, early_data=early_data)
        self._received: dict[int, bytearray] = {}
        self._ended: set[int] = set()
        self._reset: dict[int, int] = {}

    def ask(self, query: Query) -> int:
        """Queue a query on a new stream and end the client's direction of the stream (RFC 9250, section 4.2)."""
        stream = self._quic.get_next_available_stream_id()
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, framed(query.wire), end_stream=True)
        return stream

    def answer(self, stream: int) -> bytes | None:
        """The answer as soon as it is complete, whether or not the stream has ended; None before."""
        if stream in self._reset:
            raise ValueError(f"quic: stream reset by the server, code {self._reset[stream]:#x}")
        buffer = self._received[stream]
        wire = unframed(buffer)
        if (wire is None and stream in self._ended) or (wire is not None and len(buffer) > len(wire) + 2):
            raise ValueError("malformed")
        return wire

    def _handle(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived) and event.stream_id in self._received:
            self._received[event.stream_id] += event.data
            if event.end_stream:
                self._ended.add(event.stream_id)
        elif isinstance(event, StreamReset):
            self._reset[event.stream_id] = event.error_code


class DoH3Core(QuicCore):
    """DoH3: one request per query."""

    protocol = Protocol.DOH3
    alpns = (Protocol.DOH3.transport.alpn,)
    no_error = H3ErrorCode.H3_NO_ERROR

    def __init__(self, server: Resolver, settings: ClientSettings, *, session: Session, early_data: bool) -> None:
        super().__init__(server, settings, session=session, early_data=early_data)
        self._responses: dict[int, Response] = {}
        self._reset: dict[int, int] = {}
        self._http: H3Connection | None = None

    def start(self, now: float) -> None:
        """Make the client's hello and the HTTP/3 settings."""
        super().start(now)
        # Streams get their limits when they are created. With early data, those of the ticket are known from here on.
        self._http = H3Connection(self._quic)

    def ask(self, query: Query) -> int:
        """Queue the HTTP/3 request for a query; returns the ID of its stream."""
        assert self._http is not None, "ask before start"
        headers, body = request(query, self.server, self.settings, self.protocol)
        stream = self._quic.get_next_available_stream_id()
        self._responses[stream] = Response()
        encoded = [(name.encode(), value.encode()) for name, value in headers]
        self._http.send_headers(stream, encoded, end_stream=not body)
        if body:
            self._http.send_data(stream, body, end_stream=True)
        return stream

    def answer(self, stream: int) -> bytes | None:
        """The answer on a stream, once the HTTP response has ended; None before."""
        if stream in self._reset:
            raise ValueError(f"http/3: stream reset by the server, code {self._reset[stream]:#x}")
        response = self._responses[stream]
        if not response.done:
            return None
        self.age_s = response.age_s
        return response.message()

    def _handle(self, event: QuicEvent) -> None:
        assert self._http is not None, "events before start"
        if isinstance(event, StreamReset):
            self._reset[event.stream_id] = event.error_code
        for http_event in self._http.handle_event(event):
            if not isinstance(http_event, HeadersReceived | DataReceived):
                continue
            response = self._responses.get(http_event.stream_id)
            if response is None:
                continue
            if isinstance(http_event, HeadersReceived):
                response.take_headers(http_event.headers)
            else:
                response.body += http_event.data
            response.ended = response.ended or http_event.stream_ended
