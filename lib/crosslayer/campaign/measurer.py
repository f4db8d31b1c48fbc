"""What a study is to the engine: conditions, one observation at a time, rows of the tables."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from crosslayer.browser import BrowserPrograms
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import TABLES
from crosslayer.pages import PageSpec
from crosslayer.testbed.server import Server
from crosslayer.vocabulary import Role


@dataclass(frozen=True, slots=True)
class RoundContext:
    """What a study measures on: the plan, and the running testbed."""

    plan: Plan
    campaign: str
    """Identifier of the campaign."""
    pages: dict[str, PageSpec]
    server: Server
    addresses: dict[str, str]
    """IPv4 address of every host name."""
    programs: BrowserPrograms
    folder: Path
    """Private temporary folder."""


class Measurer(ABC):
    """Measures the conditions of a study, one at a time."""

    def __init__(self, bench: RoundContext) -> None:
        self.bench = bench

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Versions of the programs that only this study needs, by name."""
        return {}

    @staticmethod
    def server_options(plan: Plan) -> dict[str, Any]:
        """How the server of this study differs from the usual one, see `Server.start`."""
        return {}

    @abstractmethod
    def conditions(self, cell: Cell) -> list[str]:
        """What a round of this cell measures, in no particular order."""

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """What this round of the cell measures beside them: what tries the procedure itself, or takes long. Placed as
        conditions are."""
        return []

    @abstractmethod
    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """The table of a condition's row, and the columns that tell it from other conditions."""

    @abstractmethod
    def warm_up(self) -> None:
        """Do everything once without recording it, so that imports and caches are not in the first round."""

    @abstractmethod
    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation as rows by table; a failure is a row with its error."""

    @abstractmethod
    def close(self) -> None:
        """End what is kept between observations."""

    def row(self, condition: str, cell: Cell, round_number: int, position: int) -> dict[str, Any]:
        """The columns of an observation that are known before it is made."""
        table, columns = self.place(condition)
        usual = {"condition": "main", "role": Role.MEASURED.value, "browser": self.bench.plan.browser}
        known = {column.name for column in TABLES[table].columns}
        return (
            {
                "campaign": self.bench.campaign,
                "round": round_number,
                "link": cell.link,
                "study": self.bench.plan.study,
                "page": cell.page,
                "position": position,
            }
            | {name: value for name, value in usual.items() if name in known}
            | columns
        )

    def failed(self, condition: str, cell: Cell, round_number: int, position: int, why: str) -> Rows:
        """The row of an observation that could not be made at all."""
        row = self.row(condition, cell, round_number, position) | {"started_s": time.time(), "error": why}
        return {self.place(condition)[0]: [row]}
