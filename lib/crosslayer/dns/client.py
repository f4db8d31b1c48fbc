"""The interface of the clients of all transports: `connect`, then `query`, each a timed phase."""

from __future__ import annotations

import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Self

from cryptography import x509

from crosslayer.dns.errors import DnsError
from crosslayer.dns.message import Query
from crosslayer.dns.model import ClientSettings, Handshake, Protocol, Resolver
from crosslayer.dns.sessions import Session
from crosslayer.dns.timing import PhaseName, Timeline
from crosslayer.errors import printable
from crosslayer.testbed import outside


class Client(ABC):
    """A client of one transport for one connection.

    `connect` and `query` block and are timed in `timeline`; constructor and `close` are not timed. A connection can
    carry several queries. Encrypted transports need the server's name and, if `Resolver.verify` is true, the server's
    CA. If name or CA is missing or unusable, the constructor raises `DnsError`.

    Parameters
    ----------
    session
        Ticket and token of an earlier connection, to resume its session.
    early_data
        Whether to send the first query in the client's first flight.
    """

    protocol: ClassVar[Protocol]
    ip_protocol: ClassVar[int]
    """socket.IPPROTO_UDP or socket.IPPROTO_TCP."""

    _connection: socket.socket | None = None

    def __init__(
        self,
        server: Resolver,
        settings: ClientSettings | None = None,
        *,
        session: Session | None = None,
        early_data: bool = False,
    ) -> None:
        if self.protocol.transport.encrypted and not (server.server_name and (server.ca_file or not server.verify)):
            raise DnsError(
                f"{self.protocol} needs the name and the CA of its server",
                where=f"server {server.address}",
                next_step="Give server_name and ca_file: certificates are always verified.",
            )
        self.server = server
        self.settings = settings or ClientSettings()
        self.timeline = Timeline()
        self.local_port: int | None = None
        self._early_data = early_data
        self._deadline = 0.0
        self._prepare(session or Session())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def connect(self, first: Query | None = None) -> None:
        """Set up the connection so that a query can be sent; `DnsError` if that fails.

        `first` is the first query. Its request is prepared before the clock starts, as far as the transport allows.
        """
        self._deadline = time.monotonic() + self.settings.timeout_s
        with self._faults():
            self._open(first)
            if not self._early_data:
                self._handshake()

    def query(self, query: Query) -> bytes:
        """Send a query and return its answer as bytes, complete but unchecked; `DnsError` if no answer arrives."""
        self._deadline = time.monotonic() + self.settings.timeout_s
        with self._faults(), self.timeline.phase(PhaseName.QUERY):
            return self._ask(query)

    def close(self) -> None:
        """Close the connection as its protocol requires, without waiting for the server. Further calls do nothing."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def wait_for_ticket(self) -> None:
        """Wait for a session ticket, at most `ClientSettings.ticket_wait_s`; `DnsError` if the connection ends."""
        raise self._fault("the transport has no session tickets")

    def settle(self, duration_s: float) -> None:  # noqa: B027 - the kernel does it for TCP
        """Receive and acknowledge further packets for `duration_s`, before this connection becomes idle."""

    @property
    def session(self) -> Session:
        """Ticket and token that the server sent for the next connection."""
        return Session()

    @property
    def handshake(self) -> Handshake:
        """Result of the handshake."""
        return Handshake()

    @property
    def path_challenges(self) -> int:
        """Number of path validations by the server so far; 0 without QUIC.

        A server validates the path when packets come from another address or port (RFC 9000, section 9.3).
        """
        return 0

    @property
    def age_s(self) -> int:
        """Time that the last answer spent in HTTP caches, s; 0 without HTTP (RFC 8484, section 5.1)."""
        return 0

    @property
    def agreed_alpn(self) -> str | None:
        """Application protocol agreed on by ALPN; None before the handshake ended, or if none was agreed on."""
        return None

    @property
    def certificate(self) -> x509.Certificate | None:
        """The server's certificate; None without TLS, before the handshake ended, and in a resumed session.

        `ValueError` if the certificate cannot be parsed. This is possible only without verification, which refuses it.
        """
        return None

    def _prepare(self, session: Session) -> None:  # noqa: B027 - DoUDP and DoTCP need nothing
        """Prepare a connection that uses ticket and token of an earlier connection."""

    @abstractmethod
    def _open(self, first: Query | None) -> None:
        """Do all work that needs no packet, e.g. open the socket, before the clock starts."""

    @abstractmethod
    def _handshake(self) -> None:
        """Make and time the handshake, if the transport has one."""

    @abstractmethod
    def _ask(self, query: Query) -> bytes:
        """Send the query and wait for the answer."""

    def _remaining_s(self) -> float:
        """Time until the deadline of the connection setup or query, s; `TimeoutError` after the deadline."""
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        return remaining_s

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn exceptions of sockets and TLS into `DnsError`."""
        try:
            yield
        except DnsError:
            raise
        except TimeoutError:
            raise self._fault("timeout") from None
        except ssl.SSLCertVerificationError as error:
            raise self._fault(f"certificate: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise self._fault(f"tls: {error.reason or error}") from error
        except ConnectionRefusedError as error:
            raise self._fault("connection refused") from error
        except ConnectionError as error:
            raise self._fault("connection reset") from error
        except OSError as error:
            raise self._fault(f"network: {error.strerror or error}") from error

    def _fault(self, what: str) -> DnsError:
        port = self.server.ports[self.protocol]
        return DnsError(
            printable(what),
            where=f"{self.protocol} {self.server.address} port {port}",
            next_step="Check that the server is up and speaks this transport.",
        )

    def _new_socket(self, kind: socket.SocketKind) -> socket.socket:
        """Open a socket to the server; `OutsideError` if it is on another machine and the user has not consented."""
        self._connection = outside.open_socket(self.server.address, kind, self.server.server_name)
        return self._connection

    @property
    def _socket(self) -> socket.socket:
        assert self._connection is not None, "open before anything else"
        return self._connection

    @property
    def _address(self) -> tuple[str, int]:
        return self.server.address, self.server.ports[self.protocol]
