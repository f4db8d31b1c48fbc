"""The interface between a study and the engine: conditions, observations, and rows of the tables."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """What a study needs to measure: the plan and the running testbed."""

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
    rtts_ms: Mapping[str, float] = field(default_factory=dict)
    """Nominal RTT of each link of the plan, ms, by link name."""


class Measurer(ABC):
    """Measures the conditions of a study, one at a time."""

    def __init__(self, context: RoundContext) -> None:
        self.context = context

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
        """Options of the server that differ from the defaults, see `Server.start`."""
        return {}

    @abstractmethod
    def conditions(self, cell: Cell) -> list[str]:
        """Names of the conditions that every round of a cell measures, in any order."""

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """Names of further conditions of this round: self-checks, or slow conditions that only some rounds measure."""
        return []

    @abstractmethod
    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table of a condition's rows, and the columns and values that distinguish them from other conditions' rows."""

    @abstractmethod
    def warm_up(self) -> None:
        """Make every observation once without recording it, so that no import or empty cache slows the first round."""

    @abstractmethod
    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one observation and return its rows by table. A failed observation is a row with its error."""

    @abstractmethod
    def close(self) -> None:
        """Close everything that stays open between observations."""

    def row(self, condition: str, cell: Cell, round_number: int, position: int) -> dict[str, Any]:
        """Columns of an observation's row that are known before the observation is made."""
        table, columns = self.table_and_columns(condition)
        usual = {"condition": "main", "role": Role.MEASURED.value, "browser": self.context.plan.browser}
        known = {column.name for column in TABLES[table].columns}
        return (
            {
                "campaign": self.context.campaign,
                "round": round_number,
                "link": cell.link,
                "study": self.context.plan.study,
                "page": cell.page,
                "position": position,
            }
            | {name: value for name, value in usual.items() if name in known}
            | columns
        )

    def failed(self, condition: str, cell: Cell, round_number: int, position: int, why: str) -> Rows:
        """Row of an observation that could not be made; its `error` is `why`."""
        row = self.row(condition, cell, round_number, position) | {"started_s": time.time(), "error": why}
        return {self.table_and_columns(condition)[0]: [row]}
