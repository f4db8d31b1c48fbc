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
NAMES = {KeyShareGroup.P256: 0x0017, KeyShareGroup.X25519: 0x001D}
RESOLVER = Resolver("192.0.2.1", "resolver.example", verify=False)


def hello_of(settings: ClientSettings) -> ClientHello:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context(RESOLVER, settings, alpn="dot").wrap_bio(
        incoming, outgoing, server_hostname="resolver.example"
    )
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return pull_client_hello(Buffer(data=outgoing.read()[RECORD_HEADER_BYTES:]))


@pytest.mark.parametrize("group", KeyShareGroup)
def test_the_hello_has_one_key_share(group: KeyShareGroup) -> None:
    hello = hello_of(replace(ClientSettings(), group=group))
    assert [share[0] for share in hello.key_share or ()] == [NAMES[group]]
    assert (hello.supported_groups or [None])[0] == NAMES[group]
