"""Reading a dataset folder: checked once when it is opened, read lazily afterwards.

A dataset folder holds `campaign.json` and, per table, `TABLE/link=LINK/*.parquet` (see `schema`).
Opening refuses what would make a wrong number later: another schema version, a column that is missing or of
another type or unit, a file that is damaged or in the wrong place, NaN, a negative duration, a success without its
value, a condition of an unknown name, an observation that is there twice, a link with two RTTs. Nothing is written
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crosslayer.campaign.tables import SCHEMA_VERSION, TABLES, LinkChecks, Table
from crosslayer.checked import checked, read_json
from crosslayer.errors import CrosslayerError

_MEASURE_AGAIN = "Export the campaign again with `crosslayer export`, or measure a new one with `crosslayer measure`."
_READABLE = (1, SCHEMA_VERSION)

# Until version 2, every option of every study stood in every plan: their defaults, None for one that others had off.
_OPTIONS_OF_1 = {
    "aa_cell": None,
    "clients": 4,
    "interval_ms": 2000,
    "queries": 4,
    "https_records": False,
    "proxy": "crosslayer",
}


class DatasetError(CrosslayerError):
    """A dataset folder that cannot be analysed."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine a campaign ran on."""

    cpu: str
    cores: int
    """0 where the machine is not known; `cpu` then says so."""
    memory_bytes: int
    kernel: str
    os: str
    machine: str = ""
    """Its architecture."""


@dataclass(frozen=True, slots=True)
class Git:
    """The checkout a campaign was measured with."""

    revision: str | None = None
    clean: bool | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a campaign, see `Plan`."""

    study: str
    links: tuple[str, ...]
    pages: tuple[str, ...]
    rounds: int
    seed: int | None = None
    options: dict[str, Any] = field(default_factory=dict)


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What `campaign.json` says about a campaign."""

    campaign: str
    """Identifier, as in the column `campaign`."""
    schema_version: int
    planned: Planned = msgspec.field(name="plan")
    options_changed: dict[str, Any] = {}
    """Options of the study that were not at their default."""
    started: str
    ended: str = ""
    """Empty while the campaign is not finished."""
    backend: str
    """netem or uml."""
    host: Host
    versions: dict[str, Any] = {}
    git: Git = Git()
    notes: tuple[str, ...] = ()
    rows: dict[str, int] = {}
    """Rows of each table."""

    @classmethod
    def read(cls, path: Path) -> Campaign:
        """Read `campaign.json`.

        Raises
        ------
        DatasetError
            Where the file is missing, is not JSON, lacks a key or is of another schema version.
        """
        if not path.is_file():
            raise DatasetError("there is no campaign.json", where=str(path.parent), next_step=_MEASURE_AGAIN)
        raw = read_json(path, DatasetError, _MEASURE_AGAIN)
        version = raw.get("schema_version") if isinstance(raw, dict) else None
        if version not in _READABLE:
            raise DatasetError(
                f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}",
                where=str(path),
                next_step="Use the crosslayer that wrote it (`git_revision` in campaign.json), or measure again.",
            )
        known = {key: value for key, value in raw.items() if value is not None}
        if version == 1:
            known = _as_version_2(known)
        return checked(known, cls, where=str(path), error=DatasetError, next_step=_MEASURE_AGAIN)

    @property
    def study(self) -> str:
        """Name of the study."""
        return self.planned.study

    @property
    def links(self) -> tuple[str, ...]:
        """Link profiles the plan asked for, in its order."""
        return self.planned.links

    @property
    def pages(self) -> tuple[str, ...]:
        """Pages the plan asked for, in its order."""
        return self.planned.pages

    @property
    def rounds(self) -> int:
        """Rounds per cell the plan asked for."""
        return self.planned.rounds

    @property
    def seed(self) -> int | None:
        """Seed of the plan; None for an imported campaign."""
        return self.planned.seed

    @property
    def plan(self) -> dict[str, Any]:
        """The whole plan, the study's options among the rest."""
        plan: dict[str, Any] = msgspec.to_builtins(self.planned)
        return plan | dict(plan.pop("options"))

    @property
    def git_revision(self) -> str:
        """Empty where it is not known."""
        return self.git.revision or ""

    @property
    def git_clean(self) -> bool | None:
        """Whether the files were as committed; None where it is not known."""
        return self.git.clean


def _as_version_2(raw: dict[str, Any]) -> dict[str, Any]:
    """`campaign.json` of version 1 as version 2 has it; what is no plan is left to the check."""
    plan = raw.get("plan")
    if not isinstance(plan, dict):
        return raw
    options = {key: plan[key] for key in _OPTIONS_OF_1 if key in plan}
    rest = {key: value for key, value in plan.items() if key not in options}
    changed = {key: value for key, value in options.items() if _OPTIONS_OF_1[key] not in (None, value)}
    return raw | {"plan": rest | {"options": options}, "options_changed": changed}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A checked dataset folder. Make one with `Dataset.open`."""

    folder: Path
    campaign: Campaign
    rounds_per_cell: tuple[int, int]
    """Fewest and most rounds any cell has rows of."""
    files: Mapping[str, tuple[Path, ...]]
    """Parquet files of each table; empty where the dataset has no such table."""

    @classmethod
    def open(cls, folder: str | Path) -> Dataset:
        """Open a dataset folder and check it.

        Parameters
        ----------
        folder
            Folder with `campaign.json` and the tables.

        Raises
        ------
        DatasetError
            Names the file or table, what is wrong with it and the next step.
        """
        folder = Path(folder)
        if not folder.is_dir():
            raise DatasetError(
                "there is no such dataset folder",
                where=str(folder),
                next_step="Measure one with `crosslayer measure`, or analyse data/raw/coalescing.",
            )
        campaign = Campaign.read(folder / "campaign.json")
        files = {table: tuple(sorted(folder.glob(f"{table}/link=*/*.parquet"))) for table in TABLES}
        for name, paths in files.items():
            if elsewhere := sorted(set((folder / name).rglob("*.parquet")) - set(paths)):
                raise DatasetError(
                    f"is not in a folder link=LINK of {name}", where=str(elsewhere[0]), next_step=_MEASURE_AGAIN
                )
            expected = TABLES[name].arrow_schema()
            for path in paths:
                _check_schema(TABLES[name], expected, path)
        rounds: dict[tuple[str, str], int] = {}
        there = [(TABLES[name], paths) for name, paths in files.items() if paths]
        for (table, _), conditions in zip(there, _conditions(there), strict=True):
            _check_values(conditions, table, campaign)
            if table.observed:
                cells = conditions.group_by("link", "page").agg(pl.col("rounds").max())
                rounds |= {(link, page): max(n, rounds.get((link, page), 0)) for link, page, n in cells.iter_rows()}
        if not rounds:
            raise DatasetError("holds no observation at all", where=str(folder), next_step=_MEASURE_AGAIN)
        return cls(folder, campaign, (min(rounds.values()), max(rounds.values())), files)

    def table(self, name: str) -> pl.LazyFrame:
        """One table of the dataset, read when it is collected.

        Parameters
        ----------
        name
            A key of `crosslayer.campaign.tables.TABLES`.

        Returns
        -------
        polars.LazyFrame
            Columns as in the schema. A table the dataset does not have gives no rows; a column that is newer
            than the dataset gives nulls.

        Raises
        ------
        DatasetError
            For a name that is not a table.
        """
        if name not in TABLES:
            raise DatasetError(
                f"there is no table {name!r}", where=str(self.folder), next_step=f"Tables are {', '.join(TABLES)}."
            )
        return _scan(TABLES[name], self.files[name])

    @property
    def caption(self) -> str:
        """Campaign, rounds, backend and host, as every figure's caption ends."""
        fewest, most = self.rounds_per_cell
        planned = self.campaign.rounds
        measured = str(most) if fewest == most else f"{fewest} to {most}"
        rounds = measured if fewest >= planned else f"{measured} of {planned}"
        host = self.campaign.host
        plural = "round" if rounds == "1" else "rounds"
        options = "".join(
            f"{name.replace('_', ' ')} {'on' if value is True else 'off' if value is False else value}, "
            for name, value in self.campaign.options_changed.items()
        )
        machine = f"{host.cpu} ({host.cores} cores), {host.os}, Linux {host.kernel}" if host.cores else host.cpu
        return (
            f"Campaign {self.campaign.campaign}, {rounds} {plural} per cell, link by {self.campaign.backend}, "
            f"{options}measured on {machine}."
        )


def _check_schema(table: type[Table], schema: pa.Schema, path: Path) -> None:
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"is not a Parquet file ({error})", where=str(path), next_step=_MEASURE_AGAIN) from None
    version = (found.metadata or {}).get(b"schema_version", str(SCHEMA_VERSION).encode()).decode()
    if version not in map(str, _READABLE):
        raise DatasetError(
            f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}",
            where=str(path),
            next_step=_MEASURE_AGAIN,
        )
    if missing := [column.name for column in table.columns if column.present and column.name not in found.names]:
        raise DatasetError(f"lacks the columns {', '.join(missing)}", where=str(path), next_step=_MEASURE_AGAIN)
    for expected in schema:
        if expected.name not in found.names:
            continue
        other = found.field(expected.name)
        if other.type not in (expected.type, pa.large_string() if expected.type == pa.string() else expected.type):
            raise DatasetError(
                f"column {expected.name} is {other.type}, expected {expected.type}",
                where=str(path),
                next_step=_MEASURE_AGAIN,
            )
        unit, other_unit = ((f.metadata or {}).get(b"unit", b"").decode() for f in (expected, other))
        if other.metadata and unit != other_unit:
            raise DatasetError(
                f"column {expected.name} is in {other_unit or 'no unit'}, expected {unit or 'no unit'}",
                where=str(path),
                next_step=_MEASURE_AGAIN,
            )


def _scan(table: type[Table], paths: Iterable[Path]) -> pl.LazyFrame:
    schema = table.polars_schema()
    files = list(paths)
    if not files:
        return pl.LazyFrame(schema=schema)
    return pl.scan_parquet(
        files,
        schema=schema,
        missing_columns="insert",
        extra_columns="ignore",
        hive_partitioning=False,  # `link` is also in the files
    ).select(list(schema))


def _conditions(tables: Sequence[tuple[type[Table], Sequence[Path]]]) -> list[pl.DataFrame]:
    """The conditions of each table: their key, the folder they are in, how many rows and rounds, and how many faults.

    A fault is a column `what is wrong:name of the column`. Each table is read once, in streams, so that a huge one fits
    in memory.
    """

    def of(table: type[Table], paths: Iterable[Path]) -> pl.LazyFrame:
        folders = [
            _scan(table, of_link).with_columns(pl.lit(str(link)).alias("_folder"))
            for link, of_link in groupby(paths, key=lambda path: path.parent)
        ]
        key = ["_folder", *(column.name for column in table.columns if column.key)]
        return (
            pl.concat(folders)
            .group_by(key)
            .agg(
                pl.len().alias("rows"),
                pl.col("round").n_unique().alias("rounds"),
                *(rule.sum().alias(f"{fault}:{name}") for fault, name, rule in _faults(table)),
            )
            .sort(key)
        )

    try:
        return pl.collect_all([of(*one) for one in tables], engine="streaming")
    except (OSError, pl.exceptions.PolarsError):
        for table, paths in tables:
            for path in paths:
                try:
                    of(table, [path]).collect()
                except (OSError, pl.exceptions.PolarsError) as error:
                    reason = str(error).splitlines()[0]
                    raise DatasetError(
                        f"cannot be read ({reason})", where=str(path.parent), next_step=_MEASURE_AGAIN
                    ) from None
        raise


def _faults(table: type[Table]) -> Iterator[tuple[str, str, pl.Expr]]:
    """What would spoil a statistic without anybody noticing: the fault, its column, and the rows it is true of."""
    real = [column.name for column in table.columns if column.type is float]
    yield from (("NaN or infinite values", name, ~pl.col(name).is_finite()) for name in real)
    yield from (("values below 0", name, pl.col(name) < 0) for name in real)
    for column in (column for column in table.columns if column.success):
        expected = pl.col("error").is_null()
        if isinstance(column.success, str):
            # A client that cannot tell the handshake from the query (DoH of an imported campaign) has neither; where no
            # server was asked (all of an imported campaign) there is no evidence at all.
            expected &= pl.col(column.success).is_not_null()
        yield "rows that succeeded but have no value", column.name, pl.col(column.name).is_null() & expected
    for column in (column for column in table.columns if column.required and not column.key):
        yield "rows without a value", column.name, pl.col(column.name).is_null()


def _check_values(conditions: pl.DataFrame, table: type[Table], campaign: Campaign) -> None:
    """Raises for the first fault of what `_conditions` found of a table."""

    def refuse(fault: str, rows: pl.DataFrame, next_step: str = _MEASURE_AGAIN) -> NoReturn:
        raise DatasetError(fault, where=rows["_folder"][0], next_step=next_step)

    key = [column for column in table.columns if column.key]
    # Rows are of the campaign that campaign.json describes, and of the link whose folder they are in.
    belongs = {"campaign": pl.lit(campaign.campaign), "study": pl.lit(campaign.study)}
    belongs["link"] = pl.col("_folder").str.extract(r"link=([^/]*)$")
    for name, expected in ((name, expected) for name, expected in belongs.items() if name in conditions.columns):
        wrong = conditions.with_columns(expected=expected).filter(pl.col(name) != pl.col("expected"))
        if wrong.height:
            refuse(f"holds rows of {name} {wrong[name][0]}, expected {wrong['expected'][0]}", wrong)
    counts = conditions.select(column for column in conditions.columns if ":" in column)
    for count in (name for name, found in counts.sum().row(0, named=True).items() if found):
        wrong = conditions.filter(pl.col(count) > 0)
        wrong = wrong.filter(pl.col("_folder") == wrong["_folder"][0])
        fault, _, name = count.partition(":")
        refuse(f"column {name} has {wrong[count].sum()} {fault}", wrong)
    for column in key:
        wrong = conditions.filter(pl.col(column.name).is_null())
        if column.required and wrong.height:
            refuse(f"column {column.name} has {wrong['rows'].sum()} rows without a value", wrong)
        # Spelled otherwise, rows would be left out or escape a rule (0-RTT counts only with evidence) unnoticed.
        wrong = conditions.filter(~pl.col(column.name).is_in(column.words)) if column.words else wrong.clear()
        if wrong.height:
            refuse(f"column {column.name} holds {wrong[column.name][0]!r}, expected {', '.join(column.words)}", wrong)
    if table is LinkChecks:
        for _, of_link in conditions.group_by("link", maintain_order=True):
            nominal = of_link["nominal_rtt_ms"].drop_nulls()
            if len(nominal) > 1:
                refuse(
                    f"was checked against several nominal RTTs: {', '.join(f'{rtt:g}' for rtt in nominal)} ms",
                    of_link,
                    "Its times are multiples of one RTT: measure each link profile in a campaign of its own.",
                )
    twice = conditions.filter(pl.col("rows") > pl.col("rounds"))
    if table.observed and twice.height:
        extra = (twice["rows"] - twice["rounds"]).sum()
        first = ", ".join(str(v) for v in twice.select(column.name for column in key).row(0) if v is not None)
        refuse(f"{extra} observations are there more than once, first in {first}", twice)
