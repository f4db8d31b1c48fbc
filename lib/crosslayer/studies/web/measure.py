"""Measures page loads in a browser that resolves names over each transport (Kosek et al., IMC 2022, section 3.2).

The namespace's resolv.conf names the stub on 127.0.0.1, so the browser queries the stub. The stub queries the resolver
at the far end over the transport under test. Each observation starts its own stub without sessions. The priming load
creates a session. Then the stub closes its connection, and the measured load resumes the session
(`Browser.load_resolving`).

With the option `resolver = "browser"`, the browser queries the resolver without the stub. Before the measured load, the
browser loads a warm-up page, and thus opens its DNS connection.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from crosslayer import dns
from crosslayer.browser import WARM_UP_HOST, Browser, BrowserError, PageLoad, SecureDns
from crosslayer.campaign import tables
from crosslayer.campaign.evidence import incomplete, load_evidence
from crosslayer.campaign.instruments import KeptBrowser, load_columns, resolving, resource_rows
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import Lookups
from crosslayer.pages import PageSpec
from crosslayer.resolvers.like import measured_times
from crosslayer.stub import QueryMetrics, Stub, StubError, StubSettings
from crosslayer.studies.web import WebOptions
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.testbed import like, namespaces, network
from crosslayer.testbed.like import LikeResolver
from crosslayer.testbed.server import Event, QueryEvent

_LISTEN = "127.0.0.1"
_OF_BROWSERS = (dns.Protocol.DOH, dns.Protocol.DOH3)
"""Transports over which a browser can resolve without the stub."""
_OF_PAPER: Mapping[dns.Protocol, Literal["pool", "query"]] = {dns.Protocol.DOTCP: "query", dns.Protocol.DOT: "pool"}
"""Transports over which the paper's proxy used several connections: one for each `query`, or a `pool`."""


class Web(Measurer):
    """Measures page loads in a browser that stays open between them; the lookups of a load use one transport."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._itself = context.plan.options.resolver == "browser"
        namespaces.use_resolver(_LISTEN)
        self._upstream = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=context.server.ca_file)
        self._kept: dict[dns.Protocol | None, KeptBrowser] = {}
        self._like: LikeResolver | None = None
        options = context.plan.options  # in the study `composition`, these are `Options`, without `resolver_like`
        if isinstance(options, WebOptions) and options.resolver_like:
            times = measured_times(options.resolver_like, "[options], key 'resolver_like'")
            for link in context.plan.links:
                times.check_link(link, context.rtts_ms[link])
            plan = context.plan
            self._like = LikeResolver(
                times,
                context.addresses,
                context.folder / "like",
                congestion_control=plan.congestion_control,
                seed=plan.seed,
                https_records=plan.options.https_records,
            )
            self._upstream = dns.Resolver(self._like.address, server_name=like.NAME, ca_file=self._like.server.ca_file)

    def close(self) -> None:
        """End the browsers and the emulated resolver."""
        self._end_browsers()
        if self._like is not None:
            self._like.close()

    def _end_browsers(self) -> None:
        for kept in self._kept.values():
            kept.close()

    @staticmethod
    def server_options(plan: Plan) -> dict[str, Any]:
        """Options of the server: whether HTTPS records announce HTTP/3."""
        return {"https_records": plan.options.https_records}

    def conditions(self, cell: Cell) -> list[str]:
        """All transports of the stub, or only DoH and DoH3 if the browser resolves without the stub."""
        return [protocol.value for protocol in (_OF_BROWSERS if self._itself else SIX_TRANSPORTS)]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "page_loads", {"h3": "1-rtt", "coupling": "coupled", "dns_protocol": condition, "condition": "main"}

    def warm_up(self) -> None:
        """Make one load in each browser."""
        for protocol in _OF_BROWSERS if self._itself else (dns.Protocol.DOUDP,):
            self._browser(protocol)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Load a page; return its row and the rows of its resources and lookups."""
        row = self.row(condition, cell, round_number, position)
        page, protocol = self.context.pages[cell.page], dns.Protocol(condition)
        started, server = time.time(), self.context.server
        if self._like is not None:
            drawn = f"{self.context.plan.seed}/{round_number}/{cell.link}"
            self._like.set_rtt(self._like.times.drawn_rtt_ms(drawn), self.context.rtts_ms[cell.link])
        try:
            browser = self._browser(protocol)
            server.events()  # discard earlier events: they are no evidence for this load
            load, queries = self._load(browser, page, protocol)
        except (BrowserError, StubError) as error:
            self._end_browsers()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        events = server.events()
        evidence = load_evidence(events, page, early_data=False, resumed=False, validated=False)
        fault = unproved(events, page, protocol) if self._itself else unaccounted(queries, page, protocol)
        asked = {event.name for event in of_page(events, page)}
        summary = {"lookup_count": len(asked)} if self._itself else lookup_summary(queries, page.host)
        lacking = incomplete(events, page, load)
        row = row | load_columns(load) | summary | lacking | ({"error": fault} if fault else {}) | evidence
        return {
            "page_loads": [row],
            "resources": resource_rows(row, load, events),
            "lookups": [Lookups.identity(row) | columns for columns in lookup_columns(queries)],
        }

    def _browser(self, protocol: dns.Protocol) -> Browser:
        """Browser for the next load: one for all transports of the stub; without the stub, one for each transport."""
        asks = protocol if self._itself else None
        if asks not in self._kept:
            context = self.context
            options = resolving(context)
            if asks is not None:
                # The browser also resolves the warm-up page, so that the DNS connection is open when the page is
                # requested. The resolver has an address as its host, because HTTP/3 may be forced for host names.
                options = {"addresses": {}, "resolves": [*options["resolves"], WARM_UP_HOST]}
                far = network.SERVER_ADDRESS
                options["secure_dns"] = SecureDns(far, far, over_h3=asks is dns.Protocol.DOH3)
            first = context.pages[context.plan.pages[0]]
            self._kept[asks] = KeptBrowser(
                context,
                lambda browser: self._load(browser, first, protocol),
                name=f"browser-{asks.value.lower()}" if asks else "browser",
                force_h3=not context.plan.options.https_records,
                **options,
            )
        return self._kept[asks].open()

    def _load(self, browser: Browser, page: PageSpec, protocol: dns.Protocol) -> tuple[PageLoad, list[QueryMetrics]]:
        """Make a priming and a measured load; return the measured one and the queries of the stub during it, if any."""
        if self._itself:
            load = browser.load_resolving(
                page.host,
                reset_sessions=self.context.server.events,  # earlier events are no evidence
                close_connections=lambda: self.context.server.close_connections("h3"),
            )
            return load, []
        shared = shared_connections(self.context.plan, protocol)
        settings = StubSettings.towards(self._upstream, protocol, listen=f"{_LISTEN}:53", connections=shared)
        with Stub.start(subprocess.Popen, settings, self.context.folder / "stub") as stub:

            def reset() -> None:
                stub.reset_sessions()
                stub.metrics()

            load = browser.load_resolving(
                page.host,
                reset_sessions=reset,
                close_connections=lambda: self.context.server.close_connections("h3"),
            )
            stub.reset_sessions()  # waits for queries in flight, so that `metrics` includes them
            return load, stub.metrics()


def shared_connections(plan: Plan, protocol: dns.Protocol) -> Literal["one", "pool", "query"]:
    """Connections that the stub uses over a transport: one, a pool, or one for each query."""
    return _OF_PAPER.get(protocol, "one") if plan.options.connections == "paper" else "one"


def unaccounted(queries: Sequence[QueryMetrics], page: PageSpec, protocol: dns.Protocol) -> str | None:
    """Error in the stub's queries of a load; None if there is none.

    The stub must have received queries for each host name of the page and for no other name. Each host name must have
    an A answer. Over encrypted transports, each new connection must have resumed the session of the priming load.
    """
    expected = set(page.looked_up)
    asked = {query.name.rstrip(".") for query in queries}
    answered = Counter(
        query.name.rstrip(".")
        for query in queries
        if query.type == "A" and not query.error and query.rcode == "NOERROR"
    )
    for what, names in (
        ("the stub was not asked for", expected - asked),
        ("the stub was asked for names that are not the page's:", asked - expected),
        ("the stub had no address for", expected - set(answered)),
    ):
        if names:
            return f"{what} {', '.join(sorted(names))}"
    opened = [query for query in queries if query.new_connection]
    if protocol.transport.encrypted and not (opened and all(query.resumed for query in opened)):
        return "the stub's connection did not resume the session of the priming load"
    return None


def of_page(events: Iterable[Event], page: PageSpec) -> list[QueryEvent]:
    """Queries in the server log for the host names of a page."""
    return [event for event in events if isinstance(event, QueryEvent) and event.name.rstrip(".") in page.looked_up]


def unproved(events: Iterable[Event], page: PageSpec, protocol: dns.Protocol) -> str | None:
    """Error in the queries of a browser that resolves without the stub, from the server log; None if there is none.

    The server must have received an A query for each host name of the page, and no query for these names over
    another transport. Queries for other names are allowed: Chromium tests its resolver with a name of Google's.
    """
    queries = of_page(events, page)
    missing = set(page.looked_up) - {query.name.rstrip(".") for query in queries if query.type == "A"}
    if missing:
        return f"the server was not asked for {', '.join(sorted(missing))}"
    others = {query.listener for query in queries} - {protocol.value.lower()}
    return f"the browser asked over {', '.join(sorted(others))}" if others else None


def lookup_summary(queries: Sequence[QueryMetrics], host: str) -> dict[str, Any]:
    """Columns of `page_loads` that summarise the lookups of a load, from the stub's metrics."""
    own = [query for query in queries if query.name.rstrip(".") == host]
    first_ns = min((query.time_ns for query in own), default=0)
    ends_ms = [(query.time_ns - first_ns) / 1e6 + query.total_ms for query in own]
    return {
        "lookup_count": len({query.name for query in queries}),
        "stub_lookup_ms": max(ends_ms, default=None),
    }


def lookup_columns(queries: Iterable[QueryMetrics]) -> list[dict[str, Any]]:
    """Columns of `lookups` for each query of a load, in order of arrival, from the stub's metrics."""
    return [
        Lookups.taken(tables.STUB, query)
        | {"number": number, "started_s": query.time_ns / 1e9, "error": query.error or None}
        for number, query in enumerate(sorted(queries, key=lambda query: query.time_ns))
    ]


MEASURER = Web
