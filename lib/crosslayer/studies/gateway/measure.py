"""The `gateway` study: first visits of a browser that resolves over DoH3, without a gateway and through one.

Chromium never sends DNS queries on a page's connection. Here it queries a local stub that contains the gateway. In its
answers, the stub replaces the server's address by the gateway's, so Chromium loads the page from the gateway over
HTTP/3. Over the link, the gateway uses one connection for lookups and pages, or two connections. Two connections are
also used without a gateway. For each load, a new stub is started, which has no sessions of earlier loads. The resolver
runs on the page's host.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from crosslayer import dns
from crosslayer.browser import Browser, BrowserError, PageLoad
from crosslayer.campaign.evidence import incomplete, load_evidence, mismatch
from crosslayer.campaign.instruments import KeptBrowser, load_columns, resolving, resource_rows
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.pages import PageSpec
from crosslayer.stub import Gateway, QueryMetrics, Stub, StubError, StubSettings
from crosslayer.studies.gateway.kinds import KINDS, NONE, GatewayKind
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent

_LISTEN = "127.0.0.1"
_QUIC_PORT = 443


class Gateways(Measurer):
    """Page loads without and with a gateway, in one Chromium that stays open between loads."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        namespaces.use_resolver(_LISTEN)
        first = context.pages[context.plan.pages[0]]
        self._kept = KeptBrowser(context, lambda browser: self._load(browser, first, KINDS[NONE]), **resolving(context))

    def close(self) -> None:
        """End Chromium."""
        self._kept.close()

    def conditions(self, cell: Cell) -> list[str]:
        """All kinds of load."""
        return list(KINDS)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "page_loads", KINDS[condition].columns

    def warm_up(self) -> None:
        """Load one page."""
        self._kept.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Load a page; return its row and the rows of its resources."""
        row = self.row(condition, cell, round_number, position)
        page, kind = self.context.pages[cell.page], KINDS[condition]
        started = time.time()
        try:
            load, queries, carried = self._load(self._kept.open(), page, kind)
        except (BrowserError, StubError) as error:
            self.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        events = self.context.server.events()
        evidence = evidence_columns(events, kind, page, {query.local_port for query in queries}, carried)
        row = row | load_columns(load) | {"lookup_count": len({query.name for query in queries})}
        row = row | incomplete(events, page, load) | evidence
        return {"page_loads": [row], "resources": resource_rows(row, load, events)}

    def _load(
        self, browser: Browser, page: PageSpec, kind: GatewayKind
    ) -> tuple[PageLoad, list[QueryMetrics], dict[int, int]]:
        """Make the measured load; returns the load, the metrics of the stub's queries, and the gateway's counts.

        The counts are those of `Stub.carried`: requests that the gateway forwarded, by local port.
        """
        server = self.context.server
        resolver = dns.Resolver(self.context.addresses[page.host], page.host, server.ca_file)
        gateway = None
        if kind.through is not None:
            files = server.certificates
            listen = f"{network.CLIENT_ADDRESS}:{_QUIC_PORT}"
            gateway = Gateway(listen, files.certificate_file, files.key_file, kind.through)
        settings = StubSettings.towards(
            resolver,
            dns.Protocol.DOH3,
            dns.Resumption.NONE,
            listen=f"{_LISTEN}:53",
            post_quantum=True,  # like the browser's own connection in loads without a gateway
            gateway=gateway,
        )
        with Stub.start(subprocess.Popen, settings, self.context.folder / "stub") as stub:

            def reset() -> None:
                stub.forget()
                stub.metrics()
                server.events()

            load = browser.load_resolving(
                page.host, reset_sessions=reset, close_connections=lambda: server.close_connections("h3")
            )
            carried = stub.carried() if gateway else {}
            stub.reset_sessions()  # waits for queries in flight, so that `metrics` includes them
            return load, stub.metrics(), carried


def evidence_columns(
    events: Sequence[Event], kind: GatewayKind, page: PageSpec, asked_from: Collection[int], carried: Mapping[int, int]
) -> dict[str, Any]:
    """Columns of `page_loads` from the server log; `error` describes a mismatch with the condition.

    Parameters
    ----------
    events
        Events of the server log since the start of the load.
    kind, page
        Condition of the load.
    asked_from
        Local ports of the stub's queries.
    carried
        Number of requests that the gateway forwarded, by its local port.
    """
    queries = [event for event in events if isinstance(event, QueryEvent)]
    own = {resource.path for resource in page.resources}  # a DoH3 request also has the page's host
    requests = [e for e in events if isinstance(e, RequestEvent) and e.host == page.host and e.path in own]
    over = {query.remote for query in queries} | {request.remote for request in requests}
    evidence = load_evidence(events, page, early_data=False, resumed=False, validated=False)
    evidence["connection_count"] = len(over)
    kinds = Counter(query.type for query in queries)
    by_port = Counter(_port(request.remote) for request in requests)
    if kinds["A"] != 1 or {(query.name, query.listener) for query in queries} != {(f"{page.host}.", "doh3")}:
        seen = ", ".join(f"{query.listener} {query.name} {query.type}" for query in queries)
        fault: str | None = f"the server was asked not once for the page's address, over DoH3, but: {seen or 'nothing'}"
    elif len(requests) != len(page.resources):
        fault = f"the server saw {len(requests)} requests of the page instead of {len(page.resources)}"
    elif {_port(query.remote) for query in queries} != set(asked_from):
        fault = "the server was asked by another than the stub"
    elif (by_port if kind.through else {}) != carried:
        fault = f"by port, the gateway passed on {dict(carried)} requests and the server saw {dict(by_port)}"
    else:
        fault = mismatch(evidence, {"connection_count": kind.connection_count})
    return evidence | {"error": evidence.get("error") or fault}


def _port(remote: str) -> int:
    return int(remote.rpartition(":")[2])


MEASURER = Gateways
