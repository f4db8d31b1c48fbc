"""How a server behaves: resumption, early data, padding, amplification, and what RFC 9250 asks of it.

A check is a line of `CHECKS` and a function below it; each makes connections of its own, so none depends on another.
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
    Exchange,
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

EARLY_RTT = 1.5
"""An answer to early data is early below this: it takes one round-trip, and two where the server waits."""
AMPLIFICATION = 3.0
"""Bytes a server may send for each it received, before the client's address is validated (RFC 9000, section 8)."""

_ROUND_TRIPS = dict(zip(Protocol, (1, 2, 3, 3, 2, 2), strict=True))
"""Of an exchange on a new connection, resumed or not: the handshakes of TCP, TLS 1.3 and QUIC, and the query."""
_SPARE_RTT = 0.5
"""What an exchange may take beyond them: computing, and the time of its bytes."""
_SILENT_S = 15.0
"""How long a client says nothing after its first flight: a server repeats itself, at longer and longer intervals."""
_REPLAY_AFTER_S = 15.0
"""When early data is sent again: servers forget a connection that was closed, and its identifiers, sooner."""
_REACTION_S = 2.0
"""Time a server has to react to a client that breaks the protocol."""
_DOQ_PROTOCOL_ERROR = 0x2
_CANCELLED = 0x3
_NO_APPLICATION_PROTOCOL = 0x100 + 120
_KEEPALIVE = 11
_CORES: Mapping[Protocol, type[QuicCore]] = {Protocol.DOH3: DoH3Core, Protocol.DOQ: DoQCore}


class Result(StrEnum):
    """Outcome of a check, in the words of quic-interop-runner."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class Outcome(NamedTuple):
    """What a check came to."""

    result: Result
    detail: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check of one server came to over one transport: a row of the table of servers."""

    server: str = column("name of the server")
    version: str | None = column("its version, by its own word")
    transport: str | None = column("DoUDP, DoTCP, DoT, DoH, DoH3 or DoQ; null where the server is not on this machine")
    check: str = column("what was looked at")
    asked_by: str | None = column("the RFC, its section and its word, where one asks for it")
    result: str = column("succeeded, failed, or unsupported: the server does not offer it")
    value: float | None = column("what was measured; null without a number")
    unit: str | None = column("unit of the value")
    detail: str | None = column("what happened")


@dataclass(frozen=True, slots=True)
class Examined:
    """A server that is looked at."""

    name: str
    address: str
    support: Mapping[Protocol, Support]
    """What `discover` found at the usual port of each transport."""
    question: Question
    rtt_ms: float
    """Idle RTT of the link, ms."""
    rounds: int
    """How often what takes time is repeated; the median counts."""
    settings: ClientSettings

    @property
    def resolver(self) -> Resolver:
        """It as the clients know servers."""
        return Resolver(self.address, self.name, verify=False)

    def query(self, protocol: Protocol) -> Query:
        """The query over one transport."""
        return build_query(self.question, protocol, self.settings)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is looked at."""

    name: str
    abbreviation: str
    transports: tuple[Protocol, ...]
    about: str
    """What is expected, in a sentence."""
    run: Callable[[Examined, Protocol], Outcome]
    unit: str = ""
    asked_by: str = ""
    """The RFC, its section and its word."""


def examine(of: Examined, version: str, progress: Callable[[int], object] = lambda _done: None) -> list[Finding]:
    """Every check over every transport it is for, in the order of `CHECKS`; takes a minute or two.

    A check that breaks off by a fault of the connection has failed, and says with what.
    """
    findings = []
    for check in CHECKS:
        for protocol in check.transports:
            found = of.support[protocol]
            if not found.supported:
                outcome = Outcome(Result.UNSUPPORTED, f"{protocol}: {found.error}")
            else:
                try:
                    outcome = check.run(of, protocol)
                except DnsError as fault:
                    outcome = Outcome(Result.FAILED, fault.what)
                except Exception as fault:  # a server's bytes may make any parser raise: the other checks are kept
                    outcome = Outcome(Result.FAILED, f"{type(fault).__name__}: {fault}")
            findings.append(_finding(of.name, version, protocol, check, outcome))
            progress(1)
    return findings


def _finding(server: str, version: str, protocol: Protocol, check: Check, outcome: Outcome) -> Finding:
    return Finding(
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


def absent(server: str, why: str) -> Finding:
    """The row of a server that is not on this machine, with the way to it."""
    return Finding(server, None, None, "installed", None, str(Result.UNSUPPORTED), None, None, why)


# Times


def _answer(of: Examined, protocol: Protocol) -> Outcome:
    return _in_time(protocol, _timed(of, [_exchange(of, protocol) for _ in range(of.rounds)]))


def _resumption(of: Examined, protocol: Protocol) -> Outcome:
    if not of.support[protocol].session_ticket:
        return Outcome(Result.UNSUPPORTED, "no session ticket")
    return _in_time(protocol, _timed(of, [_again(of, protocol, Resumption.TICKET) for _ in range(of.rounds)]))


def _early_data(of: Examined, protocol: Protocol) -> Outcome:
    if not of.support[protocol].early_data_offered:
        return Outcome(Result.UNSUPPORTED, "its tickets allow none")
    return _timed(of, [_again(of, protocol, Resumption.EARLY_DATA) for _ in range(of.rounds)])


def _early_answer(of: Examined, protocol: Protocol) -> Outcome:
    outcome = _early_data(of, protocol)
    if outcome.value is None or outcome.value < EARLY_RTT:
        return outcome
    return outcome._replace(result=Result.FAILED, detail="accepted early, answered after the handshake")


def _exchange(of: Examined, protocol: Protocol, resumption: Resumption = Resumption.NONE, **more: Any) -> Exchange:
    return exchange(of.resolver, of.question, protocol, resumption, settings=of.settings, **more)


def _again(of: Examined, protocol: Protocol, resumption: Resumption, *, token: bool = False) -> Exchange:
    """An exchange that takes up what one just before it left, or that one, where it failed."""
    sessions = SessionStore()
    first = _exchange(of, protocol, sessions=sessions, warming=True)
    return first if first.error else _exchange(of, protocol, resumption, sessions=sessions, token=token)


def _timed(of: Examined, rows: Sequence[Exchange]) -> Outcome:
    """Median time of exchanges in RTT; failed where one of them did."""
    if errors := [row.error for row in rows if row.error]:
        return Outcome(Result.FAILED, errors[0])
    times = [row.total_ms for row in rows if row.total_ms is not None]
    return Outcome(Result.SUCCEEDED, value=statistics.median(times) / of.rtt_ms)


def _token(of: Examined, protocol: Protocol) -> Outcome:
    """Alone, so that nothing else is to blame; all other checks go without it."""
    if not of.support[protocol].address_token:
        return Outcome(Result.UNSUPPORTED, "sends none")
    return _timed(of, [_again(of, protocol, Resumption.NONE, token=True) for _ in range(of.rounds)])


def _version_negotiation(of: Examined, protocol: Protocol) -> Outcome:
    if of.support[protocol].quic_versions:
        return Outcome(Result.SUCCEEDED)
    return Outcome(Result.FAILED, "no answer to a version nobody has: a scan that looks for one misses it")


def _in_time(protocol: Protocol, outcome: Outcome) -> Outcome:
    """Failed where it took longer than its round-trips."""
    if outcome.value is None or outcome.value < _ROUND_TRIPS[protocol] + _SPARE_RTT:
        return outcome
    return outcome._replace(result=Result.FAILED, detail=f"{_ROUND_TRIPS[protocol]} round-trips would do")


# Early data more than once


def _ticket_once(of: Examined, protocol: Protocol) -> Outcome:
    if not of.support[protocol].early_data_offered:
        return Outcome(Result.UNSUPPORTED, "its tickets allow none")
    session = _session(of, protocol)
    accepted = [_early(of, protocol, session, of.query(protocol))[0] for _ in range(2)]
    if not accepted[0]:
        return Outcome(Result.FAILED, "early data not accepted")
    if accepted[1]:
        return Outcome(Result.UNSUPPORTED, "a ticket serves twice")
    return Outcome(Result.SUCCEEDED)


def _replay(of: Examined, protocol: Protocol) -> Outcome:
    """The same datagrams from another port, after the connection they began has ended.

    A forked process sends them, as somebody would who has recorded them, and nothing else. Unlike him it has the
    client's keys, and can read whether there is an answer.
    """
    if not of.support[protocol].early_data_offered:
        return Outcome(Result.UNSUPPORTED, "its tickets allow none")
    core = _CORES[protocol](of.resolver, of.settings, session=_session(of, protocol), early_data=True)
    began_s = time.monotonic()
    core.start(began_s)
    stream = core.ask(of.query(protocol))
    flight = core.datagrams(began_s)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            time.sleep(_REPLAY_AFTER_S)
            answered = _play(of, core, stream, flight, recorded=True)
            os.write(theirs, b"y" if answered else b"n")
        finally:
            os._exit(0)
    os.close(theirs)
    answered = _play(of, core, stream, flight)
    with os.fdopen(ours, "rb") as pipe:
        again = pipe.read(1)
    os.waitpid(child, 0)
    if not (answered and core.handshake.early_data_accepted):
        return Outcome(Result.FAILED, "early data not accepted")
    if again == b"n":
        return Outcome(Result.SUCCEEDED)
    return Outcome(Result.FAILED, f"answered again {_REPLAY_AFTER_S:g} s later" if again else "could not be sent again")


def _play(of: Examined, core: QuicCore, stream: int, flight: Sequence[bytes], *, recorded: bool = False) -> bool:
    """Send a first flight and wait for the answer to its early data; where it is a record of one, send nothing else."""
    with _connected(of, core.protocol) as end:
        for datagram in flight:
            end.send(datagram)
        until_s = time.monotonic() + of.settings.timeout_s
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
def _connected(of: Examined, protocol: Protocol) -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect((of.address, DEFAULT_PORTS[protocol]))
        yield end


def _session(of: Examined, protocol: Protocol) -> Session:
    """The ticket of a connection that was asked once."""
    with client_for(protocol, of.resolver, of.settings) as client:
        client.connect()
        client.query(of.query(protocol))
        client.wait_for_ticket()
        return Session(client.session.ticket)


def _early(of: Examined, protocol: Protocol, session: Session, query: Query) -> tuple[bool, bytes, float]:
    """Ask in early data: whether it was accepted, the answer, and its time in RTT."""
    with client_for(protocol, of.resolver, of.settings, session=session, early_data=True) as client:
        client.connect(query)
        began_s = time.monotonic()
        wire = client.query(query)
        rtts = (time.monotonic() - began_s) * 1000 / of.rtt_ms
        # The answer may come before the end of the handshake, which says what became of the early data.
        with suppress(DnsError):
            client.wait_for_ticket()
        return bool(client.handshake.early_data_accepted), wire, rtts


# Sizes


def _padding(of: Examined, protocol: Protocol) -> Outcome:
    with client_for(protocol, of.resolver, of.settings) as client:
        client.connect()
        wire = client.query(of.query(protocol))
    padded = any(option.otype == dns.edns.OptionType.PADDING for option in dns.message.from_wire(wire).options)
    return Outcome(Result.SUCCEEDED if padded else Result.FAILED, "" if padded else "not padded", len(wire))


def _amplification(of: Examined, protocol: Protocol) -> Outcome:
    """Bytes of UDP payload that come for those of one first flight, after which the client is silent."""
    core = _CORES[protocol](of.resolver, of.settings, session=Session(), early_data=False)
    now_s = time.monotonic()
    core.start(now_s)
    flight = core.datagrams(now_s)
    received = 0
    with _connected(of, protocol) as end:
        for datagram in flight:
            end.send(datagram)
        until_s = time.monotonic() + _SILENT_S
        while (left_s := until_s - time.monotonic()) > 0:
            end.settimeout(left_s)
            with suppress(TimeoutError):
                received += len(end.recv(65535))
    times = received / sum(map(len, flight))
    known = "it sent a Retry when it did not know this address" if of.support[protocol].retry_received else ""
    return Outcome(Result.SUCCEEDED if times <= AMPLIFICATION else Result.FAILED, known, times)


def _amplification_in_the_clear(of: Examined, protocol: Protocol) -> Outcome:
    """Of DoUDP, which validates no address: the answer for the query."""
    query = of.query(protocol)
    with client_for(protocol, of.resolver, of.settings) as client:
        client.connect()
        return Outcome(Result.SUCCEEDED, value=len(client.query(query)) / len(query.wire))


# RFC 9250


class _ProbeCore(DoQCore):
    """DoQ that may be spoken wrongly."""

    def put(self, data: bytes, *, end: bool = True, unidirectional: bool = False) -> int:
        """Send bytes on a new stream."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=unidirectional)
        self._received[stream] = bytearray()
        self._quic.send_stream_data(stream, data, end_stream=end)
        return stream

    def abandon(self, stream: int) -> None:
        """Reset the sending part of a stream."""
        self._quic.reset_stream(stream, _CANCELLED)

    def ended(self, stream: int) -> bool:
        """Whether the server has ended a stream."""
        return stream in self._ended

    def reset(self, stream: int) -> bool:
        """Whether the server has reset a stream."""
        return stream in self._reset

    @property
    def streams_allowed(self) -> int:
        """Unidirectional streams that the server allows."""
        return int(self._quic._remote_max_streams_uni)

    @property
    def closed(self) -> tuple[bool, int] | None:
        """Whether the server closed by a code of the application, and the code."""
        event = self._quic._close_event
        return None if event is None else (event.frame_type is None, event.error_code)


class _ProbeClient(DoQClient):
    core_class = _ProbeCore

    @property
    def core(self) -> _ProbeCore:
        """What speaks."""
        assert isinstance(self._core, _ProbeCore)
        return self._core

    def wait(self, done: Callable[[], bool], timeout_s: float = _REACTION_S) -> bool:
        """Wait until something holds; whether it does."""
        self._deadline = time.monotonic() + timeout_s
        with suppress(DnsError), self._faults():
            self._run_until(done)
        return done()


class _OtherCore(DoQCore):
    alpns: ClassVar[tuple[str, ...]] = ("crosslayer-nobody-speaks-this",)


class _OtherClient(DoQClient):
    core_class = _OtherCore


def _probe(of: Examined) -> _ProbeClient:
    return _ProbeClient(of.resolver, of.settings)


def _alpn(of: Examined, protocol: Protocol) -> Outcome:
    with _OtherClient(of.resolver, of.settings) as client:
        try:
            client.connect()
        except DnsError as fault:
            event = client._core._quic._close_event
            refused = event is not None and event.error_code == _NO_APPLICATION_PROTOCOL
            return Outcome(Result.SUCCEEDED) if refused else Outcome(Result.FAILED, fault.what)
    return Outcome(Result.FAILED, "a client that offers another protocol is let in")


def _port_53(of: Examined, protocol: Protocol) -> Outcome:
    there = replace(of.resolver, ports={**DEFAULT_PORTS, protocol: 53})
    with DoQClient(there, replace(of.settings, timeout_s=_REACTION_S)) as client:
        try:
            client.connect()
        except DnsError:
            return Outcome(Result.SUCCEEDED)
    return Outcome(Result.FAILED, "DoQ at UDP port 53")


def _end_of_stream(of: Examined, protocol: Protocol) -> Outcome:
    with _probe(of) as client:
        client.connect()
        stream = client.core.put(framed(of.query(protocol).wire))
        if client.wait(lambda: client.core.ended(stream)):
            return Outcome(Result.SUCCEEDED)
        return Outcome(Result.FAILED, _reaction(client, stream))


def _identifier(of: Examined, protocol: Protocol) -> Outcome:
    with client_for(protocol, of.resolver, of.settings) as client:
        client.connect()
        wire = client.query(of.query(protocol))
    return Outcome(Result.SUCCEEDED) if wire[:2] == b"\0\0" else Outcome(Result.FAILED, f"ID {wire[:2].hex()}")


def _no_keepalive(of: Examined, protocol: Protocol) -> Outcome:
    with client_for(protocol, of.resolver, of.settings) as client:
        client.connect()
        options = dns.message.from_wire(client.query(of.query(protocol))).options
    sent = any(option.otype == _KEEPALIVE for option in options)
    return Outcome(Result.FAILED, "edns-tcp-keepalive in an answer") if sent else Outcome(Result.SUCCEEDED)


def _reset(of: Examined, protocol: Protocol) -> Outcome:
    with _probe(of) as client:
        client.connect()
        wire = framed(of.query(protocol).wire)
        stream = client.core.put(wire[: len(wire) // 2], end=False)
        client.wait(lambda: False, of.rtt_ms / 1000)  # let it arrive: a reset may overtake what it follows
        client.core.abandon(stream)
        if client.wait(lambda: client.core.reset(stream)):
            return Outcome(Result.SUCCEEDED)
        return Outcome(Result.FAILED, _reaction(client, stream))


def _early_update(of: Examined, protocol: Protocol) -> Outcome:
    if not of.support[protocol].early_data_offered:
        return Outcome(Result.UNSUPPORTED, "its tickets allow none")
    message = dns.update.UpdateMessage(".", id=0)
    message.add(of.question.name, 300, "TXT", "replayed")
    try:
        accepted, wire, rtts = _early(of, protocol, _session(of, protocol), Query(message.to_wire(), message))
    except DnsError as fault:
        return Outcome(Result.SUCCEEDED, fault.what)
    rcode = dns.rcode.to_text(dns.rcode.Rcode(wire[3] & 0x0F))  # of the header: what follows is no plain message
    if not accepted or rtts >= EARLY_RTT or rcode == "REFUSED":
        return Outcome(Result.SUCCEEDED, f"{rcode} after {rtts:.1f} RTT")
    return Outcome(Result.FAILED, f"{rcode} after {rtts:.1f} RTT: neither waited for nor refused")


def _closing(send: Callable[[_ProbeCore, Query], int]) -> Callable[[Examined, Protocol], Outcome]:
    """A check that the server closes the connection on something it must not be sent."""

    def run(of: Examined, protocol: Protocol) -> Outcome:
        with _probe(of) as client:
            client.connect()
            stream = send(client.core, of.query(protocol))
            closed = client.wait(lambda: client.core.closed is not None)
            return Outcome(Result.SUCCEEDED if closed else Result.FAILED, _reaction(client, stream))

    return run


def _unidirectional(of: Examined, protocol: Protocol) -> Outcome:
    with _probe(of) as client:
        client.connect()
        if not client.core.streams_allowed:
            return Outcome(Result.SUCCEEDED, "its transport parameters allow none")
        stream = client.core.put(b"\0", unidirectional=True)
        closed = client.wait(lambda: client.core.closed is not None)
        return Outcome(Result.SUCCEEDED if closed else Result.FAILED, _reaction(client, stream))


def _reaction(client: _ProbeClient, stream: int) -> str:
    """What a server did, in words."""
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
_TLS = (Protocol.DOT, Protocol.DOH, Protocol.DOH3, Protocol.DOQ)
_QUIC = (Protocol.DOH3, Protocol.DOQ)
_DOQ = (Protocol.DOQ,)

CHECKS: tuple[Check, ...] = (
    Check("answer", "A", _ALL, "Answers a query on a new connection, in its round-trips.", _answer, "RTT"),
    Check("resumption", "R", _TLS, "Resumes a session by its ticket; the query waits.", _resumption, "RTT"),
    Check("early", "Z", _QUIC, "Accepts the query as early data (0-RTT).", _early_data, "RTT"),
    Check("early-answer", "E", _QUIC, "Answers early data before the handshake is over.", _early_answer, "RTT"),
    Check("ticket-once", "O", _QUIC, "Takes early data once for a ticket.", _ticket_once, "", "RFC 8446, 8.1"),
    Check("replay", "Y", _QUIC, "Early data sent again is not taken.", _replay, "", "RFC 9001, 9.2: MUST"),
    Check(
        "token", "T", _QUIC, "Takes the address-validation token that it gave.", _token, "RTT", "RFC 9000, 8.1.3"
    ),
    Check(
        "versions", "V", _QUIC, "Answers a version it does not know by Version Negotiation.", _version_negotiation, "",
        "RFC 9000, 6.1: SHOULD",
    ),
    Check("padding", "P", _TLS, "Pads the answer to a padded query.", _padding, "bytes", "RFC 7830, 4: MUST"),
    Check(
        "amplification", "L", _QUIC, "Sends no more than three times what came from an address nobody validated.",
        _amplification, "times", "RFC 9000, 8.1: MUST",
    ),
    Check(
        "amplification", "L", (Protocol.DOUDP,), "How many times as long as the query the answer is.",
        _amplification_in_the_clear, "times",
    ),
    Check("alpn", "9a", _DOQ, "Lets nobody in who does not speak doq.", _alpn, "", "RFC 9250, 4.1: MUST"),
    Check("port-53", "9b", _DOQ, "Has no DoQ at UDP port 53.", _port_53, "", "RFC 9250, 4.1.1: MUST NOT"),
    Check("end-of-stream", "9c", _DOQ, "Ends the stream after its answer.", _end_of_stream, "", "RFC 9250, 4.2: MUST"),
    Check("message-id", "9d", _DOQ, "Answers with message ID 0.", _identifier, "", "RFC 9250, 4.2.1: MUST"),
    Check("reset", "9e", _DOQ, "Answers a reset query by a reset.", _reset, "", "RFC 9250, 4.3.1: MUST"),
    Check(
        "early-update", "9f", _DOQ, "Early data that must not be replayed waits, is refused, or closes.",
        _early_update, "", "RFC 9250, 4.5: MUST",
    ),
    Check(
        "no-keepalive", "9g", _DOQ, "Sends no edns-tcp-keepalive.", _no_keepalive, "", "RFC 9250, 5.5.2: MUST NOT"
    ),
    Check(
        "id-closes", "9h", _DOQ, "Closes on a message ID that is not 0.", _closing(_with_id), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    Check(
        "half-closes", "9i", _DOQ, "Closes on a stream that ends inside a query.", _closing(_half_a_query), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    Check(
        "two-close", "9j", _DOQ, "Closes on two queries on a stream.", _closing(_two_queries), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    Check(
        "keepalive-closes", "9k", _DOQ, "Closes on edns-tcp-keepalive.", _closing(_with_keepalive), "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
    Check(
        "unidirectional", "9l", _DOQ, "Closes on unidirectional streams, or allows none.", _unidirectional, "",
        "RFC 9250, 4.3.3: SHOULD",
    ),
)  # fmt: skip
"""Every check, in the order in which it is shown."""
