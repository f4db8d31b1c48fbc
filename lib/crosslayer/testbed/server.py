"""The shared-key server as an object: written down, started, waited for, commanded, read and stopped.

The server is `emulation/server` (CoreDNS with the plugin `coalesce`); its Corefile, zone and certificates are made
here for each run. What it says about connections, requests and queries comes back as typed events.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosslayer import places
from crosslayer.testbed.certificates import Certificates, make_certificates
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.network import SERVER_ADDRESS
from crosslayer.testbed.programs import Spawn, stop_program

_READY_TIMEOUT_S = 10.0
_COMMAND_TIMEOUT_S = 5.0
_POLL_S = 0.005
_LOG_LINES = 5


class ServerError(TestbedError):
    """The server did not start, died, or refused a command."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A connection, reported when its handshake was over (over TCP: when the server's part of it was)."""

    time_ns: int
    """End of the handshake, Unix time in nanoseconds."""
    listener: str
    """h3, doq, https or dot."""
    remote: str
    """Client's address and port."""
    local: str
    """Address and port the client connected to."""
    alpn: str
    server_name: str
    """Name the client asked for (SNI); empty where it named none."""
    resumed: bool
    """The TLS session was resumed from a ticket."""
    early_data: bool
    """The client offered early data and the server accepted it."""
    quic_version: str
    """v1 or v2; empty over TCP."""
    tls_version: str
    error: str
    """Why the handshake failed; empty where it did not."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An HTTP request, reported no later than the end of its response."""

    time_ns: int
    """Arrival of the request, Unix time in nanoseconds."""
    done_ns: int
    """Body handed to the transport, Unix time in nanoseconds."""
    listener: str
    """h3 or https."""
    remote: str
    server_name: str
    host: str
    """Authority of the request."""
    method: str
    path: str
    status: int
    bytes: int
    """Bytes of the body sent."""
    handshake_complete: bool
    """False: the request came as early data."""
    resumed: bool


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A DNS query, reported before its answer left."""

    time_ns: int
    """Arrival of the query, Unix time in nanoseconds."""
    listener: str
    """udp, tcp, dot, doh, doh3 or doq."""
    remote: str
    name: str
    """Name asked for, with its final dot."""
    type: str
    rcode: str
    handshake_complete: bool
    """False: the query came as early data."""
    resumed: bool


Event = ConnectionEvent | RequestEvent | QueryEvent

_EVENTS: dict[str, type[Event]] = {"connection": ConnectionEvent, "request": RequestEvent, "query": QueryEvent}


def find_server_binary() -> Path:
    """The server's program; `places.PlaceError` where it is not built."""
    return places.find("server").path


def zone_text(addresses: Mapping[str, str], *, https_records: bool = False) -> str:
    """A root zone with one A record per name, so that every other name does not exist.

    Parameters
    ----------
    addresses
        IPv4 address of each host name.
    https_records
        Add an HTTPS record (RFC 9460) per name that offers HTTP/3, then HTTP/2.
    """
    lines = [
        "$ORIGIN .",
        "$TTL 300",
        "@ IN SOA ns.crosslayer. hostmaster.crosslayer. 1 3600 600 86400 300",
        "@ IN NS ns.crosslayer.",
        f"ns.crosslayer. IN A {SERVER_ADDRESS}",
    ]
    lines += [f"{name}. IN A {address}" for name, address in sorted(addresses.items())]
    lines += [f'{name}. IN HTTPS 1 . alpn="h3,h2"' for name in sorted(addresses)] if https_records else []
    return "\n".join(lines) + "\n"


def parse_event(line: str) -> Event:
    """One line of the server's event file as its dataclass.

    Raises
    ------
    ServerError
        Where the line is not an event this version knows.
    """
    try:
        values = json.loads(line)
        kind = _EVENTS[values.pop("event")]
        values["time_ns"] = values.pop("time")
        if "done" in values:
            values["done_ns"] = values.pop("done")
        return kind(**values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ServerError(
            f"the server wrote an event that cannot be read: {line!r}",
            next_step="The server is of another version, or its disk is full: build it again with `make setup`.",
        ) from error


class Server:
    """A running server; a context manager that stops it. Made by `Server.start`.

    Attributes
    ----------
    addresses
        IPv4 address of each host name it serves.
    ca_file
        Certificate of the run's CA, PEM.
    spki
        Base64 SHA-256 of the leaf's SubjectPublicKeyInfo, for Chromium.
    zone
        The zone file it answers from.
    control_path
        Its control socket.
    """

    def __init__(
        self,
        process: subprocess.Popen[Any],
        *,
        addresses: Mapping[str, str],
        ca_file: Path,
        spki: str,
        zone: Path,
        control_path: Path,
        events_path: Path,
        log_path: Path,
    ) -> None:
        self.addresses = dict(addresses)
        self.ca_file = ca_file
        self.spki = spki
        self.zone = zone
        self.control_path = control_path
        self._process = process
        self._log_path = log_path
        self._events = events_path.open("rb")
        self._partial = b""
        self._control: socket.socket | None = None

    @classmethod
    def start(
        cls,
        spawn: Spawn,
        *,
        pages_dir: Path | None,
        addresses: Mapping[str, str],
        folder: Path,
        upstream: str = "",
        retry: bool = False,
        early_data: bool = True,
        max_tls: str = "1.3",
        certificate_bytes: int = 0,
        idle_timeout_s: float = 30.0,
        https_records: bool = False,
    ) -> Self:
        """Start the server and wait until every listener is bound.

        Parameters
        ----------
        spawn
            Starts a program in the server's namespace.
        pages_dir
            Built pages (`crosslayer.pages.build`); None serves none.
        addresses
            IPv4 address of each host name.
        folder
            Private folder for the keys, the zone, the control socket and the events.
        upstream
            Address and port that every query is forwarded to, over UDP; empty to answer from the zone of `addresses`.
        retry
            Validate addresses by Retry packets, one more round-trip.
        early_data
            Accept early data on DoQ and HTTP/3.
        max_tls
            Newest version of TLS over TCP: `1.2` or `1.3`.
        certificate_bytes
            Smallest size of the certificate. Above three times a client's first flight (1200 bytes at least), a full
            QUIC handshake takes one more round-trip (RFC 9000, section 8.1).
        idle_timeout_s
            Idle timeout of connections, s.
        https_records
            Tell clients of HTTP/3 by an HTTPS record of every name.

        Raises
        ------
        ServerError
            With the server's own last lines, where it does not start.
        """
        binary = find_server_binary()
        zone, corefile, control, events, log = (
            folder / name for name in ("zone", "Corefile", "control", "events.jsonl", "server.log")
        )
        properties = ({} if pages_dir is None else {"pages": _quoted(pages_dir)}) | {
            "https": ":443",
            "h3": ":443",
            "doq": ":853",
            "control": _quoted(control),
            "events": _quoted(events),
            "retry": "on" if retry else "off",
            "max_tls": max_tls,
            "early_data": "on" if early_data else "off",
            "idle_timeout": f"{round(idle_timeout_s * 1000)}ms",
        }
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            certificates = make_certificates(
                folder,
                [*addresses, "localhost"],
                [SERVER_ADDRESS, *addresses.values(), "127.0.0.1"],
                at_least_bytes=certificate_bytes,
            )
            zone.write_text(zone_text(addresses, https_records=https_records), encoding="utf-8")
            corefile.write_text(_corefile(certificates, zone, properties, upstream), encoding="utf-8")
            events.touch(mode=0o600)
            output = log.open("wb")
        except OSError as error:
            raise ServerError(
                f"the server's files cannot be written: {error.strerror}",
                where=str(error.filename or folder),
                next_step="Free some space, or use another folder.",
            ) from error
        with output:
            process = spawn(
                [str(binary), "-conf", str(corefile)], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        server = cls(
            process,
            addresses=addresses,
            ca_file=certificates.ca_file,
            spki=certificates.spki,
            zone=zone,
            control_path=control,
            events_path=events,
            log_path=log,
        )
        try:
            server._wait_until_ready()
        except BaseException:
            server.stop()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def close_connections(self, listener: str | None = None) -> int:
        """Close the open QUIC connections at once, those of one listener (`h3`, `doq`) or all; returns how many."""
        return int(self._command("close-connections", **({"listener": listener} if listener else {}))["closed"])

    def rotate_ticket_keys(self) -> None:
        """Replace the session-ticket keys of every TLS listener: tickets issued before are refused from now on."""
        self._command("rotate-ticket-keys")

    def set_early_data(self, mode: str) -> None:
        """What becomes of early data on connections from now on.

        Parameters
        ----------
        mode
            `on` answers it as it arrives; `off` refuses it, and tickets offer none; `late` accepts it and answers when
            the handshake is complete.
        """
        self._command("early-data", mode=mode)

    def stats(self) -> dict[str, dict[str, int]]:
        """Counts per listener: `open` QUIC connections, and `connections`, `requests`, `queries` since the start."""
        answer = self._command("stats")
        del answer["ok"]
        return answer

    def events(self) -> list[Event]:
        """What the server reported since the last call, in the order it was written."""
        *lines, self._partial = (self._partial + self._events.read()).split(b"\n")
        return [parse_event(line.decode()) for line in lines]

    def stop(self) -> None:
        """Stop the server and wait for its end. A second call does nothing."""
        if self._control is not None:
            self._control.close()
            self._control = None
        self._events.close()
        stop_program(self._process)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while self._control is None:
            if self._process.poll() is not None:
                raise self._failure(f"the server ended with status {self._process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"the server was not ready after {_READY_TIMEOUT_S:.0f} s")
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(_COMMAND_TIMEOUT_S)
            try:
                connection.connect(str(self.control_path))
            except OSError:
                connection.close()
                time.sleep(_POLL_S)  # the socket does not exist before the server made it
            else:
                self._control = connection
        self._command("ready")

    def _command(self, command: str, **parameters: str) -> dict[str, Any]:
        if self._control is None:
            raise ServerError("the server is not running", where=command)
        answer = b""
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps({"command": command, **parameters}).encode() + b"\n")
            while not answer.endswith(b"\n") and (part := self._control.recv(65536)):
                answer += part
        if not answer.endswith(b"\n"):
            raise self._failure(f"the server did not answer the command `{command}`")
        result: dict[str, Any] = json.loads(answer)
        if not result["ok"]:
            raise ServerError(f"the server refused: {result['error']}", where=command)
        return result

    def _failure(self, what: str) -> ServerError:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_LOG_LINES:]
        return ServerError(
            what,
            where=str(self._log_path),
            next_step="Its last words: " + " | ".join(lines) if lines else "It wrote nothing.",
        )


def _corefile(certificates: Certificates, zone: Path, properties: Mapping[str, str], upstream: str) -> str:
    """One server block for everything: CoreDNS listens on 53 and for DoT, the plugin on what the properties say."""
    # One transport behind all of ours, so that they differ in nothing else; and no probes of the upstream's health.
    forward = [f"    forward . {upstream} {{", "        prefer_udp", "        max_fails 0", "    }"]
    lines = [
        ". tls://. {",
        f"    tls {_quoted(certificates.certificate_file)} {_quoted(certificates.key_file)}",
        "    errors",
        "    coalesce {",
        *(f"        {name} {value}" for name, value in properties.items()),
        "    }",
        "    minimal",  # answers as a resolver gives them, without the authority section
        *(forward if upstream else [f"    file {_quoted(zone)} ."]),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: Path) -> str:
    """A path as one word of a Corefile."""
    return '"' + str(path).replace('"', '\\"') + '"'
