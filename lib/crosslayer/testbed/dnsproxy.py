"""AdGuard's dnsproxy at either end of the link, as in BATENBURG22: arguments, start and version.

At the far end it answers over every transport and forwards to BIND. At the near end, one instance per transport accepts
cleartext queries. dnsproxy reports nothing about single queries, but its sockets show whether a connection was kept
(`Dnsproxy.sockets`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Self

from crosslayer import resources
from crosslayer.process import Process, Spawn
from crosslayer.testbed.certificates import Certificates
from crosslayer.testbed.errors import TestbedError
from crosslayer.vocabulary import Protocol

_DNS_PORT = 53
_TCP_LISTEN = "0A"


class DnsproxyError(TestbedError):
    """dnsproxy is missing or did not start."""


def find_dnsproxy() -> str:
    """Path of the program `dnsproxy` from `resources.locate`; `DnsproxyError` names its source if it is missing."""
    try:
        return str(resources.locate("dnsproxy").path)
    except resources.ResourceError as error:
        raise DnsproxyError(
            "there is no dnsproxy on this machine, and Debian has no package of it",
            where=error.where or "PATH",
            next_step=f'{error.next_step} Or remove proxy = "dnsproxy": the default is our stub.',
        ) from error


def dnsproxy_version() -> str:
    """Version that dnsproxy prints, e.g. `dnsproxy version v0.78.2`."""
    result = subprocess.run([find_dnsproxy(), "--version"], capture_output=True, text=True, check=False)
    return " ".join((result.stdout or result.stderr).split())


def far_end(address: str, upstream: tuple[str, int], certificates: Certificates) -> list[str]:
    """Arguments of a dnsproxy that answers over every transport on `address` and sends cleartext to `upstream`."""
    ports = ["--port=53", "--tls-port=853", "--https-port=443", "--quic-port=853", "--http3"]
    keys = [f"--tls-crt={certificates.certificate_file}", f"--tls-key={certificates.key_file}"]
    return [f"--listen={address}", *ports, *keys, f"--upstream={upstream[0]}:{upstream[1]}"]


def near_end(listen: str, protocol: Protocol, far_address: str) -> list[str]:
    """Arguments of a dnsproxy that accepts queries on port 53 of `listen` and forwards them over one transport."""
    path = "/dns-query" if protocol.transport.over_http else ""
    return [f"--listen={listen}", "--port=53", f"--upstream={protocol.transport.url_scheme}://{far_address}{path}"]


class Dnsproxy(Process):
    """A running dnsproxy. Made by `Dnsproxy.start`."""

    name = "dnsproxy"
    fault = DnsproxyError
    ready_timeout_s = 20.0
    log_lines = 3

    @classmethod
    def start(cls, spawn: Spawn, arguments: list[str], log: Path, *, ca_file: Path | None = None) -> Self:
        """Start dnsproxy with the arguments of `far_end` or `near_end`; call `wait_until` to wait until it answers.

        `ca_file` is the CA of the upstream's certificate. `DnsproxyError` if the program is missing or its log cannot
        be written.
        """
        program = find_dnsproxy()
        trusted = {"SSL_CERT_FILE": str(ca_file)} if ca_file else {}
        return cls(spawn, [program, *arguments], log, env=os.environ | trusted)

    def sockets(self) -> frozenset[str]:
        """Inodes of dnsproxy's sockets towards the upstream (proc(5)).

        If two calls return the same inodes, the connections are the same. Listening TCP sockets and sockets on port 53
        are excluded.
        """
        proc = Path(f"/proc/{self.pid}")
        own = set()
        for entry in (proc / "fd").iterdir():
            try:
                name = str(entry.readlink())
            except FileNotFoundError:  # closed meanwhile
                continue
            if name.startswith("socket:["):
                own.add(name[8:-1])
        upstream = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                port, state, inode = int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]
                listens = table.startswith("tcp") and state == _TCP_LISTEN
                if inode in own and port != _DNS_PORT and not listens:
                    upstream.add(inode)
        return frozenset(upstream)
