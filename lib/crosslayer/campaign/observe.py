"""What studies measure with: DNS exchanges, TCP connects and page loads as rows, and the server's evidence on them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crosslayer import dns
from crosslayer.browser import Browser, BrowserError, PageLoad
from crosslayer.campaign import tables
from crosslayer.campaign.measurer import Bench
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import DnsExchanges, PageLoads, Resources
from crosslayer.pages import PageSpec
from crosslayer.testbed import network
from crosslayer.testbed.server import Event, RequestEvent, Server

LOADS_PER_PROCESS = 100
"""Chromium is started anew after so many loads: within 400, the PLT of example.org on fiber grew from 60 to 68 ms."""


class Exchanges:
    """DNS exchanges and TCP connects against the testbed's server."""

    def __init__(self, server: Server) -> None:
        self._resolver = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=server.ca_file)
        self._capture = dns.Capture()

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()

    def exchange(self, name: str, protocol: dns.Protocol, settings: dns.ClientSettings | None = None) -> dict[str, Any]:
        """Resolve a name on a new connection with a full handshake; columns of `dns_exchanges`."""
        return exchange_columns(
            dns.exchange(self._resolver, dns.Question(name), protocol, settings=settings, capture=self._capture)
        )

    def tcp_rtt(self, address: str) -> dict[str, Any]:
        """One TCP connect; columns of `tcp_rtts`."""
        started = time.time()
        try:
            return {"started_s": started, "rtt_ms": dns.tcp_rtt(dns.Resolver(address))}
        except dns.DnsError as error:
            return {"started_s": started, "error": str(error)}


@dataclass(frozen=True, slots=True)
class LoadKind:
    """One kind of page load: the columns that name it, what it needs, and what the server must have seen."""

    h3: str
    """`1-rtt` or `0-rtt`."""
    variant: str
    primed_alias: int | None
    """Number of the page's alias that is primed; None primes the page's own host, whose ticket then resumes."""
    early_data: str = "on"
    """What the server does with early data, see `Server.set_early_data`."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `page_loads` that tell it from other kinds."""
        return {"h3": self.h3, "variant": self.variant, "coupling": "decoupled"}


class Loads:
    """Page loads in a Chromium that is kept between them.

    Parameters
    ----------
    bench
        Where they are measured.
    name
        Tells this Chromium's folder from those of others in the same run.
    flags
        Further switches of Chromium.
    """

    def __init__(self, bench: Bench, *, name: str = "browser", flags: tuple[str, ...] = ()) -> None:
        self._bench = bench
        self._name = name
        self._flags = flags
        self._browser: Browser | None = None
        self._processes = 0

    def close(self) -> None:
        """End Chromium."""
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def open(self) -> Browser:
        """The Chromium of the next load, warmed up by one that is not recorded."""
        if self._browser is not None and self._browser.loads >= LOADS_PER_PROCESS:
            self.close()
        if self._browser is None:
            self._processes += 1
            self._browser = Browser(
                self._bench.programs,
                folder=self._bench.folder / f"{self._name}-{self._processes}",
                addresses=self._bench.addresses,
                spki=self._bench.server.spki,
                extra_flags=self._flags,
            )
            self._load(self._browser, self._bench.pages[self._bench.plan.pages[0]], 0)
        return self._browser

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
            load = self._load(browser, page, kind.primed_alias)
        except BrowserError as error:
            self.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}]}
        early_data, resumed = kind.h3 == "0-rtt", kind.primed_alias is None
        row = row | load_columns(load) | load_evidence(server.events(), page, early_data=early_data, resumed=resumed)
        return {"page_loads": [row], "resources": resource_rows(row, load)}

    def _load(self, browser: Browser, page: PageSpec, primed_alias: int | None) -> PageLoad:
        return browser.load(
            page.host,
            prime_host=page.host if primed_alias is None else page.aliases[primed_alias],
            close_connections=lambda: self._bench.server.close_connections("h3"),
        )


def load_evidence(events: Iterable[Event], page: PageSpec, *, early_data: bool, resumed: bool) -> dict[str, Any]:
    """What the server says of the measured load, the last one of the page; columns of `page_loads`.

    Parameters
    ----------
    events
        What the server reported since before the load.
    page
        What was loaded.
    early_data, resumed
        What the load was meant to be: its request early data, its handshake resumed. Where it was not, `error` says so.
    """
    requests = [
        event
        for event in events
        if isinstance(event, RequestEvent) and event.listener == "h3" and event.path == "/" and event.host == page.host
    ]
    if not requests:
        return {"error": "the server saw no request of this load over HTTP/3"}
    was_early, was_resumed = not requests[-1].handshake_complete, requests[-1].resumed
    evidence: dict[str, Any] = {"early_data_accepted": was_early, "session_resumed": was_resumed}
    if was_early != early_data:
        meant, seen = ("1-RTT", "early data") if was_early else ("0-RTT", "no early data")
        evidence["error"] = f"meant to be {meant}, but the server saw {seen}"
    elif was_resumed != resumed:
        meant, seen = ("full", "a resumed one") if was_resumed else ("resumed", "a full one")
        evidence["error"] = f"the handshake was meant to be {meant}, but the server saw {seen}"
    return evidence


def exchange_columns(result: dns.Exchange) -> dict[str, Any]:
    """Columns of `dns_exchanges` that an exchange knows."""
    return DnsExchanges.taken(tables.EXCHANGE, result)


def load_columns(load: PageLoad) -> dict[str, Any]:
    """What the browser says of a load; columns of `page_loads`."""
    parts = {tables.LOAD: load, tables.NAVIGATION: load.navigation, tables.PAINT: load.paint}
    found: dict[str, Any] = {"resource_count": len(load.resources)}
    for source, part in parts.items():
        found |= PageLoads.taken(source, part)
    return found


def resource_rows(row: Mapping[str, Any], load: PageLoad) -> list[dict[str, Any]]:
    """The rows of `resources` that belong to a row of `page_loads`."""
    return [Resources.place(row) | Resources.taken(tables.RESOURCE, entry) for entry in load.resources]
