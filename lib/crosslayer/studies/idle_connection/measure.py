"""Measures the first query after an idle time, during which an event may occur on the path or at the server.

Before the idle time, two queries open the connection and use it. The server runs on its own host, so that the study
can restart the server and delete the state of the path to it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from crosslayer import dns
from crosslayer.browser import BrowserError, SecureDns, launch
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.dns import Protocol
from crosslayer.stub import Stub, StubSettings
from crosslayer.studies.idle_connection.clients import (
    BrowserClient,
    ForwarderClient,
    IdleClient,
    LibraryClient,
    answer_error,
    query_once,
)
from crosslayer.testbed import network
from crosslayer.testbed.dnsproxy import Dnsproxy, dnsproxy_version, near_end
from crosslayer.testbed.nat import Nat
from crosslayer.testbed.server import Event, Server
from crosslayer.vocabulary import ClientKind, PathEvent

_MACHINE = 0
"""Number of the server's host, an argument of `network.far_host`."""
_NEAR = "127.0.0.2"
_STUBS = (ClientKind.STUB, ClientKind.STUB_NO_IDLE_PROBE)
_SPEAKS = {ClientKind.CHROMIUM: (Protocol.DOH, Protocol.DOH3)}
"""Transports of each client that does not support all six."""
_IDLE_AT_MOST_S = {ClientKind.CHROMIUM: 60.0}
"""Maximum idle time, s, of clients that use the CPU while idle. Before its end, the server closes their connections."""
_EVERY = 12
"""Number of rounds from one round with a browser to the next one."""


@dataclass(frozen=True, slots=True)
class IdleCondition:
    """A client, its transport, an idle time, and the event in the middle of the idle time."""

    client: ClientKind
    protocol: Protocol
    event: PathEvent
    idle_s: float


def conditions(plan: Plan) -> dict[str, IdleCondition]:
    """All conditions of a plan by name."""
    kept = [(client, protocol) for client in plan.options.clients for protocol in _SPEAKS.get(client, Protocol)]
    events = list(itertools.product(PathEvent, plan.options.idle_times_s))
    made = [
        IdleCondition(client, protocol, event, idle_s)
        for (client, protocol), (event, idle_s) in itertools.product(kept, events)
        if idle_s <= _IDLE_AT_MOST_S.get(client, idle_s)
    ]
    return {f"{one.client} {one.protocol} {one.event} {one.idle_s:g}": one for one in made}


class IdleConnection(Measurer):
    """Measures the first query after an idle time; each client starts without connections and tickets.

    Raises
    ------
    ServerError, StubError, DnsproxyError, BrowserError
        If a server, stub, dnsproxy or browser does not start.
    TestbedError
        If this kernel cannot drop packets of a connection.
    """

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._conditions = conditions(context.plan)
        self._host = context.pages[context.plan.pages[0]].host
        self._stubs: dict[tuple[ClientKind, Protocol], tuple[dns.Asker, Stub]] = {}
        self._browsers = itertools.count()
        self._names = (f"name-{number}.{self._host}" for number in itertools.count())
        self._stack = contextlib.ExitStack()
        try:
            enter, congestion = self._stack.enter_context, context.plan.congestion_control
            machine, self._address = enter(network.far_host(_MACHINE, congestion))
            self._nat = enter(Nat(machine, self._address, congestion))
            hosts = {spec.host: self._address for spec in context.pages.values()}
            self._server = Server.start(
                functools.partial(network.spawn, machine),
                pages_dir=None,
                addresses=hosts,
                folder=context.folder / "idle-server",
            )
            self._stack.callback(lambda: self._server.stop())
        except BaseException:
            self._stack.close()
            raise

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Versions of the programs that only this study needs."""
        return {"dnsproxy": dnsproxy_version()} if ClientKind.DNSPROXY in plan.options.clients else {}

    def close(self) -> None:
        """Stop the server and remove its host."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every condition except those of a browser."""
        return [name for name, chosen in self._conditions.items() if chosen.client is not ClientKind.CHROMIUM]

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """The browser's conditions; only in every twelfth round, because each starts a browser."""
        if round_number % _EVERY:
            return []
        return [name for name, chosen in self._conditions.items() if chosen.client is ClientKind.CHROMIUM]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        chosen = self._conditions[condition]
        return "idle_recoveries", {
            "protocol": chosen.protocol.value,
            "client": chosen.client.value,
            "path_event": chosen.event.value,
            "idle_s": float(chosen.idle_s),
        }

    def warm_up(self) -> None:
        """Make a query with each client over each transport."""
        first = {(chosen.client, chosen.protocol): chosen for chosen in self._conditions.values()}
        for chosen in first.values():
            with self._client(chosen) as client:
                client.ask()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Let the condition's idle time pass, with its path event in the middle, and measure the next query."""
        chosen = self._conditions[condition]
        row, started = self.row(condition, cell, round_number, position), time.time()
        self._nat.restore()
        try:
            with self._client(chosen) as client:
                # The first query opens the connection; the second gives the client ticket, token and an RTT estimate.
                for _ in range(2):
                    client.ask()
                time.sleep(chosen.idle_s / 2)
                self._cause(chosen.event)
                time.sleep(chosen.idle_s / 2)
                client.discard_events()
                answer = client.ask()
                row |= {"started_s": answer.sent_ns / 1e9, "asked": answer.asked, "error": answer.error}
                if answer.answered_ns is not None:
                    row |= {"answer_ms": (answer.answered_ns - answer.sent_ns) / 1e6} | client.answer_columns()
        except BrowserError as error:
            return {"idle_recoveries": [row | {"started_s": started, "error": str(error)}]}
        return {"idle_recoveries": [row]}

    @contextlib.contextmanager
    def _client(self, chosen: IdleCondition) -> Iterator[IdleClient]:
        """The client of a condition, without connections and tickets."""
        if chosen.client in _STUBS:
            asker, stub = self._stubs.get((chosen.client, chosen.protocol)) or self._started(chosen)
            stub.raise_if_dead()
            stub.forget()
            yield ForwarderClient(self._events, asker, self._query, stub)
        elif chosen.client is ClientKind.LIBRARY:
            with contextlib.closing(LibraryClient(self._events, self._far, chosen.protocol, self._host)) as program:
                yield program
        elif chosen.client is ClientKind.CHROMIUM:
            with self._lookups(chosen.protocol) as look_up:
                yield BrowserClient(self._events, look_up, self._names.__next__, chosen.protocol)
        else:
            arguments = near_end(_NEAR, chosen.protocol, self._address)
            log = self.context.folder / "idle-dnsproxy.log"
            with (
                Dnsproxy.start(subprocess.Popen, arguments, log, ca_file=self._server.ca_file) as proxy,
                contextlib.closing(dns.Asker((_NEAR, 53))) as asker,
            ):
                proxy.wait_until(lambda: answer_error(query_once(asker, self._query, 1.0), self._query) is None)
                yield ForwarderClient(self._events, asker, self._query)

    def _started(self, chosen: IdleCondition) -> tuple[dns.Asker, Stub]:
        near = f"127.0.0.{len(self._stubs) + 3}"
        no_probe = {} if chosen.client is ClientKind.STUB else {"probe_idle_after_s": 0.0}
        most = chosen.protocol.transport.resumptions[-1]
        settings = StubSettings.towards(self._far, chosen.protocol, most, listen=f"{near}:53", **no_probe)
        enter, folder = self._stack.enter_context, self.context.folder / f"idle-{near}"
        stub = enter(Stub.start(subprocess.Popen, settings, folder))
        asker = enter(contextlib.closing(dns.Asker((near, 53))))
        self._stubs[chosen.client, chosen.protocol] = asker, stub
        return asker, stub

    @contextlib.contextmanager
    def _lookups(self, protocol: Protocol) -> Iterator[Callable[[str], tuple[float, float]]]:
        """Run Chromium inside the `with` block; yields a function that looks up a name and returns start and end, ms.

        Chromium ends with the block, because it would use the CPU during the idle times of the other conditions.
        """
        asks = SecureDns(self._host, self._address, over_h3=protocol is Protocol.DOH3)
        with (
            launch(
                self.context.programs,
                folder=self.context.folder / f"idle-browser-{next(self._browsers)}",
                addresses={},
                certificates=self._server.certificates,
                resolves=[f"*.{self._host}"],
                few_processes=self.context.plan.clock == "virtual",
                secure_dns=asks,
            ) as browser,
            browser.asking() as look_up,
        ):
            yield look_up

    def _cause(self, event: PathEvent) -> None:
        if event is PathEvent.NAT_EXPIRED:
            self._nat.expire_mappings()
        elif event is PathEvent.CLIENT_MIGRATED:
            self._nat.migrate_client()
        elif event is PathEvent.SERVER_RESTARTED:
            self._server = self._server.restarted()

    @functools.cached_property
    def _query(self) -> dns.Query:
        return dns.build_query(dns.Question(self._host), Protocol.DOUDP, dns.ClientSettings())

    @property
    def _far(self) -> dns.Resolver:
        return dns.Resolver(self._address, server_name="localhost", ca_file=self._server.ca_file)

    def _events(self) -> list[Event]:
        """Events of the current server process since the last call."""
        return self._server.events()


MEASURER = IdleConnection
