"""TLS of the clients over TCP, by what their hello says."""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest
from aioquic.buffer import Buffer
from aioquic.tls import ClientHello, pull_client_hello

from crosslayer.dns.model import ClientSettings, KeyShareGroup, Resolver
from crosslayer.dns.tls import client_context

RECORD_HEADER_BYTES = 5
EMPTY_RENEGOTIATION_INFO = 0x00FF
STATUS_REQUEST, COMPRESS_CERTIFICATE = 5, 27
NAMES = {KeyShareGroup.P256: 0x0017, KeyShareGroup.X25519: 0x001D}
RESOLVER = Resolver("192.0.2.1", "resolver.example", verify=False)


def bytes_of_hello(settings: ClientSettings) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(RESOLVER, settings, alpn="dot").wrap_bio(
        incoming, outgoing, server_hostname="resolver.example"
    )
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def hello_of(settings: ClientSettings) -> ClientHello:
    return pull_client_hello(Buffer(data=bytes_of_hello(settings)[RECORD_HEADER_BYTES:]))


@pytest.mark.parametrize("group", KeyShareGroup)
def test_the_hello_has_one_key_share(group: KeyShareGroup) -> None:
    hello = hello_of(replace(ClientSettings(), group=group))
    assert [share[0] for share in hello.key_share or ()] == [NAMES[group]]
    assert hello.supported_groups == [NAMES[group]]


@pytest.mark.parametrize(("group", "size"), [(KeyShareGroup.P256, 317), (KeyShareGroup.X25519, 284)])
def test_the_size_of_the_hello_does_not_depend_on_how_python_was_built(group: KeyShareGroup, size: int) -> None:
    """Debian's Python has other cipher suites, versions and groups by default: 30 and 48 bytes more."""
    settings = ClientSettings(group=group, pad_hello=False)
    hello = hello_of(settings)
    assert len(set(hello.cipher_suites) - {EMPTY_RENEGOTIATION_INFO}) == 17
    assert hello.supported_versions == [0x0304, 0x0303]
    extensions = {kind for kind, _value in hello.other_extensions}
    assert not extensions & {STATUS_REQUEST, COMPRESS_CERTIFICATE}
    # OpenSSL 3.4 and later send an extension of 5 bytes instead of a suite of 2 bytes (RFC 5746, section 3.3). OpenSSL
    # 3.5 offers 6 more signature algorithms of 2 bytes.
    renegotiation = 3 if EMPTY_RENEGOTIATION_INFO not in hello.cipher_suites else 0
    assert len(hello.signature_algorithms or ()) in (20, 26)
    signatures = 2 * (len(hello.signature_algorithms or ()) - 20)
    assert len(bytes_of_hello(settings)) == size + renegotiation + signatures
