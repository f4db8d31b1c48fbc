"""AdGuard's dnsproxy at either end of the link, as Batenburg (Twente 2022) had it: started, waited for, stopped.

At the far end it answers for BIND over every transport; at the near end one of them per transport takes queries in the
clear. It tells nothing of single queries, but its sockets say whether a connection stood: see `Dnsproxy.sockets`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosslayer.testbed.certificates import Certificates
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.programs import Spawn, stop_program

_SCHEMES = {"DoUDP": "udp", "DoTCP": "tcp", "DoT": "tls", "DoH": "https", "DoH3": "h3", "DoQ": "quic"}
_DNS_PORT = 53
_TCP_LISTEN = "0A"
_READY_TIMEOUT_S = 20.0
_POLL_S = 0.05
_LOG_LINES = 3


class DnsproxyError(TestbedError):
    """dnsproxy is missing or did not start."""


def find_dnsproxy() -> str:
    """The program `dnsproxy` on the PATH.

    Raises
    ------
    DnsproxyError
        Saying where to have it from.
    """
    found = shutil.which("dnsproxy")
    if found is None:
        raise DnsproxyError(
            "there is no dnsproxy on this machine, and Debian has no package of it",
            where="PATH",
            next_step='Work in `nix develop`, or leave out proxy = "dnsproxy": ours is the default.',
        )
    return found


def dnsproxy_version() -> str:
    """What it says of itself, e.g. `dnsproxy version v0.78.2`."""
    said = subprocess.run([find_dnsproxy(), "--version"], capture_output=True, text=True, check=False)
    return " ".join((said.stdout or said.stderr).split())


def far_end(address: str, upstream: tuple[str, int], certificates: Certificates) -> list[str]:
    """Arguments of a dnsproxy that answers on an address over every transport, and asks `upstream` in the clear."""
    ports = ["--port=53", "--tls-port=853", "--https-port=443", "--quic-port=853", "--http3"]
    keys = [f"--tls-crt={certificates.certificate_file}", f"--tls-key={certificates.key_file}"]
    return [f"--listen={address}", *ports, *keys, f"--upstream={upstream[0]}:{upstream[1]}"]


def near_end(listen: str, protocol: str, far_address: str) -> list[str]:
    """Arguments of a dnsproxy that forwards what comes to port 53 of `listen` over one transport, e.g. `DoQ`."""
    path = "/dns-query" if protocol in ("DoH", "DoH3") else ""
    return [f"--listen={listen}", "--port=53", f"--upstream={_SCHEMES[protocol]}://{far_address}{path}"]


class Dnsproxy:
    """A running dnsproxy; a context manager that stops it. Made by `Dnsproxy.start`."""

    def __init__(self, process: subprocess.Popen[Any], log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    def start(cls, spawn: Spawn, arguments: list[str], log: Path, *, ca_file: Path | None = None) -> Self:
        """Start it; `wait_until` says when it answers.

        Parameters
        ----------
        spawn
            Starts a program where it belongs: `spawn(arguments, **options of subprocess.Popen)`.
        arguments
            From `far_end` or `near_end`.
        log
            File for its words.
        ca_file
            CA that its upstream's certificate is checked against.

        Raises
        ------
        DnsproxyError
            Where it is missing, or its log cannot be written.
        """
        program = find_dnsproxy()
        trusted = {"SSL_CERT_FILE": str(ca_file)} if ca_file else {}
        try:
            output = log.open("wb")
        except OSError as error:
            raise DnsproxyError(
                f"dnsproxy's log cannot be written: {error.strerror}",
                where=str(log),
                next_step="Free some space, or use another folder.",
            ) from error
        with output:
            process = spawn(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | trusted,
            )
        return cls(process, log)

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Wait until a question is answered through it.

        Raises
        ------
        DnsproxyError
            With its own words, where it ended or nothing was answered in time.
        """
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not answers():
            ended = self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                words = self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
                raise DnsproxyError(
                    f"dnsproxy ended with status {self._process.returncode}" if ended else "dnsproxy does not answer",
                    where=str(self._log),
                    next_step=f"Its words: {' | '.join(words)}" if words else "It was mute.",
                )
            time.sleep(_POLL_S)

    def sockets(self) -> frozenset[str]:
        """Its sockets towards the upstream, by inode (proc(5)): two calls that agree saw the same connections.

        Sockets that listen, and those of port 53, are not among them.
        """
        proc = Path(f"/proc/{self._process.pid}")
        own = set()
        for entry in (proc / "fd").iterdir():
            try:
                name = str(entry.readlink())
            except FileNotFoundError:  # closed in between
                continue
            if name.startswith("socket:["):
                own.add(name[8:-1])
        found = set()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                port, state, inode = int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]
                listens = table.startswith("tcp") and state == _TCP_LISTEN
                if inode in own and port != _DNS_PORT and not listens:
                    found.add(inode)
        return frozenset(found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it and wait for its end. A second call does nothing."""
        stop_program(self._process)
