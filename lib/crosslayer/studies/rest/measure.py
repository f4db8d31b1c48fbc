"""A query through a forwarder, a rest of its connection in which something befalls it, and the next query.

The far end is a server of its own, on a machine beside the usual one: it can be killed, and the path to it can forget.
The client is one of the operating system: it asks again at once where it is told SERVFAIL, and after 5 s of silence.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crosslayer import dns
from crosslayer.campaign import tables
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import Rests
from crosslayer.dns import Protocol
from crosslayer.stub import QueryMetrics, Stub, StubSettings
from crosslayer.testbed import network
from crosslayer.testbed.dnsproxy import Dnsproxy, dnsproxy_version, near_end
from crosslayer.testbed.passage import Passage
from crosslayer.testbed.server import QueryEvent, Server
from crosslayer.words import Forwarder, Mishap

_MACHINE = 0
"""Of `network.machine`: where the server is."""
_NEAR = "127.0.0.2"
_PATIENCE_S = 5.0
"""After which a client asks again, as the resolver of the C library does (resolv.conf(5))."""
_ASKS = 20
"""Of a client, before it has no answer."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One way to rest."""

    forwarder: Forwarder
    protocol: Protocol
    mishap: Mishap
    rest_s: float


def conditions(plan: Plan) -> dict[str, Condition]:
    """Every condition of a plan by its name."""
    forwarders = [kind for kind in Forwarder if kind is not Forwarder.DNSPROXY or plan.options.dnsproxy]
    made = itertools.starmap(Condition, itertools.product(forwarders, Protocol, Mishap, plan.options.rests_s))
    return {f"{one.forwarder} {one.protocol} {one.mishap} {one.rest_s:g}": one for one in made}


class Rest(Measurer):
    """Forwarders that forget their connections before each observation, or, where they cannot be told, start anew.

    Raises
    ------
    ServerError, StubError, DnsproxyError
        Where one of them does not start.
    TestbedError
        Where this kernel cannot drop packets of a connection.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._conditions = conditions(bench.plan)
        self._host = bench.pages[bench.plan.pages[0]].host
        self._stubs: dict[tuple[Forwarder, Protocol], tuple[dns.Asker, Stub]] = {}
        self._stack = contextlib.ExitStack()
        try:
            enter, congestion = self._stack.enter_context, bench.plan.congestion_control
            machine, self._address = enter(network.machine(_MACHINE, congestion))
            self._passage = enter(Passage(machine, self._address, congestion))
            hosts = {spec.host: self._address for spec in bench.pages.values()}
            self._server = Server.start(
                functools.partial(network.spawn, machine),
                pages_dir=None,
                addresses=hosts,
                folder=bench.folder / "rest-server",
            )
            self._stack.callback(lambda: self._server.stop())
        except BaseException:
            self._stack.close()
            raise

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Programs that only this study needs."""
        return {"dnsproxy": dnsproxy_version()} if plan.options.dnsproxy else {}

    def close(self) -> None:
        """Stop the server and take its machine away."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every forwarder, transport, mishap and rest."""
        return list(self._conditions)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        chosen = self._conditions[condition]
        return "rests", {
            "protocol": chosen.protocol.value,
            "forwarder": chosen.forwarder.value,
            "mishap": chosen.mishap.value,
            "rest_s": float(chosen.rest_s),
        }

    def warm_up(self) -> None:
        """A query through each forwarder over each transport."""
        for chosen in self._conditions.values():
            if (chosen.forwarder, chosen.protocol) not in self._stubs:
                with self._forwarding(chosen) as (asker, _stub):
                    self._asked(asker)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One rest, and what came after it."""
        chosen = self._conditions[condition]
        row = self.row(condition, cell, round_number, position)
        self._passage.restore()
        with self._forwarding(chosen) as (asker, stub):
            # The first query sets the connection up; the second finds ticket, token and an RTT.
            for _ in range(2):
                self._asked(asker)
            time.sleep(chosen.rest_s / 2)
            self._befall(chosen.mishap)
            time.sleep(chosen.rest_s / 2)
            self._server.events()
            if stub is not None:
                stub.metrics()
            asked = self._asked(asker)
            row |= {"started_s": asked[0].sent_ns / 1e9, "asked": len(asked), "error": self._unanswered(asked[-1])}
            if asked[-1].answered_ns is not None:
                row["answer_ms"] = (asked[-1].answered_ns - asked[0].sent_ns) / 1e6
            if stub is not None:
                row |= self._told(stub.metrics())
        return {"rests": [row]}

    @contextlib.contextmanager
    def _forwarding(self, chosen: Condition) -> Iterator[tuple[dns.Asker, Stub | None]]:
        """A forwarder that has neither connections nor tickets, and who asks it."""
        if chosen.forwarder is not Forwarder.DNSPROXY:
            asker, stub = self._stubs.get((chosen.forwarder, chosen.protocol)) or self._started(chosen)
            stub.raise_if_dead()
            stub.forget()
            yield asker, stub
            return
        words, log = near_end(_NEAR, chosen.protocol.value, self._address), self.bench.folder / "rest-dnsproxy.log"
        with (
            Dnsproxy.start(subprocess.Popen, words, log, ca_file=self._server.ca_file) as proxy,
            contextlib.closing(dns.Asker((_NEAR, 53))) as asker,
        ):
            proxy.wait_until(lambda: self._unanswered(self._once(asker, 1.0)) is None)
            yield asker, None

    def _started(self, chosen: Condition) -> tuple[dns.Asker, Stub]:
        far = dns.Resolver(self._address, server_name="localhost", ca_file=self._server.ca_file)
        near = f"127.0.0.{len(self._stubs) + 3}"
        doubts = {} if chosen.forwarder is Forwarder.STUB else {"rested_after_s": 0.0}
        most = dns.RESUMPTIONS[chosen.protocol][-1]
        settings = StubSettings.towards(far, chosen.protocol, most, listen=f"{near}:53", **doubts)
        enter, folder = self._stack.enter_context, self.bench.folder / f"rest-{near}"
        stub = enter(Stub.start(subprocess.Popen, settings, folder))
        asker = enter(contextlib.closing(dns.Asker((near, 53))))
        self._stubs[chosen.forwarder, chosen.protocol] = asker, stub
        return asker, stub

    def _befall(self, mishap: Mishap) -> None:
        if mishap is Mishap.FORGOTTEN:
            self._passage.forget()
        elif mishap is Mishap.MOVED:
            self._passage.move()
        elif mishap is Mishap.RESTARTED:
            self._server = self._server.restarted()

    @functools.cached_property
    def _query(self) -> dns.Query:
        return dns.build_query(dns.Question(self._host), Protocol.DOUDP, dns.ClientSettings())

    def _once(self, asker: dns.Asker, timeout_s: float) -> dns.Asked:
        (asked,) = dns.ask_at_pace([asker], [dns.Due(0.0, 0)], self._query.wire, timeout_s=timeout_s)
        return asked

    def _asked(self, asker: dns.Asker) -> list[dns.Asked]:
        """Every query of a client until it has a good answer."""
        asked = [self._once(asker, _PATIENCE_S)]
        while self._unanswered(asked[-1]) is not None and len(asked) < _ASKS:
            asked.append(self._once(asker, _PATIENCE_S))
        return asked

    def _unanswered(self, asked: dns.Asked) -> str | None:
        """What is wrong with an answer; None where it is good."""
        if asked.answered_ns is None:
            return "no answer"
        return dns.check_answer(self._query.wire[:2] + asked.answer[2:], self._query).error

    def _told(self, told: list[QueryMetrics]) -> dict[str, Any]:
        """What the stub, and of early data the server, say of the query that was answered."""
        if not told:
            return {}
        last = told[-1]
        came = {
            event.remote: not event.handshake_complete
            for event in self._server.events()
            if isinstance(event, QueryEvent) and event.listener == last.protocol.value.lower()
        }
        ports = {int(remote.rpartition(":")[2]): early for remote, early in came.items()}
        found = Rests.taken(tables.STUB, last)
        return found | {"early_data_accepted": ports.get(last.local_port) if last.early_data else None}


MEASURER = Rest
