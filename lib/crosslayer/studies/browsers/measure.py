"""H3 1-RTT and H3 0-RTT in Chromium and in Firefox, in one order drawn for each round."""

from __future__ import annotations

from typing import Any

from crosslayer.browser import KINDS, find_browser
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import LoadKind, Loads
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows

_LOADS = {"H3 1-RTT": LoadKind("1-rtt", "main", 0), "H3 0-RTT": LoadKind("0-rtt", "main", None)}
_KINDS = {f"{browser.title}, {name}": (word, kind) for word, browser in KINDS.items() for name, kind in _LOADS.items()}


class Browsers(Measurer):
    """Loads in every browser there is, one of each kept between them."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._loads = {browser: Loads(bench, browser=browser) for browser in KINDS}

    def close(self) -> None:
        """End the browsers."""
        for loads in self._loads.values():
            loads.close()

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Of every browser."""
        return {program: said for browser in KINDS for program, said in find_browser(browser).versions.items()}

    def conditions(self, cell: Cell) -> list[str]:
        """Both handshakes in every browser."""
        return list(_KINDS)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        browser, kind = _KINDS[condition]
        return "page_loads", kind.columns | {"browser": browser}

    def warm_up(self) -> None:
        """One load in each."""
        for loads in self._loads.values():
            loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load."""
        row = self.row(condition, cell, round_number, position)
        browser, kind = _KINDS[condition]
        return self._loads[browser].load(row, self.bench.pages[cell.page], kind)


MEASURER = Browsers
