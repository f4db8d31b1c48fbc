"""Page loads in a browser that queries the HTTPS record of the page's host.

Conditions differ in the HTTPS record, in the response to the query for it, in the server's ECH key, or in the handshake
(`RecordKind`). The browser sends its DNS queries to the server over DoUDP. Only the HTTPS record announces HTTP/3. The
study measures which protocol the browser uses for the document, and whether it encrypts the ClientHello. None of these
outcomes is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from crosslayer.browser import Browser, BrowserError, PageLoad
from crosslayer.campaign.evidence import TokenWatch, document_columns, incomplete
from crosslayer.campaign.instruments import KeptBrowser, load_columns, resource_rows
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.pages import PageSpec
from crosslayer.studies.https_records.records import KINDS, RecordKind
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.ech import EchKey
from crosslayer.testbed.server import Event, RequestEvent


class HttpsRecords(Measurer):
    """Measures a page load with each kind of record, all in one browser that stays open between loads."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        namespaces.use_resolver(network.SERVER_ADDRESS)
        pages = [context.pages[name] for name in context.plan.pages]
        resolved = [page.host for page in pages]
        self._keys = {page.name: EchKey.make(page.aliases[1]) for page in pages}
        self._other = {page.name: EchKey.make(page.aliases[1], number=2) for page in pages}
        self._kept = KeptBrowser(
            context,
            lambda browser: self._load(browser, pages[0], KINDS["whole"]),
            force_h3=False,
            addresses={host: address for host, address in context.addresses.items() if host not in resolved},
            resolves=resolved,
        )

    def close(self) -> None:
        """End the browser."""
        self._kept.close()

    def conditions(self, cell: Cell) -> list[str]:
        """The kinds of records that the plan selects; all kinds if it selects none."""
        return list(self.context.plan.options.kinds or KINDS)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        of_load = {"h3": KINDS[condition].h3, "coupling": "coupled", "dns_protocol": "DoUDP", "condition": condition}
        return "page_loads", of_load

    def warm_up(self) -> None:
        """Load one page."""
        self._kept.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Load a page; return its row and the rows of its resources."""
        row, page = self.row(condition, cell, round_number, position), self.context.pages[cell.page]
        started = time.time()
        try:
            browser = self._kept.open()
            self.context.server.events()  # discard earlier events: they are no evidence for this load
            load = self._load(browser, page, KINDS[condition])
        except BrowserError as error:
            self.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        events = self.context.server.events()
        row = row | load_columns(load) | incomplete(events, page, load) | evidence(events, page)
        return {"page_loads": [row], "resources": resource_rows(row, load, events)}

    def _load(self, browser: Browser, page: PageSpec, kind: RecordKind) -> PageLoad:
        server, key = self.context.server, self._keys[page.name]
        server.set_ech({"none": None, "own": key, "replaced": self._other[page.name]}[kind.ech])
        rdata = kind.rdata(page.host, key.config_list) if kind.rdata else None
        server.set_answer(page.host, "HTTPS", rdata, fault=kind.fault)
        returning = kind.h3 == "0-rtt"
        token = TokenWatch(server, page.host, browser.token_needs_ticket)
        return browser.load(
            page.host,
            prime_host=page.host if returning else page.aliases[0],
            primed=lambda: not returning or bool(token.kept()),
            close_connections=lambda: server.close_connections("h3"),
        )


def evidence(events: Iterable[Event], page: PageSpec) -> dict[str, Any]:
    """Columns of `page_loads` from the server log, for the last load of the page, which is the measured one."""
    documents = [
        event for event in events if isinstance(event, RequestEvent) and event.path == "/" and event.host == page.host
    ]
    if not documents:
        return {"error": "the server saw no request of this load"}
    return document_columns(documents[-1])


MEASURER = HttpsRecords
