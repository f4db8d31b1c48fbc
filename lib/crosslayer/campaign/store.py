"""The store of a running campaign: SQLite in WAL mode, one transaction per round.

Killed anywhere, a campaign goes on where it was: a round is in the store whole or not at all.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell, Plan, changed
from crosslayer.campaign.schema import SCHEMA_VERSION, TABLES, Kind

FILE_NAME = "campaign.sqlite"

Rows = Mapping[str, Iterable[Mapping[str, Any]]]
"""Rows by table; a row has a value for each column it knows."""

_SQL_KIND = {
    Kind.INTEGER: "INTEGER",
    Kind.REAL: "REAL",
    Kind.TEXT: "TEXT",
    Kind.BOOLEAN: "INTEGER",
    Kind.JSON: "TEXT",
    Kind.REAL_LIST: "TEXT",
}


class Store:
    """The rows of one campaign.

    Parameters
    ----------
    folder
        Folder of the dataset; made where it is missing.
    plan
        What is to be measured; a store made by another plan is refused.

    Raises
    ------
    CampaignError
        Where the folder cannot be written, the disk is full, another run holds the store, or the plan differs.
    """

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._file = folder / FILE_NAME
        with contextlib.ExitStack() as undo:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self._file, isolation_level=None, timeout=2)
                undo.callback(self._db.close)
                self._db.execute("PRAGMA journal_mode = WAL")
                # A round is on the disk when its transaction ends, also if the machine goes down.
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("BEGIN EXCLUSIVE")
                self._create()
                self._db.execute("COMMIT")
            except OSError as error:
                raise CampaignError(
                    f"the output folder cannot be written ({error.strerror})",
                    where=str(folder),
                    next_step="Choose another with --out.",
                ) from error
            except sqlite3.Error as error:
                raise self._failure(error) from error
            self._adopt(plan)
            undo.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; its log is folded into it."""
        self._db.close()

    def _create(self) -> None:
        for table, columns in TABLES.items():
            body = ", ".join(f'"{c.name}" {_SQL_KIND[c.kind]}{" NOT NULL" if c.required else ""}' for c in columns)
            self._db.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({body})')
            known = {name for _, name, *_ in self._db.execute(f'PRAGMA table_info("{table}")')}
            for column in columns:
                if column.name not in known:  # younger than this store
                    self._db.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column.name}" {_SQL_KIND[column.kind]}')
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS rounds (link TEXT, page TEXT, round INTEGER, PRIMARY KEY (link, page, round))"
        )
        self._db.execute("CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")

    def _adopt(self, plan: Plan) -> None:
        known = self.fact("plan")
        if known is None:
            self.set_fact("schema_version", SCHEMA_VERSION)
            self.set_fact("plan", plan.as_dict())
            return
        if self.fact("schema_version") != SCHEMA_VERSION:
            raise CampaignError(
                f"was measured with schema version {self.fact('schema_version')}, this is {SCHEMA_VERSION}",
                where=str(self._file),
                next_step="Choose another folder with --out.",
            )
        known = Plan().as_dict() | known  # a field younger than the store had its default then
        differing = [key for key, value in plan.as_dict().items() if key != "rounds" and known[key] != value]
        if differing:
            said = "; ".join(f"{key} is {known[key]} there and {plan.as_dict()[key]} now" for key in differing)
            raise CampaignError(
                f"holds a campaign made by another plan ({said})",
                where=str(self._file),
                next_step="Choose another folder with --out, or repeat the old plan to go on with it.",
            )
        if plan.rounds != known["rounds"]:
            # More rounds of the same plan are the same campaign, continued.
            self.set_fact("plan", plan.as_dict())

    def fact(self, name: str) -> Any:
        """A value kept beside the rows, None where there is none."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_fact(self, name: str, value: object) -> None:
        """Keep a JSON value beside the rows."""
        try:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def done(self) -> set[tuple[str, str, int]]:
        """(link, page, round) of every finished round."""
        return set(self._db.execute("SELECT link, page, round FROM rounds"))

    def add_round(self, cell: Cell, round_number: int, rows: Rows) -> None:
        """Write one finished round, whole or not at all."""
        self._write(rows, (cell.link, cell.page, round_number))

    def add_rows(self, rows: Rows) -> None:
        """Write rows that belong to no round (the checks before the campaign)."""
        self._write(rows, None)

    def _write(self, rows: Rows, round_key: tuple[str, str, int] | None) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for table, some in rows.items():
                kinds = {column.name: column.kind for column in TABLES[table]}
                for row in some:
                    names = ", ".join(f'"{name}"' for name in row)
                    values = [_plain(kinds[name], value) for name, value in row.items()]
                    self._db.execute(f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(row))})', values)
            if round_key is not None:
                self._db.execute("INSERT INTO rounds VALUES (?, ?, ?)", round_key)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._failure(error) from error

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table as Python values, in the order of (round, link)."""
        columns = TABLES[table]
        names = ", ".join(f'"{c.name}"' for c in columns)
        found = self._db.execute(f'SELECT {names} FROM "{table}" ORDER BY "round", "link", rowid')
        return [{c.name: _typed(c.kind, value) for c, value in zip(columns, row, strict=True)} for row in found]

    def _failure(self, error: sqlite3.Error) -> CampaignError:
        text = str(error)
        step = "See the message; what was measured so far is safe in the file."
        if "locked" in text:
            step = "Another run is writing to it: let it end, or choose another folder with --out."
        elif "full" in text:
            step = "Make room on the disk and run the same command again: it goes on where it stopped."
        elif "unable to open" in text or "readonly" in text:
            step = "Make the folder writable, or choose another with --out."
        return CampaignError(f"cannot be written: {text}", where=str(self._file), next_step=step)


def _plain(kind: Kind, value: Any) -> Any:
    return json.dumps(value) if kind is Kind.REAL_LIST and value is not None else value


def _typed(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.BOOLEAN:
        return bool(value)
    if kind is Kind.REAL_LIST:
        return json.loads(value)
    return value


def open_existing(folder: Path) -> Store:
    """The store of a campaign that was begun in this folder, with its own plan.

    Raises
    ------
    CampaignError
        Where there is none.
    """
    file = folder / FILE_NAME
    if not file.exists():
        raise CampaignError(
            "there is no campaign here",
            where=str(file),
            next_step="Name the folder given to `crosslayer measure --out`.",
        )
    with contextlib.closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        row = db.execute("SELECT value FROM facts WHERE name = 'plan'").fetchone()
    if row is None:
        raise CampaignError("holds no plan", where=str(file), next_step="Measure it again with `crosslayer measure`.")
    return Store(folder, changed(Plan(), json.loads(row[0]), where=str(file)))
