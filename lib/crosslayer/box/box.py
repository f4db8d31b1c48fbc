"""A running box as one object: open it, start its events, run clients in it, read its truth, close it."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from crosslayer.box.description import TRANSPORTS, BoxResolver, Description
from crosslayer.box.errors import BoxError, BoxStartError
from crosslayer.box.hosts import AUTHORITY, INTERCEPTOR, WILDCARD_ADDRESS, BoxHost, plan
from crosslayer.box.internet import Internet
from crosslayer.box.makes import MakeServer
from crosslayer.box.servers import (
    BoxServer,
    authority_corefile,
    certificates_of,
    interceptor_corefile,
    origin_corefile,
    resolver_corefile,
    zone_text,
)
from crosslayer.guest import CLOCK_CONTROL
from crosslayer.testbed import namespaces
from crosslayer.testbed.certificates import Authority, make_certificates

_NAMES: Final = "resolvers.test"
"""Zone of the resolvers' host names."""


class Box:
    """A running box: its router and servers, each in a namespace of its own.

    As a context manager, a box stops its programs and removes its namespaces at the end of the block. A box works only
    inside private namespaces (`namespaces.enter`). The constructor moves the calling thread into the client's
    namespace. Sockets that this thread opens and programs that it starts afterwards are there too.

    Parameters
    ----------
    description
        Description of the box.
    seed
        Seed of the router's random choices: which server behind a balancer receives a flow, and the jitter of packets.
    truth
        JSON Lines file to which the box appends the truth (its record of true values); None for a private file.
    packets
        Whether the truth also has a row for every forwarded packet; it always has a row for every dropped packet.

    Raises
    ------
    BoxStartError
        If a part of the box does not start, or this process is not in private namespaces. Also if the description has
        a clock step, but this process is not in a guest (User-Mode Linux) with a settable clock.
    BoxError
        If the file of the truth cannot be written.
    """

    def __init__(
        self, description: Description, *, seed: int = 1, truth: Path | None = None, packets: bool = False
    ) -> None:
        if not namespaces.inside():
            raise BoxStartError(
                "a box runs in private namespaces only", next_step="Call it through the `crosslayer` command."
            )
        if description.clock_step and not CLOCK_CONTROL.exists():
            raise BoxStartError(
                "has a step of the clock, which only a guest has", where="clock_step", next_step="Add --clock virtual."
            )
        self.description = description
        self.plan = plan(description)
        self.folder = namespaces.ROOT / "box"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(mode=0o700)
        self.truth_file = truth or self.folder / "truth.jsonl"
        self._write_facts(seed)
        self._authority = Authority()
        self.ca_file = self.folder / "ca.pem"
        self.ca_file.write_bytes(self._authority.pem())
        self._stack = contextlib.ExitStack()
        try:
            self.internet = Internet(
                description, self.plan, seed=seed, truth=self.truth_file, packets=packets, folder=self.folder
            )
            self._stack.callback(self.internet.close)
            servers = []
            for host in self.plan.hosts:
                servers.append(self._start(host))
                self._stack.callback(servers[-1].stop)
            for server in servers:
                server.ready()
        except BaseException:
            self._stack.close()
            raise
        system = description.system_resolver or description.resolver[0].name
        namespaces.use_resolver(self.plan.addresses[system][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start the box's scheduled events, such as path changes: their times count from this call."""
        now = time.time_ns()
        self._write({"event": "start", "time_ns": now})
        self.internet.router.send(start=now)

    def truth(self) -> list[dict[str, Any]]:
        """All rows of the truth so far, in the order in which they were written."""
        self.internet.router.send(flush=True)
        return [json.loads(line) for line in self.truth_file.read_text(encoding="utf-8").splitlines()]

    def resolver_list(self) -> str:
        """The box's resolvers as a TOML list for a tool under test: how to reach them, but not how they behave."""
        return "\n".join(map(self._entry, self.description.resolver))

    def _entry(self, resolver: BoxResolver) -> str:
        addresses = ", ".join(f'"{address}"' for address in self.plan.addresses[resolver.name])
        ports = ", ".join(f"{name} = {TRANSPORTS[name].transport.port}" for name in resolver.transports)
        lines = [
            "[[resolver]]",
            f'name = "{resolver.name}"',
            f"operator = {json.dumps(resolver.by_operator)}",
            f"address = [{addresses}]",
            f'host = "{host_name(resolver)}"',
            f"transports = {{ {ports} }}",
            'path = "/dns-query"',
        ]
        return "\n".join(lines) + "\n"

    def _start(self, host: BoxHost) -> BoxServer | MakeServer:
        """Start the server of a host."""
        folder, truth = self.folder / host.name, self.truth_file
        folder.mkdir(parents=True)
        upstream = next(other for other in self.plan.hosts if other.name == AUTHORITY).addresses[0]
        if (resolver := host.resolver) is not None:
            name, addresses = host_name(resolver), self.plan.addresses[resolver.name]
            certificates = certificates_of(resolver, name, addresses, self._authority, folder)
            if resolver.make != "crosslayer":
                return MakeServer.start(resolver.make, host, folder, certificates, upstream)
            corefile = resolver_corefile(resolver, host, certificates, folder, truth=truth, upstream=upstream)
        elif host.name.startswith(INTERCEPTOR):
            # The interceptor has a CA of its own, which no client trusts.
            certificates = make_certificates(folder, [host.name], host.addresses)
            corefile = interceptor_corefile(host, certificates, folder, truth=truth, upstream=upstream)
        elif host.origin is not None:
            certificates = make_certificates(folder, [host.origin.name], host.addresses, authority=self._authority)
            corefile = origin_corefile(host.origin, certificates, folder, truth=truth)
        else:
            certificates = make_certificates(folder, [host.name], host.addresses, authority=self._authority)
            zone = folder / "zone"
            zone.write_text(zone_text(self.description, self._names(), WILDCARD_ADDRESS), encoding="utf-8")
            corefile = authority_corefile(zone, certificates, folder, truth=truth)
        return BoxServer.start(host, folder, corefile)

    def _names(self) -> dict[str, tuple[str, ...]]:
        """Addresses of the resolvers and web origins, by host name."""
        names = {host_name(resolver): self.plan.addresses[resolver.name] for resolver in self.description.resolver}
        return names | {host.origin.name: host.addresses for host in self.plan.hosts if host.origin is not None}

    def _write_facts(self, seed: int) -> None:
        """Write the contents of the box to the file of the truth: a row for the box, and a row for each host."""
        self._write({"event": "box", "seed": seed, **asdict(self.description)})
        for host in self.plan.hosts:
            resolver = host.resolver.name if host.resolver else ""
            self._write(
                {
                    "event": "host",
                    "name": host.name,
                    "resolver": resolver,
                    "site": host.site or resolver,
                    "addresses": host.addresses,
                    "path": host.path,
                }
            )

    def _write(self, row: dict[str, Any]) -> None:
        try:
            with self.truth_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise BoxError(
                f"cannot be written ({error.strerror})", where=str(self.truth_file), next_step="Name another file."
            ) from error


def host_name(resolver: BoxResolver) -> str:
    """Host name of a resolver, in its certificate and in its DoH URL."""
    return f"{resolver.name}.{_NAMES}"
