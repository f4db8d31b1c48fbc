"""The DNS clients on real sockets with small local servers that answer correctly, wrongly or not at all."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import h2.config
import h2.connection
import h2.events
import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import QuicPacketType, pull_quic_header
from aioquic.tls import SessionTicket

from crosslayer.dns import (
    DEFAULT_PORTS,
    ClientSettings,
    DnsError,
    ExchangeResult,
    Protocol,
    Question,
    Resolver,
    Resumption,
    SessionStore,
    build_query,
    client_for,
    exchange,
    tcp_rtt,
)
from crosslayer.dns.client import Client
from crosslayer.dns.message import framed, unframed
from crosslayer.testbed.certificates import make_certificates

NAME = "www.example.org"
QUESTION = Question(NAME)
LOOPBACK = "127.0.0.1"
NOBODYS_PORT = 1
"""Port without a listener. It is not ephemeral, so no parallel test gets it."""
QUICK = ClientSettings(timeout_s=0.3)

Datagrams = Callable[[bytes], list[bytes]]
Connection = socket.socket | ssl.SSLSocket
Handler = Callable[[Connection], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, [NAME], [LOOPBACK])
    return folder


def at(port: int, folder: Path | None = None) -> Resolver:
    """A resolver whose transports all have the same port on the loopback."""
    return Resolver(LOOPBACK, NAME, folder / "ca.pem" if folder else None, dict.fromkeys(DEFAULT_PORTS, port))


def answer_to(wire: bytes, *, flags: int = 0, rcode: dns.rcode.Rcode = dns.rcode.NOERROR) -> bytes:
    answer = dns.message.make_response(dns.message.from_wire(wire))
    answer.flags |= flags
    answer.set_rcode(rcode)
    answer.answer.append(dns.rrset.from_text(NAME + ".", 300, "IN", "A", "10.53.1.1"))
    return answer.to_wire()


@contextmanager
def udp_server(reply: Datagrams) -> Iterator[tuple[int, list[bytes]]]:
    """A UDP server in a thread; yields its port and the list of received datagrams."""
    received: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((LOOPBACK, 0))

        def serve() -> None:
            while True:
                data, address = server.recvfrom(65535)
                if not data:
                    return
                received.append(data)
                for datagram in reply(data):
                    server.sendto(datagram, address)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1], received
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
                stop.sendto(b"", server.getsockname())
            thread.join()


@contextmanager
def tcp_server(handler: Handler, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A TCP or TLS server in a thread, for one connection at a time; yields its port.

    An exception of the handler fails the test, except an `OSError`, which the client may have caused.
    """
    faults: list[BaseException] = []
    stopping = threading.Event()
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            while True:
                connection: Connection = listener.accept()[0]
                with connection:
                    if stopping.is_set():
                        return
                    try:
                        connection.settimeout(5)
                        if context is not None:
                            connection = context.wrap_socket(connection, server_side=True)
                        with connection:
                            handler(connection)
                    except OSError:
                        pass  # the client gave up, as some tests intend
                    except BaseException as fault:
                        faults.append(fault)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            stopping.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()
    assert faults == []


def tls_context(folder: Path, *, alpn: str | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if alpn:
        context.set_alpn_protocols([alpn])
    if version:
        context.maximum_version = version
    return context


def read_message(connection: Connection) -> bytes:
    buffer = b""
    while (wire := unframed(buffer)) is None:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the client closed")
        buffer += part
    return wire


def read_once(connection: Connection) -> None:
    connection.recv(65536)


def linger(connection: Connection) -> None:
    """Wait until the client closes the connection."""
    while connection.recv(65536):
        pass


def answer_messages(connection: Connection) -> None:
    while True:
        connection.sendall(framed(answer_to(read_message(connection))))


def assert_good(row: ExchangeResult) -> None:
    assert row.error is None, row.error
    assert (row.rcode, row.answers) == ("NOERROR", ("10.53.1.1",))
    assert row.handshake_ms is not None
    assert row.query_ms is not None
    assert row.total_ms is not None
    assert row.total_ms >= row.handshake_ms + row.query_ms - 1e-6
    assert row.cpu_ms > 0
    # Without a capture there are no sizes.
    assert row.handshake_sent_bytes is None
    assert row.query_received_packets is None


# DoUDP


def test_doudp() -> None:
    with udp_server(lambda data: [answer_to(data)]) as (port, received):
        row = exchange(at(port), QUESTION, Protocol.DOUDP)
    assert_good(row)
    assert row.handshake_ms == 0
    assert row.total_ms == row.query_ms
    assert len(received) == 1
    assert (row.session_resumed, row.tls_version, row.quic_version, row.retry_received) == (None, None, None, None)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (lambda data: [answer_to(data, flags=dns.flags.TC)], "truncated"),
        (lambda data: [answer_to(data, rcode=dns.rcode.SERVFAIL)], "rcode SERVFAIL"),
        (lambda data: [answer_to(data)[:-1]], "malformed"),
        (lambda data: [answer_to(data) + bytes(1200)], "oversized"),
        (lambda data: [answer_to(data).replace(b"\7example", b"\7exampel")], "wrong question"),
    ],
)
def test_doudp_answers_that_are_none(reply: Datagrams, error: str) -> None:
    with udp_server(reply) as (port, _):
        row = exchange(at(port), QUESTION, Protocol.DOUDP)
    assert row.error == error
    assert row.total_ms is not None


def flipped(wire: bytes) -> bytes:
    return bytes([wire[0] ^ 1]) + wire[1:]


def test_doudp_waits_on_after_a_datagram_that_is_no_answer() -> None:
    with udp_server(lambda data: [flipped(answer_to(data)), b"", b"x", data, answer_to(data)]) as (port, _):
        assert_good(exchange(at(port), QUESTION, Protocol.DOUDP))


def test_doudp_with_nothing_but_wrong_ids_says_so() -> None:
    with udp_server(lambda data: [flipped(answer_to(data))]) as (port, _):
        row = exchange(at(port), QUESTION, Protocol.DOUDP, settings=QUICK)
    assert (row.error, row.query_ms, row.total_ms) == ("wrong id", None, None)


def test_doudp_asks_again_and_then_gives_up() -> None:
    with udp_server(lambda data: []) as (port, received):
        row = exchange(at(port), QUESTION, Protocol.DOUDP, settings=ClientSettings(timeout_s=0.5, udp_retransmit_s=0.2))
    assert row.error == "timeout"
    assert len(received) == 3
    assert len(set(received)) == 1


def test_doudp_gets_its_answer_by_asking_again() -> None:
    seen: list[bytes] = []

    def second_time(data: bytes) -> list[bytes]:
        seen.append(data)
        return [answer_to(data)] if len(seen) == 2 else []

    with udp_server(second_time) as (port, _):
        row = exchange(at(port), QUESTION, Protocol.DOUDP, settings=ClientSettings(udp_retransmit_s=0.1))
    assert_good(row)
    assert row.query_ms is not None
    assert row.query_ms >= 100


@pytest.mark.parametrize("protocol", Protocol)
def test_nobody_listens(protocol: Protocol, folder: Path) -> None:
    row = exchange(at(NOBODYS_PORT, folder), QUESTION, protocol)
    assert row.error == "connection refused"
    assert row.total_ms is None
    assert row.local_port is not None


# DoTCP


def test_dotcp() -> None:
    with tcp_server(answer_messages) as port:
        row = exchange(at(port), QUESTION, Protocol.DOTCP)
    assert_good(row)
    assert row.handshake_ms is not None
    assert row.handshake_ms > 0


def test_an_answer_in_pieces() -> None:
    def dribble(connection: Connection) -> None:
        for byte in framed(answer_to(read_message(connection))):
            connection.sendall(bytes([byte]))
        linger(connection)

    with tcp_server(dribble) as port:
        assert_good(exchange(at(port), QUESTION, Protocol.DOTCP))


@pytest.mark.parametrize(
    ("send", "error"),
    [
        (lambda wire: b"", "connection closed by the server"),
        (lambda wire: framed(answer_to(wire))[:-1], "connection closed by the server"),
        (lambda wire: framed(answer_to(wire)) + b"more", "malformed"),
        (lambda wire: b"\0\0", "malformed"),
        (lambda wire: framed(flipped(answer_to(wire))), "wrong id"),
        (lambda wire: framed(answer_to(wire, flags=dns.flags.TC)), "truncated"),
    ],
)
def test_dotcp_answers_that_are_none(send: Callable[[bytes], bytes], error: str) -> None:
    with tcp_server(lambda connection: connection.sendall(send(read_message(connection)))) as port:
        row = exchange(at(port), QUESTION, Protocol.DOTCP)
    assert row.error == error


def test_a_silent_server_is_a_timeout_in_time() -> None:
    with tcp_server(linger) as port:
        begin = time.monotonic()
        row = exchange(at(port), QUESTION, Protocol.DOTCP, settings=QUICK)
        elapsed_s = time.monotonic() - begin
    assert (row.error, row.total_ms) == ("timeout", None)
    assert row.handshake_ms is not None
    assert 0.3 <= elapsed_s < 2


def test_a_connection_can_be_asked_more_than_once() -> None:
    with tcp_server(answer_messages) as port, client_for(Protocol.DOTCP, at(port)) as client:
        client.connect()
        for name in ("a.example", "b.example"):
            query = build_query(Question(name), Protocol.DOTCP, ClientSettings())
            assert dns.message.from_wire(client.query(query)).question == query.message.question


def test_tcp_rtt() -> None:
    with tcp_server(linger) as port:
        assert 0 < tcp_rtt(at(port)) < 1000
        assert 0 < tcp_rtt(Resolver(LOOPBACK), port=port) < 1000
    with pytest.raises(DnsError, match="connection refused"):
        tcp_rtt(at(port))


# DoT


def test_dot_full_and_resumed(folder: Path) -> None:
    store = SessionStore()
    with tcp_server(answer_messages, tls_context(folder)) as port:
        server = at(port, folder)
        rows = [
            exchange(server, QUESTION, Protocol.DOT, sessions=store, priming=True),
            exchange(server, QUESTION, Protocol.DOT, Resumption.TICKET, sessions=store),
        ]
    for row in rows:
        assert_good(row)
        assert row.tls_version == "TLSv1.3"
    assert [row.priming for row in rows] == [True, False]
    assert [row.session_resumed for row in rows] == [False, True]


def test_dot_with_tls_1_2_is_measured_and_resumed_as_such(folder: Path) -> None:
    store = SessionStore()
    with tcp_server(answer_messages, tls_context(folder, version=ssl.TLSVersion.TLSv1_2)) as port:
        server = at(port, folder)
        rows = [
            exchange(server, QUESTION, Protocol.DOT, sessions=store, priming=True),
            exchange(server, QUESTION, Protocol.DOT, Resumption.TICKET, sessions=store),
        ]
    assert [(row.error, row.tls_version, row.session_resumed) for row in rows] == [
        (None, "TLSv1.2", False),
        (None, "TLSv1.2", True),
    ]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_size_of_the_certificate_message_is_what_was_sent(folder: Path, version: ssl.TLSVersion) -> None:
    sent: list[int] = []

    def watch(_connection: object, direction: str, _version: object, _type: object, message: int, data: bytes) -> None:
        if direction == "write" and message == ssl._TLSMessageType.CERTIFICATE:  # type: ignore[attr-defined]
            sent.append(len(data))

    context, store = tls_context(folder, version=version), SessionStore()
    context._msg_callback = watch  # type: ignore[attr-defined]
    with tcp_server(answer_messages, context) as port:
        server = at(port, folder)
        rows = [
            exchange(server, QUESTION, Protocol.DOT, sessions=store, priming=True),
            exchange(server, QUESTION, Protocol.DOT, Resumption.TICKET, sessions=store),
        ]
    assert [row.certificate_bytes for row in rows] == [*sent, 0]


def test_a_ticket_the_server_does_not_know_is_a_failed_observation(folder: Path) -> None:
    store = SessionStore()
    with tcp_server(answer_messages, tls_context(folder)) as port:
        exchange(at(port, folder), QUESTION, Protocol.DOT, sessions=store, priming=True)
        session = store.take(at(port, folder), Protocol.DOT)
    with tcp_server(answer_messages, tls_context(folder)) as port:
        store.put(at(port, folder), Protocol.DOT, session)
        row = exchange(at(port, folder), QUESTION, Protocol.DOT, Resumption.TICKET, sessions=store)
    assert (row.error, row.session_resumed) == ("session not resumed", False)
    assert row.total_ms is not None


def test_without_a_ticket_nothing_is_sent(folder: Path) -> None:
    row = exchange(at(1, folder), QUESTION, Protocol.DOT, Resumption.TICKET, sessions=SessionStore())
    assert row.error == "no session ticket: a priming exchange must come first"
    assert (row.handshake_ms, row.local_port) == (None, None)


def test_a_server_without_tickets_cannot_be_warmed(folder: Path) -> None:
    context = tls_context(folder)
    context.num_tickets = 0
    store = SessionStore()
    with tcp_server(answer_messages, context) as port:
        begin = time.monotonic()
        row = exchange(
            at(port, folder),
            QUESTION,
            Protocol.DOT,
            sessions=store,
            settings=ClientSettings(ticket_wait_s=0.1),
            priming=True,
        )
        elapsed_s = time.monotonic() - begin
    assert 0.1 <= elapsed_s < 2
    assert row.error == "the server sent no session ticket"
    assert row.total_ms is not None


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH])
def test_certificates_are_verified(folder: Path, tmp_path: Path, protocol: Protocol) -> None:
    make_certificates(tmp_path, [NAME], [LOOPBACK])
    with tcp_server(answer_messages, tls_context(folder, alpn="h2")) as port:
        other_ca = exchange(at(port, tmp_path), QUESTION, protocol)
        ports = dict.fromkeys(DEFAULT_PORTS, port)
        other_name = exchange(Resolver(LOOPBACK, "www.example.net", folder / "ca.pem", ports), QUESTION, protocol)
    assert other_ca.error is not None
    assert other_ca.error.startswith("certificate: unable to get local issuer")
    assert other_name.error is not None
    assert "Hostname mismatch" in other_name.error
    assert other_ca.handshake_ms is None


def test_the_server_learns_that_its_certificate_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path, [NAME], [LOOPBACK])
    reasons = []

    def handshake(connection: Connection) -> None:
        try:
            with tls_context(folder).wrap_socket(connection, server_side=True) as secured:
                secured.recv(1)
        except ssl.SSLError as error:
            reasons.append(error.reason)

    with tcp_server(handshake) as port:
        exchange(at(port, tmp_path), QUESTION, Protocol.DOT)
    assert reasons == ["TLSV1_ALERT_UNKNOWN_CA"]


def test_a_server_without_tls(folder: Path) -> None:
    with tcp_server(lambda connection: connection.sendall(b"no TLS here\r\n")) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOT)
    assert row.error is not None
    assert row.error.startswith("tls: ")


def test_a_server_that_closes_during_the_handshake(folder: Path) -> None:
    with tcp_server(read_once) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOT)
    assert row.error == "connection closed by the server"


# DoH

Respond = Callable[[h2.connection.H2Connection, int, dict[bytes, bytes], bytes], None]


def http2_server(respond: Respond) -> Handler:
    """An HTTP/2 server that calls `respond` for each complete request."""

    def handle(connection: Connection) -> None:
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        http.initiate_connection()
        connection.sendall(http.data_to_send())
        headers: dict[bytes, bytes] = {}
        body = b""
        while (data := connection.recv(65536)) and http.state_machine.state != h2.connection.ConnectionState.CLOSED:
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    headers = {bytes(name): bytes(value) for name, value in event.headers}
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                elif isinstance(event, h2.events.StreamEnded):
                    respond(http, event.stream_id, headers, body)
            connection.sendall(http.data_to_send())

    return handle


def query_of(headers: dict[bytes, bytes], body: bytes) -> bytes:
    if headers[b":method"] == b"POST":
        return body
    encoded = headers[b":path"].partition(b"?dns=")[2]
    return base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))


def send_response(
    http: h2.connection.H2Connection,
    stream: int,
    body: bytes,
    *,
    status: str = "200",
    content_type: str = "application/dns-message",
) -> None:
    http.send_headers(stream, [(":status", status), ("content-type", content_type)])
    http.send_data(stream, body, end_stream=True)


def respond_well(http: h2.connection.H2Connection, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
    send_response(http, stream, answer_to(query_of(headers, body)))


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_doh_full_and_resumed(folder: Path, method: str) -> None:
    requests: list[dict[bytes, bytes]] = []

    def respond(http: h2.connection.H2Connection, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
        requests.append(headers)
        respond_well(http, stream, headers, body)

    store, settings = SessionStore(), ClientSettings(http_method=method)
    with tcp_server(http2_server(respond), tls_context(folder, alpn="h2")) as port:
        server = at(port, folder)
        rows = [
            exchange(server, QUESTION, Protocol.DOH, sessions=store, settings=settings, priming=True),
            exchange(server, QUESTION, Protocol.DOH, Resumption.TICKET, sessions=store, settings=settings),
        ]
    for row in rows:
        assert_good(row)
    assert [row.session_resumed for row in rows] == [False, True]
    assert len(requests) == 2
    assert requests[0][b":method"] == method.encode()
    assert requests[0][b":authority"] == f"{NAME}:{port}".encode()
    assert requests[0][b":path"].split(b"?")[0] == b"/dns-query"
    assert requests[0][b"accept"] == b"application/dns-message"
    assert (requests[0].get(b"content-type") == b"application/dns-message") is (method == "POST")


def test_doh_asks_again_on_the_same_connection(folder: Path) -> None:
    with (
        tcp_server(http2_server(respond_well), tls_context(folder, alpn="h2")) as port,
        client_for(Protocol.DOH, at(port, folder)) as client,
    ):
        client.connect()
        for name in ("a.example", "b.example"):
            query = build_query(Question(name), Protocol.DOH, ClientSettings())
            assert dns.message.from_wire(client.query(query)).question == query.message.question


@pytest.mark.parametrize(
    ("respond", "error"),
    [
        (lambda http, stream, headers, body: send_response(http, stream, b"", status="404"), "http status 404"),
        (
            lambda http, stream, headers, body: send_response(http, stream, b"<p>", content_type="text/html"),
            "content type text/html",
        ),
        (lambda http, stream, headers, body: send_response(http, stream, b"\0" * 5), "malformed"),
        (
            lambda http, stream, headers, body: http.reset_stream(stream, 7),
            "http/2: stream reset by the server, code 7",
        ),
        (
            lambda http, stream, headers, body: http.close_connection(1),
            "http/2: connection closed by the server, code 1",
        ),
    ],
    ids=["status", "content type", "short", "reset", "goaway"],
)
def test_doh_responses_that_are_none(folder: Path, respond: Respond, error: str) -> None:
    with tcp_server(http2_server(respond), tls_context(folder, alpn="h2")) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOH)
    assert row.error == error


def test_a_doh_body_larger_than_any_message(folder: Path) -> None:
    def flood(connection: Connection) -> None:
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        http.initiate_connection()
        stream = None
        while data := connection.recv(65536):
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    stream = event.stream_id
                    http.send_headers(stream, [(":status", "200"), ("content-type", "application/dns-message")])
            while stream is not None and (window := http.local_flow_control_window(stream)):
                http.send_data(stream, bytes(min(window, 16384)))
            connection.sendall(http.data_to_send())

    with tcp_server(flood, tls_context(folder, alpn="h2")) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOH)
    assert row.error == "oversized"


def test_a_server_that_speaks_no_http2(folder: Path) -> None:
    with tcp_server(answer_messages, tls_context(folder)) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOH)
    assert row.error == "the server does not speak h2"

    def ping_of_one_byte(connection: Connection) -> None:
        connection.sendall(bytes([0, 0, 1, 6, 0, 0, 0, 0, 0, 0]))
        linger(connection)

    with tcp_server(ping_of_one_byte, tls_context(folder, alpn="h2")) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOH)
    assert row.error is not None
    assert row.error.startswith("http/2: ")


# DoH3, DoQ


Reply = Callable[[QuicConnection, StreamDataReceived], None]


def answer_stream(quic: QuicConnection, event: StreamDataReceived) -> None:
    if event.end_stream:
        quic.send_stream_data(event.stream_id, framed(answer_to(event.data[2:])), end_stream=True)


@contextmanager
def doq_server(
    folder: Path,
    *,
    alpn: str = "doq",
    reply: Reply = answer_stream,
    lose: Callable[[int], bool] = lambda number: False,
    overhear: Callable[[int], bool] = lambda number: False,
) -> Iterator[int]:
    """A DoQ server (aioquic) in a thread, for one connection at a time; yields its port.

    `lose` selects sent datagrams to drop and `overhear` received ones to ignore, by their number from 1.
    """
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[alpn])
    configuration.load_cert_chain(folder / "server.pem", folder / "server.key")
    tickets: dict[bytes, SessionTicket] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((LOOPBACK, 0))

        def serve() -> None:
            quic: QuicConnection | None = None
            first_cid = b""
            sent = received = 0
            while True:
                timer = quic.get_timer() if quic else None
                server.settimeout(None if timer is None else max(0.001, timer - time.monotonic()))
                try:
                    data, address = server.recvfrom(65535)
                except TimeoutError:
                    assert quic is not None
                    quic.handle_timer(time.monotonic())
                else:
                    if not data:
                        return
                    received += 1
                    if overhear(received):
                        continue
                    # A connection is known by its ID, not by the address: a client may get the last one's port again.
                    header = pull_quic_header(Buffer(data=data), host_cid_length=8)
                    known = quic is not None and header.destination_cid in {first_cid, quic.host_cid}
                    if quic is None or (header.packet_type is QuicPacketType.INITIAL and not known):
                        first_cid = header.destination_cid
                        quic = QuicConnection(
                            configuration=configuration,
                            original_destination_connection_id=first_cid,
                            session_ticket_fetcher=tickets.get,
                            session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
                        )
                    quic.receive_datagram(data, address, time.monotonic())
                while (event := quic.next_event()) is not None:
                    if isinstance(event, StreamDataReceived):
                        reply(quic, event)
                for datagram, client in quic.datagrams_to_send(time.monotonic()):
                    sent += 1
                    if not lose(sent):
                        server.sendto(datagram, client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stop:
                stop.sendto(b"", server.getsockname())
            thread.join()


@pytest.mark.parametrize("resumption", Resumption)
def test_doq(folder: Path, resumption: Resumption) -> None:
    store = SessionStore()
    with doq_server(folder) as port:
        server = at(port, folder)
        rows = [exchange(server, QUESTION, Protocol.DOQ, sessions=store, priming=True)]
        if resumption is not Resumption.NONE:
            rows.append(exchange(server, QUESTION, Protocol.DOQ, resumption, sessions=store))
    for row in rows:
        assert_good(row)
        assert (row.quic_version, row.tls_version, row.retry_received) == ("v1", "TLSv1.3", False)
    assert rows[-1].session_resumed is (resumption is not Resumption.NONE)
    assert rows[-1].early_data_accepted is (resumption is Resumption.EARLY_DATA)
    assert (rows[-1].handshake_ms == 0) is (resumption is Resumption.EARLY_DATA)


def test_two_connections_from_one_port(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system can give a client the port of the last one; the server then tells them apart by connection ID."""
    new_socket = Client._new_socket
    ports = [0]

    def bound(client: Client, kind: socket.SocketKind) -> socket.socket:
        connection = new_socket(client, kind)
        connection.bind((LOOPBACK, ports[-1]))
        ports.append(connection.getsockname()[1])
        return connection

    monkeypatch.setattr(Client, "_new_socket", bound)
    with doq_server(folder) as port:
        for _ in range(2):
            assert_good(exchange(at(port, folder), QUESTION, Protocol.DOQ))
    assert ports[1] == ports[2]


def test_a_priming_exchange_waits_for_a_ticket_that_was_lost(folder: Path) -> None:
    # The server's first datagram is its handshake. The second has the ticket and is sent after the client's Finished.
    store = SessionStore()
    with doq_server(folder, lose=lambda number: number == 2) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOQ, sessions=store, priming=True)
        assert_good(row)
        assert_good(exchange(at(port, folder), QUESTION, Protocol.DOQ, Resumption.EARLY_DATA, sessions=store))


@pytest.mark.parametrize("known_before", [True, False])
def test_early_data_needs_not_know_its_query_before(folder: Path, known_before: bool) -> None:
    store = SessionStore()
    first, second = (build_query(Question(name), Protocol.DOQ, ClientSettings()) for name in ("a.example", "b.example"))
    with doq_server(folder) as port:
        server = at(port, folder)
        exchange(server, QUESTION, Protocol.DOQ, sessions=store, priming=True)
        session = store.take(server, Protocol.DOQ)
        with client_for(Protocol.DOQ, server, session=session, early_data=True) as client:
            client.connect(first if known_before else None)
            for query in (first, second):
                assert dns.message.from_wire(client.query(query)).question == query.message.question
            assert client.handshake.early_data_accepted


def test_no_query_is_sent_on_a_timed_out_connection(folder: Path) -> None:
    heard: list[int] = []
    query = build_query(QUESTION, Protocol.DOQ, QUICK)
    with (
        doq_server(folder, overhear=lambda number: bool(heard.append(number))) as port,  # type: ignore[func-returns-value]
        client_for(Protocol.DOQ, at(port, folder), QUICK) as client,
    ):
        client.connect(query)
        client.query(query)
        time.sleep(2 * QUICK.timeout_s)  # twice the idle timeout that the client announced
        before = len(heard)
        with pytest.raises(DnsError, match="timeout"):
            client.query(query)
        assert len(heard) == before


def test_a_lost_hello_costs_a_second(folder: Path) -> None:
    with doq_server(folder, overhear=lambda number: number == 1) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOQ)
    assert_good(row)
    assert row.handshake_ms is not None
    assert 950 < row.handshake_ms < 2000


@pytest.mark.parametrize("protocol", [Protocol.DOH3, Protocol.DOQ])
def test_quic_without_an_answer_is_a_timeout_in_time(protocol: Protocol, folder: Path) -> None:
    with udp_server(lambda data: [b"noise"]) as (port, received):
        row = exchange(at(port, folder), QUESTION, protocol, settings=QUICK)
    assert (row.error, row.handshake_ms, row.total_ms) == ("timeout", None, None)
    assert row.retry_received is False
    assert len(received) >= 1
    assert len(received[0]) == 1200


def test_quic_version_negotiation_without_a_common_version(folder: Path) -> None:
    def negotiate(data: bytes) -> list[bytes]:
        # Long header, version 0, the client's connection IDs swapped, one reserved version (RFC 9000, section 17.2.1).
        if not data[0] & 0x80:
            return []
        end = 6 + data[5]
        destination, source = data[5:end], data[end : end + 1 + data[end]]
        return [bytes([0x80, 0, 0, 0, 0]) + source + destination + bytes.fromhex("1a2a3a4a")]

    with udp_server(negotiate) as (port, _):
        row = exchange(at(port, folder), QUESTION, Protocol.DOQ, settings=QUICK)
    assert row.error == "quic: connection closed, code 0x1 Could not find a common protocol version"
