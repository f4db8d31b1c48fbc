"""One DoUDP exchange a round; what it takes is made up here, where the others measure it."""

import time
from typing import Any

from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows


class Toy(Measurer):
    """One condition."""

    def close(self) -> None:
        """Nothing is kept."""

    def conditions(self, cell: Cell) -> list[str]:
        """DoUDP."""
        return ["DoUDP"]

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "dns_exchanges", {"protocol": condition, "resumption": "none", "warming": False}

    def warm_up(self) -> None:
        """Nothing is cold."""

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One exchange."""
        took_ms = 15.0 + round_number / 100
        found = {"started_s": time.time(), "handshake_ms": 0.0, "query_ms": took_ms, "total_ms": took_ms}
        return {"dns_exchanges": [self.row(condition, cell, round_number, position) | found]}


MEASURER = Toy
