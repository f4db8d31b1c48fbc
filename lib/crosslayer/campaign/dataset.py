"""Reading a dataset folder: checked once when it is opened, read lazily afterwards.

A dataset folder holds `campaign.json` and, per table, `TABLE/link=LINK/*.parquet` (see `schema`).
Opening refuses what would make a wrong number later: another schema version, a column that is missing or of
another type or unit, a file that is damaged or in the wrong place, NaN, a negative duration, a success without its
value, a condition of an unknown name, an observation that is there twice, a link with two RTTs. Nothing is written
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crosslayer.campaign.schema import SCHEMA_VERSION, TABLES, Kind, arrow_schema
from crosslayer.errors import CrosslayerError

_MEASURE_AGAIN = "Export the campaign again with `crosslayer export`, or measure a new one with `crosslayer measure`."

# What no figure can do without: a row without `error` must have every one of these.
_MEASUREMENTS: dict[str, tuple[str, ...]] = {
    "dns_exchanges": ("handshake_ms", "query_ms", "total_ms"),
    "tcp_rtts": ("rtt_ms",),
    "paced_queries": ("response_ms", "late_ms", "query_ms"),
    "page_loads": (
        "plt_ms",
        "connect_start_ms",
        "connect_ms",
        "request_start_ms",
        "response_start_ms",
        "early_data_accepted",
        "session_resumed",
    ),
}

# A client that cannot tell the handshake from the query (DoH of an imported campaign) has neither; where no server was
# asked (all of an imported campaign) there is no evidence at all.
_TOGETHER = {
    "handshake_ms": "query_ms",
    "query_ms": "handshake_ms",
    "early_data_accepted": "session_resumed",
    "session_resumed": "early_data_accepted",
}

# A round measures each condition once; these columns say which condition a row is.
_CONDITION: dict[str, tuple[str, ...]] = {
    "dns_exchanges": ("campaign", "study", "link", "page", "protocol", "resumption", "warming", "variant"),
    "tcp_rtts": ("campaign", "study", "link", "page"),
    "paced_queries": (
        "campaign",
        "study",
        "link",
        "page",
        "protocol",
        "connection",
        "warming",
        "client",
        "number",
    ),
    "page_loads": ("campaign", "study", "link", "page", "h3", "coupling", "dns_protocol", "variant"),
}

# Columns that datasets of this schema version may lack, since they are younger.
_NEWER = {"dns_exchanges": "variant"}

# Spelled otherwise, rows would be left out or escape a rule (0-RTT counts only with evidence) without anybody noticing.
_WORDS: dict[str, tuple[str, ...]] = {
    "protocol": ("DoUDP", "DoTCP", "DoT", "DoH", "DoH3", "DoQ"),
    "resumption": ("none", "ticket", "early-data"),
    "h3": ("1-rtt", "0-rtt"),
    "coupling": ("decoupled", "coupled"),
}

_POLARS: dict[Kind, Any] = {
    Kind.INTEGER: pl.Int64(),
    Kind.REAL: pl.Float64(),
    Kind.TEXT: pl.String(),
    Kind.BOOLEAN: pl.Boolean(),
    Kind.JSON: pl.String(),
    Kind.REAL_LIST: pl.List(pl.Float64()),
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


@dataclass(frozen=True, slots=True)
class Campaign:
    """What `campaign.json` says about a campaign."""

    campaign: str
    """Identifier, as in the column `campaign`."""
    schema_version: int
    study: str
    links: tuple[str, ...]
    """Link profiles the plan asked for, in its order."""
    pages: tuple[str, ...]
    """Pages the plan asked for, in its order."""
    rounds: int
    """Rounds per cell the plan asked for."""
    seed: int | None
    started: str
    ended: str
    """Empty while the campaign is not finished."""
    backend: str
    """netem or uml."""
    host: Host
    versions: Mapping[str, Any]
    git_revision: str
    git_clean: bool | None
    notes: tuple[str, ...]
    plan: Mapping[str, Any]
    """The whole plan, as written."""

    @classmethod
    def read(cls, path: Path) -> Campaign:
        """Read `campaign.json`.

        Raises
        ------
        DatasetError
            Where the file is missing, is not JSON, lacks a key or is of another schema version.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DatasetError("there is no campaign.json", where=str(path.parent), next_step=_MEASURE_AGAIN) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DatasetError(f"cannot be read ({error})", where=str(path), next_step=_MEASURE_AGAIN) from None
        version = raw.get("schema_version") if isinstance(raw, dict) else None
        if version != SCHEMA_VERSION:
            raise DatasetError(
                f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}",
                where=str(path),
                next_step="Use the crosslayer that wrote it (`git_revision` in campaign.json), or measure again.",
            )
        try:
            plan, host, git = raw["plan"], raw["host"], raw.get("git") or {}
            return cls(
                campaign=str(raw["campaign"]),
                schema_version=version,
                study=str(plan["study"]),
                links=_texts(plan["links"]),
                pages=_texts(plan["pages"]),
                rounds=int(plan["rounds"]),
                seed=plan.get("seed"),
                started=str(raw["started"]),
                ended=str(raw.get("ended") or ""),
                backend=str(raw["backend"]),
                host=Host(
                    cpu=str(host["cpu"]),
                    cores=int(host["cores"]),
                    memory_bytes=int(host["memory_bytes"]),
                    kernel=str(host["kernel"]),
                    os=str(host["os"]),
                ),
                versions=dict(raw.get("versions") or {}),
                git_revision=str(git.get("revision") or ""),
                git_clean=None if git.get("clean") is None else bool(git["clean"]),
                notes=_texts(raw.get("notes") or []),
                plan=plan,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            fault = f"lacks the key {error}" if isinstance(error, KeyError) else f"holds a wrong value ({error})"
            raise DatasetError(fault, where=str(path), next_step=_MEASURE_AGAIN) from None


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"{value!r} is not a list of texts")
    return tuple(value)


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
        for table, paths in files.items():
            if elsewhere := sorted(set((folder / table).rglob("*.parquet")) - set(paths)):
                raise DatasetError(
                    f"is not in a folder link=LINK of {table}", where=str(elsewhere[0]), next_step=_MEASURE_AGAIN
                )
            for path in paths:
                _check_schema(table, path)
        rounds: dict[Any, int] = {}
        for table in _MEASUREMENTS:
            # One link at a time, so that a huge dataset fits in memory.
            for link, of_link in groupby(files[table], key=lambda path: path.parent):
                for cell, count in _check_values(_scan(table, of_link), table, link, campaign.campaign).items():
                    rounds[cell] = max(count, rounds.get(cell, 0))
        if not rounds:
            raise DatasetError("holds no observation at all", where=str(folder), next_step=_MEASURE_AGAIN)
        for link, of_link in groupby(files["link_checks"], key=lambda path: path.parent):
            _check_links(_scan("link_checks", of_link), link, campaign.campaign)
        return cls(folder, campaign, (min(rounds.values()), max(rounds.values())), files)

    def table(self, name: str) -> pl.LazyFrame:
        """One table of the dataset, read when it is collected.

        Parameters
        ----------
        name
            A key of `crosslayer.campaign.schema.TABLES`.

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
        return _scan(name, self.files[name])

    @property
    def caption(self) -> str:
        """Campaign, rounds, backend and host, as every figure's caption ends."""
        fewest, most = self.rounds_per_cell
        planned = self.campaign.rounds
        measured = str(most) if fewest == most else f"{fewest} to {most}"
        rounds = measured if fewest >= planned else f"{measured} of {planned}"
        host = self.campaign.host
        plural = "round" if rounds == "1" else "rounds"
        proxy = "dnsproxy at both ends, " if self.campaign.plan.get("proxy") == "dnsproxy" else ""
        machine = f"{host.cpu} ({host.cores} cores), {host.os}, Linux {host.kernel}" if host.cores else host.cpu
        return (
            f"Campaign {self.campaign.campaign}, {rounds} {plural} per cell, link by {self.campaign.backend}, "
            f"{proxy}measured on {machine}."
        )


def _check_schema(table: str, path: Path) -> None:
    try:
        found = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise DatasetError(f"is not a Parquet file ({error})", where=str(path), next_step=_MEASURE_AGAIN) from None
    version = (found.metadata or {}).get(b"schema_version", str(SCHEMA_VERSION).encode()).decode()
    if version != str(SCHEMA_VERSION):
        raise DatasetError(
            f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}",
            where=str(path),
            next_step=_MEASURE_AGAIN,
        )
    needed = {column.name for column in TABLES[table] if column.required}
    if table in _MEASUREMENTS:
        needed |= {*_MEASUREMENTS[table], *_CONDITION[table], "error"} - {_NEWER.get(table)}
    if table == "link_checks":
        needed |= {"rtt_ms", "nominal_rtt_ms"}
    if missing := [
        field.name for field in arrow_schema(table) if field.name in needed and field.name not in found.names
    ]:
        raise DatasetError(f"lacks the columns {', '.join(missing)}", where=str(path), next_step=_MEASURE_AGAIN)
    for field in arrow_schema(table):
        if field.name not in found.names:
            continue
        other = found.field(field.name)
        if other.type not in (field.type, pa.large_string() if field.type == pa.string() else field.type):
            raise DatasetError(
                f"column {field.name} is {other.type}, expected {field.type}", where=str(path), next_step=_MEASURE_AGAIN
            )
        unit, other_unit = ((f.metadata or {}).get(b"unit", b"").decode() for f in (field, other))
        if other.metadata and unit != other_unit:
            raise DatasetError(
                f"column {field.name} is in {other_unit or 'no unit'}, expected {unit or 'no unit'}",
                where=str(path),
                next_step=_MEASURE_AGAIN,
            )


def _scan(table: str, paths: Iterable[Path]) -> pl.LazyFrame:
    schema = {column.name: _POLARS[column.kind] for column in TABLES[table]}
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


def _expected(name: str) -> pl.Expr:
    """True for rows that must have a value: those that succeeded, and measured this at all."""
    succeeded = pl.col("error").is_null()
    return succeeded & pl.col(_TOGETHER[name]).is_not_null() if name in _TOGETHER else succeeded


def _check_values(rows: pl.LazyFrame, table: str, where: Path, campaign: str) -> dict[tuple[str, str], int]:
    """Rounds of each (link, page); raises where a value would spoil a statistic without anybody noticing."""
    measured = _MEASUREMENTS[table]
    absent = ((name, pl.col(name).is_null() & _expected(name)) for name in measured)
    durations = [name for name in _real(table) if name in measured]
    counts = _collect(
        rows.select(
            *_not_finite(_real(table)),
            *_below_zero(durations),
            *(rule.sum().alias(f"rows that succeeded but have no value:{name}") for name, rule in absent),
            pl.col("round").null_count().alias("rows without a value:round"),
        ),
        where,
    )
    _refuse(counts, where)
    condition = list(_CONDITION[table])
    conditions = _collect(
        rows.group_by(condition)
        .agg(pl.col("round").n_unique().alias("rounds"), pl.len().alias("rows"))
        .sort(condition),
        where,
    )
    _check_identity(conditions, where, campaign)
    required = (column.name for column in TABLES[table] if column.required and column.name in condition)
    nulls = (pl.col(name).null_count().alias(f"rows without a value:{name}") for name in required)
    _refuse(conditions.select(nulls), where)
    for name in (name for name in condition if name in _WORDS):
        if unknown := sorted(set(conditions[name]) - set(_WORDS[name])):
            raise DatasetError(
                f"column {name} holds {unknown[0]!r}, expected {', '.join(_WORDS[name])}",
                where=str(where),
                next_step=_MEASURE_AGAIN,
            )
    twice = conditions.filter(pl.col("rows") > pl.col("rounds"))
    if twice.height:
        extra = (twice["rows"] - twice["rounds"]).sum()
        first = ", ".join(str(value) for value in twice.select(condition).row(0) if value is not None)
        raise DatasetError(
            f"{extra} observations are there more than once, first in {first}",
            where=str(where),
            next_step=_MEASURE_AGAIN,
        )
    cells = conditions.group_by("link", "page").agg(pl.col("rounds").max())
    return {(link, page): rounds for link, page, rounds in cells.iter_rows()}


def _check_links(checks: pl.LazyFrame, where: Path, campaign: str) -> None:
    """Raises where the nominal RTT of a link, which its times are divided by, is not one number."""
    real = _real("link_checks")
    rows = _collect(checks.select("campaign", "link", *real), where)
    _check_identity(rows, where, campaign)
    _refuse(rows.select(*_not_finite(real), *_below_zero(["rtt_ms", "nominal_rtt_ms"])), where)
    nominal = rows["nominal_rtt_ms"].drop_nulls().unique().sort()
    if len(nominal) > 1:
        raise DatasetError(
            f"was checked against several nominal RTTs: {', '.join(f'{rtt:g}' for rtt in nominal)} ms",
            where=str(where),
            next_step="Its times are multiples of one RTT: measure each link profile in a campaign of its own.",
        )


def _check_identity(rows: pl.DataFrame, where: Path, campaign: str) -> None:
    """Rows must be of the campaign that campaign.json describes, and of the link whose folder they are in."""
    for name, expected in (("campaign", campaign), ("link", where.name.removeprefix("link="))):
        if others := sorted(set(rows[name].drop_nulls()) - {expected}):
            raise DatasetError(
                f"holds rows of {name} {others[0]}, expected {expected}", where=str(where), next_step=_MEASURE_AGAIN
            )


def _not_finite(columns: list[str]) -> Iterator[pl.Expr]:
    return ((~pl.col(name).is_finite()).sum().alias(f"NaN or infinite values:{name}") for name in columns)


def _below_zero(columns: list[str]) -> Iterator[pl.Expr]:
    return ((pl.col(name) < 0).sum().alias(f"values below 0:{name}") for name in columns)


def _refuse(counts: pl.DataFrame, where: Path) -> None:
    """One row of counts, each named `fault:column`; raises for the first that is not 0."""
    for key, count in counts.row(0, named=True).items():
        if count:
            fault, name = key.split(":")
            raise DatasetError(f"column {name} has {count} {fault}", where=str(where), next_step=_MEASURE_AGAIN)


def _collect(rows: pl.LazyFrame, where: Path) -> pl.DataFrame:
    try:
        return rows.collect(engine="streaming")
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(f"cannot be read ({reason})", where=str(where), next_step=_MEASURE_AGAIN) from None


def _real(table: str) -> list[str]:
    return [column.name for column in TABLES[table] if column.kind is Kind.REAL]
