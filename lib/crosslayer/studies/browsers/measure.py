"""H3 1-RTT and H3 0-RTT in Chromium and in Firefox, and the lookups that may come before them, in one order drawn for
each round.
"""

from __future__ import annotations

from typing import Any

from crosslayer import dns
from crosslayer.browser import KINDS, find_browser
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import Exchanges, LoadKind, Loads
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows

_LOADS = {"H3 1-RTT": LoadKind("1-rtt", "main", 0), "H3 0-RTT": LoadKind("0-rtt", "main", None)}
_KINDS = {f"{browser.title}, {name}": (word, kind) for word, browser in KINDS.items() for name, kind in _LOADS.items()}
_EXCHANGES = {
    "DoUDP": (dns.Protocol.DOUDP, dns.Resumption.NONE),
    "DoQ": (dns.Protocol.DOQ, dns.Resumption.NONE),
    "DoQ 0-RTT": (dns.Protocol.DOQ, dns.Resumption.EARLY_DATA),
}


class Browsers(Measurer):
    """Loads in every browser there is, one of each kept between them; and lookups by a client of our own."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._exchanges = Exchanges(bench.server)
        self._loads = {browser: Loads(bench, browser=browser) for browser in KINDS}

    def close(self) -> None:
        """End the browsers and the capture."""
        for loads in self._loads.values():
            loads.close()
        self._exchanges.close()

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Of every browser."""
        return {program: said for browser in KINDS for program, said in find_browser(browser).versions.items()}

    def conditions(self, cell: Cell) -> list[str]:
        """The lookups, and both handshakes in every browser."""
        return [*_EXCHANGES, *_KINDS]

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _EXCHANGES:
            protocol, resumption = _EXCHANGES[condition]
            columns = {"protocol": protocol.value, "resumption": resumption.value, "warming": False, "variant": "main"}
            return "dns_exchanges", columns
        browser, kind = _KINDS[condition]
        return "page_loads", kind.columns | {"browser": browser}

    def warm_up(self) -> None:
        """One lookup of each kind, and one load in each browser."""
        host = self.bench.pages[self.bench.plan.pages[0]].host
        for protocol, resumption in _EXCHANGES.values():
            self._exchanges.resuming({}, host, protocol, resumption)
        for loads in self._loads.values():
            loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation; the exchange that left one with early data its session is a row too."""
        row = self.row(condition, cell, round_number, position)
        if condition in _EXCHANGES:
            host = self.bench.pages[cell.page].host
            return {"dns_exchanges": self._exchanges.resuming(row, host, *_EXCHANGES[condition])}
        browser, kind = _KINDS[condition]
        return self._loads[browser].load(row, self.bench.pages[cell.page], kind)


MEASURER = Browsers
