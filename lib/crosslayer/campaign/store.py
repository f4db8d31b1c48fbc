"""The store of a running campaign: SQLite in WAL mode, one transaction per round.

A campaign can be resumed after it was killed at any moment: a round is in the store completely or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import CUBIC, Cell, Plan
from crosslayer.campaign.tables import SCHEMA_VERSION, TABLES, Column

if TYPE_CHECKING:
    import pyarrow

FILE_NAME = "campaign.sqlite"
_RESCUED = "campaign-rescued.sqlite"
_DATASET = ("campaign.json", *TABLES, "captures")
"""Names of the files and folders of a dataset."""
_CHUNK_ROWS = 10_000
"""Maximum number of rows of a chunk, so that memory does not depend on the size of a table."""
_FULL_BYTES = 1_000_000
"""Free space, bytes, below which a `disk I/O error` of SQLite counts as a full disk."""

Rows = Mapping[str, Iterable[Mapping[str, Any]]]
"""Rows by table; a row has values by column and may lack columns."""


class Store:
    """The SQLite database with the rows and the plan of one campaign.

    Parameters
    ----------
    folder
        Folder of the dataset; created if it is missing.
    plan
        Plan to measure. A store of another plan is refused, but the number of rounds may differ. None opens the
        existing campaign.

    Raises
    ------
    CampaignError
        If the folder cannot be written, the disk is full, or another run uses the store. If the store is damaged, has
        another plan or has another schema version. If `plan` is None and there is no store. If the folder has a dataset
        and no store, because an export would overwrite the dataset.
    """

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self._file = folder / FILE_NAME
        if plan is None and not self._file.exists():
            raise CampaignError(
                "there is no campaign here",
                where=str(self._file),
                next_step="Name the folder given to `crosslayer measure --out`.",
            )
        if not self._file.exists() and (there := [name for name in _DATASET if (folder / name).exists()]):
            raise CampaignError(
                f"holds {', '.join(there)} and no {FILE_NAME}: a campaign would overwrite them",
                where=str(folder),
                next_step="Choose another folder with --out; nothing was changed.",
            )
        with contextlib.ExitStack() as undo:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._db = sqlite3.connect(self._file, isolation_level=None, timeout=2)
                undo.callback(self._db.close)
                # Must come first: without it, the log's index is a file, for which a full disk has no space.
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode = WAL")
                # FULL: a round is on the disk when its transaction ends, even if the machine fails.
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("BEGIN EXCLUSIVE")
                if (health := self._read("PRAGMA quick_check(1)")[0][0]) != "ok":
                    raise self._damaged(health)
                self._db.execute("CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
                self._adopt(plan)
                self._create()
                self._db.execute("COMMIT")
                # O_PATH, because closing any other descriptor of the file would release SQLite's locks.
                self._held = os.open(self._file, os.O_PATH)
                undo.callback(os.close, self._held)
                self._left = self._stamps()
            except OSError as error:
                raise CampaignError(
                    f"the output folder cannot be written ({error.strerror})",
                    where=str(folder),
                    next_step="Choose another folder. In virtual time, `crosslayer box` and `crosslayer link` need "
                    "--writable FOLDER.",
                ) from error
            except sqlite3.Error as error:
                raise self._failure(error) from error
            undo.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; SQLite then merges the write-ahead log into the database file."""
        self._db.close()
        os.close(self._held)

    def _create(self) -> None:
        for name, table in TABLES.items():
            body = ", ".join(f'"{c.name}" {c.sql}{" NOT NULL" if c.required else ""}' for c in table.columns)
            self._db.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({body})')
            known = {column for _, column, *_ in self._db.execute(f'PRAGMA table_info("{name}")')}
            for column in table.columns:
                if column.name not in known:  # newer than this store
                    self._db.execute(f'ALTER TABLE "{name}" ADD COLUMN "{column.name}" {column.sql}')
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS rounds (link TEXT, page TEXT, round INTEGER, PRIMARY KEY (link, page, round))"
        )

    def _adopt(self, plan: Plan | None) -> None:
        known, version = self.fact("plan"), self.fact("schema_version")
        if version not in (None, SCHEMA_VERSION):
            revision = (self.fact("git") or {}).get("revision") or "of its time"
            raise CampaignError(
                f"was begun by a crosslayer that writes tables of version {version}; this one writes {SCHEMA_VERSION}",
                where=str(self._file),
                next_step=f"Resume it in a checkout of revision {revision}, or choose another folder with --out.",
            )
        if plan is None:
            if known is None:
                raise CampaignError(
                    "holds no plan", where=str(self._file), next_step="Measure it again with `crosslayer measure`."
                )
            return
        now, usual = (json.loads(json.dumps(values)) for values in (plan.as_dict(), asdict(type(plan.options)())))
        if known is not None:
            # Keys that are newer than the store had these values.
            first: dict[str, Any] = {"clock": "wall", "congestion_control": CUBIC, "browser": "chromium"}
            first |= {"capture": [], "capture_rounds": 1}
            there = _flat(first | known | {"options": usual | known["options"]})
            if differences := [
                f"{key} is {there.get(key)} there and {value} now"
                for key, value in _flat(now).items()
                if key != "rounds" and there.get(key) != value
            ]:
                raise CampaignError(
                    f"holds a campaign made by another plan ({'; '.join(differences)})",
                    where=str(self._file),
                    next_step="Choose another folder with --out, or give the old plan to resume the campaign.",
                )
        # More rounds of the same plan are the same campaign, continued.
        self.set_fact("schema_version", SCHEMA_VERSION)
        self.set_fact("plan", now)
        self.set_fact("options_changed", {key: value for key, value in now["options"].items() if value != usual[key]})

    def fact(self, name: str) -> Any:
        """Return a fact: a JSON value of the campaign that is not in its rows; None if it is not stored."""
        rows = self._read("SELECT value FROM facts WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def set_fact(self, name: str, value: object) -> None:
        """Store a fact: a JSON value of the campaign that is not in its rows."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def done(self) -> set[tuple[str, str, int]]:
        """Link, page and number of every finished round."""
        return set(self._read("SELECT link, page, round FROM rounds"))

    def add_round(self, cell: Cell, round_number: int, rows: Rows) -> None:
        """Write one finished round, completely or not at all."""
        self._write(rows, (cell.link, cell.page, round_number))

    def add_rows(self, rows: Rows) -> None:
        """Write rows that belong to no round, i.e. link checks before the first round."""
        self._write(rows, None)

    def _write(self, rows: Rows, round_key: tuple[str, str, int] | None) -> None:
        with self._writing():
            self._db.execute("BEGIN IMMEDIATE")
            for table, some in rows.items():
                columns = {column.name: column for column in TABLES[table].columns}
                for row in some:
                    names = ", ".join(f'"{name}"' for name in row)
                    values = [_plain(columns[name], value) for name, value in row.items()]
                    self._db.execute(f'INSERT INTO "{table}" ({names}) VALUES ({", ".join("?" * len(row))})', values)
            if round_key is not None:
                self._db.execute("INSERT INTO rounds VALUES (?, ?, ?)", round_key)
            self._db.execute("COMMIT")

    def _read(self, sql: str, values: tuple[str, ...] = ()) -> list[Any]:
        """All rows of the result of an SQL query."""
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Roll back the transaction of the block if SQLite reports an error.

        Raises
        ------
        CampaignError
            If SQLite reports an error. Also if another program has changed the file since the last write; this is
            checked before the block.
        """
        opened = hasattr(self, "_left")
        if opened:
            self.check_untouched()
        try:
            yield
        except sqlite3.Error as error:
            if opened and self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._failure(error) from error
        if opened:
            self._left = self._stamps()

    def _stamps(self) -> list[tuple[int, ...] | None]:
        """Device, inode, size and modification time of the database and of its log; None for a missing file.

        If another program writes to a file, one of these values changes.
        """
        stamps: list[tuple[int, ...] | None] = []
        for file in (self._file, self._file.with_name(f"{FILE_NAME}-wal")):
            try:
                seen = file.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        return stamps

    def check_untouched(self) -> None:
        """Refuse to continue if another program has changed, moved or removed the database.

        Raises
        ------
        CampaignError
            If another program has changed, moved or removed the database. If the database was removed, this method
            first tries to write its rounds to a new file. The error names the file that has the rounds, or says that
            rounds are lost or may be lost.
        """
        if self._stamps() == self._left:
            return
        if os.fstat(self._held).st_nlink:
            moved = Path(f"/proc/self/fd/{self._held}").readlink()
            if moved != self._file.resolve():
                raise CampaignError(
                    "was moved while the campaign ran",
                    where=str(self._file),
                    next_step=f"Its rounds are in {moved}. Move its folder back and give the same command again.",
                )
            raise CampaignError(
                "was changed by another program while the campaign ran: rounds in it may be lost",
                where=str(self._file),
                next_step="`crosslayer export` shows whether it can still be read. Measure in another folder (--out).",
            )
        rescued = self._file.with_name(_RESCUED) if self._file.exists() else self._file
        try:
            rescued.parent.mkdir(parents=True, exist_ok=True)
            self._db.execute("VACUUM INTO ?", (str(rescued),))
        except (OSError, sqlite3.Error) as error:
            raise CampaignError(
                f"was removed while the campaign ran, and its rounds are lost ({error})",
                where=str(self._file),
                next_step="Measure again.",
            ) from error
        raise CampaignError(
            f"was removed while the campaign ran; its rounds are now in {rescued}",
            where=str(self._file),
            next_step="Give the same command again: it resumes the campaign."
            if rescued == self._file
            else "Keep that file; it is a campaign's under the name campaign.sqlite in a folder of its own.",
        )

    def links(self, table: str) -> list[str]:
        """Names of the links of which a table has rows, in alphabetical order."""
        return [link for (link,) in self._read(f'SELECT DISTINCT "link" FROM "{table}" ORDER BY 1')]

    def count(self, table: str) -> int:
        """Number of rows of a table."""
        return int(self._read(f'SELECT count(*) FROM "{table}"')[0][0])

    def chunks(self, table: str, link: str) -> Iterator[pyarrow.Table]:
        """Read all rows of a table for one link in chunks, sorted by round and page.

        Each chunk has the Arrow schema of the table and at most `_CHUNK_ROWS` rows. A link without rows has no chunk.
        """
        import pyarrow as pa  # here, because the command line imports this module and importing pyarrow is slow

        schema, columns = TABLES[table].arrow_schema(), TABLES[table].columns
        names = ", ".join(f'"{c.name}"' for c in columns)
        sql = f'SELECT {names} FROM "{table}" WHERE "link" = ? ORDER BY "round", "page", rowid'
        try:
            cursor = self._db.execute(sql, (link,))
            while some := cursor.fetchmany(_CHUNK_ROWS):
                values = zip(columns, zip(*some, strict=True), schema.types, strict=True)
                arrays = [pa.array(_typed(column, one), kind) for column, one, kind in values]
                yield pa.Table.from_arrays(arrays, schema=schema)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def rows(self, table: str, link: str) -> Iterator[dict[str, Any]]:
        """Rows of a table for one link, like `chunks`, but each as a dictionary."""
        for chunk in self.chunks(table, link):
            yield from chunk.to_pylist()

    def _failure(self, error: sqlite3.Error) -> CampaignError:
        what, kind = f"cannot be written: {error}", getattr(error, "sqlite_errorname", "")
        folder = next(one for one in self._file.parents if one.exists())
        if kind == "SQLITE_FULL" or (kind.startswith("SQLITE_IOERR") and shutil.disk_usage(folder).free < _FULL_BYTES):
            what = f"cannot be written: the disk is full ({error})"
            step = "Free disk space and give the same command again: it resumes the campaign."
        elif kind in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            step = "Another run is writing to it: let it end, or choose another folder with --out."
        elif kind.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
            step = "Make the folder writable, or choose another with --out."
        elif kind.startswith("SQLITE_IOERR"):
            step = "Its disk failed or is gone: what is in the file shows when the same command is given again."
        elif kind.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return self._damaged(str(error))
        else:
            step = "Every round before this one is safe in the file."
        return CampaignError(what, where=str(self._file), next_step=step)

    def _damaged(self, why: str) -> CampaignError:
        return CampaignError(
            f"is damaged, and rounds in it may be lost: {why}",
            where=str(self._file),
            next_step="Keep a copy: `sqlite3 FILE .recover` may read a part of it. Measure in another folder (--out).",
        )


def _flat(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in plan.items() if key != "options"} | dict(plan["options"])


def _plain(column: Column, value: Any) -> Any:
    return json.dumps(value) if column.stored == list[float] and value is not None else value


def _typed(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    if column.type is bool:
        return [None if value is None else bool(value) for value in values]
    if column.stored == list[float]:
        return [None if value is None else json.loads(value) for value in values]
    return values
