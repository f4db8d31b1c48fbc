"""Instruments of studies, and functions that make rows from their results.

The instruments are clients for DNS exchanges and TCP connects, and browsers for page loads.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from crosslayer import dns
from crosslayer.browser import (
    WARM_UP_HOST,
    Browser,
    BrowserError,
    BrowserPrograms,
    PageLoad,
    find_browser,
    launch,
)
from crosslayer.campaign import tables
from crosslayer.campaign.evidence import (
    TokenWatch,
    exchange_columns,
    incomplete,
    load_evidence,
    mismatch,
    server_ms,
)
from crosslayer.campaign.measurer import RoundContext
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import PageLoads, Resources
from crosslayer.dns.capture import measure
from crosslayer.dns.exchange import CLIENTS
from crosslayer.pages import PageSpec, normal_path
from crosslayer.stub import Stub, StubSettings
from crosslayer.testbed.server import Event, RequestEvent

if TYPE_CHECKING:
    from crosslayer.campaign.conditions import Load

_Key = TypeVar("_Key")

_QUESTION_TIMEOUT_S = 10.0

LOADS_PER_PROCESS = 100
"""Number of loads after which a browser is restarted.

Within 400 loads of one process, Chromium's PLT of example.org on fiber grew from 60 to 68 ms.
"""


class Exchanges:
    """Makes DNS exchanges with the testbed's server, and TCP connects to hosts of the testbed."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._resolver = dns.Resolver(context.server.address, server_name="localhost", ca_file=context.server.ca_file)
        self._capture = dns.Capture()

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()

    def exchange(
        self,
        row: Mapping[str, Any],
        name: str,
        protocol: dns.Protocol,
        resumption: dns.Resumption = dns.Resumption.NONE,
        settings: dns.ClientSettings | None = None,
    ) -> list[dict[str, Any]]:
        """Resolve a name on a new connection. If this resumes a session, make a priming exchange before it.

        Returns
        -------
        list
            Rows of `dns_exchanges`, from `exchange_rows`.
        """
        results = warmed(
            self._resolver, dns.Question(name), protocol, resumption, capture=self._capture, settings=settings
        )
        return exchange_rows(row, results, self._context.server.events(), condition=f"before {resumption}")

    def tcp_rtt(self, name: str) -> dict[str, Any]:
        """Make a TCP connect to a host of the testbed; returns columns of `tcp_rtts`."""
        started = time.time()
        try:
            return {"started_s": started, "rtt_ms": dns.tcp_rtt(dns.Resolver(self._context.addresses[name]))}
        except dns.DnsError as error:
            return {"started_s": started, "error": str(error)}


class StubExchanges(Generic[_Key]):
    """Makes DNS exchanges through several Go stubs (quic-go, crypto/tls) on loopback addresses.

    Parameters
    ----------
    context
        Plan and running testbed.
    stubs
        For each stub, by a key that `exchange` receives: its transport, and further fields of `StubSettings`.
    """

    def __init__(self, context: RoundContext, stubs: Mapping[_Key, tuple[dns.Protocol, Mapping[str, Any]]]) -> None:
        self._capture = dns.Capture()
        self._stubs: dict[_Key, Stub] = {}
        self._upstream = context.server.address
        upstream = dns.Resolver(self._upstream, server_name="localhost", ca_file=context.server.ca_file)
        try:
            for number, (key, (protocol, others)) in enumerate(stubs.items(), 1):
                settings = StubSettings.towards(
                    upstream, protocol, dns.Resumption.NONE, listen=f"127.0.0.{number}:53", **others
                )
                self._stubs[key] = Stub.start(subprocess.Popen, settings, context.folder / f"stub-{number}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the stubs."""
        for stub in self._stubs.values():
            stub.stop()
        self._capture.close()

    def exchange(self, key: _Key, name: str) -> dict[str, Any]:
        """Resolve a name through a stub on a new connection with a full handshake.

        Returns columns of `dns_exchanges`.
        """
        stub = self._stubs[key]
        stub.forget()
        stub.metrics()  # discard the metrics of earlier exchanges
        address = stub.listen.rpartition(":")[0]
        settings = dns.ClientSettings(timeout_s=_QUESTION_TIMEOUT_S, udp_retransmit_s=_QUESTION_TIMEOUT_S)
        started = time.time()
        with self._capture.record() as recording:
            asked = dns.exchange(dns.Resolver(address), dns.Question(name), dns.Protocol.DOUDP, settings=settings)
        queries = stub.metrics()
        if asked.error or len(queries) != 1:
            return {"started_s": started, "error": asked.error or f"the stub reported {len(queries)} queries, not one"}
        query = queries[0]
        error = query.error or mismatch({"new_connection": query.new_connection}, {"new_connection": True})
        sizes: dict[str, int | None] = {}
        if recording.complete:
            counted = measure(
                recording.packets,
                ip_protocol=CLIENTS[query.protocol].ip_protocol,
                local_port=query.local_port,
                server=(self._upstream, dns.DEFAULT_PORTS[query.protocol]),
                query_at_ns=query.time_ns + round(query.handshake_ms * 1e6),
                answered_at_ns=query.time_ns + round(query.total_ms * 1e6),
                closed_at_ns=time.time_ns(),
            )
            sizes = asdict(counted)
        return sizes | {
            "started_s": query.time_ns / 1e9,
            "error": error,
            "handshake_ms": query.handshake_ms,
            "query_ms": query.query_ms,
            "total_ms": query.total_ms,
            "session_resumed": query.resumed,
        }


class KeptBrowser:
    """A browser that stays open between loads and is restarted after `LOADS_PER_PROCESS` loads.

    Parameters
    ----------
    context
        Plan and running testbed.
    warm_up
        Makes the first load of every process, which is not recorded.
    name
        Name of the browser's folder, unique in the run.
    programs
        Programs of the browser; None for the plan's browser.
    options
        Further options of `Browser`.
    """

    def __init__(
        self,
        context: RoundContext,
        warm_up: Callable[[Browser], object],
        *,
        name: str = "browser",
        programs: BrowserPrograms | None = None,
        **options: Any,
    ) -> None:
        self._context = context
        self._warm_up = warm_up
        self._name = name
        self._programs = programs
        self._options = options
        self._browser: Browser | None = None
        self._processes = 0

    def close(self) -> None:
        """End the browser."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def open(self) -> Browser:
        """Return the browser for the next load; start or restart it if necessary."""
        if self._browser is not None and self._browser.loads >= LOADS_PER_PROCESS:
            self.close()
        if self._browser is None:
            self._processes += 1
            context = self._context
            folder = context.folder / f"{self._name}-{self._processes}"
            self._browser = launch(
                self._programs or context.programs,
                folder=folder,
                certificates=context.server.certificates,
                few_processes=context.plan.clock == "virtual",
                **self._options,
            )
            self._warm_up(self._browser)
        return self._browser


def resolving(context: RoundContext) -> dict[str, Any]:
    """Options of a `Browser` that resolves the names of the plan's pages by itself."""
    pages = [context.pages[name] for name in context.plan.pages]
    return {
        "addresses": {WARM_UP_HOST: context.addresses[WARM_UP_HOST]},
        "resolves": [host for page in pages for host in page.looked_up],
    }


class Loads:
    """Makes page loads in a browser that stays open between the loads.

    Parameters
    ----------
    context
        Plan and running testbed.
    first
        Condition of the first load of every browser process. This load is of the plan's first page and gets no row.
    name
        Name of the browser's folder, unique in the run; used only if `browser` is None.
    browser
        Name of the browser; None for the plan's browser.
    """

    def __init__(
        self, context: RoundContext, first: Load, *, name: str = "browser", browser: str | None = None
    ) -> None:
        self._context = context
        self._kept = KeptBrowser(
            context,
            lambda browser: self._load(browser, context.pages[context.plan.pages[0]], first),
            name=browser or name,
            programs=find_browser(browser) if browser else None,
            addresses=context.addresses,
        )

    def close(self) -> None:
        """End the browser."""
        self._kept.close()

    def open(self) -> Browser:
        """Return the browser for the next load. A new process first makes a load that is not recorded."""
        return self._kept.open()

    def load(self, row: dict[str, Any], page: PageSpec, condition: Load) -> Rows:
        """Load a page; returns a row of `page_loads` and a row of `resources` for each of its resources.

        Parameters
        ----------
        row
            The columns that are known before the load (`Measurer.row`).
        page
            The page to load.
        condition
            How the page is loaded, and the expected evidence. If the evidence differs, the row has an error.
        """
        started = time.time()
        server = self._context.server
        try:
            browser = self.open()
            server.set_early_data(condition.early_data)
            server.events()  # discard the events of earlier loads
            load = self._load(browser, page, condition)
        except BrowserError as error:
            self.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        events = server.events()
        evidence = load_evidence(
            events,
            page,
            early_data=condition.h3 == "0-rtt",
            resumed=condition.resumed,
            validated=condition.validated,
        )
        row = row | load_columns(load) | incomplete(events, page, load) | evidence
        return {"page_loads": [row], "resources": resource_rows(row, load, events)}

    def _load(self, browser: Browser, page: PageSpec, condition: Load) -> PageLoad:
        server = self._context.server
        alias = condition.primed_alias

        def close_connections() -> None:
            server.close_connections("h3")
            if condition.refused:
                server.rotate_ticket_keys()

        token = TokenWatch(server, page.host, browser.token_needs_ticket)
        return browser.load(
            page.host,
            prime_host=page.host if alias is None else page.aliases[alias],
            primed=lambda: alias is not None or token.kept() is condition.token,
            close_connections=close_connections,
        )


def warmed(
    server: dns.Resolver,
    question: dns.Question,
    protocol: dns.Protocol,
    resumption: dns.Resumption,
    *,
    capture: dns.Capture,
    settings: dns.ClientSettings | None = None,
) -> list[dns.ExchangeResult]:
    """Make an exchange. If it resumes a session, make a priming exchange before it, to fetch ticket and token.

    Returns the results in the order of the exchanges: the priming exchange, if any, then the measured exchange.
    """
    sessions = dns.SessionStore()
    steps = [(resumption, False)]
    if resumption is not dns.Resumption.NONE:
        steps.insert(0, (dns.Resumption.NONE, True))
    return [
        dns.exchange(
            server, question, protocol, step, sessions=sessions, settings=settings, capture=capture, priming=priming
        )
        for step, priming in steps
    ]


def exchange_rows(
    row: Mapping[str, Any], results: Iterable[dns.ExchangeResult], events: Iterable[Event], **priming: Any
) -> list[dict[str, Any]]:
    """Rows of `dns_exchanges` from the results of `warmed`: priming exchange (if any) and measured exchange.

    All rows have the columns of `row`. In the row of the priming exchange, the columns in `priming` replace columns of
    `row` with the same name.
    """
    *before, measured = results
    events = list(events)
    first = {"resumption": dns.Resumption.NONE.value, "role": "priming"} | priming
    rows = [{**row, **first} | exchange_columns(result, events) for result in before]
    return [*rows, {**row} | exchange_columns(measured, events)]


def load_columns(load: PageLoad) -> dict[str, Any]:
    """Columns of `page_loads` from a browser's report of a load.

    If a navigation gets no response, the response status is 0 and the document is the browser's own error page. The
    columns with times are then left out.
    """
    columns = PageLoads.taken(tables.LOAD, load)
    if load.navigation["responseStatus"]:
        columns |= PageLoads.taken(tables.NAVIGATION, load.navigation) | PageLoads.taken(tables.PAINT, load.paint)
        columns["resource_count"] = len(load.resources)
    return columns


def resource_rows(row: Mapping[str, Any], load: PageLoad, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Rows of `resources` for a load: `row` is its row of `page_loads`, `events` are its events in the server log."""
    served = {(event.host, event.path): server_ms(event) for event in events if isinstance(event, RequestEvent)}
    rows = []
    for entry in load.resources:
        taken = Resources.taken(tables.RESOURCE, entry)
        url = urlsplit(taken["url"])
        rows.append(Resources.identity(row) | taken | {"server_ms": served.get((url.netloc, normal_path(url.path)))})
    return rows
