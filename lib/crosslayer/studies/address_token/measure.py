"""H3 0-RTT with and without the token that proves the client's address (RFC 9000, section 8.1), beside H3 1-RTT."""

from __future__ import annotations

from typing import Any

from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import LoadKind, Loads
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_KINDS = {
    "H3 1-RTT": LoadKind("1-rtt", "main", 0),
    "H3 0-RTT": LoadKind("0-rtt", "main", None),
    "H3 0-RTT without token": LoadKind("0-rtt", "no-token", None, token=False),
}


class Token(Measurer):
    """Loads by a browser that has a token, one that has none, and one that was never here."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._loads = Loads(bench)

    def close(self) -> None:
        """End Chromium."""
        self._loads.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Full handshake, early data with a token, early data without."""
        return list(_KINDS)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "page_loads", _KINDS[condition].columns

    def warm_up(self) -> None:
        """One load."""
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load."""
        row = self.row(condition, cell, round_number, position)
        return self._loads.load(row, self.bench.pages[cell.page], _KINDS[condition])


MEASURER = Token
