"""Settings of a stub as arguments of its command line. The stub itself checks them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from crosslayer.dns import Protocol, Resolver, Resumption
from crosslayer.testbed import outside
from crosslayer.vocabulary import Sharing

_URL = re.compile(
    r"[a-z0-9]+://(?:\[([0-9a-f:.]+)\]|([a-z0-9.-]+))(?::[0-9]+)?(?:/[^\s?#]*)?", re.ASCII | re.IGNORECASE
)
"""Pattern of an upstream's URL. The host is in group 1 if it is an IPv6 address, otherwise in group 2."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """HTTP/3 gateway of a stub with DoH3: a reverse proxy that forwards requests of browsers to the upstream.

    In DNS answers, the stub replaces the upstream's address by the gateway's. Browsers then send the requests for hosts
    with the upstream's address to the gateway.
    """

    listen: str
    """Address and UDP port of the gateway's HTTP/3 server."""
    certificate_file: Path
    """PEM file of the certificate that the gateway presents to browsers."""
    key_file: Path
    connections: Sharing
    """Whether forwarded requests use the upstream connection of the DNS queries, or a second upstream connection."""

    def arguments(self) -> list[str]:
        """Arguments of the stub's command line for the gateway."""
        files = ["--certificate", str(self.certificate_file), "--key", str(self.key_file)]
        return ["--gateway", self.listen, *files, "--page-connection", self.connections.value]


@dataclass(frozen=True, slots=True)
class StubSettings:
    """Settings of a stub."""

    upstream: str
    """URL of the upstream server: `Transport.url_scheme`, host, port (optional) and, for DoH and DoH3, path."""
    listen: str = "127.0.0.1:53"
    """Address and port on which the stub answers, over UDP and TCP."""
    ca_file: Path | None = None
    """PEM file of the CA that signed the upstream's certificate; None for the CAs of the system."""
    server_name: str = ""
    """Name of the upstream in its certificate, in SNI and in the HTTP authority; empty if it is the URL's host."""
    resumption: Resumption | None = None
    """What a new connection may reuse from an earlier session.

    None stands for the default of the transport: tickets, or nothing if the transport has no tickets.
    """
    timeout_s: float = 5.0
    """Time without an answer after which the stub answers a query with SERVFAIL, seconds."""
    idle_timeout_s: float = 30.0
    """The stub closes the upstream connection if it has had no query for this time, seconds."""
    udp_retransmit_s: float = 1.0
    """Time without an answer after which DoUDP repeats a query, seconds. It doubles for each further repetition."""
    probe_idle_after_s: float = 1.0
    """Time after its last answer from which a connection counts as idle, seconds; with 0, none ever counts as idle.

    The next query tests an idle connection. If no packet arrives within one PTO after this query, the stub also sends
    the query over a new connection.
    """
    connections: Literal["one", "pool", "query"] = "one"
    """Use of connections over DoTCP and DoT. `one`: all queries use one connection.

    `pool`: a query uses an idle connection, or a new one if none is idle. `query`: each query uses a new connection.
    """
    post_quantum: bool = False
    """Whether the stub offers the key share X25519MLKEM768, as browsers do; its ClientHello then takes two packets."""
    gateway: Gateway | None = None
    """Gateway for the requests of browsers, only with DoH3; None for no gateway."""

    @property
    def upstream_host(self) -> str:
        """Address or name in the URL of the upstream; empty if the URL is not valid."""
        match = _URL.fullmatch(self.upstream)
        return (match[1] or match[2]) if match else ""

    def check_consent(self) -> None:
        """Raise `OutsideError` if packets to the upstream leave this machine and the user has not consented."""
        if outside.private():
            return
        host = self.upstream_host
        try:
            outside.check(host, self.server_name)
        except ValueError:
            outside.check_names([host], "the stub")

    @classmethod
    def towards(cls, server: Resolver, protocol: Protocol, resumption: Resumption | None = None, **others: Any) -> Self:
        """Make settings whose upstream is `server`, over one transport; `others` are further fields of the settings."""
        host = f"[{server.address}]" if ":" in server.address else server.address
        path = server.path if protocol.transport.over_http else ""
        url = f"{protocol.transport.url_scheme}://{host}:{server.ports[protocol]}{path}"
        return cls(url, ca_file=server.ca_file, server_name=server.server_name, resumption=resumption, **others)

    def arguments(self) -> list[str]:
        """Arguments of the stub's command line."""
        arguments = ["--upstream", self.upstream, "--listen", self.listen]
        if self.ca_file is not None:
            arguments += ["--ca", str(self.ca_file)]
        if self.server_name:
            arguments += ["--server-name", self.server_name]
        if self.resumption is not None:
            arguments += ["--resumption", self.resumption.value]
        if self.connections != "one":
            arguments += ["--connections", self.connections]
        if self.post_quantum:
            arguments.append("--post-quantum")
        if self.gateway is not None:
            arguments += self.gateway.arguments()
        for name, seconds in (
            ("timeout", self.timeout_s),
            ("idle-timeout", self.idle_timeout_s),
            ("udp-retransmit", self.udp_retransmit_s),
            ("probe-idle-after", self.probe_idle_after_s),
        ):
            arguments += [f"--{name}", f"{round(seconds * 1000)}ms"]
        return arguments
