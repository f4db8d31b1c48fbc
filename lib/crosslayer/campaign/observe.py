"""What studies measure with: DNS exchanges, TCP connects and page loads as rows, and the server's evidence on them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from crosslayer import dns
from crosslayer.browser import (
    KINDS,
    WARM_UP_HOST,
    Browser,
    BrowserError,
    BrowserPrograms,
    PageLoad,
    find_browser,
    launch,
)
from crosslayer.campaign import tables
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import DnsExchanges, PageLoads, Resources
from crosslayer.dns.capture import measure
from crosslayer.dns.exchange import CLIENTS
from crosslayer.pages import PageSpec
from crosslayer.stub import Stub, StubSettings
from crosslayer.testbed import network
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent, Server, TokenEvent

_QUESTION_TIMEOUT_S = 10.0

LOADS_PER_PROCESS = 100
"""A browser is started anew after so many loads: within 400, Chromium's PLT of example.org on fiber grew from 60 to
68 ms."""


class Exchanges:
    """DNS exchanges and TCP connects against the testbed's server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._resolver = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=server.ca_file)
        self._capture = dns.Capture()

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()

    def exchange(self, name: str, protocol: dns.Protocol, settings: dns.ClientSettings | None = None) -> dict[str, Any]:
        """Resolve a name on a new connection with a full handshake; columns of `dns_exchanges`."""
        result = dns.exchange(self._resolver, dns.Question(name), protocol, settings=settings, capture=self._capture)
        return exchange_columns(result, self._server.events())

    def resuming(
        self, row: Mapping[str, Any], name: str, protocol: dns.Protocol, resumption: dns.Resumption
    ) -> list[dict[str, Any]]:
        """Resolve a name on a new connection that uses an earlier one's session; rows as of `exchange_rows`."""
        results = warmed(self._resolver, dns.Question(name), protocol, resumption, capture=self._capture)
        return exchange_rows(row, results, self._server.events(), variant=f"before {resumption}")

    def tcp_rtt(self, address: str) -> dict[str, Any]:
        """One TCP connect; columns of `tcp_rtts`."""
        started = time.time()
        try:
            return {"started_s": started, "rtt_ms": dns.tcp_rtt(dns.Resolver(address))}
        except dns.DnsError as error:
            return {"started_s": started, "error": str(error)}


class StubExchanges:
    """DNS exchanges by the Go stub (quic-go, crypto/tls), one stub for each kind, on loopback addresses.

    Parameters
    ----------
    bench
        Where they are measured.
    wanted
        By name, the transport and further fields of the stub's settings.
    """

    def __init__(self, bench: Bench, wanted: Mapping[str, tuple[dns.Protocol, Mapping[str, Any]]]) -> None:
        self._capture = dns.Capture()
        self._stubs: dict[str, Stub] = {}
        upstream = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=bench.server.ca_file)
        try:
            for number, (name, (protocol, others)) in enumerate(wanted.items(), 1):
                settings = StubSettings.towards(
                    upstream, protocol, dns.Resumption.NONE, listen=f"127.0.0.{number}:53", **others
                )
                self._stubs[name] = Stub.start(subprocess.Popen, settings, bench.folder / f"stub-{number}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the stubs."""
        for stub in self._stubs.values():
            stub.stop()
        self._capture.close()

    def exchange(self, name: str, question: str) -> dict[str, Any]:
        """Resolve a name on a new connection of a stub with a full handshake; columns of `dns_exchanges`."""
        stub = self._stubs[name]
        stub.forget()
        stub.metrics()  # what came before is not of this exchange
        address = stub.listen.rpartition(":")[0]
        settings = dns.ClientSettings(timeout_s=_QUESTION_TIMEOUT_S, udp_retransmit_s=_QUESTION_TIMEOUT_S)
        started = time.time()
        with self._capture.record() as recording:
            asked = dns.exchange(dns.Resolver(address), dns.Question(question), dns.Protocol.DOUDP, settings=settings)
        told = stub.metrics()
        if asked.error or len(told) != 1:
            return {"started_s": started, "error": asked.error or f"the stub told of {len(told)} queries, not of one"}
        query = told[0]
        found: dict[str, Any] = {"started_s": query.time_ns / 1e9, "error": query.error or None}
        if not query.new_connection:
            found["error"] = found["error"] or "the stub had a connection left"
        sizes: dict[str, int | None] = {}
        if recording.complete:
            counted = measure(
                recording.packets,
                ip_protocol=CLIENTS[query.protocol].ip_protocol,
                local_port=query.local_port,
                server=(network.SERVER_ADDRESS, dns.DEFAULT_PORTS[query.protocol]),
                query_at_ns=query.time_ns + round(query.handshake_ms * 1e6),
                answered_at_ns=query.time_ns + round(query.total_ms * 1e6),
                closed_at_ns=time.time_ns(),
            )
            sizes = asdict(counted)
        return (
            found
            | sizes
            | {
                "handshake_ms": query.handshake_ms,
                "query_ms": query.query_ms,
                "total_ms": query.total_ms,
                "session_resumed": query.resumed,
            }
        )


@dataclass(frozen=True, slots=True)
class LoadKind:
    """One kind of page load: the columns that name it, what it needs, and what the server must have seen."""

    h3: str
    """`1-rtt` or `0-rtt`."""
    variant: str
    primed_alias: int | None
    """Number of the page's alias that is primed; None primes the page's own host, whose ticket then resumes."""
    token: bool = True
    """Where the page's own host is primed: whether the browser also has the token that proves its address."""
    early_data: str = "on"
    """What the server does with early data, see `Server.set_early_data`."""
    refused: bool = False
    """The server has other ticket keys than at the priming, so that the ticket is worth nothing."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `page_loads` that tell it from other kinds."""
        return {"h3": self.h3, "variant": self.variant, "coupling": "decoupled"}

    @property
    def resumed(self) -> bool:
        """Whether the connection resumes a session."""
        return self.primed_alias is None and not self.refused

    @property
    def validated(self) -> bool:
        """Whether the server knows the client's address from the first packet on."""
        return self.primed_alias is None and self.token

    @property
    def repeated(self) -> LoadKind:
        """The same once more in the same round, for the A/A self-check; another alias is primed where one was."""
        name = "aa" if self.variant == "main" else f"aa-{self.variant}"
        alias = None if self.primed_alias is None else self.primed_alias + 1
        return replace(self, variant=name, primed_alias=alias)


class KeptBrowser:
    """A browser that is kept between loads, and started anew after `LOADS_PER_PROCESS` of them.

    Parameters
    ----------
    bench
        Where it runs.
    warm_up
        A load that is not recorded, the first of every process.
    name
        Tells its folder from those of others in the same run.
    programs
        Of another browser than the plan's.
    options
        Further ones of `Browser`.
    """

    def __init__(
        self,
        bench: Bench,
        warm_up: Callable[[Browser], object],
        *,
        name: str = "browser",
        programs: BrowserPrograms | None = None,
        **options: Any,
    ) -> None:
        self._bench = bench
        self._warm_up = warm_up
        self._name = name
        self._programs = programs
        self._options = options
        self._browser: Browser | None = None
        self._processes = 0

    def close(self) -> None:
        """End it."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def open(self) -> Browser:
        """The browser of the next load."""
        if self._browser is not None and self._browser.loads >= LOADS_PER_PROCESS:
            self.close()
        if self._browser is None:
            self._processes += 1
            bench = self._bench
            folder = bench.folder / f"{self._name}-{self._processes}"
            self._browser = launch(
                self._programs or bench.programs,
                folder=folder,
                certificates=bench.server.certificates,
                few_processes=bench.plan.clock == "virtual",
                **self._options,
            )
            self._warm_up(self._browser)
        return self._browser


def resolving(bench: Bench) -> dict[str, Any]:
    """Options of a `Browser` that resolves the names of the plan's pages by itself."""
    pages = [bench.pages[name] for name in bench.plan.pages]
    return {
        "addresses": {WARM_UP_HOST: bench.addresses[WARM_UP_HOST]},
        "resolves": [host for page in pages for host in page.looked_up],
    }


class Loads:
    """Page loads in a browser that is kept between them.

    Parameters
    ----------
    bench
        Where they are measured.
    name
        Tells this browser's folder from those of others in the same run.
    browser
        Another than the plan's.
    """

    def __init__(self, bench: Bench, *, name: str = "browser", browser: str | None = None) -> None:
        self._bench = bench
        self._kept = KeptBrowser(
            bench,
            lambda browser: self._load(browser, bench.pages[bench.plan.pages[0]], LoadKind("1-rtt", "main", 0)),
            name=browser or name,
            programs=find_browser(browser) if browser else None,
            addresses=bench.addresses,
        )

    def close(self) -> None:
        """End the browser."""
        self._kept.close()

    def open(self) -> Browser:
        """The browser of the next load, warmed up by one that is not recorded."""
        return self._kept.open()

    def load(self, row: dict[str, Any], page: PageSpec, kind: LoadKind) -> Rows:
        """One measured load: a row of `page_loads` and those of its resources.

        Parameters
        ----------
        row
            The columns known before (`Measurer.row`).
        page
            What is loaded.
        kind
            How, and what the server has to say of it for the row to be free of error.
        """
        started = time.time()
        server = self._bench.server
        try:
            browser = self.open()
            server.set_early_data(kind.early_data)
            server.events()  # what came before is not evidence for this load
            load = self._load(browser, page, kind)
        except BrowserError as error:
            self.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        events, early_data = server.events(), kind.h3 == "0-rtt"
        evidence = load_evidence(events, page, early_data=early_data, resumed=kind.resumed, validated=kind.validated)
        row = row | load_columns(load) | evidence
        return {"page_loads": [row], "resources": resource_rows(row, load, events)}

    def _load(self, browser: Browser, page: PageSpec, kind: LoadKind) -> PageLoad:
        server = self._bench.server
        alias = kind.primed_alias

        def close_connections() -> None:
            server.close_connections("h3")
            if kind.refused:
                server.rotate_ticket_keys()

        def primed() -> bool:
            needs_ticket = browser.token_needs_ticket
            return alias is not None or keeps_token(server.events(), page.host, needs_ticket) is kind.token

        return browser.load(
            page.host,
            prime_host=page.host if alias is None else page.aliases[alias],
            primed=primed,
            close_connections=close_connections,
        )


def possible(plan: Plan, kinds: Mapping[str, LoadKind]) -> dict[str, LoadKind]:
    """Those kinds that the plan's browser can be primed for: one that keeps a token with every ticket has no other."""
    loses_tokens = KINDS[plan.browser].token_needs_ticket
    return {name: kind for name, kind in kinds.items() if kind.token or loses_tokens}


REFUSED = LoadKind("1-rtt", "refused", None, refused=True)
"""The negative control: primed as for 0-RTT, and yet a full handshake, by the server's word."""


def self_checks(kinds: Mapping[str, LoadKind]) -> dict[str, LoadKind]:
    """What tries a procedure that measures these kinds of load: each once more (A/A), and the negative control."""
    return {f"A/A {name}": kind.repeated for name, kind in kinds.items()} | {"Ticket refused": REFUSED}


def self_check_of(plan: Plan, cell: Cell, round_number: int, checks: Iterable[str]) -> list[str]:
    """The self-check of a round of a cell: one in turn, so that every cell has each once in `aa_period` rounds."""
    period = plan.options.aa_period
    known = list(checks)
    if not period:
        return []
    turn = (round_number + plan.cells.index(cell)) % max(period, len(known))
    return known[turn : turn + 1]


class LoadsOfKinds(Measurer):
    """A study whose conditions are kinds of page load, and nothing else."""

    kinds: ClassVar[Mapping[str, LoadKind]]
    """By condition."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._loads = Loads(bench)

    def close(self) -> None:
        """End the browser."""
        self._loads.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every kind."""
        return list(self.kinds)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "page_loads", self.kinds[condition].columns

    def warm_up(self) -> None:
        """One load."""
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load."""
        row = self.row(condition, cell, round_number, position)
        return self._loads.load(row, self.bench.pages[cell.page], self.kinds[condition])


def keeps_token(events: Iterable[Event], host: str, needs_ticket: bool) -> bool | None:
    """Whether a browser has kept the token of its last connection to a host; None where the server sent none.

    Chromium keeps one only for a server whose session ticket it has already (`needs_ticket`), and quic-go puts both
    into one packet in an order drawn for each: without a look at it, half of its loads have no token.
    """
    kept: dict[str | None, bool] = {}
    to_host = None
    for event in events:
        if isinstance(event, TokenEvent):
            kept[event.remote] = event.behind_ticket or not needs_ticket
        elif isinstance(event, RequestEvent) and event.listener == "h3" and event.host == host:
            to_host = event.remote
    return kept.get(to_host)


def load_evidence(
    events: Iterable[Event], page: PageSpec, *, early_data: bool, resumed: bool, validated: bool
) -> dict[str, Any]:
    """What the server says of the measured load, the last one of the page; columns of `page_loads`.

    Parameters
    ----------
    events
        What the server reported since before the load.
    page
        What was loaded.
    early_data, resumed, validated
        What the load was meant to be: its request early data, its handshake resumed, the client's address proved by a
        token. Where it was not, `error` says so.
    """
    requests = [
        event
        for event in events
        if isinstance(event, RequestEvent) and event.listener == "h3" and event.path == "/" and event.host == page.host
    ]
    if not requests:
        return {"error": "the server saw no request of this load over HTTP/3"}
    request = requests[-1]
    was_early, was_resumed, was_validated = not request.handshake_complete, request.resumed, request.address_validated
    evidence = document_columns(request)
    if was_early != early_data:
        meant, seen = ("1-RTT", "early data") if was_early else ("0-RTT", "no early data")
        evidence["error"] = f"meant to be {meant}, but the server saw {seen}"
    elif was_resumed != resumed:
        meant, seen = ("full", "a resumed one") if was_resumed else ("resumed", "a full one")
        evidence["error"] = f"the handshake was meant to be {meant}, but the server saw {seen}"
    elif was_validated != validated:
        meant, seen = ("no token", "one") if was_validated else ("a token", "none")
        evidence["error"] = f"the browser was meant to have {meant}, but the server saw {seen}"
    return evidence


def document_columns(request: RequestEvent) -> dict[str, Any]:
    """What the server says of the request for a load's document; columns of `page_loads`."""
    return {
        "early_data_accepted": not request.handshake_complete,
        "session_resumed": request.resumed,
        "address_validated": request.address_validated,
        "ech_accepted": request.ech,
        "server_ms": _server_ms(request),
        "key_share": request.key_share or None,
        "initials": request.initials or None,
    }


def _server_ms(request: RequestEvent) -> float:
    return (request.done_ns - request.time_ns) / 1e6


def warmed(
    server: dns.Resolver,
    question: dns.Question,
    protocol: dns.Protocol,
    resumption: dns.Resumption,
    *,
    capture: dns.Capture,
    settings: dns.ClientSettings | None = None,
) -> list[dns.Exchange]:
    """The exchange, and before it the warming one that fetches its ticket and token, where it resumes a session."""
    sessions = dns.SessionStore()
    steps = [(resumption, False)]
    if resumption is not dns.Resumption.NONE:
        steps.insert(0, (dns.Resumption.NONE, True))
    return [
        dns.exchange(
            server, question, protocol, step, sessions=sessions, settings=settings, capture=capture, warming=warming
        )
        for step, warming in steps
    ]


def exchange_rows(
    row: Mapping[str, Any], results: Iterable[dns.Exchange], events: Iterable[Event], **warming: Any
) -> list[dict[str, Any]]:
    """Rows of `dns_exchanges`: of the warming exchange where there was one, with `warming`, and of the measured one."""
    *before, measured = results
    events = list(events)
    first = {"resumption": dns.Resumption.NONE.value, "warming": True} | warming
    rows = [{**row, **first} | exchange_columns(result, events) for result in before]
    return [*rows, {**row} | exchange_columns(measured, events)]


def exchange_columns(result: dns.Exchange, events: Iterable[Event]) -> dict[str, Any]:
    """Columns of `dns_exchanges` that an exchange and the server's events on it know.

    Of an exchange over QUIC the server tells whether its query was early data and its address validated. Where that is
    not what was asked for, or it does not know of the exchange, `error` says so.
    """
    columns = DnsExchanges.taken(tables.EXCHANGE, result)
    if result.protocol not in (dns.Protocol.DOQ, dns.Protocol.DOH3):
        return columns
    told = [
        event
        for event in events
        if isinstance(event, QueryEvent)
        and event.listener == result.protocol.lower()
        and event.remote.endswith(f":{result.local_port}")
    ]
    if not told:
        return columns | {
            "early_data_accepted": None,
            "error": result.error or "the server saw no query of this exchange",
        }
    was_early, early = not told[-1].handshake_complete, result.resumption is dns.Resumption.EARLY_DATA
    columns |= {
        "early_data_accepted": was_early,
        "address_validated": told[-1].address_validated,
        "key_share": told[-1].key_share or None,
        "initials": told[-1].initials or None,
    }
    if was_early != early and not result.error:
        columns["error"] = f"the server got the query {'before' if was_early else 'after'} the handshake's end"
    return columns


def load_columns(load: PageLoad) -> dict[str, Any]:
    """What the browser says of a load; columns of `page_loads`."""
    parts = {tables.LOAD: load, tables.NAVIGATION: load.navigation, tables.PAINT: load.paint}
    found: dict[str, Any] = {"resource_count": len(load.resources)}
    for source, part in parts.items():
        found |= PageLoads.taken(source, part)
    return found


def resource_rows(row: Mapping[str, Any], load: PageLoad, events: Iterable[Event]) -> list[dict[str, Any]]:
    """The rows of `resources` that belong to a row of `page_loads`; `events` are the server's on the load."""
    served = {(event.host, event.path): _server_ms(event) for event in events if isinstance(event, RequestEvent)}
    rows = []
    for entry in load.resources:
        taken = Resources.taken(tables.RESOURCE, entry)
        url = urlsplit(taken["url"])
        rows.append(Resources.place(row) | taken | {"server_ms": served.get((url.netloc, url.path))})
    return rows
