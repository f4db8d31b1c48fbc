"""Page loads in a browser that resolves the page's host itself, on a path that blocks packets to the host.

HTTP/3 is announced by an HTTPS record or, on a later visit, by Alt-Svc. All other hosts are reachable, so the browser
knows that QUIC works on its network. Before a load, each fault is verified by probes to the same address.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from crosslayer.browser import Browser, BrowserError, PageLoad
from crosslayer.campaign.attempts import Attempt, read_attempts
from crosslayer.campaign.evidence import document_columns, incomplete
from crosslayer.campaign.instruments import KeptBrowser, load_columns, resource_rows
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.packets import Ring
from crosslayer.pages import PageSpec
from crosslayer.path_faults import PathFault, parse_fault
from crosslayer.studies.fallback.cases import CASES, FIRST, PUBLIC, SECOND, Case
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.backends import Middlebox
from crosslayer.testbed.ech import EchKey
from crosslayer.testbed.fault_check import verify
from crosslayer.testbed.server import RequestEvent

LOAD_TIMEOUT_S = 110.0
"""A load that takes longer is ended. ChromeDriver's own connection gives up after 120 s."""
_ALT_SVC = 'h3=":443"; ma=86400'
_PROBE_RTT_MS = 700.0
"""Above the RTT of every link: probes wait that long for each other's fate."""
_CLOSED_S = 1.0
"""Time in which the close of earlier connections reaches the browser, before the path blocks it."""


class Fallback(Measurer):
    """One load for each case, in one browser kept between them."""

    def __init__(self, bench: RoundContext) -> None:
        super().__init__(bench)
        namespaces.use_resolver(network.SERVER_ADDRESS)
        pages = [bench.pages[name] for name in bench.plan.pages]
        resolved = [page.host for page in pages]
        self._keys = {page.name: EchKey.make(page.aliases[1]) for page in pages}
        self._middlebox = Middlebox()
        self._ring = Ring()
        self._kept = KeptBrowser(
            bench,
            lambda browser: self._load(browser, pages[0], CASES["first"]),
            force_h3=False,
            addresses={host: address for host, address in bench.addresses.items() if host not in resolved},
            resolves=resolved,
            page_timeout_s=LOAD_TIMEOUT_S,
        )

    def close(self) -> None:
        """End the browser, the capture and the middlebox."""
        self._kept.close()
        self._ring.close()
        self._middlebox.stop()

    def conditions(self, cell: Cell) -> list[str]:
        """Every case."""
        return list(CASES)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        h3 = "1-rtt" if CASES[condition].visit in (FIRST, SECOND) else "0-rtt"
        return "page_loads", {"h3": h3, "coupling": "coupled", "dns_protocol": "DoUDP", "condition": condition}

    def warm_up(self) -> None:
        """One load."""
        self._kept.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load: its row, and those of its resources and of what the browser tried."""
        row, page = self.row(condition, cell, round_number, position), self.bench.pages[cell.page]
        case, started = CASES[condition], time.time()
        if fault := self._verify(page, case):
            return {"page_loads": [row | {"started_s": started, "error": fault}]}
        try:
            browser = self._kept.open()
            self.bench.server.events()  # discard those of earlier loads and of probes
            load = self._load(browser, page, case)
        except BrowserError as error:
            tried = attempt_rows(row | {"started_s": started}, self._attempts(page))
            self._kept.close()
            return {"page_loads": [row | {"started_s": started, "error": str(error)}], "attempts": tried}
        finally:
            self._middlebox.block([])
            self._middlebox.bypass()
        tried = attempt_rows(row | {"started_s": load.started_s}, self._attempts(page))
        events = self.bench.server.events()
        documents = [
            event
            for event in events
            if isinstance(event, RequestEvent) and event.path == "/" and event.host == page.host
        ]
        evidence = document_columns(documents[-1]) if documents else {"error": "the server saw no request of this load"}
        row = row | load_columns(load) | incomplete(events, page, load) | evidence
        return {"page_loads": [row], "resources": resource_rows(row, load, events), "attempts": tried}

    def _verify(self, page: PageSpec, case: Case) -> str | None:
        """Deviation of the path from the case's faults; None without one."""
        address, addresses = self._target(page, case)
        counts = verify(self._middlebox, faults_of(case, page), _PROBE_RTT_MS, address, addresses)
        self._middlebox.block([])
        return "; ".join(counts.deviations) or None

    def _target(self, page: PageSpec, case: Case) -> tuple[str, Sequence[str]]:
        """Address at which the faults are verified, and the addresses to which they are restricted."""
        address = network.SERVER_ADDRESS if case.of_resolver else self.bench.addresses[page.host]
        return address, [address]

    def _load(self, browser: Browser, page: PageSpec, case: Case) -> PageLoad:
        server, key = self.bench.server, self._keys[page.name]
        ech = case.record == "h3-ech"
        server.set_ech(key if ech else None)
        server.set_answer(
            page.host, "HTTPS", None if case.record == "none" else record(key.config_list if ech else b"")
        )
        server.set_alt_svc(_ALT_SVC)
        faults, (_, addresses) = faults_of(case, page), self._target(page, case)
        self._middlebox.block(faults if case.visit == SECOND else [], addresses)
        self._middlebox.begin(time.time_ns())
        self._ring.take()  # discard frames of a load that warmed the browser up
        measuring = False

        def close_connections() -> None:
            nonlocal measuring
            server.close_connections("h3")
            server.close_connections("https")
            if not measuring:
                time.sleep(_CLOSED_S)
                self._middlebox.block(faults, addresses)
                self._ring.start()
                measuring = True

        return browser.load(
            page.host,
            prime_host=page.aliases[0] if case.visit == FIRST else page.host,
            close_connections=close_connections,
        )

    def _attempts(self, page: PageSpec) -> list[Attempt]:
        frames, _missing = self._ring.take()
        return read_attempts(frames, [self.bench.addresses[page.host]], network.SERVER_ADDRESS)


def record(ech: bytes) -> bytes:
    """RDATA of an HTTPS record that offers HTTP/3, then HTTP/2 and, if given, an ECHConfigList."""
    alpn = b"\x02h3\x02h2"
    parameters = b"\x00\x01" + len(alpn).to_bytes(2, "big") + alpn
    parameters += b"\x00\x05" + len(ech).to_bytes(2, "big") + ech if ech else b""
    return b"\x00\x01\x00" + parameters


def faults_of(case: Case, page: PageSpec) -> list[PathFault]:
    """Faults of a case for a page."""
    return [parse_fault(text.replace(PUBLIC, page.aliases[1])) for text in case.faults]


def attempt_rows(row: dict[str, Any], attempts: Sequence[Attempt]) -> list[dict[str, Any]]:
    """Rows of `attempts` of a load; times are after the load's first packet."""
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
