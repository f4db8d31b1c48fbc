"""Loads of a page in browsers and curl, on a path that blocks packets to the page's host or to the resolver.

The clients resolve the host themselves. HTTP/3 is announced by an HTTPS record or, for later visits, by the header
Alt-Svc. All other hosts stay reachable over QUIC, so that the browser does not conclude that its whole network blocks
QUIC. Before each load, probes to the affected addresses verify that each fault is in effect.
"""

from __future__ import annotations

import ipaddress
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from crosslayer.browser import Browser, BrowserError, BrowserPrograms, PageLoad, find_browser
from crosslayer.browser.firefox import Firefox
from crosslayer.campaign.attempts import Attempt, read_attempts
from crosslayer.campaign.evidence import document_columns, incomplete
from crosslayer.campaign.instruments import KeptBrowser, load_columns, resource_rows
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.packets import Ring
from crosslayer.pages import PageSpec
from crosslayer.path_faults import PathFault, parse_fault
from crosslayer.studies.fallback import curl
from crosslayer.studies.fallback.cases import (
    CASES,
    FIRST,
    IN_EVERY_ROUND,
    LATE_MS,
    PUBLIC,
    RETURN,
    SECOND,
    Case,
    QueryType,
)
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.backends import Middlebox
from crosslayer.testbed.ech import EchKey
from crosslayer.testbed.fault_check import verify
from crosslayer.testbed.server import Event, RequestEvent
from crosslayer.vocabulary import Browser as Client

LOAD_TIMEOUT_S = 110.0
"""Time after which a load is ended, s. ChromeDriver's own connection gives up after 120 s."""
_ALT_SVC = 'h3=":443"; ma=86400'
_PROBE_RTT_MS = 700.0
"""Upper bound of every link's RTT, ms. It determines how long probes wait for their result."""


_FIREFOX: Mapping[Client, Mapping[str, object]] = {
    Client.FIREFOX: {"network.dns.disableIPv6": False},
    Client.FIREFOX_HAPPY_EYEBALLS: {"network.dns.disableIPv6": False, "network.http.happy_eyeballs_enabled": True},
}
"""Preferences of Firefox by client."""


class Fallback(Measurer):
    """Makes one load per case in each browser and one request per case with curl. Browsers stay open between loads."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        namespaces.use_resolver(network.SERVER_ADDRESS)
        pages = [context.pages[name] for name in context.plan.pages]
        resolved = [page.host for page in pages]
        self._addresses6 = network.enable_ipv6(resolved, context.plan.congestion_control)
        self._addresses4 = network.add_public_addresses(resolved, context.plan.congestion_control)
        self._keys = {page.name: EchKey.make(page.aliases[1]) for page in pages}
        self._middlebox = Middlebox()
        self._ring = Ring()
        options = context.plan.options
        self._cases = options.cases or tuple(CASES)
        self._clients = [client for client in installed_clients() if client in options.clients]
        self._browsers = {
            client: KeptBrowser(
                context,
                lambda browser: self._load(browser, pages[0], CASES["first"]),
                name=client.value,
                programs=programs,
                force_h3=False,
                addresses={host: address for host, address in context.addresses.items() if host not in resolved},
                resolves=resolved,
                page_timeout_s=LOAD_TIMEOUT_S,
                **({"preferences": _FIREFOX[client]} if client in _FIREFOX else {}),
            )
            for client in self._clients
            if (programs := installed_clients()[client]) is not None
        }

    def close(self) -> None:
        """End the browsers, the capture and the middlebox."""
        for kept in self._browsers.values():
            kept.close()
        self._ring.close()
        self._middlebox.stop()

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Versions of Firefox if it is measured, and of libcurl and its libraries if curl is measured."""
        firefox = next((installed_clients().get(client) for client in _FIREFOX if client in plan.options.clients), None)
        of_curl = curl.versions() if Client.CURL in plan.options.clients else {}
        return of_curl | (firefox.versions if firefox else {})

    def conditions(self, cell: Cell) -> list[str]:
        """Cases of `IN_EVERY_ROUND` for each client."""
        return self._conditions(in_every_round=True)

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """All cases that `conditions` lacks, in the first `full_rounds` rounds; none in later rounds."""
        full = round_number < self.context.plan.options.full_rounds
        return self._conditions(in_every_round=False) if full else []

    def _conditions(self, *, in_every_round: bool) -> list[str]:
        return [
            condition_of(client, name)
            for client in self._clients
            for name in self._cases
            if (name in IN_EVERY_ROUND[client]) is in_every_round
            and (client is not Client.CURL or CASES[name].for_curl)
        ]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        client, name = client_and_case(condition)
        early_data = CASES[name].visit == RETURN and client is not Client.CURL
        h3 = "0-rtt" if early_data else "1-rtt"
        columns = {"h3": h3, "coupling": "coupled", "dns_protocol": "DoUDP", "condition": name}
        return "page_loads", columns | {"browser": client.value}

    def warm_up(self) -> None:
        """Make one load in each browser except Firefox, which starts at its first measured load."""
        for client, kept in self._browsers.items():
            if client not in _FIREFOX:
                kept.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one load; returns its row, and the rows of its resources and of the browser's attempts."""
        row, page = self.row(condition, cell, round_number, position), self.context.pages[cell.page]
        case, started = CASES[row["condition"]], time.time()
        if fault := self._verify(page, case):
            return {"page_loads": [row | {"started_s": started, "error": fault}]}
        client, _ = client_and_case(condition)
        if client is Client.CURL:
            return self._measure_curl(row, page, case)
        kept = self._browsers[client]
        try:
            browser = kept.open()
            if isinstance(browser, Firefox):
                browser.forget_failures()
                browser.returns_at_once = case.visit == SECOND
            self.context.server.events()  # discard those of earlier loads and of probes
            load = self._load(browser, page, case)
        except BrowserError as error:
            tried = attempt_rows(row | {"started_s": started}, self._attempts(page, case))
            kept.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}], "attempts": tried}
        finally:
            self._end_faults()
        attempts, events = self._attempts(page, case), self.context.server.events()
        row = row | load_columns(load) | incomplete(events, page, load) | self._evidence(page, case, events, attempts)
        resources = resource_rows(row, load, events)
        return {"page_loads": [row], "resources": resources, "attempts": attempt_rows(row, attempts)}

    def _measure_curl(self, row: dict[str, Any], page: PageSpec, case: Case) -> Rows:
        """Make one request with curl. For a later visit, an earlier request over HTTP/2 fills the Alt-Svc cache."""
        server, addresses, faults = self.context.server, self._target(page, case), faults_of(case, page)
        cache = self.context.folder / "alt-svc" if case.visit != FIRST else None
        fetch = partial(
            curl.fetch,
            f"https://{page.host}/",
            http3=case.visit == FIRST and case.record != "none",
            ca_file=server.ca_file,
            timeout_s=LOAD_TIMEOUT_S,
            alt_svc=cache,
        )
        self._announce(page, case)
        self._middlebox.block(faults if case.visit != RETURN else [], addresses)
        self._middlebox.begin(time.time_ns())
        try:
            if cache is not None:
                cache.unlink(missing_ok=True)
                if earlier := fetch().error:
                    return {"page_loads": [row | {"started_s": time.time(), "error": f"the earlier visit: {earlier}"}]}
                time.sleep(case.pause_s)
                self._middlebox.block(faults, addresses)
            server.events()
            self._ring.start()
            fetched = fetch()
        finally:
            self._end_faults()
        attempts = self._attempts(page, case)
        row = row | fetched.columns
        tried = attempt_rows(row, attempts)
        if fetched.error:
            return {"page_loads": [row | {"error": fetched.error}], "attempts": tried}
        row = row | self._evidence(page, case, server.events(), attempts)
        return {"page_loads": [row], "attempts": tried}

    def _end_faults(self) -> None:
        self._middlebox.block([])
        self._middlebox.bypass()

    def _evidence(
        self, page: PageSpec, case: Case, events: Sequence[Event], attempts: Sequence[Attempt]
    ) -> dict[str, Any]:
        """Columns of `page_loads` from the server log.

        `error` is set if the server saw no request, or if a delayed DNS answer arrived before its delay had passed.
        """
        documents = [
            event
            for event in events
            if isinstance(event, RequestEvent) and event.path == "/" and event.host == page.host
        ]
        if not documents:
            return {"error": "the server saw no request of this load"}
        early = [
            attempt.kind
            for attempt in attempts
            if attempt.kind in case.late
            and attempt.answered_ns is not None
            and attempt.answered_ns - attempt.started_ns < LATE_MS * 1_000_000
        ]
        error = {"error": f"the answer to {early[0]} was not late"} if early else {}
        return document_columns(documents[-1]) | error

    def _verify(self, page: PageSpec, case: Case) -> str | None:
        """Verify the faults of a case by probes. Returns the deviations as text; None if there are none."""
        faults, targets = faults_of(case, page), self._target(page, case)
        of_both = targets if not any(fault.selector == "ipv6" for fault in faults) else targets[:1]
        deviations: list[str] = []
        for address in of_both:
            deviations += verify(self._middlebox, faults, _PROBE_RTT_MS, address, targets).deviations
        self._middlebox.block([])
        return "; ".join(deviations) or None

    def _target(self, page: PageSpec, case: Case) -> list[str]:
        """Addresses to which the faults are restricted."""
        if case.of_resolver:
            return [network.SERVER_ADDRESS]
        return [self._address4(page, case), *([self._addresses6[page.host]] if case.ipv6 else [])]

    def _address4(self, page: PageSpec, case: Case) -> str:
        """IPv4 address of a case's host."""
        return (self.context.addresses if case.private else self._addresses4)[page.host]

    def _announce(self, page: PageSpec, case: Case) -> None:
        """Set the DNS answers for the page's host, and Alt-Svc header and ECH key of the web server."""
        server, key, host = self.context.server, self._keys[page.name], page.host
        ech = case.record == "h3-ech"
        server.set_ech(key if ech else None)
        server.set_alt_svc(_ALT_SVC)
        addresses = [
            ipaddress.ip_address(address).packed for address in (self._address4(page, case), self._addresses6[host])
        ]
        hints = addresses if case.record == "h3-hints" else ()
        records: dict[QueryType, bytes | None] = {
            "A": addresses[0],
            "AAAA": addresses[1] if case.ipv6 else None,
            "HTTPS": None if case.record == "none" else record(key.config_list if ech else b"", hints),
        }
        for query_type, rdata in records.items():
            server.set_answer(host, query_type, rdata, delay_ms=LATE_MS if query_type in case.late else 0)

    def _load(self, browser: Browser, page: PageSpec, case: Case) -> PageLoad:
        server = self.context.server
        self._announce(page, case)
        faults, addresses = faults_of(case, page), self._target(page, case)
        self._middlebox.block(faults if case.visit == SECOND else [], addresses)
        self._middlebox.begin(time.time_ns())
        self._ring.take()  # discard frames of a load that warmed the browser up
        measuring = False

        def close_connections() -> None:
            nonlocal measuring
            server.close_connections("h3")
            server.close_connections("https")
            if not measuring:
                time.sleep(case.pause_s)
                self._middlebox.block(faults, addresses)
                self._ring.start()
                measuring = True

        return browser.load(
            page.host,
            prime_host=page.aliases[0] if case.visit == FIRST else page.host,
            close_connections=close_connections,
        )

    def _attempts(self, page: PageSpec, case: Case) -> list[Attempt]:
        frames, _missing = self._ring.take()
        hosts = [self._address4(page, case), self._addresses6[page.host]]
        return read_attempts(frames, hosts, network.SERVER_ADDRESS, page.host)


def installed_clients() -> dict[Client, BrowserPrograms | None]:
    """Installed clients with their programs. The program of curl is None, because curl is a library."""
    clients: dict[Client, BrowserPrograms | None] = {Client.CHROMIUM: find_browser("chromium")}
    with suppress(BrowserError):
        clients |= dict.fromkeys(_FIREFOX, find_browser("firefox"))
    return clients | ({Client.CURL: None} if curl.versions() else {})


def condition_of(client: Client, case: str) -> str:
    """Name of the condition of a client and a case. Chromium's conditions have the names of the cases."""
    return case if client is Client.CHROMIUM else f"{client.value}-{case}"


def client_and_case(condition: str) -> tuple[Client, str]:
    """Client and case of a condition."""
    for client in Client:
        name = condition.removeprefix(f"{client.value}-")
        if name in CASES and name != condition:
            return client, name
    return Client.CHROMIUM, condition


def record(ech: bytes, hints: Sequence[bytes] = ()) -> bytes:
    """RDATA of an HTTPS record that offers HTTP/3 and HTTP/2, in this order.

    The record also has the ECHConfigList `ech` and the address hints, unless they are empty.
    """
    parameters = {1: b"\x02h3\x02h2", 5: ech} | {4 if len(hint) == 4 else 6: hint for hint in hints}
    parts = [struct.pack("!HH", key, len(value)) + value for key, value in sorted(parameters.items()) if value]
    return b"\x00\x01\x00" + b"".join(parts)


def faults_of(case: Case, page: PageSpec) -> list[PathFault]:
    """Faults of a case; the public name of the page's ECH key replaces the placeholder `PUBLIC`."""
    return [parse_fault(text.replace(PUBLIC, page.aliases[1])) for text in case.faults]


def attempt_rows(row: dict[str, Any], attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Rows of the table `attempts` for one load. Times count from the start of the first attempt."""
    if not attempts:
        return []
    zero_ns = attempts[0].started_ns

    def ms(at_ns: int | None) -> float | None:
        return None if at_ns is None else (at_ns - zero_ns) / 1e6

    shared = {
        key: row[key]
        for key in ("campaign", "round", "link", "study", "page", "position", "condition", "role", "browser")
    }
    return [
        shared
        | {
            "number": number,
            "started_s": zero_ns / 1e9,
            "kind": attempt.kind,
            "address": attempt.address,
            "family": attempt.family,
            "started_ms": ms(attempt.started_ns),
            "sent_ms": [ms(at_ns) for at_ns in attempt.sent_ns],
            "answered_ms": ms(attempt.answered_ns),
            "refused_ms": ms(attempt.refused_ns),
        }
        for number, attempt in enumerate(attempts)
    ]


MEASURER = Fallback
