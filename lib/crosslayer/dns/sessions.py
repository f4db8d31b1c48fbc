"""What a client keeps from one connection for the next: session tickets and address-validation tokens. No I/O.

Explicit on purpose: nothing is resumed that a caller did not take out of a store and give to a client.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from aioquic.tls import SessionTicket

from crosslayer.dns.model import Protocol, Resolver


@dataclass(frozen=True, slots=True)
class TlsTicket:
    """A session of TLS over TCP; OpenSSL resumes it only in the context it was made in."""

    context: ssl.SSLContext
    session: ssl.SSLSession


@dataclass(frozen=True, slots=True)
class Session:
    """What one connection left for the next."""

    ticket: TlsTicket | SessionTicket | None = None
    token: bytes = b""
    """QUIC address-validation token of a NEW_TOKEN frame (RFC 9000, section 8.1.3); empty without one."""


class SessionStore:
    """Sessions by server, transport and server name; each is used once (RFC 8446, appendix C.4)."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, int, Protocol, str], Session] = {}

    def put(self, server: Resolver, protocol: Protocol, session: Session) -> None:
        """Keep what a connection left; a part it did not bring keeps its older value."""
        key = self._key(server, protocol)
        kept = self._sessions.get(key, Session())
        self._sessions[key] = Session(session.ticket or kept.ticket, session.token or kept.token)

    def take(self, server: Resolver, protocol: Protocol) -> Session:
        """Take the session out; an empty one if there is none."""
        return self._sessions.pop(self._key(server, protocol), Session())

    def clear(self) -> None:
        """Forget everything."""
        self._sessions.clear()

    @staticmethod
    def _key(server: Resolver, protocol: Protocol) -> tuple[str, int, Protocol, str]:
        return server.address, server.ports[protocol], protocol, server.server_name
