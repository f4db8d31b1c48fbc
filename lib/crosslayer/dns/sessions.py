"""Session tickets and address-validation tokens that a client keeps for its next connection. No I/O.

Resumption is explicit: a client resumes a session only if its caller took the session from a store and passed it on.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from aioquic.tls import SessionTicket

from crosslayer.dns.model import Protocol, Resolver


@dataclass(frozen=True, slots=True)
class TlsTicket:
    """A TLS session over TCP; OpenSSL resumes it only in the context in which it was made."""

    context: ssl.SSLContext
    session: ssl.SSLSession


@dataclass(frozen=True, slots=True)
class Session:
    """Ticket and token of one connection for the next."""

    ticket: TlsTicket | SessionTicket | None = None
    token: bytes = b""
    """QUIC address-validation token of a NEW_TOKEN frame (RFC 9000, section 8.1.3); empty without a token."""


class SessionStore:
    """Stores one session for each server address, port, server name and transport.

    `take` removes a session from the store, because each session is used only once (RFC 8446, appendix C.4).
    """

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, int, Protocol, str], Session] = {}

    def put(self, server: Resolver, protocol: Protocol, session: Session) -> None:
        """Store ticket and token of a connection.

        If the connection received no ticket, the stored ticket stays; likewise for the token.
        """
        key = self._key(server, protocol)
        kept = self._sessions.get(key, Session())
        self._sessions[key] = Session(session.ticket or kept.ticket, session.token or kept.token)

    def take(self, server: Resolver, protocol: Protocol) -> Session:
        """Remove and return the session of a server and transport; an empty session if there is none."""
        return self._sessions.pop(self._key(server, protocol), Session())

    def clear(self) -> None:
        """Delete all sessions."""
        self._sessions.clear()

    @staticmethod
    def _key(server: Resolver, protocol: Protocol) -> tuple[str, int, Protocol, str]:
        return server.address, server.ports[protocol], protocol, server.server_name
