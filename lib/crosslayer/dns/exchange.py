"""One measured DNS resolution on a new connection, and the measured round-trip of a TCP connect."""

from __future__ import annotations

import ipaddress
import time
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from crosslayer.dns import handshake_bytes
from crosslayer.dns.capture import Capture, PacketRecording, measure
from crosslayer.dns.client import Client
from crosslayer.dns.errors import DnsError
from crosslayer.dns.http2 import DoHClient
from crosslayer.dns.message import MAX_MESSAGE_BYTES, Answer, build_query, check_answer
from crosslayer.dns.model import ClientSettings, ExchangeResult, Protocol, Question, Resolver, Resumption, Sizes
from crosslayer.dns.quic import DoH3Client, DoQClient
from crosslayer.dns.sessions import Session, SessionStore
from crosslayer.dns.tcp import DoTcpClient
from crosslayer.dns.timing import PhaseName, collector_paused
from crosslayer.dns.tls import DoTClient
from crosslayer.dns.udp import DoUdpClient

NO_TICKET = "no session ticket: a priming exchange must come first"
"""Error of a resumed exchange without a ticket."""
CLIENTS: dict[Protocol, type[Client]] = {
    client.protocol: client for client in (DoUdpClient, DoTcpClient, DoTClient, DoHClient, DoH3Client, DoQClient)
}


def client_for(
    protocol: Protocol,
    server: Resolver,
    settings: ClientSettings | None = None,
    *,
    session: Session | None = None,
    early_data: bool = False,
) -> Client:
    """Create the client of a transport; see `Client` for the parameters and errors."""
    return CLIENTS[protocol](server, settings, session=session, early_data=early_data)


def exchange(
    server: Resolver,
    question: Question,
    protocol: Protocol,
    resumption: Resumption = Resumption.NONE,
    *,
    sessions: SessionStore | None = None,
    settings: ClientSettings | None = None,
    capture: Capture | None = None,
    priming: bool = False,
    token: bool | None = None,
) -> ExchangeResult:
    """Resolve one name on a new connection and measure it.

    The clock starts with the first packet. Messages, TLS contexts, trusted CAs, sockets and the ClientHello are
    prepared before it starts, as far as the transport uses them. The answer is checked after the clock has stopped. The
    connection is closed before this function returns.

    Parameters
    ----------
    sessions
        Store of tickets and tokens. A resumed exchange takes those of an earlier connection, so a priming exchange must
        have filled the store. An exchange with an answer adds the tickets and tokens that it receives.
    capture
        Counts bytes and packets; without a capture, all sizes are None. Open it once and pass it to every exchange.
    priming
        Whether the exchange only serves to fetch a ticket. It then waits for the ticket, and its role is `priming`.
    token
        True: send the address-validation token of an earlier connection, also in a full handshake; without a token, the
        exchange fails. False: send no token. None: a resumed exchange sends the token if there is one.

    Returns
    -------
    ExchangeResult
        `error` names what failed: network, TLS, server or answer, or a condition that was not met, e.g. a session that
        was not resumed.

    Raises
    ------
    DnsError
        For an invalid request: a resumption that the transport lacks, a malformed question, a missing CA.
    """
    settings = settings or ClientSettings()
    _check_condition(protocol, resumption, sessions, settings, priming)
    query = build_query(question, protocol, settings)
    resumed, early_data = resumption is not Resumption.NONE, resumption is Resumption.EARLY_DATA
    session = sessions.take(server, protocol) if sessions is not None and (resumed or token) else Session()
    session = Session(session.ticket if resumed else None, b"" if token is False else session.token)
    client = client_for(protocol, server, settings, session=session, early_data=early_data)
    recording: PacketRecording | None = None
    answer: Answer | None = None
    error: str | None = None
    if resumed and session.ticket is None:
        error = NO_TICKET
    elif token and not session.token:
        error = "no address-validation token: a priming exchange must come first"
    started_s = time.time()
    closed_at_ns = 0
    if error is None:
        with capture.record() if capture else nullcontext() as recording:
            with collector_paused(), client:
                try:
                    client.connect(query)
                    wire = client.query(query)
                    max_bytes = settings.udp_payload_bytes if protocol is Protocol.DOUDP else MAX_MESSAGE_BYTES
                    answer = check_answer(wire, query, max_bytes=max_bytes)
                    error = answer.error
                    if priming:
                        client.wait_for_ticket()
                except DnsError as fault:
                    error = fault.what
                kept = client.session
            closed_at_ns = time.time_ns()
        error = error or _unmet(client, resumption, kept, priming)
        if sessions is not None and answer is not None:
            sessions.put(server, protocol, kept)
    return ExchangeResult(
        protocol=protocol,
        resumption=resumption,
        priming=priming,
        **_times(client, started_s),
        **asdict(sizes(client, recording, closed_at_ns)),
        **asdict(client.handshake),
        error=error,
        rcode=answer.rcode if answer else None,
        answers=answer.records if answer else (),
        local_port=client.local_port,
    )


def tcp_rtt(server: Resolver, *, port: int | None = None, timeout_s: float = 10.0) -> float:
    """Time from SYN to SYN-ACK, ms; the default port is that of DoH. `DnsError` if the connection fails."""
    ports = {**server.ports, Protocol.DOTCP: port or server.ports[Protocol.DOH]}
    client = DoTcpClient(Resolver(server.address, ports=ports), ClientSettings(timeout_s=timeout_s))
    with client, collector_paused():
        client.connect()
    duration_ms = client.timeline.duration_ms(PhaseName.HANDSHAKE)
    assert duration_ms is not None, "a connection that came up was timed"
    return duration_ms


def _check_condition(
    protocol: Protocol, resumption: Resumption, sessions: SessionStore | None, settings: ClientSettings, priming: bool
) -> None:
    where = f"{protocol} with resumption {resumption}"
    if resumption not in protocol.transport.resumptions:
        known = ", ".join(protocol.transport.resumptions)
        raise DnsError("the transport has no such resumption", where=where, next_step=f"It has: {known}.")
    if resumption is not Resumption.NONE and sessions is None:
        raise DnsError("nothing to resume from", where=where, next_step="Give the store of a priming exchange.")
    if resumption is Resumption.EARLY_DATA and protocol is Protocol.DOH3 and settings.http_method != "GET":
        raise DnsError("early data carries safe methods only (RFC 8470)", where=where, next_step="Use http_method GET.")
    if priming and (sessions is None or resumption is not Resumption.NONE or len(protocol.transport.resumptions) == 1):
        raise DnsError(
            "a priming exchange is a full handshake of a transport with sessions, and needs a store to fill",
            where=where,
            next_step="Give sessions, and resumption none.",
        )


def _unmet(client: Client, resumption: Resumption, kept: Session, priming: bool) -> str | None:
    """The value of `error` for the first condition that an exchange does not meet; None if it meets all conditions."""
    if resumption is not Resumption.NONE and not client.handshake.session_resumed:
        return "session not resumed"
    if resumption is Resumption.EARLY_DATA and not client.handshake.early_data_accepted:
        return "early data not accepted"
    if priming and kept.ticket is None:
        return "the server sent no session ticket"
    return None


def sizes(client: Client, recording: PacketRecording | None, closed_at_ns: int) -> Sizes:
    """Bytes and packets of a connection with one query, up to `closed_at_ns` (Unix time, ns).

    `closed_at_ns` is the time of the close; for a connection that stays open, it is the time of the call. All sizes are
    None if the capture is missing or incomplete.
    """
    if recording is None or not recording.complete or client.local_port is None:
        return Sizes()
    query = client.timeline.phases.get(PhaseName.QUERY)
    return measure(
        recording.packets,
        ip_protocol=client.ip_protocol,
        local_port=client.local_port,
        server=(str(ipaddress.ip_address(client.server.address)), client.server.ports[client.protocol]),
        query_at_ns=query.started_at_ns if query else None,
        answered_at_ns=query.ended_at_ns if query else None,
        closed_at_ns=closed_at_ns,
        of_handshake=handshake_bytes.of_handshake(client.protocol),
        # A DoTCP connection serves one query only and is closed before the answer is passed on, so its close counts.
        split_to_close=client.protocol is Protocol.DOTCP,
    )


def _times(client: Client, started_s: float) -> dict[str, Any]:
    """Times of an exchange, by column. If no phase began, the column `started_s` has the value of the argument."""
    phases = client.timeline.phases
    handshake, query = phases.get(PhaseName.HANDSHAKE), phases.get(PhaseName.QUERY)
    first = handshake or query
    total_ms = None
    if first is not None and query is not None and query.ended_ns is not None:
        total_ms = (query.ended_ns - first.started_ns) / 1e6
    return {
        "started_s": first.started_at_ns / 1e9 if first else started_s,
        "handshake_ms": handshake.duration_ms if handshake else 0.0 if query else None,
        "query_ms": query.duration_ms if query else None,
        "total_ms": total_ms,
        "cpu_ms": client.timeline.cpu_ms,
    }
