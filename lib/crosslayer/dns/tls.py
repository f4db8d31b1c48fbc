"""TLS on TCP, and DoT on top of it (RFC 7858)."""

from __future__ import annotations

import _ssl
import ctypes
import select
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import ClassVar

from cryptography import x509
from cryptography.x509.verification import VerificationError

from crosslayer.dns.certificates import CertificateVerifier
from crosslayer.dns.errors import DnsError, unreadable_ca
from crosslayer.dns.message import Query
from crosslayer.dns.model import ClientSettings, Handshake, KeyShareGroup, Protocol, Resolver
from crosslayer.dns.sessions import Session, TlsTicket
from crosslayer.dns.tcp import DoTcpClient
from crosslayer.dns.timing import PhaseName

_OPENSSL_GROUPS = {KeyShareGroup.P256: "prime256v1", KeyShareGroup.X25519: "X25519"}
_CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""Cipher suites of the ClientHello: the default of Python 3.10 and later (`PY_SSL_DEFAULT_CIPHER_STRING`).

Debian's Python has other defaults for cipher suites and versions of TLS; they make the ClientHello 30 bytes longer.
"""
_READ_BYTES = 65536
_TLSEXT_PADDING = 1 << 4
"""SSL_OP_TLSEXT_PADDING of <openssl/ssl.h>; Python has no name for it."""
_NO_RX_CERTIFICATE_COMPRESSION = 1 << 33
"""SSL_OP_NO_RX_CERTIFICATE_COMPRESSION of <openssl/ssl.h>; Python does not name it. OpenSSL < 3.2 ignores it."""
_SSL_CTRL_SET_GROUPS_LIST = 92
"""Constant of <openssl/ssl.h>."""


def client_context(server: Resolver, settings: ClientSettings, *, alpn: str | None) -> ssl.SSLContext:
    """A TLS context that offers one key share and trusts only the server's CA.

    It does not request compression of the server's certificate (RFC 8879). If `server.verify` is false, the context
    accepts any certificate. `DnsError` if the CA file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(_CIPHERS)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if server.verify:
        try:
            context.load_verify_locations(server.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise unreadable_ca(server.ca_file, error) from None
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    _offer_group(context, settings.group)
    context.options |= _NO_RX_CERTIFICATE_COMPRESSION
    if not settings.pad_hello:
        context.options &= ~_TLSEXT_PADDING
    return context


def _offer_group(context: ssl.SSLContext, group: KeyShareGroup) -> None:
    """Offer only one group, with its key share; `DnsError` if this Python's OpenSSL lacks it."""
    try:
        context.set_ecdh_curve(_OPENSSL_GROUPS[group])
    except ssl.SSLError as error:
        if not _set_groups(context, _OPENSSL_GROUPS[group]):
            raise DnsError(
                f"this Python's TLS does not offer the group {group.value}: {error}",
                next_step="Use the Python of `nix develop`, or any newer one of this version.",
            ) from None


def _set_groups(context: ssl.SSLContext, names: str) -> bool:
    """Call SSL_CTX_set1_groups_list of OpenSSL; false if it fails.

    Up to Python 3.11.3, as in Debian 12, `set_ecdh_curve` does not know X25519. OpenSSL would offer ten groups.
    """
    control = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    control.argtypes, control.restype = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p], ctypes.c_long
    # The first field of CPython's `PySSLContext`, after the head of every object, is the SSL_CTX.
    ssl_ctx = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    return bool(control(ssl_ctx, _SSL_CTRL_SET_GROUPS_LIST, 0, names.encode()) == 1)


def certificate_message_bytes(certificates: Iterable[int], of_1_3: bool = True) -> int:
    """Size of the TLS Certificate message, bytes, from the sizes of its certificates (DER); 0 without any.

    Exact for clients that request neither a stapled response nor compression, such as those of this package (RFC 8446,
    section 4.4.2; RFC 5246, section 7.4.2).
    """
    entries = sum(3 + size + (2 if of_1_3 else 0) for size in certificates)
    return entries and 4 + (1 if of_1_3 else 0) + 3 + entries


class TlsClient(DoTcpClient):
    """Base class of DoT and DoH.

    TLS runs on memory buffers, so that the ClientHello is made before the clock starts, as with QUIC.
    """

    alpn: ClassVar[str | None]
    """The ALPN protocol that must be agreed on; None if none is offered."""

    def _prepare(self, session: Session) -> None:
        ticket = session.ticket if isinstance(session.ticket, TlsTicket) else None
        self._context = ticket.context if ticket else client_context(self.server, self.settings, alpn=self.alpn)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_hostname=self.server.server_name,
            session=ticket.session if ticket else None,
        )
        self._secured = False
        self._verifier = CertificateVerifier(self.server) if self.server.verify else None

    @property
    def session(self) -> Session:
        """The session ticket; an empty session before the server sent a ticket."""
        session = self._tls.session if self._secured else None
        return Session(TlsTicket(self._context, session)) if session and session.has_ticket else Session()

    @property
    def handshake(self) -> Handshake:
        """Result of the handshake."""
        if not self._secured:
            return Handshake()
        resumed, version = self._tls.session_reused, self._tls.version()
        sizes = [] if resumed else [len(certificate) for certificate in self._chain()]
        return Handshake(
            session_resumed=resumed,
            tls_version=version,
            certificate_bytes=certificate_message_bytes(sizes, version == "TLSv1.3"),
        )

    @property
    def agreed_alpn(self) -> str | None:
        """Application protocol agreed on."""
        return self._tls.selected_alpn_protocol() if self._secured else None

    @property
    def certificate(self) -> x509.Certificate | None:
        """The server's certificate."""
        der = self._tls.getpeercert(binary_form=True) if self._secured else None
        return x509.load_der_x509_certificate(der) if der else None

    def wait_for_ticket(self) -> None:
        """Wait for a TLS 1.3 session ticket that did not arrive with the answer."""
        self._deadline = time.monotonic() + self.settings.ticket_wait_s
        with self._faults(), suppress(TimeoutError):
            while self.session.ticket is None:
                self._incoming.write(super()._receive())
                with suppress(ssl.SSLWantReadError):
                    self._tls.read(_READ_BYTES)

    def close(self) -> None:
        """Send a close_notify, then close the connection without waiting for the server's close_notify."""
        if self._connection is not None and self._secured:
            with suppress(OSError):
                with suppress(ssl.SSLError):
                    self._tls.unwrap()
                self._connection.setblocking(False)
                self._connection.send(self._outgoing.read())
        super().close()

    def _open(self, first: Query | None) -> None:
        super()._open(first)
        with self.timeline.preparation(), suppress(ssl.SSLWantReadError):
            self._tls.do_handshake()

    def _handshake(self) -> None:
        with self.timeline.phase(PhaseName.HANDSHAKE):
            self._connect_tcp()
            while not self._secured:
                self._flush()
                self._incoming.write(super()._receive())
                try:
                    self._tls.do_handshake()
                    self._secured = True
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError:
                    with suppress(OSError):
                        self._flush()  # sends the alert; a closed connection must not hide the TLS error
                    raise
            self._flush()
        if self._verifier is not None and not self._tls.session_reused:
            self._verify(self._verifier)
        if self._tls.selected_alpn_protocol() != self.alpn:
            raise self._fault(f"the server does not speak {self.alpn}")

    def _verify(self, verifier: CertificateVerifier) -> None:
        """Check the chain, which OpenSSL has accepted, against the policy of `CertificateVerifier`.

        The check is not timed, and precedes the first query.
        """
        try:
            leaf, *intermediates = map(x509.load_der_x509_certificate, self._chain())
            verifier.verify(leaf, intermediates)
        except (VerificationError, ValueError) as error:
            raise self._fault(f"certificate: {error}") from None

    def _chain(self) -> list[bytes]:
        """Certificates that the server sent in this handshake, DER, leaf first.

        The method that this function calls is public from Python 3.13 on.
        """
        chain = self._tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]
        return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain]

    def _send(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def _receive(self) -> bytes:
        while True:
            try:
                data = self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                self._incoming.write(super()._receive())
                continue
            if not data:
                raise self._fault("connection closed by the server")
            return data

    def _readable(self) -> bool:
        """Whether more data has arrived."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(self._tls.pending() or self._incoming.pending or poll.poll(0))

    def _flush(self) -> None:
        if self._outgoing.pending:
            super()._send(self._outgoing.read())


class DoTClient(TlsClient):
    """Client of DoT; without ALPN, which RFC 7858 does not use."""

    protocol = Protocol.DOT
    alpn = None
