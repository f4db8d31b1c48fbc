"""The cores of DoQ and DoH3 against aioquic's server side: in memory, with time passed in."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dns.message
import dns.rrset
import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted, StreamDataReceived
from aioquic.quic.packet import QuicPacketType, encode_quic_retry, pull_quic_header
from aioquic.tls import ClientHello, Context, SessionTicket, pull_client_hello
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import VerificationError

from crosslayer.dns import (
    ClientSettings,
    KeyShareGroup,
    Protocol,
    Question,
    Resolver,
    Session,
    build_query,
    check_answer,
)
from crosslayer.dns.message import framed
from crosslayer.dns.quic_core import DoH3Core, DoQCore, QuicCore
from crosslayer.testbed.certificates import make_certificates

CLIENT = ("10.53.0.1", 40000)
NAME = "www.example.org"
ONE_WAY_S = 0.05
CORES: tuple[type[QuicCore], ...] = (DoQCore, DoH3Core)

Reply = Callable[["FarEnd", int, bytes], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, [NAME], ["10.53.0.2"])
    return folder


@pytest.fixture
def server(folder: Path) -> Resolver:
    return Resolver("10.53.0.2", NAME, folder / "ca.pem")


def make_chain(folder: Path, *, filler_bytes: int = 0, age: timedelta = timedelta(hours=1)) -> None:
    """Write what `make_certificates` writes, with an intermediate as large as wanted; valid for a day."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(3)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("root", "intermediate", "leaf")]
    now = datetime.now(UTC)
    chain = []
    for position in range(3):
        issuer = max(0, position - 1)
        subject = NAME if position == 2 else f"{'x' * 60}.example"
        count = filler_bytes // 72 if position == 1 else 1
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        ) | {"encipher_only": False, "decipher_only": False}
        builder = (
            x509.CertificateBuilder()
            .subject_name(names[position])
            .issuer_name(names[issuer])
            .public_key(keys[position].public_key())
            .serial_number(position + 1)
            .not_valid_before(now - age)
            .not_valid_after(now - age + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=position < 2, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=position == 2, key_cert_sign=position < 2, crl_sign=position < 2, **usage
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[position].public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[issuer].public_key()), critical=False
            )
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(subject)] * max(1, count)), critical=False)
        )
        chain.append(builder.sign(keys[issuer], hashes.SHA256()))
    pem = [certificate.public_bytes(Encoding.PEM) for certificate in chain]
    (folder / "ca.pem").write_bytes(pem[0])
    (folder / "server.pem").write_bytes(pem[2] + pem[1])
    (folder / "server.key").write_bytes(keys[2].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


class FarEnd:
    """A DoQ and DoH3 server based on aioquic that accepts early data, or sends a Retry first."""

    def __init__(self, folder: Path, reply: Reply | None = None, *, retry: bool = False) -> None:
        self.configuration = QuicConfiguration(is_client=False, alpn_protocols=["doq", "h3"])
        self.configuration.load_cert_chain(folder / "server.pem", folder / "server.key")
        self.reply = reply or answer_well
        self.retry = retry
        self.retried: dict[bytes, tuple[bytes, bytes]] = {}
        self.tickets: dict[bytes, SessionTicket] = {}
        self.quic: QuicConnection | None = None
        self.http: H3Connection | None = None
        self.messages: dict[int, bytes] = {}
        self.requests: dict[int, dict[bytes, bytes]] = {}
        self.arrived_before_handshake: list[int] = []
        self.complete = False

    def new_connection(self) -> None:
        self.quic, self.http, self.complete = None, None, False
        self.messages.clear()
        self.arrived_before_handshake.clear()

    def receive(self, data: bytes, now: float) -> list[bytes]:
        if self.quic is None:
            header = pull_quic_header(Buffer(data=data), host_cid_length=8)
            if header.packet_type is not QuicPacketType.INITIAL:
                return []
            original, retried = self.retried.get(header.token, (header.destination_cid, None))
            if self.retry and retried is None:
                token, source = os.urandom(16), os.urandom(8)
                self.retried[token] = (header.destination_cid, source)
                assert header.version is not None
                return [
                    encode_quic_retry(
                        version=header.version,
                        source_cid=source,
                        destination_cid=header.source_cid,
                        original_destination_cid=header.destination_cid,
                        retry_token=token,
                    )
                ]
            self.quic = QuicConnection(
                configuration=self.configuration,
                original_destination_connection_id=original,
                retry_source_connection_id=retried,
                session_ticket_fetcher=self.tickets.get,
                session_ticket_handler=lambda ticket: self.tickets.update({ticket.ticket: ticket}),
            )
        self.quic.receive_datagram(data, CLIENT, now)
        while (event := self.quic.next_event()) is not None:
            if isinstance(event, HandshakeCompleted):
                self.complete = True
            if self.quic.tls.alpn_negotiated == "h3":
                self.http = self.http or H3Connection(self.quic)
                for http_event in self.http.handle_event(event):
                    if isinstance(http_event, HeadersReceived):
                        self.requests[http_event.stream_id] = dict(http_event.headers)
                    if isinstance(http_event, HeadersReceived | DataReceived):
                        data = http_event.data if isinstance(http_event, DataReceived) else b""
                        self.take(http_event.stream_id, data, http_event.stream_ended)
            elif isinstance(event, StreamDataReceived):
                self.take(event.stream_id, event.data, event.end_stream)
        return [datagram for datagram, _ in self.quic.datagrams_to_send(now)]

    def take(self, stream: int, data: bytes, ended: bool) -> None:
        self.messages[stream] = self.messages.get(stream, b"") + data
        if ended:
            if not self.complete:
                self.arrived_before_handshake.append(stream)
            self.reply(self, stream, self.messages[stream])

    def send(self, stream: int, data: bytes, *, end: bool = True) -> None:
        assert self.quic is not None
        self.quic.send_stream_data(stream, data, end_stream=end)


def query_of(far: FarEnd, stream: int, message: bytes) -> bytes:
    """The DNS message a stream carried, over DoQ, or DoH3 with GET or POST."""
    if far.http is None:
        return message[2:]
    request = far.requests[stream]
    if request[b":method"] == b"POST":
        return message
    encoded = request[b":path"].partition(b"?dns=")[2]
    return base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))


def answer_to(wire: bytes) -> bytes:
    answer = dns.message.make_response(dns.message.from_wire(wire))
    answer.answer.append(dns.rrset.from_text(NAME + ".", 300, "IN", "A", "10.53.1.1"))
    return answer.to_wire()


def answer_well(far: FarEnd, stream: int, message: bytes) -> None:
    answer = answer_to(query_of(far, stream, message))
    if far.http is None:
        far.send(stream, framed(answer))
    else:
        respond(far, stream, answer)


def respond(
    far: FarEnd, stream: int, body: bytes, *, status: bytes = b"200", content_type: bytes = b"application/dns-message"
) -> None:
    assert far.http is not None
    far.http.send_headers(stream, [(b":status", status), (b"content-type", content_type)])
    far.http.send_data(stream, body, end_stream=True)


class Wire:
    """Both ends and a delay between them; nothing here reads a clock."""

    def __init__(self, core: QuicCore, far: FarEnd) -> None:
        self.core = core
        self.far = far
        far.new_connection()
        self.now = 1000.0
        self.in_flight: list[tuple[float, bool, bytes]] = []
        self.sent: list[bytes] = []
        self.received: list[bytes] = []
        self.lose: Callable[[int], bool] = lambda number: False
        core.start(self.now)

    def transmit(self) -> None:
        for datagram in self.core.datagrams(self.now):
            self.sent.append(datagram)
            if not self.lose(len(self.sent)):
                self.in_flight.append((self.now + ONE_WAY_S, True, datagram))

    def run_until(self, done: Callable[[], bool], *, limit_s: float = 30.0) -> float:
        """Let time pass until something holds; returns how much passed, seconds."""
        begin = self.now
        while not done():
            self.transmit()
            timer = self.core.timer()
            arrival = min((at for at, _, _ in self.in_flight), default=None)
            moments = [at for at in (timer, arrival) if at is not None]
            assert moments, "nothing will ever happen"
            self.now = max(self.now, min(moments))
            assert self.now - begin < limit_s, "it takes too long"
            due = sorted((item for item in self.in_flight if item[0] <= self.now), key=lambda item: item[0])
            for item in due:
                self.in_flight.remove(item)
                _, to_server, datagram = item
                if to_server:
                    self.in_flight += [(self.now + ONE_WAY_S, False, d) for d in self.far.receive(datagram, self.now)]
                else:
                    self.received.append(datagram)
                    self.core.receive(datagram, self.now)
            if timer is not None and timer <= self.now:
                self.core.handle_timer(self.now)
        return self.now - begin

    def handshake(self) -> float:
        elapsed_s = self.run_until(lambda: self.core.handshake_complete or self.core.error is not None)
        self.transmit()
        return elapsed_s

    def ask(self) -> tuple[float, bytes]:
        """Ask once; returns seconds and the answer's bytes."""
        query = build_query(Question(NAME), self.core.protocol, self.core.settings)
        stream = self.core.ask(query)
        elapsed_s = self.run_until(lambda: self.core.answer(stream) is not None or self.core.error is not None)
        assert self.core.error is None
        wire = self.core.answer(stream)
        assert wire is not None
        assert check_answer(wire, query).records == ("10.53.1.1",)
        return elapsed_s, wire


def core_for(
    kind: type[QuicCore],
    server: Resolver,
    session: Session | None = None,
    *,
    early_data: bool = False,
    **settings: object,
) -> QuicCore:
    return kind(server, ClientSettings(**settings), session=session or Session(), early_data=early_data)  # type: ignore[arg-type]


def warm(kind: type[QuicCore], server: Resolver, far: FarEnd) -> Session:
    wire = Wire(core_for(kind, server), far)
    wire.handshake()
    wire.ask()
    assert wire.core.session.ticket is not None
    return wire.core.session


def in_rtt(seconds: float) -> float:
    return round(seconds / (2 * ONE_WAY_S), 2)


@pytest.mark.parametrize("kind", CORES)
def test_a_full_exchange_takes_two_round_trips(kind: type[QuicCore], server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(kind, server), FarEnd(folder))
    assert in_rtt(wire.handshake()) == 1
    assert in_rtt(wire.ask()[0]) == 1
    assert (wire.core.handshake.session_resumed, wire.core.handshake.early_data_accepted) == (False, False)
    assert (wire.core.handshake.quic_version, wire.core.handshake.retry_received) == ("v1", False)


@pytest.mark.parametrize("kind", CORES)
def test_a_resumed_exchange_has_a_handshake_but_no_certificate(
    kind: type[QuicCore], server: Resolver, folder: Path
) -> None:
    far = FarEnd(folder)
    session = warm(kind, server, far)
    wire = Wire(core_for(kind, server, session), far)
    assert in_rtt(wire.handshake()) == 1
    assert far.arrived_before_handshake == []
    assert in_rtt(wire.ask()[0]) == 1
    assert (wire.core.handshake.session_resumed, wire.core.handshake.early_data_accepted) == (True, False)


@pytest.mark.parametrize("kind", CORES)
def test_early_data_takes_one_round_trip(kind: type[QuicCore], server: Resolver, folder: Path) -> None:
    far = FarEnd(folder)
    session = warm(kind, server, far)
    wire = Wire(core_for(kind, server, session, early_data=True), far)
    assert in_rtt(wire.ask()[0]) == 1
    assert len(far.arrived_before_handshake) == 1
    assert (wire.core.handshake.session_resumed, wire.core.handshake.early_data_accepted) == (True, True)
    assert wire.core.handshake_complete


@pytest.mark.parametrize("kind", CORES)
def test_refused_early_data_is_asked_again_and_reported_as_refused(
    kind: type[QuicCore], server: Resolver, folder: Path
) -> None:
    far = FarEnd(folder)
    session = warm(kind, server, far)
    far.tickets.clear()
    wire = Wire(core_for(kind, server, session, early_data=True), far)
    elapsed_s, _ = wire.ask()
    assert in_rtt(elapsed_s) > 1
    assert (wire.core.handshake.session_resumed, wire.core.handshake.early_data_accepted) == (False, False)


@pytest.mark.parametrize("group", KeyShareGroup)
def test_the_hello_is_one_packet_with_one_key_share(server: Resolver, folder: Path, group: KeyShareGroup) -> None:
    far = FarEnd(folder)
    hellos: list[ClientHello] = []
    original = pull_client_hello

    def remember(buffer: Buffer) -> ClientHello:
        hellos.append(original(buffer))
        return hellos[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aioquic.tls.pull_client_hello", remember)
        wire = Wire(core_for(DoQCore, server, group=group), far)
        wire.handshake()
    # The server reads the hello once; the client's flights are one datagram each.
    assert [len(datagram) for datagram in wire.sent] == [1200, 1200]
    (hello,) = hellos
    assert [share[0] for share in hello.key_share or ()] == hello.supported_groups
    assert hello.supported_groups == [{KeyShareGroup.P256: 0x0017, KeyShareGroup.X25519: 0x001D}[group]]
    assert wire.core.handshake_complete


def test_the_size_of_padded_datagrams_is_a_parameter(server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(DoQCore, server, quic_datagram_bytes=1252), FarEnd(folder))
    wire.handshake()
    assert [len(datagram) for datagram in wire.sent] == [1252, 1252]


@pytest.mark.parametrize("kind", CORES)
def test_a_retry_costs_one_round_trip(kind: type[QuicCore], server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(kind, server), FarEnd(folder, retry=True))
    assert in_rtt(wire.handshake()) == 2
    assert wire.core.handshake.retry_received
    wire.ask()


@pytest.mark.parametrize("kind", CORES)
def test_early_data_survives_a_retry(kind: type[QuicCore], server: Resolver, folder: Path) -> None:
    far = FarEnd(folder, retry=True)
    session = warm(kind, server, far)
    wire = Wire(core_for(kind, server, session, early_data=True), far)
    assert in_rtt(wire.ask()[0]) == 2
    assert wire.core.handshake.retry_received
    assert wire.core.handshake.early_data_accepted
    assert len(far.arrived_before_handshake) == 1


def test_a_token_is_sent_and_kept(server: Resolver, folder: Path) -> None:
    far = FarEnd(folder)
    wire = Wire(core_for(DoQCore, server, Session(token=b"validated")), far)
    wire.transmit()
    header = pull_quic_header(Buffer(data=wire.sent[0]), host_cid_length=8)
    assert header.token == b"validated"
    wire.core.take_token(b"next")
    assert wire.core.session.token == b"next"


def test_a_lost_hello_is_sent_again_after_a_second(server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(DoQCore, server), FarEnd(folder))
    wire.lose = lambda number: number == 1
    assert wire.handshake() == pytest.approx(1.0 + 2 * ONE_WAY_S, abs=0.01)


def test_a_lost_query_is_sent_again(server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(DoQCore, server), FarEnd(folder))
    wire.handshake()
    wire.run_until(lambda: wire.core.session.ticket is not None)
    number_of_query = len(wire.sent) + 1
    wire.lose = lambda number: number == number_of_query
    elapsed_s, _ = wire.ask()
    assert 1 < in_rtt(elapsed_s) < 8


def test_several_queries_share_a_connection(server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(DoQCore, server), FarEnd(folder))
    wire.handshake()
    queries = [build_query(Question(name), Protocol.DOQ, wire.core.settings) for name in ("a.org", "b.org", "c.org")]
    streams = [wire.core.ask(query) for query in queries]
    assert streams == [0, 4, 8]
    elapsed_s = wire.run_until(lambda: all(wire.core.answer(stream) is not None for stream in streams))
    assert in_rtt(elapsed_s) == 1
    for query, stream in zip(queries, streams, strict=True):
        wire_answer = wire.core.answer(stream)
        assert wire_answer is not None
        assert dns.message.from_wire(wire_answer).question == query.message.question


@pytest.mark.parametrize("kind", CORES)
def test_a_certificate_of_another_ca_fails_before_anything_else_leaves(
    kind: type[QuicCore], server: Resolver, folder: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path, [NAME], ["10.53.0.2"])
    far = FarEnd(folder)
    wire = Wire(core_for(kind, Resolver("10.53.0.2", NAME, tmp_path / "ca.pem")), far)
    wire.handshake()
    assert wire.core.error is not None
    assert wire.core.error.startswith("certificate: ")
    assert not wire.core.handshake_complete
    wire.transmit()
    wire.run_until(lambda: not wire.in_flight)
    assert not far.complete
    assert far.messages == {}


@pytest.mark.parametrize(
    ("name", "holds"), [(NAME, True), ("10.53.0.2", True), ("other.org", False), ("10.9.9.9", False)]
)
def test_the_certificate_must_be_for_the_name_or_address(folder: Path, name: str, holds: bool) -> None:
    wire = Wire(core_for(DoQCore, Resolver("10.53.0.2", name, folder / "ca.pem")), FarEnd(folder))
    wire.handshake()
    assert wire.core.handshake_complete is holds
    assert (wire.core.error is None) is holds


@pytest.mark.parametrize(("filler_bytes", "round_trips"), [(0, 1), (4000, 2)])
def test_a_chain_beyond_the_amplification_limit_costs_a_round_trip_unless_resumed(
    tmp_path: Path, filler_bytes: int, round_trips: int
) -> None:
    make_chain(tmp_path, filler_bytes=filler_bytes)
    server, far = Resolver("10.53.0.2", NAME, tmp_path / "ca.pem"), FarEnd(tmp_path)
    wire = Wire(core_for(DoQCore, server), far)
    assert in_rtt(wire.handshake()) == round_trips
    wire.ask()
    wire = Wire(core_for(DoQCore, server, wire.core.session), far)
    assert in_rtt(wire.handshake()) == 1
    assert wire.core.handshake.session_resumed


def test_the_size_of_the_certificate_message_is_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    take = Context._client_handle_certificate

    def taken(context: Context, message: Buffer) -> None:
        messages.append(message.capacity)
        take(context, message)

    monkeypatch.setattr(Context, "_client_handle_certificate", taken)
    make_chain(tmp_path, filler_bytes=2000)
    server, far = Resolver("10.53.0.2", NAME, tmp_path / "ca.pem"), FarEnd(tmp_path)
    wire = Wire(core_for(DoQCore, server), far)
    assert wire.core.handshake.certificate_bytes is None
    wire.handshake()
    assert [wire.core.handshake.certificate_bytes] == messages
    wire.ask()
    wire = Wire(core_for(DoQCore, server, wire.core.session), far)
    wire.handshake()
    assert wire.core.handshake.certificate_bytes == 0
    assert len(messages) == 1


@pytest.mark.parametrize("age", [timedelta(days=2), timedelta(days=-1)], ids=["expired", "not yet valid"])
def test_a_certificate_out_of_its_time(tmp_path: Path, age: timedelta) -> None:
    make_chain(tmp_path, age=age)
    wire = Wire(core_for(DoQCore, Resolver("10.53.0.2", NAME, tmp_path / "ca.pem")), FarEnd(tmp_path))
    wire.handshake()
    assert wire.core.error is not None
    assert wire.core.error.startswith("certificate: ")


@pytest.mark.parametrize("verify", [True, False])
def test_a_certificate_that_cannot_be_read_is_an_error(folder: Path, verify: bool) -> None:
    class Weird:
        """The server's certificate with a version that does not exist: 9."""

        def public_bytes(self, _encoding: Encoding) -> bytes:
            der = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes()).public_bytes(Encoding.DER)
            return der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x08")

    far = FarEnd(folder)
    far.configuration.certificate = Weird()
    wire = Wire(core_for(DoQCore, Resolver("10.53.0.2", NAME, folder / "ca.pem", verify=verify)), far)
    wire.handshake()
    assert wire.core.error == "quic: malformed: InvalidVersion: 8 is not a valid X509 version"
    assert not wire.core.handshake_complete


def test_aioquics_own_check_is_replaced_not_dropped(server: Resolver, folder: Path) -> None:
    """The handshake of a core without a verdict of its own verifier must not complete."""
    core = core_for(DoQCore, server)
    assert core._quic.configuration.verify_mode == ssl.CERT_NONE
    calls = []

    class Refusing:
        def verify(self, leaf: object, chain: object) -> None:
            calls.append(leaf)
            raise VerificationError("no")

    core._verifier = Refusing()  # type: ignore[assignment]
    Wire(core, FarEnd(folder)).handshake()
    assert len(calls) == 1
    assert core.error == "certificate: no"


def test_a_close_by_the_server_is_an_error_at_once(server: Resolver, folder: Path) -> None:
    far = FarEnd(folder, lambda far, stream, message: far.quic.close(error_code=2, reason_phrase="no"))  # type: ignore[union-attr]
    wire = Wire(core_for(DoQCore, server), far)
    wire.handshake()
    stream = wire.core.ask(build_query(Question(NAME), Protocol.DOQ, wire.core.settings))
    elapsed_s = wire.run_until(lambda: wire.core.error is not None)
    assert in_rtt(elapsed_s) == 1
    assert wire.core.error == "quic: connection closed, code 0x2 no"
    assert wire.core.answer(stream) is None


def run_query(kind: type[QuicCore], server: Resolver, far: FarEnd) -> bytes | None:
    wire = Wire(core_for(kind, server), far)
    wire.handshake()
    stream = wire.core.ask(build_query(Question(NAME), kind.protocol, wire.core.settings))
    wire.run_until(lambda: wire.core.answer(stream) is not None)
    return wire.core.answer(stream)


def reset(far: FarEnd, stream: int, message: bytes) -> None:
    assert far.quic is not None
    far.quic.reset_stream(stream, 3)


@pytest.mark.parametrize("kind", CORES)
def test_a_reset_stream(kind: type[QuicCore], server: Resolver, folder: Path) -> None:
    with pytest.raises(ValueError, match="stream reset by the server, code 0x3"):
        run_query(kind, server, FarEnd(folder, reset))


@pytest.mark.parametrize(
    "reply",
    [b"", b"\0", b"\0\5abc", b"\0\3abcd"],
    ids=["nothing", "half a length", "shorter than its length", "longer than its length"],
)
def test_doq_answers_must_fill_their_length(server: Resolver, folder: Path, reply: bytes) -> None:
    with pytest.raises(ValueError, match="malformed"):
        run_query(DoQCore, server, FarEnd(folder, lambda far, stream, message: far.send(stream, reply)))


def test_a_doq_answer_is_complete_before_its_stream_ends(server: Resolver, folder: Path) -> None:
    far = FarEnd(folder, lambda far, stream, message: far.send(stream, b"\0\3abc", end=False))
    assert run_query(DoQCore, server, far) == b"abc"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"status": b"503"}, "http status 503"),
        ({"content_type": b"text/html"}, "content type text/html"),
        ({"content_type": b""}, "content type missing"),
    ],
)
def test_doh3_responses_must_be_dns_messages(
    server: Resolver, folder: Path, fields: dict[str, bytes], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        run_query(DoH3Core, server, FarEnd(folder, lambda far, stream, message: respond(far, stream, b"x", **fields)))


def test_a_doh3_body_larger_than_any_message_is_not_read_to_its_end(server: Resolver, folder: Path) -> None:
    def flood(far: FarEnd, stream: int, message: bytes) -> None:
        assert far.http is not None
        far.http.send_headers(stream, [(b":status", b"200"), (b"content-type", b"application/dns-message")])
        far.http.send_data(stream, bytes(1_000_000), end_stream=False)

    body = run_query(DoH3Core, server, FarEnd(folder, flood))
    assert body is not None
    assert 65535 < len(body) < 100_000
    query = build_query(Question(NAME), Protocol.DOH3, ClientSettings())
    assert check_answer(body, query).error == "oversized"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_doh3_requests(server: Resolver, folder: Path, method: str) -> None:
    far = FarEnd(folder)
    wire = Wire(core_for(DoH3Core, server, http_method=method), far)
    wire.handshake()
    wire.ask()
    (request,) = far.requests.values()
    assert request[b":method"] == method.encode()
    assert request[b":authority"] == NAME.encode()
    assert request[b":path"].startswith(b"/dns-query")
    assert request[b"accept"] == b"application/dns-message"
    assert (b"content-type" in request) is (method == "POST")


def test_an_endless_silence_is_a_timeout(server: Resolver, folder: Path) -> None:
    wire = Wire(core_for(DoQCore, server, timeout_s=2.0), FarEnd(folder))
    wire.lose = lambda number: True
    wire.run_until(lambda: wire.core.error is not None)
    assert wire.core.error == "timeout"
