"""DoQ and DoH3 clients. `quic_core` implements the protocols without I/O; this module adds the UDP socket."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from cryptography import x509

from crosslayer.dns.client import Client
from crosslayer.dns.keylog import keep_qlog
from crosslayer.dns.message import Query
from crosslayer.dns.model import Handshake, Protocol
from crosslayer.dns.quic_core import DoH3Core, DoQCore, QuicCore
from crosslayer.dns.sessions import Session
from crosslayer.dns.timing import PhaseName

_MAX_DATAGRAM_BYTES = 65535
IDLE_TIMEOUT = "idle timeout"
"""Error of a query on a connection whose idle timeout has expired."""


class QuicClient(Client):
    """Base class of DoQ and DoH3: a protocol core, a socket and the loop between them."""

    ip_protocol = socket.IPPROTO_UDP
    core_class: ClassVar[type[QuicCore]]
    companions: tuple[QuicClient, ...] = ()
    """Clients of other open connections, set before `connect`. The loop of this client serves them too."""

    def _prepare(self, session: Session) -> None:
        self._core = self.core_class(self.server, self.settings, session=session, early_data=self._early_data)
        self._poll = select.poll()
        self._first_flight: list[bytes] = []
        self._asked: tuple[Query, int] | None = None

    @property
    def session(self) -> Session:
        """Ticket and address-validation token that the server sent."""
        return self._core.session

    @property
    def path_challenges(self) -> int:
        """Number of path validations by the server so far."""
        return self._core.path_challenges

    @property
    def handshake(self) -> Handshake:
        """Result of the handshake."""
        return self._core.handshake

    @property
    def age_s(self) -> int:
        """Time that the last answer spent in HTTP caches, s; 0 for DoQ."""
        return self._core.age_s

    @property
    def agreed_alpn(self) -> str | None:
        """Application protocol agreed on."""
        return self._core.agreed_alpn

    @property
    def certificate(self) -> x509.Certificate | None:
        """The server's certificate."""
        return self._core.certificate

    def wait_for_ticket(self) -> None:
        """Wait for a ticket that did not arrive with the answer."""
        self._deadline = time.monotonic() + self.settings.ticket_wait_s
        with self._faults(), suppress(TimeoutError):
            self._run_until(lambda: self._core.session.ticket is not None)

    def settle(self, duration_s: float) -> None:
        """Receive and acknowledge further packets for `duration_s`; else the server would retransmit and give up."""
        self._deadline = time.monotonic() + duration_s
        with self._faults(), suppress(TimeoutError):
            self._run_until(lambda: False)

    def close(self) -> None:
        """Send pending data, then CONNECTION_CLOSE; do not wait for the draining period."""
        if self._connection is not None:
            with suppress(OSError):
                self._transmit()
                self._core.close()
                self._transmit()
            keep_qlog(self._core.qlog())
        super().close()

    def _open(self, first: Query | None) -> None:
        connection = self._new_socket(socket.SOCK_DGRAM)
        connection.connect(self._address)
        connection.setblocking(False)
        for client in (self, *self.companions):
            self._poll.register(client._socket, select.POLLIN)
        self.local_port = connection.getsockname()[1]
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
            # The client's Finished counts as handshake, in bytes and in time.
            self._transmit()

    def _ask(self, query: Query) -> bytes:
        asked, self._asked = self._asked, None
        # An idle connection may have timed out unnoticed: packets sent on it would be ignored.
        if (timer := self._core.timer()) is not None and (now := time.monotonic()) >= timer:
            self._core.handle_timer(now)
            if self._core.error == "timeout":
                raise self._fault(IDLE_TIMEOUT)
        stream = asked[1] if asked is not None and asked[0] is query else self._core.ask(query)
        try:
            self._run_until(lambda: self._core.answer(stream) is not None)
            answer = self._core.answer(stream)
        except ValueError as error:
            raise self._fault(str(error)) from None
        assert answer is not None
        return answer

    def _run_until(self, done: Callable[[], bool]) -> None:
        """Process datagrams and timers until `done` returns True; `DnsError` if the connection ends."""
        served = (self, *self.companions)
        while not done():
            if self._core.error is not None:
                raise self._fault(self._core.error)
            for client in served:
                client._transmit()
            wait_s = self._remaining_s()
            timers = {client: timer for client in served if (timer := client._core.timer()) is not None}
            if timers:
                wait_s = min(wait_s, max(0.0, min(timers.values()) - time.monotonic()))
            if self._poll.poll(wait_s * 1000):
                for client in self.companions:
                    client._receive_until(lambda: False)
                self._receive_until(done)
                continue
            for client, timer in timers.items():
                if (now := time.monotonic()) >= timer:
                    client._core.handle_timer(now)

    def _receive_until(self, done: Callable[[], bool]) -> None:
        """Process the datagrams that have arrived, until none is left, `done` returns True or the connection ends.

        Datagrams that are then left stay in the socket, so that processing them does not count as measured time.
        """
        while self._remaining_s():  # so that a flood of datagrams cannot exceed the deadline
            try:
                datagram = self._socket.recv(_MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            self._core.receive(datagram, time.monotonic())
            if self._core.error is not None or done():
                return

    def _transmit(self) -> None:
        datagrams, self._first_flight = self._first_flight or self._core.datagrams(time.monotonic()), []
        for datagram in datagrams:
            self._socket.send(datagram)


class DoQClient(QuicClient):
    """Client of DoQ."""

    protocol = Protocol.DOQ
    core_class = DoQCore


class DoH3Client(QuicClient):
    """Client of DoH3."""

    protocol = Protocol.DOH3
    core_class = DoH3Core
