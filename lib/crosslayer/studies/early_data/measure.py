"""Why H3 0-RTT saves a whole round-trip here and a fraction of one in the paper (TNSM24 section IV-D)."""

from __future__ import annotations

from typing import Any

from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import LoadKind, Loads
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_EARLY_DATA = {
    "H3 1-RTT": LoadKind("1-rtt", "main", 0),
    "H3 resumed": LoadKind("1-rtt", "resumed", None, early_data="off"),
    "H3 0-RTT answered late": LoadKind("0-rtt", "late", None, early_data="late"),
    "H3 0-RTT": LoadKind("0-rtt", "main", None),
}


class EarlyData(Measurer):
    """Loads against a server that refuses early data, answers it late, or answers it early."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._loads = Loads(bench)

    def close(self) -> None:
        """End Chromium; the server does with early data what it did before."""
        self._loads.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Full handshake, session resumption alone, early data answered late, early data answered early."""
        return list(_EARLY_DATA)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "page_loads", _EARLY_DATA[condition].columns

    def warm_up(self) -> None:
        """One load."""
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load."""
        row = self.row(condition, cell, round_number, position)
        return self._loads.load(row, self.bench.pages[cell.page], _EARLY_DATA[condition])


MEASURER = EarlyData
