"""Two queries on a kept connection, an idle time with an event on the path or at the server, and the next query.

The far end is a server at an address of its own: it can be killed, and the path to it can drop its state.
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
from crosslayer.studies.rest.keepers import Browsing, Forwarded, Keeping, Library, once, unanswered
from crosslayer.testbed import network
from crosslayer.testbed.dnsproxy import Dnsproxy, dnsproxy_version, near_end
from crosslayer.testbed.nat import Nat
from crosslayer.testbed.server import Event, Server
from crosslayer.vocabulary import ClientKind, PathEvent

_MACHINE = 0
"""Number of the server's machine, see `network.far_host`."""
_NEAR = "127.0.0.2"
_STUBS = (ClientKind.STUB, ClientKind.PATIENT_STUB)
_SPEAKS = {ClientKind.CHROMIUM: (Protocol.DOH, Protocol.DOH3)}
"""Transports of clients that do not support all."""
_RESTS_AT_MOST_S = {ClientKind.CHROMIUM: 60.0}
"""Maximum idle time of clients that compute while they are idle; their connections are closed by then."""
_EVERY = 12
"""Rounds of which one has what takes long."""


@dataclass(frozen=True, slots=True)
class IdleCondition:
    """One way to rest."""

    keeper: ClientKind
    protocol: Protocol
    event: PathEvent
    rest_s: float


def conditions(plan: Plan) -> dict[str, IdleCondition]:
    """Every condition of a plan by its name."""
    kept = [(keeper, protocol) for keeper in plan.options.keepers for protocol in _SPEAKS.get(keeper, Protocol)]
    befallen = list(itertools.product(PathEvent, plan.options.rests_s))
    made = [
        IdleCondition(keeper, protocol, event, rest_s)
        for (keeper, protocol), (event, rest_s) in itertools.product(kept, befallen)
        if rest_s <= _RESTS_AT_MOST_S.get(keeper, rest_s)
    ]
    return {f"{one.keeper} {one.protocol} {one.event} {one.rest_s:g}": one for one in made}


class Rest(Measurer):
    """Idle times of several clients, which have neither connections nor tickets before each observation.

    Raises
    ------
    ServerError, StubError, DnsproxyError, BrowserError
        If one of them does not start.
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
                folder=context.folder / "rest-server",
            )
            self._stack.callback(lambda: self._server.stop())
        except BaseException:
            self._stack.close()
            raise

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Programs that only this study needs."""
        return {"dnsproxy": dnsproxy_version()} if ClientKind.DNSPROXY in plan.options.keepers else {}

    def close(self) -> None:
        """Stop the server and take its machine away."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every keeper, transport, path event and rest, but those of a browser."""
        return [name for name, chosen in self._conditions.items() if chosen.keeper is not ClientKind.CHROMIUM]

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """A browser in every twelfth round, since it is started for each rest."""
        if round_number % _EVERY:
            return []
        return [name for name, chosen in self._conditions.items() if chosen.keeper is ClientKind.CHROMIUM]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        chosen = self._conditions[condition]
        return "rests", {
            "protocol": chosen.protocol.value,
            "keeper": chosen.keeper.value,
            "path_event": chosen.event.value,
            "rest_s": float(chosen.rest_s),
        }

    def warm_up(self) -> None:
        """A query by each keeper over each transport."""
        warm = {(chosen.keeper, chosen.protocol): chosen for chosen in self._conditions.values()}
        for chosen in warm.values():
            with self._keeping(chosen) as kept:
                kept.ask()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One rest, and what came after it."""
        chosen = self._conditions[condition]
        row, started = self.row(condition, cell, round_number, position), time.time()
        self._nat.restore()
        try:
            with self._keeping(chosen) as kept:
                # The first query sets the connection up; the second finds ticket, token and an RTT.
                for _ in range(2):
                    kept.ask()
                time.sleep(chosen.rest_s / 2)
                self._befall(chosen.event)
                time.sleep(chosen.rest_s / 2)
                kept.forget()
                answer = kept.ask()
                row |= {"started_s": answer.sent_ns / 1e9, "asked": answer.asked, "error": answer.error}
                if answer.answered_ns is not None:
                    row |= {"answer_ms": (answer.answered_ns - answer.sent_ns) / 1e6} | kept.answer_columns()
        except BrowserError as error:
            return {"rests": [row | {"started_s": started, "error": str(error)}]}
        return {"rests": [row]}

    @contextlib.contextmanager
    def _keeping(self, chosen: IdleCondition) -> Iterator[Keeping]:
        """A keeper that has neither connections nor tickets."""
        if chosen.keeper in _STUBS:
            asker, stub = self._stubs.get((chosen.keeper, chosen.protocol)) or self._started(chosen)
            stub.raise_if_dead()
            stub.forget()
            yield Forwarded(self._events, asker, self._query, stub)
        elif chosen.keeper is ClientKind.LIBRARY:
            with contextlib.closing(Library(self._events, self._far, chosen.protocol, self._host)) as program:
                yield program
        elif chosen.keeper is ClientKind.CHROMIUM:
            with self._looking_up(chosen.protocol) as look_up:
                yield Browsing(self._events, look_up, self._names.__next__, chosen.protocol)
        else:
            arguments = near_end(_NEAR, chosen.protocol, self._address)
            log = self.context.folder / "rest-dnsproxy.log"
            with (
                Dnsproxy.start(subprocess.Popen, arguments, log, ca_file=self._server.ca_file) as proxy,
                contextlib.closing(dns.Asker((_NEAR, 53))) as asker,
            ):
                proxy.wait_until(lambda: unanswered(once(asker, self._query, 1.0), self._query) is None)
                yield Forwarded(self._events, asker, self._query)

    def _started(self, chosen: IdleCondition) -> tuple[dns.Asker, Stub]:
        near = f"127.0.0.{len(self._stubs) + 3}"
        doubts = {} if chosen.keeper is ClientKind.STUB else {"rested_after_s": 0.0}
        most = chosen.protocol.transport.resumptions[-1]
        settings = StubSettings.towards(self._far, chosen.protocol, most, listen=f"{near}:53", **doubts)
        enter, folder = self._stack.enter_context, self.context.folder / f"rest-{near}"
        stub = enter(Stub.start(subprocess.Popen, settings, folder))
        asker = enter(contextlib.closing(dns.Asker((near, 53))))
        self._stubs[chosen.keeper, chosen.protocol] = asker, stub
        return asker, stub

    @contextlib.contextmanager
    def _looking_up(self, protocol: Protocol) -> Iterator[Callable[[str], tuple[float, float]]]:
        """A new Chromium for each lookup: in virtual time it would compute during the idle times of all others."""
        asks = SecureDns(self._host, self._address, over_h3=protocol is Protocol.DOH3)
        with (
            launch(
                self.context.programs,
                folder=self.context.folder / f"rest-browser-{next(self._browsers)}",
                addresses={},
                certificates=self._server.certificates,
                resolves=[f"*.{self._host}"],
                few_processes=self.context.plan.clock == "virtual",
                secure_dns=asks,
            ) as browser,
            browser.asking() as look_up,
        ):
            yield look_up

    def _befall(self, event: PathEvent) -> None:
        if event is PathEvent.FORGOTTEN:
            self._nat.expire_mappings()
        elif event is PathEvent.MOVED:
            self._nat.migrate_client()
        elif event is PathEvent.RESTARTED:
            self._server = self._server.restarted()

    @functools.cached_property
    def _query(self) -> dns.Query:
        return dns.build_query(dns.Question(self._host), Protocol.DOUDP, dns.ClientSettings())

    @property
    def _far(self) -> dns.Resolver:
        return dns.Resolver(self._address, server_name="localhost", ca_file=self._server.ca_file)

    def _events(self) -> list[Event]:
        """Events of the present server process."""
        return self._server.events()


MEASURER = Rest
