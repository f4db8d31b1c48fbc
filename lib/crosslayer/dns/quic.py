"""DoQ and DoH3 clients: the cores of `quic_core` on a UDP socket."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from cryptography import x509

from crosslayer.dns.client import Client
from crosslayer.dns.message import Query
from crosslayer.dns.model import ClientSettings, Protocol, Resolver
from crosslayer.dns.quic_core import DoH3Core, DoQCore, QuicCore
from crosslayer.dns.sessions import Session
from crosslayer.dns.timing import PhaseName

_MAX_DATAGRAM_BYTES = 65535


class QuicClient(Client):
    """What DoQ and DoH3 have in common: a core, a socket and one loop between them."""

    ip_protocol = socket.IPPROTO_UDP
    core_class: ClassVar[type[QuicCore]]

    _connection: socket.socket | None = None

    def __init__(
        self,
        server: Resolver,
        settings: ClientSettings | None = None,
        *,
        session: Session | None = None,
        early_data: bool = False,
    ) -> None:
        super().__init__(server, settings, session=session, early_data=early_data)
        self._core = self.core_class(server, self.settings, session=session or Session(), early_data=early_data)
        self._poll = select.poll()
        self._first_flight: list[bytes] = []
        self._asked: tuple[Query, int] | None = None

    @property
    def session(self) -> Session:
        """Ticket and address-validation token the server sent."""
        return self._core.session

    @property
    def session_resumed(self) -> bool | None:
        """The TLS session was resumed."""
        return self._core.session_resumed

    @property
    def early_data_accepted(self) -> bool | None:
        """The server's TLS accepted early data."""
        return self._core.early_data_accepted

    @property
    def quic_version(self) -> str | None:
        """QUIC version on the wire."""
        return self._core.quic_version

    @property
    def tls_version(self) -> str | None:
        """QUIC has TLS 1.3 and nothing older (RFC 9001, section 4.2)."""
        return "TLSv1.3" if self._core.handshake_complete else None

    @property
    def retry_received(self) -> bool | None:
        """The server sent a Retry packet."""
        return self._core.retry_received

    @property
    def agreed_alpn(self) -> str | None:
        """Application protocol agreed on."""
        return self._core.agreed_alpn

    @property
    def certificate(self) -> x509.Certificate | None:
        """The certificate the server showed."""
        return self._core.certificate

    def wait_for_ticket(self) -> None:
        """Listen for a ticket that did not come with the answer."""
        self._deadline = time.monotonic() + self.settings.ticket_wait_s
        with self._faults(), suppress(TimeoutError):
            self._run_until(lambda: self._core.session.ticket is not None)

    def close(self) -> None:
        """Send what is still to be said, then CONNECTION_CLOSE, without the draining period."""
        if self._connection is None:
            return
        with suppress(OSError):
            self._transmit()
            self._core.close()
            self._transmit()
        self._connection.close()
        self._connection = None

    def _open(self, first: Query | None) -> None:
        self._connection = self._new_socket(socket.SOCK_DGRAM)
        self._connection.connect(self._address)
        self._connection.setblocking(False)
        self._poll.register(self._connection, select.POLLIN)
        self.local_port = self._connection.getsockname()[1]
        with self.timeline.preparation():
            now = time.monotonic()
            self._core.start(now)
            if not self._early_data:
                self._first_flight = self._core.datagrams(now)
            elif first is not None:
                self._asked = first, self._core.ask(first)
                self._first_flight = self._core.datagrams(now)

    def _handshake(self) -> None:
        with self.timeline.phase(PhaseName.HANDSHAKE):
            self._run_until(lambda: self._core.handshake_complete)
            # The client's Finished belongs to the handshake, its bytes as well as its time.
            self._transmit()

    def _ask(self, query: Query) -> bytes:
        asked, self._asked = self._asked, None
        stream = asked[1] if asked is not None and asked[0] is query else self._core.ask(query)
        try:
            self._run_until(lambda: self._core.answer(stream) is not None)
            answer = self._core.answer(stream)
        except ValueError as error:
            raise self._fault(str(error)) from None
        assert answer is not None
        return answer

    def _run_until(self, done: Callable[[], bool]) -> None:
        """Let datagrams and timers through until something holds.

        Raises
        ------
        DnsError
            If the connection ended.
        TimeoutError
            If the deadline passed.
        """
        while not done():
            if self._core.error is not None:
                raise self._fault(self._core.error)
            self._transmit()
            wait_s = self._remaining_s()
            timer = self._core.timer()
            if timer is not None:
                wait_s = min(wait_s, max(0.0, timer - time.monotonic()))
            if self._poll.poll(wait_s * 1000):
                self._receive_until(done)
            elif timer is not None and (now := time.monotonic()) >= timer:
                self._core.handle_timer(now)

    def _receive_until(self, done: Callable[[], bool]) -> None:
        """Take what has arrived, and nothing more once `done` holds: the rest can wait until the clock has stopped."""
        assert self._connection is not None
        while self._remaining_s():  # a server that floods is still held to the deadline
            try:
                datagram = self._connection.recv(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            self._core.receive(datagram, time.monotonic())
            if self._core.error is not None or done():
                return

    def _transmit(self) -> None:
        assert self._connection is not None, "query before connect"
        datagrams, self._first_flight = self._first_flight or self._core.datagrams(time.monotonic()), []
        for datagram in datagrams:
            self._connection.send(datagram)


class DoQClient(QuicClient):
    """DoQ."""

    protocol = Protocol.DOQ
    core_class = DoQCore


class DoH3Client(QuicClient):
    """DoH3."""

    protocol = Protocol.DOH3
    core_class = DoH3Core
