"""All DNS clients refuse the same: bad certificates, answers for another name, HTTP responses without a DNS message."""

from __future__ import annotations

import gzip
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dns.message
import dns.rrset
import h2.connection
import pytest
from aioquic.h3.connection import H3Connection
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from crosslayer.dns import ClientSettings, ExchangeResult, Protocol, build_query, client_for, exchange
from crosslayer.dns.message import framed, unframed
from tests.integration.test_dns_abuse import http3_reply, negotiate
from tests.integration.test_dns_local_servers import (
    NAME,
    QUESTION,
    Connection,
    answer_to,
    at,
    doq_server,
    folder,
    http2_server,
    query_of,
    read_message,
    tcp_server,
    tls_context,
    udp_server,
)

__all__ = ["folder"]  # the fixture

ENCRYPTED = [Protocol.DOT, Protocol.DOH, Protocol.DOH3, Protocol.DOQ]
PATIENT = ClientSettings(timeout_s=5)


@contextmanager
def server_of(
    protocol: Protocol, folder: Path, records: list[str] | None = None, age: str | None = None
) -> Iterator[int]:
    """A server of one transport that answers with the usual address or with the given records; yields its port.

    `age` is the value of the HTTP header field.
    """
    fields = [(":status", "200"), ("content-type", "application/dns-message")]
    fields += [] if age is None else [("age", age)]

    def answer(wire: bytes) -> bytes:
        if records is None:
            return answer_to(wire)
        message = dns.message.make_response(dns.message.from_wire(wire))
        for record in records:
            owner, kind, value = record.split()
            message.answer.append(dns.rrset.from_text(owner, 300, "IN", kind, value))
        return message.to_wire()

    def on_stream(connection: Connection) -> None:
        while True:
            connection.sendall(framed(answer(read_message(connection))))

    def respond(http: h2.connection.H2Connection, stream: int, headers: dict[bytes, bytes], body: bytes) -> None:
        http.send_headers(stream, fields)
        http.send_data(stream, answer(query_of(headers, body)), end_stream=True)

    def on_quic(quic: QuicConnection, event: StreamDataReceived) -> None:
        wire = unframed(event.data)
        assert wire is not None
        quic.send_stream_data(event.stream_id, framed(answer(wire)), end_stream=True)

    def on_http3(http: H3Connection, stream: int, headers: dict[bytes, bytes]) -> None:
        http.send_headers(stream, [(name.encode(), value.encode()) for name, value in fields])
        http.send_data(stream, answer(query_of(headers, b"")), end_stream=True)

    if protocol is Protocol.DOUDP:
        with udp_server(lambda data: [answer(data)]) as (port, _):
            yield port
    elif protocol is Protocol.DOQ:
        with doq_server(folder, reply=on_quic) as port:
            yield port
    elif protocol is Protocol.DOH3:
        with doq_server(folder, alpn="h3", reply=http3_reply(on_http3)) as port:
            yield port
    elif protocol is Protocol.DOH:
        with tcp_server(http2_server(respond), tls_context(folder, alpn="h2")) as port:
            yield port
    else:
        with tcp_server(on_stream, None if protocol is Protocol.DOTCP else tls_context(folder)) as port:
            yield port


def ask(protocol: Protocol, folder: Path, records: list[str] | None = None) -> ExchangeResult:
    with server_of(protocol, folder, records) as port:
        return exchange(at(port, folder), QUESTION, protocol, settings=PATIENT)


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([f"{NAME}. CNAME a.example.", "a.example. A 192.0.2.1"], None),
        (["other.example. A 192.0.2.1"], "answer of another name"),
        ([f"{NAME}. CNAME a.example.", f"a.example. CNAME {NAME}."], "cname loop"),
    ],
    ids=["chain", "another name", "loop"],
)
def test_answers_are_about_the_question(
    folder: Path, protocol: Protocol, records: list[str], error: str | None
) -> None:
    assert ask(protocol, folder, records).error == error


@pytest.mark.parametrize("protocol", [Protocol.DOH, Protocol.DOH3])
@pytest.mark.parametrize(("age", "age_s"), [("250", 250), (None, 0), ("-1", 0), ("1.5", 0)])
def test_http_clients_know_how_long_an_answer_was_in_caches(
    folder: Path, protocol: Protocol, age: str | None, age_s: int
) -> None:
    """An invalid Age is ignored (RFC 9111, section 5.1)."""
    with server_of(protocol, folder, age=age) as port, client_for(protocol, at(port, folder), PATIENT) as client:
        query = build_query(QUESTION, protocol, PATIENT)
        client.connect(query)
        client.query(query)
        assert client.age_s == age_s


def write_certificates(folder: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *, is_ca: bool) -> None:
    """Write a CA certificate and a leaf certificate with this key for `NAME`, in the files of the local servers."""
    ca_key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)

    def build(name: str, of: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, ca: bool) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "CA")]))
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(of.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True, key_cert_sign=ca, crl_sign=ca, content_commitment=False,
                    key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
        )  # fmt: skip
        if name != "CA":
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        return builder.sign(ca_key, hashes.SHA256())

    (folder / "ca.pem").write_bytes(build("CA", ca_key, True).public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(build("leaf", key, is_ca).public_bytes(Encoding.PEM))
    (folder / "server.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize("protocol", ENCRYPTED)
@pytest.mark.parametrize(
    ("kind", "accepted"), [("P-256", True), ("RSA 2048", True), ("RSA 1024", False), ("a CA as leaf", False)]
)
def test_one_policy_for_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: Protocol, kind: str, accepted: bool
) -> None:
    """OpenSSL's security level depends on the system; at level 0, OpenSSL itself accepts small keys."""
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = ec.generate_private_key(ec.SECP256R1())
    if kind.startswith("RSA"):
        key = rsa.generate_private_key(65537, int(kind[4:]))
    write_certificates(tmp_path, key, is_ca=kind == "a CA as leaf")
    monkeypatch.setattr("tests.integration.test_dns_policy.tls_context", lax_context)
    row = ask(protocol, tmp_path)
    if accepted:
        assert row.error is None
    else:
        assert row.error is not None
        assert row.error.startswith("certificate: ")
        assert row.query_ms is None


def lax_context(folder: Path, *, alpn: str | None = None) -> ssl.SSLContext:
    """A TLS context of a server that permits small keys."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    return context


def test_a_response_with_a_content_encoding_is_named(folder: Path) -> None:
    """The request accepts no encoding. The body must not be interpreted as a message with a wrong ID."""
    body = gzip.compress(bytes(40))

    def over_http2(http: h2.connection.H2Connection, stream: int, _headers: dict[bytes, bytes], _body: bytes) -> None:
        fields = [(":status", "200"), ("content-type", "application/dns-message"), ("content-encoding", "gzip")]
        http.send_headers(stream, fields)
        http.send_data(stream, body, end_stream=True)

    def over_http3(http: H3Connection, stream: int, _headers: dict[bytes, bytes]) -> None:
        fields = [(b":status", b"200"), (b"content-type", b"application/dns-message"), (b"content-encoding", b"gzip")]
        http.send_headers(stream, fields)
        http.send_data(stream, body, end_stream=True)

    with tcp_server(http2_server(over_http2), tls_context(folder, alpn="h2")) as port:
        assert exchange(at(port, folder), QUESTION, Protocol.DOH).error == "content encoding gzip"
    with doq_server(folder, alpn="h3", reply=http3_reply(over_http3)) as port:
        assert exchange(at(port, folder), QUESTION, Protocol.DOH3).error == "content encoding gzip"


def test_header_fields_over_doh3_are_bounded(folder: Path) -> None:
    """20,000 fields, which QPACK's static table encodes in one byte each (RFC 9114, section 4.2.2)."""

    def many(http: H3Connection, stream: int, headers: dict[bytes, bytes]) -> None:
        fields = [(b":status", b"200"), (b"content-type", b"application/dns-message")]
        http.send_headers(stream, fields + [(b"accept-ranges", b"bytes")] * 20_000)
        http.send_data(stream, answer_to(query_of(headers, b"")), end_stream=True)

    with doq_server(folder, alpn="h3", reply=http3_reply(many)) as port:
        error = exchange(at(port, folder), QUESTION, Protocol.DOH3, settings=PATIENT).error
    assert error is not None
    assert error.startswith("http header fields of ")


@pytest.mark.parametrize("protocol", ["DoQ", "DoH3"])
def test_libraries_print_nothing(folder: Path, protocol: str) -> None:
    """aioquic logs a failed version negotiation. Only the row must report it."""
    program = (
        "import sys; from tests.integration.test_dns_local_servers import *; from pathlib import Path\n"
        "row = exchange(at(int(sys.argv[1]), Path(sys.argv[2])), QUESTION, Protocol(sys.argv[3]), settings=QUICK)\n"
        "print(row.error)"
    )
    with udp_server(negotiate(0x6B3343CF)) as (port, _):
        done = subprocess.run(
            [sys.executable, "-c", program, str(port), str(folder), protocol],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    assert "Could not find a common protocol version" in done.stdout
    assert done.stderr == ""
