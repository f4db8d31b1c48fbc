"""Checks of a server's behaviour: resumption, early data, padding, amplification, and rules of RFC 9250.

A check is an entry of `CHECKS` and a function. Each check opens its own connections, so none depends on another.
"""

from __future__ import annotations

import os
import select
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import dns.edns
import dns.message
import dns.rcode
import dns.update

from crosslayer.discover.support import Support, column
from crosslayer.dns import (
    DEFAULT_PORTS,
    ClientSettings,
    DnsError,
    ExchangeResult,
    Protocol,
    Query,
    Question,
    Resolver,
    Resumption,
    Session,
    SessionStore,
    build_query,
    client_for,
    exchange,
)
from crosslayer.dns.message import framed
from crosslayer.dns.quic import DoQClient
from crosslayer.dns.quic_core import DoH3Core, DoQCore, QuicCore
from crosslayer.errors import printable
from crosslayer.testbed import outside

EARLY_RTT = 1.5
"""Time limit of an answer to early data, RTT.

Such an answer takes one round-trip, or two if the server waits for the end of the handshake.
"""
AMPLIFICATION = 3.0
"""Bytes that a server may send per received byte before it has validated the client's address (RFC 9000, section 8)."""

_SPARE_RTT = 0.5
"""Time allowed per exchange in addition to its round-trips, for computation and transmission, RTT."""
_SILENT_S = 15.0
"""Time for which the client is silent after its first flight, s.

Meanwhile a server retransmits at growing intervals.
"""
_REPLAY_AFTER_S = 15.0
"""Delay before early data is replayed, s. It is longer than the time for which servers keep closed connections."""
_REACTION_S = 2.0
"""Time for a server to react to a client that violates the protocol, s."""
_DOQ_PROTOCOL_ERROR = 0x2
_CANCELLED = 0x3
_NO_APPLICATION_PROTOCOL = 0x100 + 120
_KEEPALIVE = 11
_CORES: Mapping[Protocol, type[QuicCore]] = {Protocol.DOH3: DoH3Core, Protocol.DOQ: DoQCore}


class Result(StrEnum):
    """Possible results of a check, in the terms of quic-interop-runner."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class CheckOutcome(NamedTuple):
    """Outcome of a check: result, explanation and measured value."""

    result: Result
    detail: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class ServerFinding:
    """Outcome of one check of one server over one transport: a row of the table of servers."""

    server: str = column("name of the server")
    version: str | None = column("version that the server reports")
    transport: str | None = column("DoUDP, DoTCP, DoT, DoH, DoH3 or DoQ; null where the server is not on this machine")
    check: str = column("name of the check")
    asked_by: str | None = column("RFC, section and requirement word; null if no RFC requires it")
    result: str = column("succeeded, failed, or unsupported: the server does not offer it")
    value: float | None = column("measured value; null if the check has none")
    unit: str | None = column("unit of the value")
    detail: str | None = column("what happened")


@dataclass(frozen=True, slots=True)
class ExaminedServer:
    """A server under examination."""

    name: str
    address: str
    support: Mapping[Protocol, Support]
    """Result of `discover` for each transport at its usual port."""
    question: Question
    rtt_ms: float
    """Idle RTT of the link, ms."""
    rounds: int
    """Number of repetitions of a timed exchange; the result is their median."""
    settings: ClientSettings

    @property
    def resolver(self) -> Resolver:
        """The server as a `Resolver` for the clients."""
        return Resolver(self.address, self.name, verify=False)

    def query(self, protocol: Protocol) -> Query:
        """The query as one transport sends it."""
        return build_query(self.question, protocol, self.settings)


@dataclass(frozen=True, slots=True)
class BehaviourCheck:
    """A check of a server's behaviour."""

    name: str
    abbreviation: str
    transports: tuple[Protocol, ...]
    about: str
    """The expected behaviour, in a sentence."""
    run: Callable[[ExaminedServer, Protocol], CheckOutcome]
    unit: str = ""
    asked_by: str = ""
    """RFC, section and requirement word, e.g. MUST; empty if no RFC requires the behaviour."""


def examine(
    server: ExaminedServer, version: str, progress: Callable[[int], object] = lambda _done: None
) -> list[ServerFinding]:
    """Run every check over each of its transports, in the order of `CHECKS`; takes a minute or two.

    If an error interrupts a check, the check counts as failed, and its detail names the error.
    """
    findings = []
    for check in CHECKS:
        for protocol in check.transports:
            support = server.support[protocol]
            if not support.supported:
                outcome = CheckOutcome(Result.UNSUPPORTED, f"{protocol}: {support.error}")
            else:
                try:
                    outcome = check.run(server, protocol)
                except DnsError as fault:
                    outcome = CheckOutcome(Result.FAILED, fault.what)
                except Exception as fault:  # a server's bytes may make any parser raise; the other checks still run
                    outcome = CheckOutcome(Result.FAILED, f"{type(fault).__name__}: {fault}")
            findings.append(_finding(server.name, version, protocol, check, outcome))
            progress(1)
    return findings


def _finding(
    server: str, version: str, protocol: Protocol, check: BehaviourCheck, outcome: CheckOutcome
) -> ServerFinding:
    return ServerFinding(
        server,
        version or None,
        str(protocol),
        check.name,
        check.asked_by or None,
        str(outcome.result),
        None if outcome.value is None else round(outcome.value, 4),
        (check.unit or None) if outcome.value is not None else None,
        printable(outcome.detail) or None,
    )


def absent(server: str, why: str) -> ServerFinding:
    """The row of a server that is not installed on this machine, with the way to install it."""
    return ServerFinding(server, None, None, "installed", None, str(Result.UNSUPPORTED), None, None, why)


# Times


def _answer(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    return _in_time(protocol, _timed(server, [_exchange(server, protocol) for _ in range(server.rounds)]))


def _resumption(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    if not server.support[protocol].session_ticket:
        return CheckOutcome(Result.UNSUPPORTED, "no session ticket")
    return _in_time(
        protocol, _timed(server, [_again(server, protocol, Resumption.TICKET) for _ in range(server.rounds)])
    )


def _early_data(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    if not server.support[protocol].early_data_offered:
        return CheckOutcome(Result.UNSUPPORTED, "its tickets allow none")
    return _timed(server, [_again(server, protocol, Resumption.EARLY_DATA) for _ in range(server.rounds)])


def _early_answer(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    outcome = _early_data(server, protocol)
    if outcome.value is None or outcome.value < EARLY_RTT:
        return outcome
    return outcome._replace(result=Result.FAILED, detail="accepted early, answered after the handshake")


def _exchange(
    server: ExaminedServer, protocol: Protocol, resumption: Resumption = Resumption.NONE, **more: Any
) -> ExchangeResult:
    return exchange(server.resolver, server.question, protocol, resumption, settings=server.settings, **more)


def _again(
    server: ExaminedServer, protocol: Protocol, resumption: Resumption, *, token: bool = False
) -> ExchangeResult:
    """Make an exchange, then a second one with the session of the first.

    Returns the second exchange; if the first one fails, returns the first, and makes no second.
    """
    sessions = SessionStore()
    first = _exchange(server, protocol, sessions=sessions, priming=True)
    return first if first.error else _exchange(server, protocol, resumption, sessions=sessions, token=token)


def _timed(server: ExaminedServer, rows: Sequence[ExchangeResult]) -> CheckOutcome:
    """Median time of exchanges, RTT; the outcome is failed if any exchange failed."""
    if errors := [row.error for row in rows if row.error]:
        return CheckOutcome(Result.FAILED, errors[0])
    times = [row.total_ms for row in rows if row.total_ms is not None]
    return CheckOutcome(Result.SUCCEEDED, value=statistics.median(times) / server.rtt_ms)


def _token(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    """Median time of exchanges that use the address-validation token of an earlier connection, but not its ticket.

    The exchanges use no ticket, so that only the token can cause a failure. No other check uses a token.
    """
    if not server.support[protocol].address_token:
        return CheckOutcome(Result.UNSUPPORTED, "sends none")
    return _timed(server, [_again(server, protocol, Resumption.NONE, token=True) for _ in range(server.rounds)])


def _version_negotiation(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    if server.support[protocol].quic_versions:
        return CheckOutcome(Result.SUCCEEDED)
    return CheckOutcome(Result.FAILED, "no answer to an unsupported version, so scans for QUIC miss it")


def _in_time(protocol: Protocol, outcome: CheckOutcome) -> CheckOutcome:
    """Mark an outcome as failed if its time exceeds the transport's round-trips by more than `_SPARE_RTT`."""
    if outcome.value is None or outcome.value < protocol.transport.round_trips + _SPARE_RTT:
        return outcome
    return outcome._replace(result=Result.FAILED, detail=f"{protocol.transport.round_trips} round-trips would suffice")


# Early data more than once


def _ticket_once(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    if not server.support[protocol].early_data_offered:
        return CheckOutcome(Result.UNSUPPORTED, "its tickets allow none")
    session = _session(server, protocol)
    accepted = [_early(server, protocol, session, server.query(protocol))[0] for _ in range(2)]
    if not accepted[0]:
        return CheckOutcome(Result.FAILED, "early data not accepted")
    if accepted[1]:
        return CheckOutcome(Result.UNSUPPORTED, "a ticket is accepted twice")
    return CheckOutcome(Result.SUCCEEDED)


def _replay(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    """Check that early data is not answered again when its first flight is repeated from another port.

    A forked process repeats the flight after the connection has ended. Like an attacker who recorded the flight, it
    sends only these datagrams. Unlike an attacker, it has the client's keys, so it can decrypt an answer.
    """
    if not server.support[protocol].early_data_offered:
        return CheckOutcome(Result.UNSUPPORTED, "its tickets allow none")
    core = _CORES[protocol](server.resolver, server.settings, session=_session(server, protocol), early_data=True)
    began_s = time.monotonic()
    core.start(began_s)
    stream = core.ask(server.query(protocol))
    flight = core.datagrams(began_s)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            time.sleep(_REPLAY_AFTER_S)
            answered = _play(server, core, stream, flight, recorded=True)
            os.write(write_end, b"y" if answered else b"n")
        finally:
            os._exit(0)
    os.close(write_end)
    answered = _play(server, core, stream, flight)
    with os.fdopen(read_end, "rb") as pipe:
        again = pipe.read(1)
    os.waitpid(child, 0)
    if not (answered and core.handshake.early_data_accepted):
        return CheckOutcome(Result.FAILED, "early data not accepted")
    if again == b"n":
        return CheckOutcome(Result.SUCCEEDED)
    return CheckOutcome(
        Result.FAILED, f"answered again {_REPLAY_AFTER_S:g} s later" if again else "could not be sent again"
    )


def _play(
    server: ExaminedServer, core: QuicCore, stream: int, flight: Sequence[bytes], *, recorded: bool = False
) -> bool:
    """Send a first flight; returns whether its early data was answered. With `recorded`, send nothing else."""
    with _connected(server, core.protocol) as end:
        for datagram in flight:
            end.send(datagram)
        until_s = time.monotonic() + server.settings.timeout_s
        with suppress(ValueError, OSError):
            while core.error is None and core.answer(stream) is None and (left_s := until_s - time.monotonic()) > 0:
                if select.select([end], [], [], left_s)[0]:
                    core.receive(end.recv(65535), time.monotonic())
                for datagram in [] if recorded else core.datagrams(time.monotonic()):
                    end.send(datagram)
            answered = core.answer(stream) is not None
            core.close()
            for datagram in [] if recorded else core.datagrams(time.monotonic()):
                end.send(datagram)
            return answered
    return False


@contextmanager
def _connected(server: ExaminedServer, protocol: Protocol) -> Any:
    with outside.open_socket(server.address, socket.SOCK_DGRAM) as end:
        end.connect((server.address, DEFAULT_PORTS[protocol]))
        yield end


def _session(server: ExaminedServer, protocol: Protocol) -> Session:
    """Open a connection, have one query answered, and return a session with the connection's ticket but no token."""
    with client_for(protocol, server.resolver, server.settings) as client:
        client.connect()
        client.query(server.query(protocol))
        client.wait_for_ticket()
        return Session(client.session.ticket)


def _early(server: ExaminedServer, protocol: Protocol, session: Session, query: Query) -> tuple[bool, bytes, float]:
    """Send a query as early data; returns whether early data was accepted, the answer, and its time in RTT."""
    with client_for(protocol, server.resolver, server.settings, session=session, early_data=True) as client:
        client.connect(query)
        began_s = time.monotonic()
        wire = client.query(query)
        rtts = (time.monotonic() - began_s) * 1000 / server.rtt_ms
        # The answer may precede the end of the handshake, which decides whether the early data is accepted.
        with suppress(DnsError):
            client.wait_for_ticket()
        return bool(client.handshake.early_data_accepted), wire, rtts


# Sizes


def _padding(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with client_for(protocol, server.resolver, server.settings) as client:
        client.connect()
        wire = client.query(server.query(protocol))
    padded = any(option.otype == dns.edns.OptionType.PADDING for option in dns.message.from_wire(wire).options)
    return CheckOutcome(Result.SUCCEEDED if padded else Result.FAILED, "" if padded else "not padded", len(wire))


def _amplification(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    """Check that a server stays within the amplification limit if its client sends nothing after the first flight.

    The value is the UDP payload that the client received, divided by the payload of its first flight.
    """
    core = _CORES[protocol](server.resolver, server.settings, session=Session(), early_data=False)
    now_s = time.monotonic()
    core.start(now_s)
    flight = core.datagrams(now_s)
    received = 0
    with _connected(server, protocol) as end:
        for datagram in flight:
            end.send(datagram)
        until_s = time.monotonic() + _SILENT_S
        while (left_s := until_s - time.monotonic()) > 0:
            end.settimeout(left_s)
            with suppress(TimeoutError):
                received += len(end.recv(65535))
    times = received / sum(map(len, flight))
    known = "it sends a Retry to an unknown address" if server.support[protocol].retry_received else ""
    return CheckOutcome(Result.SUCCEEDED if times <= AMPLIFICATION else Result.FAILED, known, times)


def _amplification_in_the_clear(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    """Size of an answer over DoUDP, divided by the size of its query. DoUDP does not validate the client's address."""
    query = server.query(protocol)
    with client_for(protocol, server.resolver, server.settings) as client:
        client.connect()
        return CheckOutcome(Result.SUCCEEDED, value=len(client.query(query)) / len(query.wire))


# RFC 9250


class _ProbeCore(DoQCore):
    """Protocol core of a DoQ client that can violate the protocol."""

    def put(self, data: bytes, *, end: bool = True, unidirectional: bool = False) -> int:
        """Send bytes on a new stream."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=unidirectional)
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, data, end_stream=end)
        return stream

    def abandon(self, stream: int) -> None:
        """Reset the direction of a stream in which the client sends."""
        self._quic.reset_stream(stream, _CANCELLED)

    def ended(self, stream: int) -> bool:
        """Whether the server has ended a stream."""
        return stream in self._ended

    def reset(self, stream: int) -> bool:
        """Whether the server has reset a stream."""
        return stream in self._reset

    @property
    def streams_allowed(self) -> int:
        """Number of unidirectional streams that the server allows."""
        return int(self._quic._remote_max_streams_uni)

    @property
    def closed(self) -> tuple[bool, int] | None:
        """None if the connection is open; else the error code with which it was closed, after a flag.

        The flag is True for an error code of the application, and False for one of QUIC itself.
        """
        event = self._quic._close_event
        return None if event is None else (event.frame_type is None, event.error_code)


class _ProbeClient(DoQClient):
    core_class = _ProbeCore

    @property
    def core(self) -> _ProbeCore:
        """Protocol core of the connection."""
        assert isinstance(self._core, _ProbeCore)
        return self._core

    def wait(self, done: Callable[[], bool], timeout_s: float = _REACTION_S) -> bool:
        """Wait until `done` returns True, at most `timeout_s`; returns its last result."""
        self._deadline = time.monotonic() + timeout_s
        with suppress(DnsError), self._faults():
            self._run_until(done)
        return done()


class _OtherCore(DoQCore):
    alpns: ClassVar[tuple[str, ...]] = ("crosslayer-nobody-speaks-this",)


class _OtherClient(DoQClient):
    core_class = _OtherCore


def _probe(server: ExaminedServer) -> _ProbeClient:
    return _ProbeClient(server.resolver, server.settings)


def _alpn(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with _OtherClient(server.resolver, server.settings) as client:
        try:
            client.connect()
        except DnsError as fault:
            event = client._core._quic._close_event
            refused = event is not None and event.error_code == _NO_APPLICATION_PROTOCOL
            return CheckOutcome(Result.SUCCEEDED) if refused else CheckOutcome(Result.FAILED, fault.what)
    return CheckOutcome(Result.FAILED, "accepts a client that offers another protocol")


def _port_53(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    resolver = replace(server.resolver, ports={**DEFAULT_PORTS, protocol: 53})
    with DoQClient(resolver, replace(server.settings, timeout_s=_REACTION_S)) as client:
        try:
            client.connect()
        except DnsError:
            return CheckOutcome(Result.SUCCEEDED)
    return CheckOutcome(Result.FAILED, "DoQ at UDP port 53")


def _end_of_stream(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with _probe(server) as client:
        client.connect()
        stream = client.core.put(framed(server.query(protocol).wire))
        if client.wait(lambda: client.core.ended(stream)):
            return CheckOutcome(Result.SUCCEEDED)
        return CheckOutcome(Result.FAILED, _reaction(client, stream))


def _identifier(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with client_for(protocol, server.resolver, server.settings) as client:
        client.connect()
        wire = client.query(server.query(protocol))
    return (
        CheckOutcome(Result.SUCCEEDED) if wire[:2] == b"\0\0" else CheckOutcome(Result.FAILED, f"ID {wire[:2].hex()}")
    )


def _no_keepalive(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with client_for(protocol, server.resolver, server.settings) as client:
        client.connect()
        options = dns.message.from_wire(client.query(server.query(protocol))).options
    sent = any(option.otype == _KEEPALIVE for option in options)
    return CheckOutcome(Result.FAILED, "edns-tcp-keepalive in an answer") if sent else CheckOutcome(Result.SUCCEEDED)


def _reset(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with _probe(server) as client:
        client.connect()
        wire = framed(server.query(protocol).wire)
        stream = client.core.put(wire[: len(wire) // 2], end=False)
        client.wait(
            lambda: False, server.rtt_ms / 1000
        )  # wait for its arrival: a reset may overtake the data before it
        client.core.abandon(stream)
        if client.wait(lambda: client.core.reset(stream)):
            return CheckOutcome(Result.SUCCEEDED)
        return CheckOutcome(Result.FAILED, _reaction(client, stream))


def _early_update(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    if not server.support[protocol].early_data_offered:
        return CheckOutcome(Result.UNSUPPORTED, "its tickets allow none")
    message = dns.update.UpdateMessage(".", id=0)
    message.add(server.question.name, 300, "TXT", "replayed")
    try:
        accepted, wire, rtts = _early(server, protocol, _session(server, protocol), Query(message.to_wire(), message))
    except DnsError as fault:
        return CheckOutcome(Result.SUCCEEDED, fault.what)
    rcode = dns.rcode.to_text(dns.rcode.Rcode(wire[3] & 0x0F))  # from the header; an UPDATE has no question
    if not accepted or rtts >= EARLY_RTT or rcode == "REFUSED":
        return CheckOutcome(Result.SUCCEEDED, f"{rcode} after {rtts:.1f} RTT")
    return CheckOutcome(Result.FAILED, f"{rcode} after {rtts:.1f} RTT: neither delayed nor refused")


def _closing(send: Callable[[_ProbeCore, Query], int]) -> Callable[[ExaminedServer, Protocol], CheckOutcome]:
    """Make a check: `send` violates the protocol, and the server must then close the connection."""

    def run(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
        with _probe(server) as client:
            client.connect()
            stream = send(client.core, server.query(protocol))
            closed = client.wait(lambda: client.core.closed is not None)
            return CheckOutcome(Result.SUCCEEDED if closed else Result.FAILED, _reaction(client, stream))

    return run


def _unidirectional(server: ExaminedServer, protocol: Protocol) -> CheckOutcome:
    with _probe(server) as client:
        client.connect()
        if not client.core.streams_allowed:
            return CheckOutcome(Result.SUCCEEDED, "its transport parameters allow none")
        stream = client.core.put(b"\0", unidirectional=True)
        closed = client.wait(lambda: client.core.closed is not None)
        return CheckOutcome(Result.SUCCEEDED if closed else Result.FAILED, _reaction(client, stream))


def _reaction(client: _ProbeClient, stream: int) -> str:
    """Describe in words how the server reacted to a stream."""
    if (closed := client.core.closed) is not None:
        of_application, code = closed
        name = "DOQ_PROTOCOL_ERROR" if closed == (True, _DOQ_PROTOCOL_ERROR) else f"code {code:#x}"
        return f"closed the connection, {name}{'' if of_application else ' of the transport'}"
    if client.core.reset(stream):
        return "reset the stream"
    with suppress(ValueError):
        if client.core.answer(stream) is None:
            return "ended the stream without an answer" if client.core.ended(stream) else "did nothing"
    return "answered"


def _with_id(core: _ProbeCore, query: Query) -> int:
    return core.put(framed(b"\x12\x34" + query.wire[2:]))


def _with_keepalive(core: _ProbeCore, query: Query) -> int:
    option = dns.edns.GenericOption(dns.edns.OptionType(_KEEPALIVE), b"")
    query.message.use_edns(0, options=[option])
    return core.put(framed(query.message.to_wire()))


def _two_queries(core: _ProbeCore, query: Query) -> int:
    return core.put(framed(query.wire) * 2)


def _half_a_query(core: _ProbeCore, query: Query) -> int:
    return core.put(framed(query.wire)[:-5])


_ALL = tuple(Protocol)
_TLS = tuple(protocol for protocol in Protocol if protocol.transport.encrypted)
_QUIC = tuple(protocol for protocol in Protocol if protocol.transport.over_quic)
_DOQ = (Protocol.DOQ,)

CHECKS: tuple[BehaviourCheck, ...] = (
    BehaviourCheck("answer", "A", _ALL, "Answers a query on a new connection, in its round-trips.", _answer, "RTT"),
    BehaviourCheck("resumption", "R", _TLS, "Resumes a session by its ticket; the query waits.", _resumption, "RTT"),
    BehaviourCheck("early", "Z", _QUIC, "Accepts the query as early data (0-RTT).", _early_data, "RTT"),
    BehaviourCheck(
        "early-answer", "E", _QUIC, "Answers early data before the handshake is complete.", _early_answer, "RTT"
    ),
    BehaviourCheck("ticket-once", "O", _QUIC, "Accepts early data once per ticket.", _ticket_once, "", "RFC 8446, 8.1"),
    BehaviourCheck("replay", "Y", _QUIC, "Does not accept replayed early data.", _replay, "", "RFC 9001, 9.2: MUST"),
    BehaviourCheck(
        "token", "T", _QUIC, "Accepts its own address-validation token.", _token, "RTT", "RFC 9000, 8.1.3"
    ),
    BehaviourCheck(
        "versions", "V", _QUIC, "Answers an unknown version by Version Negotiation.", _version_negotiation, "",
        "RFC 9000, 6.1: SHOULD",
    ),
    BehaviourCheck("padding", "P", _TLS, "Pads the answer to a padded query.", _padding, "bytes", "RFC 7830, 4: MUST"),
    BehaviourCheck(
        "amplification", "L", _QUIC, "Sends at most three times the bytes received from an unvalidated address.",
        _amplification, "times", "RFC 9000, 8.1: MUST",
    ),
    BehaviourCheck(
        "amplification", "L", (Protocol.DOUDP,), "Ratio of the answer's length to the query's.",
        _amplification_in_the_clear, "times",
    ),
    BehaviourCheck("alpn", "9a", _DOQ, "Refuses clients that do not offer doq.", _alpn, "", "RFC 9250, 4.1: MUST"),
    BehaviourCheck("port-53", "9b", _DOQ, "Offers no DoQ at UDP port 53.", _port_53, "", "RFC 9250, 4.1.1: MUST NOT"),
    BehaviourCheck(
        "end-of-stream", "9c", _DOQ, "Ends the stream after its answer.", _end_of_stream, "", "RFC 9250, 4.2: MUST"
    ),
    BehaviourCheck("message-id", "9d", _DOQ, "Answers with message ID 0.", _identifier, "", "RFC 9250, 4.2.1: MUST"),
    BehaviourCheck("reset", "9e", _DOQ, "Resets the stream of a reset query.", _reset, "", "RFC 9250, 4.3.1: MUST"),
    BehaviourCheck(
        "early-update", "9f", _DOQ, "Delays or refuses early data that must not be replayed, or closes.",
        _early_update, "", "RFC 9250, 4.5: MUST",
    ),
    BehaviourCheck(
        "no-keepalive", "9g", _DOQ, "Sends no edns-tcp-keepalive.", _no_keepalive, "", "RFC 9250, 5.5.2: MUST NOT"
    ),
    BehaviourCheck(
        "id-closes", "9h", _DOQ, "Closes the connection on a message ID other than 0.", _closing(_with_id), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    BehaviourCheck(
        "half-closes", "9i", _DOQ, "Closes the connection if a stream ends inside a query.",
        _closing(_half_a_query), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    BehaviourCheck(
        "two-close", "9j", _DOQ, "Closes the connection on two queries on one stream.", _closing(_two_queries), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    BehaviourCheck(
        "keepalive-closes", "9k", _DOQ, "Closes the connection on edns-tcp-keepalive.", _closing(_with_keepalive), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    BehaviourCheck(
        "unidirectional", "9l", _DOQ, "Closes the connection on unidirectional streams, or allows none.",
        _unidirectional, "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
)  # fmt: skip
"""All checks, in display order."""
