"""The DNS clients with hostile servers: every exchange ends by its deadline, and its row has the reason."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dns.flags
import h2.connection
import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.h3.connection import FrameType, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import encode_quic_retry, pull_quic_header
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from crosslayer.discover.support import ProbedHost, Support, discover
from crosslayer.dns import ClientSettings, ExchangeResult, Protocol, exchange
from crosslayer.dns.message import framed, unframed
from tests.integration.test_dns_local_servers import (
    LOOPBACK,
    QUESTION,
    QUICK,
    Connection,
    Datagrams,
    answer_messages,
    answer_to,
    at,
    doq_server,
    flipped,
    folder,
    http2_server,
    linger,
    read_message,
    send_response,
    tcp_server,
    tls_context,
    udp_server,
)

pytestmark = pytest.mark.alone

__all__ = ["folder"]  # the fixture

LATEST_S = 2.0
"""Maximum duration of an exchange with `QUICK`'s deadline of 0.3 s on a slow machine, s."""
EVIL = "\x1b]0;owned\x07\nDoQ  853  v1"
"""Text that would change the terminal's title and forge an output row."""


def ask(port: int, protocol: Protocol, folder: Path | None = None) -> ExchangeResult:
    """One exchange; checks that it ends in time with a printable error."""
    begin = time.monotonic()
    row = exchange(at(port, folder), QUESTION, protocol, settings=QUICK)
    assert time.monotonic() - begin < LATEST_S
    assert row.error is not None
    assert row.error.isprintable()
    return row


def answering(wire: bytes) -> Callable[[QuicConnection, StreamDataReceived], None]:
    return lambda quic, event: quic.send_stream_data(event.stream_id, wire, end_stream=True)


# UDP, TCP, TLS


@contextlib.contextmanager
def flood(payload: bytes) -> Iterator[int]:
    """A UDP server that sends datagrams without end after it has received one; yields its port."""
    stopping = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((LOOPBACK, 0))
        server.settimeout(5)

        def serve() -> None:
            _, client = server.recvfrom(65535)
            while not stopping.is_set():
                with contextlib.suppress(OSError):  # the client has gone
                    server.sendto(payload, client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stopping.set()
            thread.join()


@pytest.mark.parametrize("protocol", [Protocol.DOUDP, Protocol.DOH3, Protocol.DOQ])
def test_a_flood_of_datagrams_ends_at_the_deadline(folder: Path, protocol: Protocol) -> None:
    with flood(b"\x40" + bytes(100)) as port:
        assert ask(port, protocol, folder).error in ("timeout", "wrong id")


def test_a_message_that_comes_byte_by_byte_ends_at_the_deadline(folder: Path) -> None:
    def dribble(connection: Connection) -> None:
        read_message(connection)
        connection.sendall(b"\xff\xff")
        while True:
            connection.sendall(b"\0")
            time.sleep(0.02)

    for protocol, context in ((Protocol.DOTCP, None), (Protocol.DOT, tls_context(folder))):
        with tcp_server(dribble, context) as port:
            assert ask(port, protocol, folder).error == "timeout"


def test_a_tls_handshake_that_stalls_ends_at_the_deadline(folder: Path) -> None:
    def half(connection: Connection) -> None:
        connection.recv(65536)
        connection.sendall(b"\x16\x03\x03\x40\x00" + bytes(100))
        linger(connection)

    for protocol in (Protocol.DOT, Protocol.DOH):
        with tcp_server(half) as port:
            assert ask(port, protocol, folder).error is not None


# HTTP/2


def raw_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def test_doh_headers_without_end_are_refused(folder: Path) -> None:
    def endless(connection: Connection) -> None:
        connection.recv(65536)
        connection.sendall(raw_frame(4, 0, 0, b"") + raw_frame(1, 0, 1, b"\x88"))
        while True:
            connection.sendall(raw_frame(9, 0, 1, b"\x00\x01a\x01b" * 1000))

    with tcp_server(endless, tls_context(folder, alpn="h2")) as port:
        error = ask(port, Protocol.DOH, folder).error
    assert error is not None
    assert error.startswith("http/2: ")


def test_doh_informational_responses_without_end_are_a_timeout(folder: Path) -> None:
    def endless(connection: Connection) -> None:
        connection.recv(65536)
        connection.sendall(raw_frame(4, 0, 0, b""))
        while True:
            connection.sendall(raw_frame(1, 4, 1, b"\x08\x03103"))
            time.sleep(0.01)

    with tcp_server(endless, tls_context(folder, alpn="h2")) as port:
        assert ask(port, Protocol.DOH, folder).error == "timeout"


def test_a_doh_stream_that_stalls_is_a_timeout(folder: Path) -> None:
    def half(http: h2.connection.H2Connection, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
        http.send_headers(stream, [(":status", "200"), ("content-type", "application/dns-message")])
        http.send_data(stream, b"\0" * 10)

    with tcp_server(http2_server(half), tls_context(folder, alpn="h2")) as port:
        assert ask(port, Protocol.DOH, folder).error == "timeout"


def test_what_an_http_server_says_of_itself_is_escaped(folder: Path) -> None:
    def evil(http: h2.connection.H2Connection, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
        send_response(http, stream, b"", content_type="text/\x1b[31mred")

    with tcp_server(http2_server(evil), tls_context(folder, alpn="h2")) as port:
        assert ask(port, Protocol.DOH, folder).error == r"content type text/\x1b[31mred"


# QUIC


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda wire: framed(flipped(answer_to(wire))), "wrong id"),
        (lambda wire: framed(answer_to(wire).replace(b"\7example", b"\7exampel")), "wrong question"),
        (lambda wire: framed(answer_to(wire, flags=dns.flags.TC)), "truncated"),
        (lambda wire: framed(answer_to(wire)[:-1]), "malformed"),
        (lambda wire: framed(answer_to(wire)) + b"more", "malformed"),
        (lambda wire: framed(wire), "not a response"),
        (lambda wire: b"\xff\xff" + bytes(65535), "not a response"),
        (lambda wire: b"", "malformed"),
    ],
)
def test_doq_answers_that_are_none(folder: Path, answer: Callable[[bytes], bytes], error: str) -> None:
    def reply(quic: QuicConnection, event: StreamDataReceived) -> None:
        wire = unframed(event.data)
        assert wire is not None
        quic.send_stream_data(event.stream_id, answer(wire), end_stream=True)

    with doq_server(folder, reply=reply) as port:
        row = exchange(at(port, folder), QUESTION, Protocol.DOQ, settings=ClientSettings(timeout_s=2))
    assert row.error == error


def test_a_doq_stream_that_stalls_is_a_timeout(folder: Path) -> None:
    def half(quic: QuicConnection, event: StreamDataReceived) -> None:
        quic.send_stream_data(event.stream_id, b"\x01\x00half")

    with doq_server(folder, reply=half) as port:
        assert ask(port, Protocol.DOQ, folder).error == "timeout"


def test_a_reason_for_a_close_is_escaped(folder: Path) -> None:
    def close(quic: QuicConnection, event: StreamDataReceived) -> None:
        quic.close(error_code=2, frame_type=None, reason_phrase=EVIL)

    with doq_server(folder, reply=close) as port:
        error = ask(port, Protocol.DOQ, folder).error
    assert error == r"quic: connection closed, code 0x2 \x1b]0;owned\x07\nDoQ  853  v1"


def http3_reply(
    answer: Callable[[H3Connection, int, dict[bytes, bytes]], None],
) -> Callable[[QuicConnection, StreamDataReceived], None]:
    connections: dict[int, H3Connection] = {}

    def reply(quic: QuicConnection, event: StreamDataReceived) -> None:
        if id(quic) not in connections:
            connections[id(quic)] = H3Connection(quic)
        for http_event in connections[id(quic)].handle_event(event):
            if isinstance(http_event, HeadersReceived):
                answer(connections[id(quic)], http_event.stream_id, dict(http_event.headers))

    return reply


def headers_frame(http: H3Connection, stream: int, length: int, body: bytes) -> None:
    """Send the beginning of a HEADERS frame with the declared length `length`."""
    buffer = Buffer(capacity=16)
    buffer.push_uint_var(FrameType.HEADERS)
    buffer.push_uint_var(length)
    http._quic.send_stream_data(stream, buffer.data + body)


@pytest.mark.parametrize(
    ("answer", "errors"),
    [
        (lambda http, stream, _: headers_frame(http, stream, 1 << 40, bytes(100_000)), ("timeout",)),
        (lambda http, stream, _: headers_frame(http, stream, 4, b"\xff\xff\xff\xff"), ("quic: connection closed",)),
        (lambda http, stream, _: http.send_headers(stream, [(b":status", b"103")]), ("timeout",)),
        (
            lambda http, stream, _: http.send_headers(
                stream, [(b":status", b"200"), (b"content-type", b"text/\x1b[31mred")], end_stream=True
            ),
            (r"content type text/\x1b[31mred", "quic: connection closed"),
        ),
    ],
    ids=["endless", "garbage", "informational", "escape"],
)
def test_doh3_headers_that_are_none(
    folder: Path, answer: Callable[[H3Connection, int, dict[bytes, bytes]], None], errors: tuple[str, ...]
) -> None:
    with doq_server(folder, alpn="h3", reply=http3_reply(answer)) as port:
        error = ask(port, Protocol.DOH3, folder).error
    assert error is not None
    assert error.startswith(errors)


def negotiate(*versions: int) -> Datagrams:
    """Replies with Version Negotiation to every long-header packet (RFC 9000, section 17.2.1)."""

    def reply(data: bytes) -> list[bytes]:
        if not data[0] & 0x80:
            return []
        end = 6 + data[5]
        destination, source = data[5:end], data[end : end + 1 + data[end]]
        return [b"\x80" + bytes(4) + source + destination + struct.pack(f"!{len(versions)}I", *versions)] * 3

    return reply


@pytest.mark.parametrize("protocol", [Protocol.DOH3, Protocol.DOQ])
@pytest.mark.parametrize("versions", [(1,), (0x6B3343CF, 1), ()])
def test_negotiation_of_the_version_that_was_used_is_no_loop(
    folder: Path, protocol: Protocol, versions: tuple[int, ...]
) -> None:
    with udp_server(negotiate(*versions)) as (port, received):
        error = ask(port, protocol, folder).error
    assert error in ("timeout", "quic: connection closed, code 0x1 Could not find a common protocol version")
    assert len(received) < 10


@pytest.mark.parametrize("protocol", [Protocol.DOH3, Protocol.DOQ])
def test_a_storm_of_retries_is_a_timeout(folder: Path, protocol: Protocol) -> None:
    def retry(data: bytes) -> list[bytes]:
        header = pull_quic_header(Buffer(data=data), host_cid_length=8)
        assert header.version is not None
        return [
            encode_quic_retry(
                version=header.version,
                source_cid=os.urandom(8),
                destination_cid=header.source_cid,
                original_destination_cid=header.destination_cid,
                retry_token=os.urandom(100),
            )
            for _ in range(20)
        ]

    with udp_server(retry) as (port, received):
        row = ask(port, protocol, folder)
    assert row.error == "timeout"
    assert row.retry_received is True
    assert len(received) < 10  # one Retry is taken (RFC 9000, section 17.2.5.2)


# Certificates


def weird_certificate(folder: Path) -> bytes:
    """The server's certificate (DER) with version 9, which does not exist."""
    der = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes()).public_bytes(Encoding.DER)
    assert der.count(b"\xa0\x03\x02\x01\x02") == 1
    return der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x08")


@pytest.fixture
def weird(folder: Path, tmp_path: Path) -> Path:
    """A folder of certificates in which the server's has version 9."""
    pem = base64.encodebytes(weird_certificate(folder)).decode()
    (tmp_path / "server.pem").write_text(
        f"-----BEGIN CERTIFICATE-----\n{pem}-----END CERTIFICATE-----\n", encoding="ascii"
    )
    for name in ("server.key", "ca.pem"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH])
def test_a_certificate_of_version_9_is_refused(weird: Path, protocol: Protocol) -> None:
    with tcp_server(linger, tls_context(weird, alpn="h2")) as port:
        error = ask(port, protocol, weird).error
    assert error is not None
    assert error.startswith(("certificate: ", "tls: "))


def test_a_malformed_certificate_costs_no_other_row_of_discovery(weird: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tcp_server(answer_messages, tls_context(weird)) as port:
        monkeypatch.setattr("crosslayer.discover.support.ENDPOINTS", ((Protocol.DOT, port),))
        result = list(
            discover(
                [ProbedHost("weird", LOOPBACK), ProbedHost("nobody", "127.0.0.2")],
                question=QUESTION, packets_per_s=1000, timeout_s=0.3, progress=lambda _done: None,
            )
        )  # fmt: skip
    rows: dict[str, Support] = {row.target: row for (row,) in result}
    assert rows["weird"].supported
    assert rows["weird"].certificate_subject == "unreadable: 8 is not a valid X509 version"
    assert rows["nobody"].error is not None
