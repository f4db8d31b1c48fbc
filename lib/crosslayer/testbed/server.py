"""The testbed's web and DNS server: configuration, start, control commands and typed events.

The server is `emulation/cmd/crosslayer-server` (CoreDNS with the plugin `coalesce`). All its transports share the
session-ticket keys. Each run has its own Corefile, zone and certificates. The server reports connections, requests,
queries and tokens, which are read as typed events.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from crosslayer import resources
from crosslayer.process import Process, Spawn
from crosslayer.testbed.certificates import Certificates, make_certificates
from crosslayer.testbed.ech import EchKey
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.network import SERVER_ADDRESS

_FILES = ("zone", "Corefile", "control", "events.jsonl")
"""Files in the server's folder, except keys."""


class ServerError(TestbedError):
    """The server did not start, died, or refused a command."""


@dataclass(frozen=True, slots=True)
class ConnectionEvent:
    """A connection, reported at the end of its handshake.

    Over TCP, it is reported when the server has finished its own part of the handshake.
    """

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
    """Server name in the client's hello (SNI); empty if it sent none."""
    resumed: bool
    """The TLS session was resumed from a ticket."""
    early_data: bool
    """The client offered early data and the server accepted it."""
    address_validated: bool
    """The client's first packet had a valid address-validation token (RFC 9000, section 8.1); False over TCP."""
    quic_version: str
    """v1 or v2; empty over TCP."""
    tls_version: str
    error: str
    """Why the handshake failed; empty if it succeeded."""


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An HTTP request, reported no later than the end of its response."""

    time_ns: int
    """Arrival of the request, Unix time in nanoseconds."""
    done_ns: int
    """Time at which the body was handed to the transport, Unix time in nanoseconds."""
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
    """False if the request arrived as early data."""
    resumed: bool
    address_validated: bool
    """See `ConnectionEvent`."""
    key_share: str = ""
    """Group of the TLS key exchange, e.g. X25519MLKEM768."""
    initials: int = 0
    """Number of Initial packets that carried the client's hello; 0 over TCP."""
    ech: bool = False
    """The client's hello was encrypted, and the server decrypted it (RFC 9849)."""


@dataclass(frozen=True, slots=True)
class QueryEvent:
    """A DNS query, reported before its answer is sent."""

    time_ns: int
    """Arrival of the query, Unix time in nanoseconds."""
    listener: str
    """udp, tcp, dot, doh, doh3 or doq."""
    remote: str
    name: str
    """Query name, with its final dot."""
    type: str
    rcode: str
    handshake_complete: bool
    """False if the query arrived as early data."""
    resumed: bool
    address_validated: bool
    """See `ConnectionEvent`."""
    key_share: str = ""
    """Group of the TLS key exchange, e.g. X25519MLKEM768; empty if the listener is udp, tcp or dot."""
    initials: int = 0
    """Number of Initial packets that carried the client's hello; 0 over TCP."""


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """An address-validation token for an HTTP/3 client's next connection, reported before it is sent."""

    time_ns: int
    """Time of sending, Unix time in nanoseconds."""
    listener: str
    """h3."""
    remote: str
    behind_ticket: bool
    """Whether the session ticket was sent before the token. Some clients store a token only if they have a ticket."""


Event = ConnectionEvent | RequestEvent | QueryEvent | TokenEvent

_EVENTS: dict[str, type[Event]] = {
    "connection": ConnectionEvent,
    "request": RequestEvent,
    "query": QueryEvent,
    "token": TokenEvent,
}


def zone_text(addresses: Mapping[str, str], *, https_records: bool = False) -> str:
    """Text of a root zone with one A record per name; the only other name in the zone is that of its name server.

    With `https_records`, one HTTPS record (RFC 9460) per name offers HTTP/3, then HTTP/2.
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
    """Parse one line of the server's event file; `ServerError` for an event unknown to this version."""
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
            next_step="The server has another version, or the disk is full. Build the server again with `make setup`.",
        ) from error


class Server(Process):
    """A running server. Made by `Server.start`."""

    name = "the server"
    fault = ServerError
    spawn: Spawn
    """Function that starts a program in the server's namespace or guest."""
    address: str
    """IPv4 address at which the server answers DoUDP, DoQ and DoH3."""
    addresses: dict[str, str]
    """IPv4 address of each host name it serves."""
    pages_dir: Path | None
    """Folder of the built pages; None without any."""
    ca_file: Path
    """Certificate of the run's CA, PEM."""
    spki: str
    """Base64 SHA-256 of the leaf's SubjectPublicKeyInfo, for Chromium."""
    zone: Path
    """The zone file."""
    control_path: Path
    certificates: Certificates
    """Certificates of the run. Other servers that browsers must accept can use them too."""
    events_file: Path
    """Event file, one JSON object per line."""

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
        own_times: Path | None = None,
    ) -> Self:
        """Start the server and wait until every listener is bound; `ServerError` contains its last log lines.

        Parameters
        ----------
        pages_dir
            Built pages (`crosslayer.pages.build`); None serves none.
        addresses
            IPv4 address of each host name.
        folder
            Private folder for the keys, the zone, the control socket and the events.
        upstream
            Address and port to which all queries are forwarded over UDP; empty to answer from the zone of `addresses`.
        retry
            Validate client addresses by Retry packets, which costs one round-trip.
        early_data
            Accept early data on DoQ and HTTP/3.
        max_tls
            Newest version of TLS over TCP: `1.2` or `1.3`.
        certificate_bytes
            Size of the TLS Certificate message; 0 for the smallest possible. If the message is larger than three times
            the client's first flight (at least 1200 bytes), a full QUIC handshake takes one more round-trip (RFC 9000,
            section 8.1).
        https_records
            Announce HTTP/3 by an HTTPS record of every name.
        own_times
            JSON file with two lists of answer times: for answers from the server's cache, and for all other answers. It
            is the file of the property `own` of the plugin `box`. None: the server has no cache and adds no times.
        """
        zone, corefile, control, events = (folder / name for name in _FILES)
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
        with cls.writing(folder):
            certificates = make_certificates(
                folder,
                [*addresses, "localhost"],
                [SERVER_ADDRESS, *addresses.values(), "127.0.0.1"],
                message_bytes=certificate_bytes,
            )
            zone.write_text(zone_text(addresses, https_records=https_records), encoding="utf-8")
            box = {"truth": _quoted(folder / "answers.jsonl"), "resolver": "like", "cache": "on"}
            own = [] if own_times is None else ["box {", *(f"    {name} {value}" for name, value in box.items())]
            own += [] if own_times is None else [f"    own {_quoted(own_times)}", "}"]
            text = corefile_text(certificates, zone, properties, upstream=upstream, further=own)
            corefile.write_text(text, encoding="utf-8")
            events.touch(mode=0o600)
        return cls.launch(spawn, folder, certificates, dict(addresses), pages_dir, SERVER_ADDRESS)

    @classmethod
    def command_line(cls, folder: Path) -> list[str]:
        """Command line of the program; `folder` contains its configuration."""
        return [str(resources.locate("server").path), "-conf", str(folder / "Corefile")]

    @classmethod
    def launch(
        cls,
        spawn: Spawn,
        folder: Path,
        certificates: Certificates,
        addresses: dict[str, str],
        pages_dir: Path | None,
        address: str,
    ) -> Self:
        """Start the server with the files in `folder`; the other parameters become attributes of the `Server`."""
        zone, control, events = folder / "zone", folder / "control", folder / "events.jsonl"
        server = cls(spawn, cls.command_line(folder), folder / "server.log")
        server.spawn, server.addresses = spawn, addresses
        server.address, server.pages_dir = address, pages_dir
        server.ca_file, server.spki = certificates.ca_file, certificates.spki
        server.certificates = certificates
        server.zone, server.control_path, server.events_file = zone, control, events
        server.follow(events)
        server.connect(control)
        return server

    def restarted(self) -> Self:
        """Kill the server and start another with the same certificate and files.

        The new server refuses tickets and tokens of the killed one.
        """
        self.kill()
        folder = self.events_file.parent
        return self.launch(self.spawn, folder, self.certificates, self.addresses, self.pages_dir, self.address)

    def close_connections(self, listener: str | None = None) -> int:
        """Close open QUIC connections, of one listener (`h3`, `doq`) or of all; returns their number.

        A connection is closed once its handshake is complete, so that the client receives the application's NO_ERROR.
        If `listener` is `https`, the TCP connections of the web server are closed instead.
        """
        return int(self.command("close-connections", **({"listener": listener} if listener else {}))["closed"])

    def rotate_ticket_keys(self) -> None:
        """Replace the session-ticket keys of every TLS listener, so that tickets issued before are refused."""
        self.command("rotate-ticket-keys")

    def set_certificate(self, message_bytes: int) -> None:
        """Use another certificate, of another size but with the same key, on new connections; tickets stay valid.

        The size is that of the TLS Certificate message; `ValueError` if it is too small for the server's names.
        """
        self.certificates.issue(message_bytes)
        files = {"certificate": self.certificates.certificate_file, "key": self.certificates.key_file}
        self.command("certificate", **{name: str(file) for name, file in files.items()})

    def set_ech(self, key: EchKey | None) -> None:
        """Set the ECH key that decrypts hellos of new connections; clients with another key receive this key.

        With None, the server ignores the encrypted part, like a server without ECH.
        """
        parameters = {} if key is None else {"config": key.config.hex(), "key": key.private_key.hex()}
        self.command("ech", **parameters)

    def set_answer(
        self,
        name: str,
        query_type: Literal["A", "AAAA", "HTTPS"],
        rdata: bytes | None = None,
        *,
        fault: Literal["servfail", "silence"] | None = None,
        delay_ms: int = 0,
    ) -> None:
        """Set the answer to queries of a name and a type; it replaces the zone's answer.

        Parameters
        ----------
        rdata
            Data of the one record of the answer, well-formed or not.
        fault
            SERVFAIL (`servfail`) or no answer at all (`silence`) instead of a record. Without `rdata` and `fault`, the
            zone's answer is used.
        delay_ms
            Delay before each answer, at most 60,000 ms.
        """
        parameters = {} if rdata is None else {"rdata": rdata.hex()}
        parameters |= {"fault": fault} if fault else {}
        self.command("answer", name=name, type=query_type, delay_ms=delay_ms, **parameters)

    def set_alt_svc(self, value: str = "") -> None:
        """Set the header Alt-Svc (RFC 7838) of responses over TCP, such as `h3=":443"; ma=3600`; empty for none."""
        self.command("alt-svc", value=value)

    def set_early_data(self, mode: str) -> None:
        """Set how new connections handle early data: `on`, `off` or `late`.

        `on`: requests in early data are answered on arrival if a replay is harmless. `off`: early data is refused, and
        tickets do not offer it. `late`: early data is accepted, and its requests are answered after the handshake.
        """
        self.command("early-data", mode=mode)

    def stats(self) -> dict[str, dict[str, int]]:
        """Counts by name and listener.

        `open` is the number of QUIC connections that are open now. `connections`, `requests`, `queries` and `tokens`
        are totals since the start of the server.
        """
        return self.command("stats")

    def events(self) -> list[Event]:
        """Events since the last call, in the order in which the server wrote them."""
        return [parse_event(line) for line in self.new_lines()]


def corefile_text(
    certificates: Certificates,
    zone: Path,
    properties: Mapping[str, str],
    *,
    addresses: str = ". tls://.",
    upstream: str = "",
    further: Sequence[str] = (),
) -> str:
    """Text of a Corefile with a single server block.

    Parameters
    ----------
    properties
        Properties of the plugin `coalesce`, including the addresses it listens on.
    addresses
        Addresses that CoreDNS itself listens on; by default port 53 and DoT.
    upstream
        Address and port to which queries are forwarded; empty to answer from the zone.
    further
        Lines of other plugins; their order has no effect, because CoreDNS has a fixed order of plugins.
    """
    # Queries of every transport are forwarded over UDP, so that forwarding is the same; no health probes.
    forward = [f"    forward . {upstream} {{", "        prefer_udp", "        max_fails 0", "    }"]
    lines = [
        f"{addresses} {{",
        f"    tls {_quoted(certificates.certificate_file)} {_quoted(certificates.key_file)}",
        "    errors",
        "    coalesce {",
        *(f"        {name} {value}" for name, value in properties.items()),
        "    }",
        *(f"    {line}" for line in further),
        "    minimal",  # answers without authority section, as a resolver sends them
        *(forward if upstream else [f"    file {_quoted(zone)} ."]),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _quoted(path: Path) -> str:
    """Quote a path for a Corefile."""
    return '"' + str(path).replace('"', '\\"') + '"'
