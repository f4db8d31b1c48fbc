"""Types of this package: transports, servers, questions, settings and results. No I/O, no clock."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from crosslayer.dns.errors import DnsError
from crosslayer.vocabulary import Protocol as Protocol
from crosslayer.vocabulary import Resumption as Resumption
from crosslayer.vocabulary import Role

_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*", re.IGNORECASE | re.ASCII)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_host_name(text: str) -> bool:
    """True for a host name in its ASCII form, without a final dot (RFC 1123, section 2.1)."""
    return _HOST_NAME.fullmatch(text) is not None


DEFAULT_PORTS: Mapping[Protocol, int] = MappingProxyType({protocol: protocol.transport.port for protocol in Protocol})
"""Default port of each transport."""


class KeyShareGroup(StrEnum):
    """Group of the one key share in the client's hello; a single share keeps the hello in one packet."""

    P256 = "P-256"
    X25519 = "X25519"


@dataclass(frozen=True, slots=True)
class Resolver:
    """A DNS server and how its certificate is verified; `DnsError` if its address or name is malformed."""

    address: str
    """IPv4 or IPv6 address."""
    server_name: str = ""
    """Name in SNI, in the HTTP authority and in the certificate; required for encrypted transports."""
    ca_file: Path | None = None
    """PEM file of the CA that signed the certificate; required for encrypted transports if `verify` is true."""
    ports: Mapping[Protocol, int] = field(default_factory=lambda: DEFAULT_PORTS)
    """Port of each transport."""
    path: str = "/dns-query"
    """Path of DoH and DoH3."""
    verify: bool = True
    """Whether to verify the certificate. False accepts any certificate; it is only for discovery and server checks."""

    def __post_init__(self) -> None:
        if not _is_address(self.address):
            raise DnsError(
                "not an IP address",
                where=f"server {self.address!r}",
                next_step="Give the server's address, not a name.",
            )
        if self.server_name and not (_is_address(self.server_name) or is_host_name(self.server_name)):
            raise DnsError(
                "not a host name", where=f"server_name {self.server_name!r}", next_step="Use the certificate's name."
            )


@dataclass(frozen=True, slots=True)
class Question:
    """A DNS question."""

    name: str
    """Domain name, absolute whether or not it ends with a dot."""
    type: str = "A"
    """Mnemonic of the record type."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings of a client; the defaults are those of the studies. `DnsError` for a value out of range."""

    timeout_s: float = 10.0
    """Time limit of connection setup and, separately, of each query, seconds."""
    udp_retransmit_s: float = 5.0
    """DoUDP repeats the query after this time without an answer, seconds; Chromium's value (IMC22, section 3.2)."""
    udp_payload_bytes: int = 1232
    """Maximum size of an answer over DoUDP, announced by EDNS, bytes (DNS flag day 2020)."""
    padding_block_bytes: int = 128
    """Size of the padding block, bytes: encrypted queries are padded to a multiple of it (RFC 8467, section 4.1).

    0 means no padding.
    """
    cookie: bool = False
    """Whether queries carry a client cookie, an option of 12 bytes (RFC 7873); cookies in answers are ignored."""
    http_method: str = "GET"
    """Method of DoH and DoH3: GET or POST (RFC 8484, section 4.1)."""
    group: KeyShareGroup = KeyShareGroup.P256
    """Group of the TLS key share."""
    quic_datagram_bytes: int = 1200
    """UDP payload to which a QUIC client pads its Initial datagrams, bytes (RFC 9000, section 14.1)."""
    pad_hello: bool = True
    """Whether OpenSSL pads each ClientHello that has 256 to 511 bytes to 512 bytes (RFC 7685), which is its default."""
    idle_timeout_s: float | None = None
    """Idle time after which a QUIC client closes its connection, seconds; `timeout_s` by default."""
    ticket_wait_s: float = 1.0
    """Maximum time that a priming exchange waits for a ticket after the answer, seconds."""

    def __post_init__(self) -> None:
        checks = {
            "timeout_s": (self.timeout_s > 0, "a positive time"),
            "idle_timeout_s": (self.idle_timeout_s is None or self.idle_timeout_s > 0, "a positive time"),
            "udp_retransmit_s": (self.udp_retransmit_s > 0, "a positive time"),
            "udp_payload_bytes": (512 <= self.udp_payload_bytes <= 65535, "512 to 65535 (RFC 6891, section 6.2.3)"),
            "padding_block_bytes": (0 <= self.padding_block_bytes <= 4096, "0 to 4096"),
            "http_method": (self.http_method in ("GET", "POST"), "GET or POST (RFC 8484, section 4.1)"),
            "quic_datagram_bytes": (
                1200 <= self.quic_datagram_bytes <= 65527,
                "1200 to 65527 (RFC 9000, section 14.1)",
            ),
            "ticket_wait_s": (self.ticket_wait_s >= 0, "a time"),
        }
        for name, (holds, expected) in checks.items():
            if not holds:
                raise DnsError(
                    f"{name} cannot be {getattr(self, name)!r}", where="settings", next_step=f"Use {expected}."
                )


@dataclass(frozen=True)
class Handshake:
    """Result of a handshake; a field is None without TLS, and as long as its value is unknown."""

    session_resumed: bool | None = None
    """Whether the TLS session was resumed."""
    early_data_accepted: bool | None = None
    """Whether the client's TLS reports that early data was accepted; None outside QUIC.

    If there is a server log, the column of this name in a dataset has the log's evidence instead (`campaign.evidence`).
    """
    quic_version: str | None = None
    """QUIC version on the wire, e.g. "v1"."""
    tls_version: str | None = None
    """TLS version, e.g. "TLSv1.3"."""
    retry_received: bool | None = None
    """Whether the server sent a Retry packet for address validation, which costs one RTT; None outside QUIC."""
    certificate_bytes: int | None = None
    """Size of the TLS Certificate message from the server, bytes; 0 in a resumed session, which has none."""


@dataclass(frozen=True)
class Sizes:
    """Bytes (IP payload) and packets of an exchange, captured in the client's namespace; None without a capture."""

    handshake_sent_bytes: int | None = None
    handshake_received_bytes: int | None = None
    query_sent_bytes: int | None = None
    query_received_bytes: int | None = None
    handshake_sent_packets: int | None = None
    handshake_received_packets: int | None = None
    query_sent_packets: int | None = None
    query_received_packets: int | None = None
    first_flight_bytes: int | None = None
    """Bytes sent before any were received.

    Before a QUIC server has validated the client's address, it may send at most three times the bytes that it received
    (RFC 9000, section 8.1).
    """
    first_flight_packets: int | None = None
    handshake_sent_bytes_by_record: int | None = None
    """Bytes of the handshake according to the content of packets (`crosslayer.dns.handshake_bytes`).

    All sizes whose names end in `_by_record` count packets up to the answer. Over DoTCP, or without an answer, they
    count packets up to the close.
    """
    handshake_received_bytes_by_record: int | None = None
    query_sent_bytes_by_record: int | None = None
    query_received_bytes_by_record: int | None = None


@dataclass(frozen=True, kw_only=True)
class ExchangeResult(Handshake, Sizes):
    """Result of one DNS resolution on a new connection: the columns of `dns_exchanges` that the client measures.

    Times and sizes are None if they were not measured, e.g. because the exchange failed earlier.
    """

    protocol: Protocol
    resumption: Resumption
    priming: bool
    """Whether the exchange only fetched a ticket."""
    started_s: float
    """When the first packet left, seconds since the Unix epoch."""
    handshake_ms: float | None
    """Time from the start of the connection to the end of its handshake; 0 for DoUDP and for early data."""
    query_ms: float | None
    """Time from the query to the complete answer; with early data, from the start of the connection."""
    total_ms: float | None
    """Time from the start of the connection to the complete answer."""
    cpu_ms: float
    """CPU time of the calling thread for ClientHello, handshake and query."""
    error: str | None
    """What failed; None if the answer is good and the exchange met its condition (resumption, early data, ticket)."""
    rcode: str | None
    """Response code of the answer, e.g. NOERROR."""
    answers: tuple[str, ...]
    """Record data of the answer section, in its order."""
    local_port: int | None
    """The client's UDP or TCP port, which identifies this exchange in the server log."""

    @property
    def role(self) -> Role:
        """Role of the exchange in its round."""
        return Role.PRIMING if self.priming else Role.MEASURED
