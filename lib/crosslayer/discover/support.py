"""Find the transports that a host supports: try each of them once, with the clients that the studies use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aioquic.tls import SessionTicket
from cryptography import x509

from crosslayer.discover.doq import AnyDoQClient
from crosslayer.discover.negotiate import Endpoint, negotiate
from crosslayer.discover.pace import Pace
from crosslayer.discover.probe import version_names
from crosslayer.dns import (
    DEFAULT_PORTS,
    Client,
    ClientSettings,
    DnsError,
    Protocol,
    Question,
    Resolver,
    build_query,
    check_answer,
    client_for,
)
from crosslayer.errors import printable

DOQ_PORTS = (784, 853, 8853)
"""UDP ports of DoQ in its drafts and today (IMC22, section 2)."""
ENDPOINTS: tuple[tuple[Protocol, int], ...] = (
    *((protocol, port) for protocol, port in DEFAULT_PORTS.items() if protocol is not Protocol.DOQ),
    *((Protocol.DOQ, port) for port in DOQ_PORTS),
)
"""The transports to try, each with its port."""
QUIC_PORTS = tuple(sorted({port for protocol, port in ENDPOINTS if protocol.transport.over_quic}))
_WORKERS = 8
"""Number of hosts that are examined in parallel, because each transport without an answer takes a whole timeout."""


@dataclass(frozen=True, slots=True)
class ProbedHost:
    """One address to examine."""

    target: str
    """The target as listed: a host name, which SNI and HTTP use, or the address."""
    address: str


def column(description: str) -> Any:
    """A field of a dataclass that is a column of a table; `description` describes the column."""
    return field(metadata={"description": description})


@dataclass(frozen=True, slots=True)
class Support:
    """Whether one address supports one transport at one port: a row of the support matrix.

    Null means unknown: the transport lacks the feature, or the connection did not get that far.
    """

    target: str = column("address or host name as it was listed")
    address: str = column("IP address examined")
    transport: str = column("DoUDP, DoTCP, DoT, DoH, DoH3 or DoQ")
    port: int = column("UDP or TCP port")
    supported: bool = column("true where a DNS answer came back, whatever its response code")
    rcode: str | None = column("response code of the answer")
    quic_versions: tuple[str, ...] = column("QUIC versions the port offered by Version Negotiation; empty: no answer")
    quic_version: str | None = column("QUIC version of the connection")
    tls_version: str | None = column("TLS version of the connection")
    alpn: str | None = column("application protocol agreed on; DoT offers none")
    session_ticket: bool | None = column("the server sent a session ticket")
    early_data_offered: bool | None = column("the ticket allows early data; null over TCP, where OpenSSL does not say")
    retry_received: bool | None = column("the server validated the address by a Retry packet")
    address_token: bool | None = column("the server sent an address-validation token for the next connection")
    certificate_subject: str | None = column(
        "subject of the certificate, or its first alternative name if the subject is empty; not verified"
    )
    error: str | None = column("null where the transport is supported, else what happened instead")


def discover(
    hosts: list[ProbedHost],
    *,
    question: Question,
    packets_per_s: float,
    timeout_s: float,
    progress: Callable[[int], object] = lambda _done: None,
    unanswered: bool = False,
) -> Generator[list[Support], None, None]:
    """Examine hosts: probe them for QUIC, then try one transport after the other on each host.

    DoQ and DoH3 are tried only at ports that answered a probe, as in IMC22, section 2. `CrosslayerError` if the rate,
    the timeout or the question is invalid.

    Parameters
    ----------
    hosts
        Each pair of target and address once.
    packets_per_s
        Rate limit over all hosts together, packets sent per second.
    timeout_s
        Timeout of each probe, connection and query, seconds.
    progress
        Receives the number of checks that have finished since its last call. These numbers add up to `checks(hosts)`.
    unanswered
        Try DoQ and DoH3 also at ports that answered no probe: not every server negotiates versions.

    Yields
    ------
    list of Support
        The rows of one host in the order of `ENDPOINTS`; hosts in the order in which they finish.
    """
    pace = Pace(packets_per_s)
    settings = ClientSettings(timeout_s=timeout_s, udp_retransmit_s=timeout_s / 2)
    build_query(question, Protocol.DOUDP, settings)
    offers = negotiate(
        [(host.address, port) for port in QUIC_PORTS for host in hosts], pace, timeout_s=timeout_s, progress=progress
    )
    with ThreadPoolExecutor(_WORKERS) as pool:
        try:
            under_way = [pool.submit(examine, host, offers, question, settings, pace, unanswered) for host in hosts]
            for done in as_completed(under_way):
                rows = done.result()
                progress(len(rows))
                yield rows
        finally:
            pace.stop()  # hosts that still wait are not examined
            pool.shutdown(cancel_futures=True)


def checks(hosts: list[ProbedHost]) -> int:
    """Number of checks that `discover` makes for these hosts: QUIC probes and transports."""
    return len({host.address for host in hosts}) * len(QUIC_PORTS) + len(hosts) * len(ENDPOINTS)


def examine(
    host: ProbedHost,
    offers: Mapping[Endpoint, tuple[int, ...]],
    question: Question,
    settings: ClientSettings,
    pace: Pace,
    unanswered: bool = False,
) -> list[Support]:
    """Try every transport of one host; returns its rows of the support matrix.

    `offers` has QUIC versions by address and port, as `negotiate` returns them.
    """
    rows = []
    for protocol, port in ENDPOINTS:
        quic = protocol.transport.over_quic
        versions = version_names(offers.get((host.address, port), ())) if quic else ()
        if versions or unanswered or not quic:
            rows.append(_try_transport(host, protocol, port, versions, question, settings, pace))
        else:
            rows.append(_row(host, protocol, port, error="no answer to Version Negotiation"))
    return rows


def _try_transport(
    host: ProbedHost,
    protocol: Protocol,
    port: int,
    versions: tuple[str, ...],
    question: Question,
    settings: ClientSettings,
    pace: Pace,
) -> Support:
    """Open one connection and send one query; returns the row of the support matrix."""
    server = Resolver(host.address, host.target, ports={**DEFAULT_PORTS, protocol: port}, verify=False)
    client = AnyDoQClient(server, settings) if protocol is Protocol.DOQ else client_for(protocol, server, settings)
    query = build_query(question, protocol, settings)
    error: str | None = None
    rcode: str | None = None
    pace.wait(protocol.transport.connection_packets)
    with client:
        try:
            client.connect()
            answer = check_answer(client.query(query), query)
            rcode, error = answer.rcode, answer.error
            with suppress(DnsError):
                client.wait_for_ticket()
        except DnsError as fault:
            error = fault.what
        except Exception as fault:  # a server's bytes may make any parser raise: only this row fails
            error = f"{type(fault).__name__}: {fault}"
        if rcode is not None and error in (f"rcode {rcode}", "truncated"):
            error = None  # a DNS server answered, which is all that `supported` means
        return _row(host, protocol, port, quic_versions=versions, rcode=rcode, error=error, **_facts(client))


def _facts(client: Client) -> dict[str, Any]:
    """Values of those columns of `Support` that describe what a connection revealed about the server."""
    session, quic = client.session, client.protocol.transport.over_quic
    handshake, ticket = client.handshake, session.ticket
    if handshake.tls_version is None:
        return {"certificate_subject": certificate_subject(client)}
    early_data = isinstance(ticket, SessionTicket) and bool(ticket.max_early_data_size)
    return {
        "quic_version": handshake.quic_version,
        "tls_version": handshake.tls_version,
        "alpn": client.agreed_alpn,
        "session_ticket": ticket is not None,
        "early_data_offered": early_data if quic else None,
        "retry_received": handshake.retry_received,
        "address_token": bool(session.token) if quic else None,
        "certificate_subject": certificate_subject(client),
    }


def certificate_subject(client: Client) -> str | None:
    """Subject of the certificate that the client received (RFC 4514).

    If the subject is empty, the first subject alternative name of the certificate.
    """
    try:
        certificate = client.certificate
        if certificate is None:
            return None
        if subject := certificate.subject.rfc4514_string():
            return subject
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return str(next(iter(names)).value)
    except Exception as fault:  # the certificate is unverified and may be malformed
        return f"unreadable: {fault}"


def _row(host: ProbedHost, protocol: Protocol, port: int, **known: Any) -> Support:
    unknown = dict.fromkeys(Support.__dataclass_fields__) | {"quic_versions": ()}
    identity = {"target": host.target, "address": host.address, "transport": str(protocol), "port": port}
    known = {name: printable(value) if isinstance(value, str) else value for name, value in known.items()}
    return Support(**{**unknown, **known, **identity, "supported": known["error"] is None})
