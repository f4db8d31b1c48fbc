"""The campaign of a comparison: its store, which is consistent after every visit, and its dataset."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer.campaign import provenance
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.export import export
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.rounds import FinishedRound
from crosslayer.campaign.run import Hosts, identify, now
from crosslayer.campaign.store import FILE_NAME, Store
from crosslayer.campaign.tables import TABLES
from crosslayer.guest import inside
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.plan import (
    EVENTS,
    LOCATIONS,
    QUERIES,
    STUDY,
    ComparePlan,
    Entry,
    Measured,
    Progress,
    entries_of,
    rows_of,
)

_BACKEND = "the paths themselves"
"""Text in place of the link backend, since a comparison emulates no links."""
_OF_NO_ENTRY = (
    "campaign", "study", "clock", "host", "page", "resolver", "operator", "address", "protocol", "port", "role",
    "position", "query_ms",
)  # fmt: skip
"""Columns that are dropped before rows are converted to entries. Their values follow from the plan and other columns.

With these columns, the rows would take twice the memory.
"""


class Journal:
    """The store of a comparison; a context manager that closes it.

    Entries that are added together are one transaction. `export` makes the dataset, which `crosslayer report` and
    notebooks read.
    """

    def __init__(self, folder: Path, plan: ComparePlan) -> None:
        self.folder, self.plan = folder, plan
        clock = inside() or "wall"
        campaign_plan = plan.campaign_plan(clock)
        self._store = Store(folder, campaign_plan)
        self._common = {
            "campaign": identify(self._store, campaign_plan), "study": STUDY, "clock": clock, "page": plan.name,
        }  # fmt: skip
        for name, value in (("backend", _BACKEND), ("host", provenance.host())):
            if self._store.fact(name) is None:
                self._store.set_fact(name, value)
        self._hosts = Hosts(self._store, self._common["campaign"])
        self.progress = {
            vantage: Progress(plan, vantage, self.entries(vantage), partial(self._record, vantage))
            for vantage in plan.vantages
        }
        self.share_stops()

    @classmethod
    def create(cls, folder: Path, plan: ComparePlan) -> Journal:
        """Create a campaign; `ResolversError` if the folder already has one."""
        if (folder / FILE_NAME).exists():
            raise ResolversError(
                "has a campaign already",
                where=str(folder),
                next_step="Continue it with --resume, or name another folder with --dataset.",
            )
        return cls(folder, plan)

    @classmethod
    def resume(cls, folder: Path, plan: ComparePlan) -> Journal:
        """Continue a stored campaign with the number of rounds in `plan`; the seed is the stored one.

        Raises `CrosslayerError` if the campaign is missing, or differs from `plan` in anything but rounds and seed.
        """
        with Store(folder) as store:
            kept = _plan_of(store.fact("plan"), folder)
        same = replace(plan, seed=kept.seed)
        if replace(kept, rounds=plan.rounds) != same:
            raise ResolversError(
                "is of another comparison (resolvers, transports, --all, --idle, --name, --zone, --timeout or vantage "
                "points)",
                where=str(folder),
                next_step="Give the same arguments as before, or name another folder with --dataset.",
            )
        return cls(folder, same)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def entries(self, vantage: str) -> list[Entry]:
        """All entries of a vantage point, including visits of voided attempts."""
        queries, events = (self._rows(name, vantage) for name in (QUERIES, EVENTS))
        return entries_of(queries, events).get(vantage, [])

    def _rows(self, table: str, vantage: str) -> pl.LazyFrame:
        nothing = pl.DataFrame(schema=TABLES[table].polars_schema())
        chunks = itertools.chain([nothing], map(pl.DataFrame, self._store.chunks(table, vantage)))
        return pl.concat([chunk.drop(_OF_NO_ENTRY, strict=False) for chunk in chunks]).lazy()

    @property
    def measured(self) -> Measured:
        """The comparison as stored so far."""
        return Measured(self.plan, {vantage: self.entries(vantage) for vantage in self.plan.vantages})

    @property
    def first_s(self) -> float:
        """Due time of the first round, i.e. the first start of the comparison, seconds since the Unix epoch."""
        if (first_s := self._store.fact("first_s")) is None:
            first_s = time.time()
            self._store.set_fact("first_s", first_s)
        return float(first_s)

    def share_stops(self) -> None:
        """If an operator asked to stop at one vantage point, exclude it at all of them."""
        stops = {operator: reason for one in self.progress.values() for operator, reason in one.stops.items()}
        for one in self.progress.values():
            one.stops |= stops

    def locate(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Store the locations of resolvers and vantage points: rows of `locations.location_rows`."""
        common = self._common | {"link": self.plan.vantages[0], "host": self.plan.vantages[0]}
        self._store.add_rows({LOCATIONS: [common | dict(row) for row in rows]})

    def finished(self, vantage: str, round_: int) -> bool:
        """Whether a round has ended at a vantage point: it was measured or missed."""
        return (vantage, self.plan.name, round_) in self._store.done()

    def finish(self, vantage: str, round_: int) -> None:
        """Record that a round has ended at a vantage point."""
        if not self.finished(vantage, round_):
            self._store.add_round(Cell(vantage, self.plan.name), round_, {})

    def export(self) -> Path:
        """Write the dataset; returns its folder."""
        self._store.set_fact("ended", now())
        return export(self._store, self.folder)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def describe(self, vantage: str, host: provenance.MeasuringHost, versions: dict[str, str]) -> None:
        """Store the description of a vantage point's machine, without its name and address."""
        self._hosts.named(FinishedRound(None, -1, {}, 0, _BACKEND, versions, replace(host, name=vantage, mark=vantage)))

    def _record(self, vantage: str, entries: Sequence[Entry]) -> None:
        common = self._common | {"link": vantage, "host": vantage}
        rows: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            for table, some in rows_of(self.plan, entry).items():
                rows.setdefault(table, []).extend(common | row for row in some)
        self._store.add_rows(rows)


def read_campaign(folder: Path) -> Measured:
    """Read the comparison in a dataset; `CrosslayerError` if it has none."""
    dataset = Dataset.open(folder)
    campaign = dataset.campaign
    if campaign.study != STUDY:
        raise ResolversError(
            f"has a campaign of the study {campaign.study}",
            where=str(folder),
            next_step="Name the folder of `crosslayer compare --dataset`.",
        )
    plan = ComparePlan.of_campaign(
        campaign.links, campaign.pages, campaign.rounds, campaign.seed or 0, campaign.options, str(folder)
    )
    return Measured(plan, entries_of(*(dataset.table(name) for name in (QUERIES, EVENTS))))


def _plan_of(known: dict[str, Any], folder: Path) -> ComparePlan:
    if known["study"] != STUDY:
        raise ResolversError(
            f"has a campaign of the study {known['study']}",
            where=str(folder),
            next_step="Name another folder with --dataset.",
        )
    return ComparePlan.of_campaign(
        known["links"], known["pages"], known["rounds"], known["seed"], known["options"], str(folder)
    )
