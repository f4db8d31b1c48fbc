"""The study `authoritative` (Batenburg, Twente 2022): queries at a constant rate on kept connections to BIND 9.

    clients -- stub ...... link ...... our server -- BIND 9

At the far end, our server receives queries over all transports and forwards them to BIND, which answers for one zone.
At the near end, each transport has a stub that keeps its connection. Four clients each send a query to this stub every
two seconds. The paper used AdGuard's dnsproxy at both ends, as does a plan with `proxy = "dnsproxy"`. dnsproxy has no
command to close connections, so such a plan measures kept connections only. The sockets of dnsproxy show whether its
connections were kept.

All transports are loaded at the same time. The clients' queries are spread evenly over the interval, in an order that
is drawn anew for each round. Successive queries are tens of ms apart and need a few ms of processor time, so no query
waits for another. A campaign with all transports therefore takes as long as one with a single transport.

Unless the plan uses dnsproxy, each round also has further stubs, which close their connection after every query. Their
new connections use full handshakes or 0-RTT, and each of these stubs has one client. At the start of a round, no stub
has a connection. The first query of a round to each stub or proxy is not analysed.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import subprocess
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from crosslayer import dns
from crosslayer.campaign import tables
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import PacedQueries
from crosslayer.dns import Protocol, Resumption
from crosslayer.process import Process, Spawn
from crosslayer.stub import QueryMetrics, Stub, StubSettings
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.bind import LOCAL, Bind, bind_version
from crosslayer.testbed.certificates import make_certificates
from crosslayer.testbed.dnsproxy import Dnsproxy, dnsproxy_version, far_end, near_end
from crosslayer.testbed.server import Event, QueryEvent, Server
from crosslayer.vocabulary import Role

ORIGIN = "authoritative.crosslayer"
NAME = f"www.{ORIGIN}"
"""Name in the queries, 30 bytes in a DNS message. With EDNS, the query has 57 bytes and its answer (two A records) 89.

Headers of Ethernet, IPv4 and UDP add 42 bytes, so both have the sizes of the paper: 99 and 131 bytes. Other transports
add framing. Encrypted transports also pad the query to 128 bytes and the answer to 468 bytes.
"""
ZONE = f"""\
$ORIGIN {ORIGIN}.
$TTL 300
@ IN SOA ns hostmaster 1 3600 600 86400 300
@ IN NS ns
ns IN A 192.0.2.53
www IN A 192.0.2.1
www IN A 192.0.2.2
"""
LOAD = "paced load"
"""Name of the only condition of a round."""

_MACHINE = 0
_TIMEOUT_S = 5.0
_WAIT_S = _TIMEOUT_S + 1.0
_LATE_LIMIT_MS = 5.0
"""Limit of the median delay with which queries are sent, ms. Above it, a round is refused."""
_LEAST_PHASE_MS = 1.0


@dataclass(frozen=True, slots=True)
class Stream:
    """A part of the load's queries: those that one stub or proxy at the near end forwards."""

    protocol: Protocol
    connection: str
    """Connection of each query: `kept`, `new` (with a full handshake) or `0-rtt` (new, with early data)."""

    @property
    def resumption(self) -> Resumption:
        """Resumption that the stub uses: early data for `0-rtt`, otherwise none."""
        return Resumption.EARLY_DATA if self.connection == "0-rtt" else Resumption.NONE

    def clients(self, plan: Plan) -> int:
        """Number of clients that send the queries: several on a kept connection, otherwise one."""
        return plan.options.clients if self.connection == "kept" else 1


STREAMS = (
    *(Stream(protocol, "kept") for protocol in SIX_TRANSPORTS),
    *(Stream(protocol, "new") for protocol in SIX_TRANSPORTS if protocol is not Protocol.DOUDP),
    *(Stream(protocol, "0-rtt") for protocol in SIX_TRANSPORTS if protocol.transport.over_quic),
)


def streams(plan: Plan) -> tuple[Stream, ...]:
    """Streams of a plan. With dnsproxy, all are `kept`: it cannot close connections on command or send early data."""
    return tuple(stream for stream in STREAMS if plan.options.proxy == "crosslayer" or stream.connection == "kept")


def schedule(
    plan: Plan, order: Iterable[int], loaded: Sequence[Stream] | None = None
) -> list[tuple[dns.Due, int | None, int, int]]:
    """Schedule of the queries of a round: (due, stream, client, number of the query) for each query.

    The stream is an index in `loaded`, or None for a query that a socket on BIND's own host sends directly to BIND.
    `due.asker` is the index of the client among all clients of the round. Query 0 of a stream sets up its connection.

    Parameters
    ----------
    plan
        Plan with the options `clients`, `interval_ms` and `queries`.
    order
        Indexes of the streams in the order in which they send. With n streams, index n stands for the queries that a
        socket on BIND's own host sends directly to BIND.
    loaded
        The streams; None for the streams of the plan.
    """
    loaded = streams(plan) if loaded is None else loaded
    numbers: list[int | None] = [None if number == len(loaded) else number for number in order]
    options = plan.options
    clients = [
        (s, c) for c in range(options.clients) for s in numbers if c < (1 if s is None else loaded[s].clients(plan))
    ]
    phase_ms = options.interval_ms / len(clients)
    rows = []
    for number in range(options.queries + 1):
        for asker, (stream, client) in enumerate(clients):
            if number == 0 and client > 0:
                continue  # the query of one client sets up the connection
            rows.append((dns.Due(number * options.interval_ms + asker * phase_ms, asker), stream, client, number))
    return rows


@dataclass(frozen=True, slots=True)
class LoadedQuery:
    """A query of the load, and what the stub reports about it."""

    asked: dns.Asked
    stream: int | None
    """Index of its stream; None for a query that a socket on BIND's own host sends directly to BIND."""
    client: int
    number: int
    metrics: QueryMetrics | None = None


class PacedLoad:
    """Sends the queries of a plan to the stubs or proxies at the near end. A context manager that closes its sockets.

    Parameters
    ----------
    plan
        Plan with the options `clients`, `interval_ms` and `queries`.
    loaded
        The streams.
    near
        Address and port of the stub or proxy of each stream.
    stubs
        The stub of each stream; empty if the near end consists of other programs.
    query
        The query that is sent.
    at_bind
        Socket on BIND's own host for queries to BIND; None if there is no BIND.
    """

    def __init__(
        self,
        plan: Plan,
        loaded: Sequence[Stream],
        near: Sequence[tuple[str, int]],
        stubs: Sequence[Stub],
        query: dns.Query,
        at_bind: dns.Asker | None = None,
    ) -> None:
        self._plan, self._streams, self._stubs, self._query, self._at_bind = plan, loaded, stubs, query, at_bind
        self._stack = contextlib.ExitStack()
        enter = self._stack.enter_context
        try:
            self._askers = {
                (number, client): enter(contextlib.closing(dns.Asker(near[number])))
                for number, stream in enumerate(loaded)
                for client in range(stream.clients(plan))
            }
            # Closing may wait for a ticket and must not delay the load. A stub handles one command at a time.
            self._closers = [enter(ThreadPoolExecutor(1)) for _ in loaded]
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self._stack.close()

    def warm_up(self) -> None:
        """Send one query to each stub or proxy at the near end, then close the connections of the stubs."""
        for number in range(len(self._streams)):
            self._ask([dns.Due(0.0, 0)], [self._askers[number, 0]])
        for stub in self._stubs:
            stub.reset_sessions()

    def run(self, order: Iterable[int]) -> list[LoadedQuery]:
        """Send the queries of a round and return them. `order`: see `schedule`. Stubs begin without connections."""
        wanted = schedule(self._plan, order, self._streams)
        askers: dict[int, dns.Asker] = {}
        closing: dict[int, int] = {}
        for due, stream, client, _number in wanted:
            asker = self._at_bind if stream is None else self._askers[stream, client]
            assert asker is not None, "only a load with BIND at hand asks it"
            askers[due.asker] = asker
            if stream is not None and self._streams[stream].connection != "kept":
                closing[due.asker] = stream
        for stub in self._stubs:
            stub.forget()
            stub.metrics()  # discard rows of earlier queries
        asked = self._ask([due for due, *_ in wanted], [askers[n] for n in range(len(askers))], closing)
        reported = [_by_port(stub.metrics()) for stub in self._stubs]
        queries = []
        for query, (_, stream, client, number) in zip(asked, wanted, strict=True):
            metrics = None
            if stream is not None and reported:
                metrics = _first_after(reported[stream].get(askers[query.due.asker].port, []), query.sent_ns)
            queries.append(LoadedQuery(query, stream, client, number, metrics))
        return queries

    def fault(self, query: LoadedQuery) -> str | None:
        """Why a query has no valid answer; None if it has one."""
        if self._stubs and query.metrics is None:
            return "the stub has no metrics of this query"
        if query.metrics is not None and query.metrics.error:
            return query.metrics.error
        if query.asked.answered_ns is None:
            return "no answer"
        return dns.check_answer(self._query.wire[:2] + query.asked.answer[2:], self._query).error

    def _ask(
        self, wanted: list[dns.Due], askers: list[dns.Asker], closing: dict[int, int] | None = None
    ) -> list[dns.Asked]:
        """Send the queries at their times and return them with their answers.

        `closing` maps the index of an asker to the index of its stream. After each answer to this asker, the stream's
        stub closes its connection to the upstream.
        """
        of_asker = closing or {}
        closed: list[Future[int]] = []

        def answered(asker: int) -> None:
            if asker in of_asker:
                stream = of_asker[asker]
                closed.append(self._closers[stream].submit(self._stubs[stream].reset_sessions))

        asked = dns.ask_at_pace(askers, wanted, self._query.wire, timeout_s=_WAIT_S, answered=answered)
        for future in closed:
            future.result()
        return asked


def named(stream: Stream, client: int, number: int) -> dict[str, Any]:
    """The columns that distinguish a row from others of its round."""
    return {
        "protocol": stream.protocol.value,
        "connection_mode": stream.connection,
        "client": client,
        "number": number,
        "role": (Role.PRIMING if number == 0 else Role.MEASURED).value,
    }


def result(query: dns.Asked, error: str | None) -> dict[str, Any]:
    """The columns that the client measures for a query, and the error of the query."""
    return {"started_s": query.sent_ns / 1e9, "error": error} | PacedQueries.taken(tables.ASKED, query)


def check_streams(plan: Plan, clients: int) -> None:
    """Raise `CampaignError` if `interval_ms` divided by the number of clients is less than `_LEAST_PHASE_MS`."""
    if plan.options.interval_ms / clients < _LEAST_PHASE_MS:
        raise CampaignError(
            f"{clients} clients cannot each ask every {plan.options.interval_ms} ms, one after the other",
            where="plan, key 'interval_ms'",
            next_step=f"Give at least {round(clients * _LEAST_PHASE_MS)}, or fewer clients.",
        )


def check_pace(asked: Sequence[dns.Asked], where: str) -> None:
    """Refuse a round whose queries were sent too late.

    Raises
    ------
    CampaignError
        If the median delay of sending exceeds `_LATE_LIMIT_MS`.
    """
    late = statistics.median(query.send_delay_ms for query in asked)
    if late > _LATE_LIMIT_MS:
        raise CampaignError(
            f"the load generator cannot hold its rate: half of its queries left more than {late:.1f} ms late",
            where=where,
            next_step="Give a longer interval_ms or fewer clients. Finished rounds are kept: `crosslayer export` makes "
            "a dataset of them.",
        )


class Authoritative(Measurer):
    """Measures the study: starts BIND and a proxy on a far host and, at the near end, a stub or proxy for each stream.

    The queries of the load are sent to the stubs or proxies at the near end.

    Raises
    ------
    CampaignError
        If the interval is too short for the number of clients.
    BindError, ServerError, StubError, DnsproxyError
        If BIND, our server, a stub or dnsproxy does not start.
    """

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        plan = context.plan
        self._streams = streams(plan)
        check_streams(plan, sum(stream.clients(plan) for stream in self._streams) + 1)
        self._query = dns.build_query(dns.Question(NAME), Protocol.DOUDP, dns.ClientSettings())
        self._stack = contextlib.ExitStack()
        self._programs: list[Process] = []
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def _start(self) -> None:
        folder, enter = self.context.folder, self._stack.enter_context
        machine, address = enter(network.far_host(_MACHINE, self.context.plan.congestion_control))
        spawn = functools.partial(network.spawn, machine)
        self._programs.append(enter(Bind.start(spawn, folder=folder / "bind", origin=ORIGIN, zone=ZONE)))
        self._server: Server | None = None
        self._stubs: list[Stub] = []
        self._proxies: list[Dnsproxy] = []
        if self.context.plan.options.proxy == "dnsproxy":
            self._start_dnsproxy(spawn, address)
        else:
            self._start_ours(spawn, address)
        with namespaces.namespace(machine):
            at_bind = enter(contextlib.closing(dns.Asker(LOCAL)))
        near = [(_near(number), 53) for number in range(len(self._streams))]
        self._load = enter(PacedLoad(self.context.plan, self._streams, near, self._stubs, self._query, at_bind))

    def _start_ours(self, spawn: Spawn, address: str) -> None:
        folder, enter = self.context.folder, self._stack.enter_context
        self._server = enter(
            Server.start(
                spawn, pages_dir=None, addresses={}, folder=folder / "proxy", upstream=f"{LOCAL[0]}:{LOCAL[1]}"
            )
        )
        self._programs.append(self._server)
        far = dns.Resolver(address, server_name="localhost", ca_file=self._server.ca_file)
        for number, stream in enumerate(self._streams):
            settings = StubSettings.towards(
                far, stream.protocol, stream.resumption, listen=f"{_near(number)}:53", timeout_s=_TIMEOUT_S
            )
            self._stubs.append(enter(Stub.start(subprocess.Popen, settings, folder / f"stub-{number}")))
        self._programs += self._stubs

    def _start_dnsproxy(self, spawn: Spawn, address: str) -> None:
        folder, enter = self.context.folder, self._stack.enter_context
        certificates = make_certificates(folder, ["localhost"], [address])
        far = enter(Dnsproxy.start(spawn, far_end(address, LOCAL, certificates), folder / "dnsproxy-far.log"))
        for number, stream in enumerate(self._streams):
            arguments = near_end(_near(number), stream.protocol, address)
            log, ca_file = folder / f"dnsproxy-{stream.protocol.value}.log", certificates.ca_file
            self._proxies.append(enter(Dnsproxy.start(subprocess.Popen, arguments, log, ca_file=ca_file)))
        self._programs += [far, *self._proxies]
        for number, proxy in enumerate(self._proxies):
            with contextlib.closing(dns.Asker((_near(number), 53))) as asker:
                proxy.wait_until(functools.partial(self._answers, asker))

    def _answers(self, asker: dns.Asker) -> bool:
        (asked,) = dns.ask_at_pace([asker], [dns.Due(0.0, 0)], self._query.wire, timeout_s=1.0)
        return asked.answered_ns is not None

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Versions of the programs that only this study needs."""
        return {"bind": bind_version()} | ({"dnsproxy": dnsproxy_version()} if plan.options.proxy == "dnsproxy" else {})

    def close(self) -> None:
        """Stop all programs and remove the far host."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """One condition: all transports are loaded at the same time."""
        return [LOAD]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """The table, and no columns, because the rows of a round have no transport in common."""
        return "paced_queries", {}

    def warm_up(self) -> None:
        """Send one query to each stub or proxy at the near end, then close the connections of the stubs."""
        self._load.warm_up()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Measure one round of the load.

        Raises
        ------
        CampaignError
            If this machine sends the queries too late, see `check_pace`.
        """
        plan = self.context.plan
        numbers = plan.shuffled(round_number, cell, [str(number) for number in range(len(self._streams) + 1)])
        before = [proxy.sockets() for proxy in self._proxies]
        self._events()
        queries = self._load.run(map(int, numbers))
        for program in self._programs:  # if one is dead, all further queries fail
            program.raise_if_dead()
        check_pace([query.asked for query in queries], f"link {cell.link}, round {round_number}")
        stood = [
            _stood(stream.protocol, sockets, proxy.sockets())
            for stream, sockets, proxy in zip(self._streams, before, self._proxies, strict=False)
        ]
        early = {
            (event.listener, event.remote): not event.handshake_complete
            for event in self._events()
            if isinstance(event, QueryEvent)
        }
        ranks = {int(number): rank for rank, number in enumerate(numbers)}
        authority = [query.asked.response_ms for query in queries if query.stream is None]
        common = self.row(condition, cell, round_number, position) | {
            "page": None,
            "authority_ms": statistics.fmean(times) if (times := [t for t in authority if t is not None]) else None,
        }
        rows = []
        for query in queries:
            if query.stream is None:
                continue
            stream = self._streams[query.stream]
            row = common | named(stream, query.client, query.number) | {"position": ranks[query.stream]}
            if self._proxies:
                of_proxy = stood[query.stream]
                row["new_connection"] = None if of_proxy is None else not of_proxy
            else:
                row |= _stub_columns(stream, query.metrics, early)
            rows.append(row | result(query.asked, self._load.fault(query)))
        return {"paced_queries": rows}

    def failed(self, condition: str, cell: Cell, round_number: int, position: int, why: str) -> Rows:
        """One row per stream, each with the error."""
        row = self.row(condition, cell, round_number, position) | {"page": None, "started_s": time.time(), "error": why}
        return {"paced_queries": [row | named(stream, 0, 1) for stream in self._streams]}

    def _events(self) -> list[Event]:
        return self._server.events() if self._server else []


def _near(number: int) -> str:
    """Address on which the stub or proxy of a stream listens."""
    return f"127.0.0.{number + 2}"


def _stood(protocol: Protocol, before: frozenset[str], after: frozenset[str]) -> bool | None:
    """Whether a dnsproxy kept its connection during a round, from its sockets before and after.

    True if it had the same sockets before and after. Also True for DoUDP, in any case, because it has no connection.
    False if it had no sockets before and after: each query had a connection of its own. None if the sockets changed,
    because it is unknown which queries this affected.
    """
    if protocol is Protocol.DOUDP:
        return True
    if before == after:
        return bool(before)  # without sockets, each query had a connection of its own
    return None


def _by_port(reported: list[QueryMetrics]) -> dict[int, list[QueryMetrics]]:
    """Metrics of a stub by the client's port, in the order of arrival."""
    by_port: dict[int, list[QueryMetrics]] = {}
    for row in sorted(reported, key=lambda row: row.time_ns):
        by_port.setdefault(int(row.client.rpartition(":")[2]), []).append(row)
    return by_port


def _first_after(reported: list[QueryMetrics], sent_ns: int) -> QueryMetrics | None:
    """Metrics of the query that the client sent at `sent_ns`: the first that arrived at the stub after this time."""
    index = bisect_left(reported, sent_ns, key=lambda row: row.time_ns)
    return reported[index] if index < len(reported) else None


def _stub_columns(stream: Stream, row: QueryMetrics | None, early: dict[tuple[str, str], bool]) -> dict[str, Any]:
    """Columns of a query from the stub's metrics. `early_data_accepted` is from the server log."""
    if row is None:
        return {}
    columns = PacedQueries.taken(tables.STUB, row)
    if stream.connection == "0-rtt":
        came = early.get((stream.protocol.value.lower(), f"{network.CLIENT_ADDRESS}:{row.local_port}"))
        columns["early_data_accepted"] = bool(came)
    return columns


MEASURER = Authoritative
