"""The `coalescing` study (Sengupta et al., TNSM 2024): what one round of a cell measures.

DNS exchanges over DoUDP, DoH and DoQ with full handshakes, the TCP RTT, and H3 1-RTT and H3 0-RTT loads of the
page, whose address Chromium is told. Combinations of both are computed afterwards, as the paper does.
"""

from __future__ import annotations

import time
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from crosslayer import dns
from crosslayer.browser import Browser, BrowserError, BrowserPrograms, PageLoad
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.schema import DNS_EXCHANGES
from crosslayer.campaign.store import Rows
from crosslayer.pages import PageSpec
from crosslayer.testbed import network
from crosslayer.testbed.server import RequestEvent, Server

_DNS = {p.value: p for p in (dns.Protocol.DOUDP, dns.Protocol.DOH, dns.Protocol.DOQ)}
_TCP_RTT = "TCP RTT"
# condition -> (column h3, column variant, which host is primed: None for the page's own, else the number of its alias)
_LOADS: dict[str, tuple[str, str, int | None]] = {
    "H3 1-RTT": ("1-rtt", "main", 0),
    "H3 0-RTT": ("0-rtt", "main", None),
}
_AA_LOADS: dict[str, tuple[str, str, int | None]] = {
    "A/A 1": ("1-rtt", "aa-1", 0),
    "A/A 2": ("1-rtt", "aa-2", 1),
}
_LOADS_PER_PROCESS = 400
"""Chromium is started anew after so many loads, so that none is measured in a process that has grown old."""


class Coalescing:
    """Measures the conditions of this study, one at a time, with one Chromium kept between them."""

    def __init__(
        self,
        plan: Plan,
        campaign: str,
        pages: dict[str, PageSpec],
        server: Server,
        addresses: dict[str, str],
        programs: BrowserPrograms,
        folder: Path,
    ) -> None:
        self._plan = plan
        self._campaign = campaign
        self._pages = pages
        self._server = server
        self._addresses = addresses
        self._programs = programs
        self._folder = folder
        self._browser: Browser | None = None
        self._processes = 0
        self._resolver = dns.Server(network.SERVER_ADDRESS, server_name="localhost", ca_file=server.ca_file)
        self._capture = dns.Capture()

    def __enter__(self) -> Coalescing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_browser()
        self._capture.close()

    def _close_browser(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def conditions(self, cell: Cell) -> list[str]:
        """What a round of this cell measures, in no particular order."""
        return [*_DNS, _TCP_RTT, *_LOADS, *(_AA_LOADS if self._plan.has_aa(cell) else ())]

    def warm_up(self) -> None:
        """Do everything once without recording it, so that imports and caches are not in the first round."""
        page = self._pages[self._plan.pages[0]]
        for protocol in _DNS.values():
            dns.exchange(self._resolver, dns.Question(page.host), protocol, capture=self._capture)
        self._open_browser()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation as rows by table; a failure is a row with its error."""
        identity = {
            "campaign": self._campaign,
            "round": round_number,
            "link": cell.link,
            "study": self._plan.study,
            "page": cell.page,
            "position": position,
        }
        page = self._pages[cell.page]
        if condition in _DNS:
            return {"dns_exchanges": [identity | self._exchange(_DNS[condition], page)]}
        if condition == _TCP_RTT:
            return {"tcp_rtts": [identity | self._tcp_rtt(page)]}
        h3, variant, alias = (_LOADS | _AA_LOADS)[condition]
        return self._load(identity | {"h3": h3, "variant": variant}, page, alias)

    def failed(self, condition: str, cell: Cell, round_number: int, position: int, why: str) -> Rows:
        """The row of an observation that could not be made at all."""
        row: dict[str, Any] = {
            "campaign": self._campaign,
            "round": round_number,
            "link": cell.link,
            "study": self._plan.study,
            "page": cell.page,
            "position": position,
            "started_s": time.time(),
            "error": why,
        }
        if condition in _DNS:
            return {"dns_exchanges": [row | {"protocol": condition, "resumption": "none", "warming": False}]}
        if condition == _TCP_RTT:
            return {"tcp_rtts": [row]}
        h3, variant, _alias = (_LOADS | _AA_LOADS)[condition]
        return {"page_loads": [row | {"h3": h3, "variant": variant, "coupling": "decoupled"}]}

    def _exchange(self, protocol: dns.Protocol, page: PageSpec) -> dict[str, Any]:
        result = dns.exchange(self._resolver, dns.Question(page.host), protocol, capture=self._capture)
        return {name: getattr(result, name) for name in _EXCHANGE_COLUMNS}

    def _tcp_rtt(self, page: PageSpec) -> dict[str, Any]:
        started = time.time()
        try:
            return {"started_s": started, "rtt_ms": dns.tcp_rtt(dns.Server(self._addresses[page.host]))}
        except dns.DnsError as error:
            return {"started_s": started, "error": str(error)}

    def _load(self, row: dict[str, Any], page: PageSpec, alias: int | None) -> Rows:
        row |= {"coupling": "decoupled"}
        prime_host = page.host if alias is None else page.aliases[alias]
        started = time.time()
        try:
            browser = self._open_browser()
            self._server.events()  # what came before is not evidence for this load
            load = browser.load(
                page.host, prime_host=prime_host, close_connections=lambda: self._server.close_connections("h3")
            )
        except BrowserError as error:
            self._close_browser()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        row |= _columns(load)
        row |= self._evidence(page, wants_early_data=row["h3"] == "0-rtt")
        place = {key: row[key] for key in ("campaign", "round", "link", "study", "page", "h3", "variant", "position")}
        return {"page_loads": [row], "resources": [place | asdict(resource) for resource in load.resources]}

    def _evidence(self, page: PageSpec, *, wants_early_data: bool) -> dict[str, Any]:
        """What the server says of the measured load: was the request early data, was the session resumed."""
        requests = [
            event
            for event in self._server.events()
            if isinstance(event, RequestEvent)
            and event.listener == "h3"
            and event.path == "/"
            and event.host == page.host
        ]
        if not requests:
            return {"error": "the server saw no request of this load over HTTP/3"}
        early = not requests[-1].handshake_complete
        evidence: dict[str, Any] = {"early_data_accepted": early, "session_resumed": requests[-1].resumed}
        if early != wants_early_data:
            meant, seen = ("0-RTT", "no early data") if wants_early_data else ("1-RTT", "early data")
            evidence["error"] = f"meant to be {meant}, but the server saw {seen}"
        return evidence

    def _open_browser(self) -> Browser:
        if self._browser is not None and self._browser.loads >= _LOADS_PER_PROCESS:
            self._close_browser()
        if self._browser is None:
            self._processes += 1
            self._browser = Browser(
                self._programs,
                folder=self._folder / f"browser-{self._processes}",
                addresses=self._addresses,
                spki=self._server.spki,
            )
            page = self._pages[self._plan.pages[0]]
            self._browser.load(
                page.host, prime_host=page.aliases[0], close_connections=lambda: self._server.close_connections("h3")
            )
        return self._browser


_EXCHANGE_COLUMNS = tuple(
    column.name for column in DNS_EXCHANGES if column.name in {field.name for field in fields(dns.Exchange)}
)
_LOAD_COLUMNS = (
    "started_s", "setup_ms", "plt_ms", "fcp_ms", "connect_start_ms", "connect_ms", "secure_connection_start_ms",
    "fetch_start_ms", "domain_lookup_start_ms", "domain_lookup_end_ms", "request_start_ms", "response_start_ms",
    "response_end_ms", "dom_interactive_ms", "dom_content_loaded_ms", "dom_complete_ms", "transfer_bytes", "navigation",
)  # fmt: skip


def _columns(load: PageLoad) -> dict[str, Any]:
    return {name: getattr(load, name) for name in _LOAD_COLUMNS} | {"resource_count": len(load.resources)}
