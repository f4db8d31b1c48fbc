"""Reader of dataset folders: it checks a folder when it opens it, and then reads lazily.

A dataset folder holds `campaign.json` and, per table, `TABLE/link=LINK/*.parquet` (see `tables`). The reader refuses
faults that would falsify results:

- another schema version,
- a missing column, or a column of another type or unit,
- a damaged, missing or misplaced file,
- NaN, or a negative duration,
- an observation that lacks a value although it has no error,
- an unknown condition,
- an observation that is there twice,
- a link with two nominal RTTs.

This module writes nothing.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import count, groupby
from pathlib import Path
from typing import Any, Literal, NoReturn

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crosslayer.campaign.method import method_of
from crosslayer.campaign.tables import SCHEMA_VERSION, TABLES, LinkChecks, Table
from crosslayer.decode import checked, choice, read_json
from crosslayer.errors import CrosslayerError

BUSY_PERCENT = 10
"""Maximum share of CPU time that other processes and the hypervisor may take in a round in real time, percent.

Rounds above it are left out (`Dataset.left_out`).
"""

_AT_ONCE = 1_000_000
"""Number of rows that are read at a time when a dataset is opened."""

EMULATED = (
    "All its resolvers have addresses of private or test networks: these numbers describe an emulated Internet "
    "(a box), not the public one."
)
"""Sentence in captions of datasets whose resolvers all have private or test addresses."""
_MEASURE_AGAIN = "Export the campaign again with `crosslayer export`, or measure a new one with `crosslayer measure`."
_UNTOLD = {
    "clock": pl.col("clock").fill_null("wall"),
    "host": pl.col("host").fill_null("").cast(pl.Categorical),  # 4 bytes per row, since the analysis groups by it
}
"""For each column that older files lack, an expression that replaces its missing values by a default."""


_PATHS = {"netem": "links emulated by netem", "uml": "links emulated by netem in User-Mode Linux"}
"""Words that captions use for the link backends, by the backend's name."""


def _option_text(name: str, value: Any) -> str:
    """Name and value of an option, as text for a caption. A name that ends in `_s` is a time in seconds."""
    unit = " s" if name.endswith("_s") else ""
    return f"{name.removesuffix('_s').replace('_', ' ')} = {_value_text(value)}{unit}"


def _value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(str(part) for part in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,g}" if isinstance(value, float) else str(value)


def _of_tables(value: Any) -> bool:
    """Whether the value of an option is a list of TOML tables (mappings), which is too long for a caption."""
    return isinstance(value, list | tuple) and any(isinstance(part, Mapping) for part in value)


class DatasetError(CrosslayerError):
    """A dataset folder cannot be analysed."""


@dataclass(frozen=True, slots=True)
class Host:
    """The machine on which a campaign was measured."""

    cpu: str
    cores: int
    """Number of CPU cores; 0 if the machine was not recorded. Then `cpu` is a phrase such as "an unknown machine"."""
    memory_bytes: int
    kernel: str
    os: str
    machine: str = ""
    """CPU architecture."""


@dataclass(frozen=True, slots=True)
class Git:
    """The checkout of crosslayer with which a campaign was measured."""

    revision: str | None = None
    clean: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """Content of `campaign.json`."""

    campaign: str
    """Identifier, as in the column `campaign`."""
    schema_version: int
    study: str
    links: tuple[str, ...]
    """Link profiles of the plan, in its order."""
    pages: tuple[str, ...]
    """Pages of the plan, in its order."""
    rounds: int
    """Planned number of rounds of each cell."""
    seed: int | None = None
    """Seed of the plan; None for an imported campaign."""
    clock: Literal["wall", "virtual"] = "wall"
    """Clock of the measurement."""
    browser: str = "chromium"
    """Browser of the page loads, if there are any."""
    congestion_control: str = ""
    """Congestion control of TCP; empty if the plan named none, so that the machine's default was used."""
    capture: tuple[str, ...] = ()
    """Kinds of captures that were kept in addition to the rows of the loads (`plan.Kind`)."""
    capture_rounds: int = 1
    """Captures were kept for this number of rounds of each cell, from the cell's first round on."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the study."""
    options_changed: dict[str, Any] = field(default_factory=dict)
    """Options that differ from their defaults."""
    started: str
    ended: str = ""
    """End of the measurement, UTC; empty while the campaign is not finished."""
    backend: str
    """Link backend (`netem` or `uml`), or words for the paths of a campaign without emulated links."""
    host: Host
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Every measuring machine, by its name in the column `host`.

    Each has the fields of `Host`, and in `other_versions` the versions that differ from those of the campaign.
    """
    versions: dict[str, Any] = field(default_factory=dict)
    git: Git = Git()
    notes: tuple[str, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of each table."""
    method: dict[str, str] = field(default_factory=dict)
    """Programs, clock and code of the measurement, see `method_of`."""

    @classmethod
    def read(cls, path: Path) -> Campaign:
        """Read `campaign.json`.

        Raises
        ------
        DatasetError
            If the file is missing or not JSON, has another schema version, lacks a key, or has a value of a wrong type.
        """
        if not path.is_file():
            _refuse("there is no campaign.json", path.parent)
        raw = checked(
            read_json(path, DatasetError, _MEASURE_AGAIN),
            dict[str, Any],
            where=str(path),
            error=DatasetError,
            next_step=_MEASURE_AGAIN,
            json_file=True,
        )
        version = raw.get("schema_version")
        if version != SCHEMA_VERSION:
            _refuse(
                f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}",
                path,
                "Use the crosslayer that wrote it (`git.revision` in campaign.json), or measure again.",
            )
        known = {key: value for key, value in raw.items() if value is not None}
        plan = known.pop("plan", {})
        checked(
            plan,
            dict[str, Any],
            where=f"{path}, key 'plan'",
            error=DatasetError,
            next_step=_MEASURE_AGAIN,
            json_file=True,
        )
        known |= plan
        campaign = checked(known, cls, where=str(path), error=DatasetError, next_step=_MEASURE_AGAIN, json_file=True)
        return campaign if campaign.method else replace(campaign, method=method_of(campaign))

    @property
    def plan(self) -> dict[str, Any]:
        """Values of the plan and of the study's options, by key, without the captures.

        If an option is a list of TOML tables, a text with the length of the list replaces the list.
        """
        known = {name: getattr(self, name) for name in ("study", "links", "pages", "rounds", "seed", "clock")}
        given = {"congestion_control": self.congestion_control} if self.congestion_control else {}
        given |= {"browser": self.browser} if self.browser != "chromium" else {}
        tables = {name: f"{len(value)}, in campaign.json" for name, value in self.options.items() if _of_tables(value)}
        return known | given | self.options | tables

    @property
    def git_revision(self) -> str:
        """Git revision of the checkout; empty if it is not known."""
        return self.git.revision or ""

    @property
    def git_clean(self) -> bool | None:
        """Whether the checkout had no uncommitted changes; None if it is not known."""
        return self.git.clean


def busy(host_load: pl.LazyFrame) -> pl.LazyFrame:
    """Rows of `host_load` for the rounds in which other work took more than `BUSY_PERCENT`; none in virtual time."""
    taken = 100 * (pl.col("others_ms") + pl.col("steal_ms")) / (pl.col("cores") * pl.col("duration_ms"))
    return host_load.filter(pl.col("clock") == "wall", taken > BUSY_PERCENT)


def dataset_sha256(folder: Path) -> str:
    """SHA-256 of `campaign.json` and all files of the tables; figures and reports identify their dataset by it.

    In the folder, this command prints the same value, with `LC_ALL=C`:
    `sha256sum campaign.json */*/*.parquet | sha256sum`.
    """
    tables = sorted(path.relative_to(folder).as_posix() for path in folder.glob("*/*/*.parquet"))
    lines = (f"{_file_sha256(folder / name)}  {name}\n" for name in ("campaign.json", *tables))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _file_sha256(path: Path) -> str:
    status = path.stat()
    return _hashed(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hashed(path: Path, _size: int, _changed_ns: int) -> str:
    """SHA-256 of a file; cached, because every figure of a dataset needs it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Dataset:
    """A checked dataset folder. Make one with `Dataset.open`."""

    folder: Path
    campaign: Campaign
    rounds_per_cell: tuple[int, int]
    """Smallest and largest number of rounds of any cell."""
    files: Mapping[str, tuple[Path, ...]]
    """Parquet files of each table, by the table's name. A table that the dataset lacks has an empty tuple."""
    busy: pl.DataFrame
    """Rounds above `BUSY_PERCENT`, with the columns round, link and page."""
    left_out: bool
    """Whether observations of busy rounds are left out.

    They are kept if most rounds were busy, or if `open` was called with `every_round`.
    """
    _tables: dict[str, pl.LazyFrame] = field(default_factory=dict, repr=False, compare=False)
    """Cache of `table`: a repeated call returns the same object."""

    def __getstate__(self) -> list[Any]:
        """State for `pickle`, without the cache of tables, because another thread may change it meanwhile."""
        return [{} if one.name == "_tables" else getattr(self, one.name) for one in fields(self)]

    @classmethod
    def open(cls, folder: str | Path, *, every_round: bool = False) -> Dataset:
        """Open a dataset folder and check it.

        Parameters
        ----------
        folder
            Folder with `campaign.json` and the tables.
        every_round
            Whether to keep all rounds, however busy the machine was.

        Raises
        ------
        DatasetError
            If the folder cannot be analysed. The error names the file or table, its fault and what to do next.
        """
        folder = Path(folder)
        if not folder.is_dir():
            _refuse(
                "there is no such dataset folder",
                folder,
                "Measure one with `crosslayer measure`, or name one of those in data/raw of a checkout.",
            )
        campaign = Campaign.read(folder / "campaign.json")
        files = {table: tuple(sorted(folder.glob(f"{table}/link=*/*.parquet"))) for table in TABLES}
        for name, paths in files.items():
            if elsewhere := sorted(set((folder / name).rglob("*.parquet")) - set(paths)):
                _refuse(f"is not in a folder link=LINK of {name}", elsewhere[0])
            expected = TABLES[name].arrow_schema()
            rows = sum(_check_schema(TABLES[name], expected, path) for path in paths)
            if (counted := campaign.rows.get(name, rows)) != rows:
                _refuse(f"has {rows} rows, and campaign.json counts {counted}", folder / name)
        rounds: dict[tuple[str, str], int] = {}
        for table, paths in ((TABLES[name], paths) for name, paths in files.items() if paths):
            conditions, faults = _conditions(table, paths)
            _check_values(conditions, faults, table, campaign)
            if table.observed:
                cells = conditions.group_by("link", "page").agg(pl.col("rounds").max())
                rounds |= {(link, page): max(n, rounds.get((link, page), 0)) for link, page, n in cells.iter_rows()}
        if not rounds:
            _refuse("holds no observation at all", folder)
        host_load = _scan(TABLES["host_load"], files["host_load"])
        disturbed = busy(host_load).select("round", "link", "page").collect()
        few = 2 * disturbed.height <= host_load.select(pl.len()).collect().item()
        left_out = few and not disturbed.is_empty() and not every_round
        return cls(folder, campaign, (min(rounds.values()), max(rounds.values())), files, disturbed, left_out)

    def table(self, name: str) -> pl.LazyFrame:
        """One table of the dataset as a lazy frame, whose files are read when it is collected.

        Parameters
        ----------
        name
            A key of `crosslayer.campaign.tables.TABLES`.

        Returns
        -------
        polars.LazyFrame
            Columns as in the schema. A table that the dataset lacks has no rows. A column that is newer than the
            dataset has nulls; in `clock` and `host`, a default replaces them. If `left_out`, observations of busy
            rounds are missing. Rows of `resolver_queries` are missing if an event in `resolver_events` declares their
            attempt invalid.

        Raises
        ------
        DatasetError
            For a name that is not a table.
        """
        if name not in TABLES:
            _refuse(f"there is no table {name!r}", self.folder, choice(name, TABLES))
        if name not in self._tables:
            self._tables[name] = self._table(name)
        return self._tables[name]

    def _table(self, name: str) -> pl.LazyFrame:
        rows = _scan(TABLES[name], self.files[name])
        if name == "resolver_queries":  # without attempts at a round that an event declared invalid
            key = ["link", "round", "attempt"]
            voided = self.table("resolver_events").filter(pl.col("attempt").is_not_null()).select(key)
            rows = rows.with_columns(pl.col("attempt").fill_null(0)).join(
                voided, on=key, how="anti", maintain_order="left"
            )
        missing = self.left_out_of(name)
        if missing.is_empty():
            return rows
        return rows.join(missing.lazy(), on=missing.columns, how="anti", maintain_order="left")

    def left_out_of(self, name: str) -> pl.DataFrame:
        """Rounds whose rows `table` leaves out of a table because the machine was busy.

        Columns round and link; also page if the campaign has several pages.
        """
        # With a single page, the column `page` is no key: in some studies' rows it has another value.
        key = ["round", "link", *(["page"] if len(self.campaign.pages) > 1 else [])]
        busy = self.busy.select(key).unique(maintain_order=True)
        kept = not self.left_out or name in ("host_load", "link_checks", "forwarding_delay")
        return busy.clear() if kept else busy

    @property
    def caption(self) -> str:
        """End of every figure's caption: campaign, rounds, backend, options and host."""
        fewest, most = self.rounds_per_cell
        planned = self.campaign.rounds
        measured = str(most) if fewest == most else f"{fewest} to {most}"
        rounds = measured if fewest >= planned else f"{measured} of {planned}"
        busy = self.busy.height
        disturbed = ""
        if busy:
            disturbed = f" In {busy} {'round' if busy == 1 else 'rounds'} the machine was busy with other work; "
            disturbed += (
                ("figures leave it out." if busy == 1 else "figures leave them out.")
                if self.left_out
                else "none is left out."
            )
        host = self.campaign.host
        plural = "round" if rounds == "1" else "rounds"
        options = "; ".join(
            _option_text(name, value) for name, value in self.campaign.options_changed.items() if not _of_tables(value)
        )
        time = "virtual time" if self.campaign.clock == "virtual" else "real time"
        machine = f"{host.cpu} ({host.cores} cores), {host.os}, Linux {host.kernel}" if host.cores else host.cpu
        if len(self.campaign.hosts) > 1:
            processors = sorted({str(one.get("cpu")) for one in self.campaign.hosts.values()})
            machine = f"{len(self.campaign.hosts)} hosts ({', '.join(processors)})"
        return (
            f"Campaign {self.campaign.campaign}: {rounds} {plural} of each link and page in {time}, over "
            f"{_PATHS.get(self.campaign.backend, self.campaign.backend)}.{disturbed}"
            f"{f' Options: {options}.' if options else ''}"
            f" Measured on {machine}.{' ' + EMULATED if self._emulated else ''}"
        )

    @property
    def _emulated(self) -> bool:
        """True if the dataset has queries to resolvers, and no resolver has a global address."""
        if not self.files["resolver_queries"]:
            return False
        addresses = self.table("resolver_queries").select(pl.col("address").unique()).collect()["address"]
        return not any(ipaddress.ip_address(address).is_global for address in addresses)


def paired_campaigns(dataset: Dataset) -> list[Dataset]:
    """Campaigns that measured the study of `dataset` in virtual time.

    Their folders are next to the folder of `dataset`. If that folder is called NAME, their names begin with
    `NAME-virtual`. The list is empty unless `dataset` was measured in real time.

    Raises
    ------
    DatasetError
        If one of these campaigns cannot be analysed.
    """
    folder = dataset.folder.resolve()
    folders = [path.parent for path in sorted(folder.parent.glob(f"{folder.name}-virtual*/campaign.json"))]
    datasets = [Dataset.open(path) for path in folders]
    same = [other for other in datasets if other.campaign.study == dataset.campaign.study]
    return [other for other in same if other.campaign.clock == "virtual" != dataset.campaign.clock]


def _refuse(fault: str, where: Path | str, next_step: str = _MEASURE_AGAIN) -> NoReturn:
    raise DatasetError(fault, where=str(where), next_step=next_step)


def _check_schema(table: type[Table], schema: pa.Schema, path: Path) -> int:
    """Refuse a file whose columns do not match the table; returns its number of rows."""
    try:
        with pq.ParquetFile(path) as file:
            actual, rows = file.schema_arrow, int(file.metadata.num_rows)
    except (OSError, pa.ArrowException) as error:
        _refuse(f"is not a Parquet file ({error})", path)
    version = (actual.metadata or {}).get(b"schema_version", str(SCHEMA_VERSION).encode()).decode()
    if version != str(SCHEMA_VERSION):
        _refuse(f"schema version {version}, but this crosslayer reads version {SCHEMA_VERSION}", path)
    if missing := [column.name for column in table.columns if column.present and column.name not in actual.names]:
        _refuse(f"lacks the columns {', '.join(missing)}", path)
    for expected in (expected for expected in schema if expected.name in actual.names):
        other = actual.field(expected.name)
        if other.type not in (expected.type, pa.large_string() if expected.type == pa.string() else expected.type):
            _refuse(f"column {expected.name} is {other.type}, expected {expected.type}", path)
        unit, other_unit = ((f.metadata or {}).get(b"unit", b"").decode() for f in (expected, other))
        if other.metadata and unit != other_unit:
            _refuse(f"column {expected.name} is in {other_unit or 'no unit'}, expected {unit or 'no unit'}", path)
    return rows


def _scan(table: type[Table], paths: Iterable[Path]) -> pl.LazyFrame:
    schema = table.polars_schema()
    files = list(paths)
    if not files:
        rows = pl.LazyFrame(schema=schema)
    else:
        rows = pl.scan_parquet(
            files,
            schema=schema,
            missing_columns="insert",
            extra_columns="ignore",
            hive_partitioning=False,  # `link` is also in the files
        )
    return rows.select(_UNTOLD.get(name, pl.col(name)) for name in schema)


def _conditions(table: type[Table], paths: Iterable[Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read the files of a table; returns a frame of its conditions and a frame of its faults.

    The first frame has a row per condition: key, folder, number of rows and, for observations, number of rounds. The
    second frame has a row per folder. Its columns `FAULT:COLUMN` have the number of rows whose COLUMN has this FAULT.
    Each folder is read separately, since counting distinct rounds takes memory for each round.
    """
    key = [column.name for column in table.columns if column.key]

    def of(folder: Path, files: Iterable[Path]) -> tuple[pl.DataFrame, pl.DataFrame]:
        rows, where = _scan(table, files), pl.lit(str(folder)).alias("_folder")
        sums = (rule.sum().alias(f"{fault}:{name}") for fault, name, rule in _faults(table))
        try:
            faults = rows.select(where, *sums).collect(engine="streaming")
            counted, ascending = _counted(rows, key)
            if table.observed and not ascending:
                rounds = rows.group_by(key).agg(rounds=pl.col("round").cast(pl.Int32).n_unique())
                counted = counted.join(rounds.collect(engine="streaming"), on=key, nulls_equal=True)
            else:
                counted = counted.with_columns(rounds="rows")
        except (OSError, pl.exceptions.PolarsError) as error:
            _refuse(f"cannot be read ({str(error).splitlines()[0]})", folder)
        return counted.select(where, pl.all()), faults

    folders = [(folder, list(files)) for folder, files in groupby(paths, key=lambda path: path.parent)]
    with ThreadPoolExecutor(2) as pool:  # only two: each folder may have a million rows, and polars has threads too
        of_folders = list(pool.map(lambda one: of(*one), folders))
    conditions, faults = (pl.concat(frames) for frames in zip(*of_folders, strict=True))
    return conditions.sort("_folder", *key), faults


def _counted(rows: pl.LazyFrame, key: list[str]) -> tuple[pl.DataFrame, bool]:
    """Number of rows of each condition, and whether every condition's rounds are strictly ascending, hence distinct.

    Unlike a count of distinct rounds, this check does not keep all rounds of a campaign in memory.
    """
    parts = []
    for start in count(0, _AT_ONCE):
        some = rows.select(*key, "round").slice(start, _AT_ONCE).collect()
        differs = some.select(pl.col(key).ne_missing(pl.col(key).first()).any())
        varying = [name for name in key if differs[name].item()] or key[:1]
        rounds = pl.col("round")
        parts.append(
            some.group_by(varying).agg(  # columns with one value need no grouping
                pl.col(name for name in key if name not in varying).first(),
                rows=pl.len(),
                first=rounds.first(),
                last=rounds.last(),
                ascending=(rounds.diff() > 0).all() & (rounds.null_count() == 0),
            )
        )
        if some.height < _AT_ONCE:
            break
    follows = pl.col("first") > pl.col("last").shift()
    merged = pl.concat(part.select(parts[0].columns) for part in parts).group_by(key, maintain_order=True)
    counted = merged.agg(pl.col("rows").sum(), ascending=pl.col("ascending").all() & follows.all())
    return counted.drop("ascending"), bool(counted["ascending"].all())


def _faults(table: type[Table]) -> Iterator[tuple[str, str, pl.Expr]]:
    """Rules for values that would silently falsify a statistic.

    Each rule is the name of a fault, a column, and an expression that is true for faulty rows.
    """
    real = [column for column in table.columns if column.type is float]
    yield from (("NaN or infinite values", column.name, ~pl.col(column.name).is_finite()) for column in real)
    yield from (("values below 0", column.name, pl.col(column.name) < 0) for column in real if not column.signed)
    for column in (column for column in table.columns if column.success):
        expected = pl.col("error").is_null()
        if isinstance(column.success, str):
            # Both are null if the client cannot separate handshake and query (DoH of an imported campaign), or if there
            # is no server log (all imported campaigns).
            expected &= pl.col(column.success).is_not_null()
        yield "rows that succeeded but have no value", column.name, pl.col(column.name).is_null() & expected
    for column in (column for column in table.columns if column.required and not column.key):
        yield "rows without a value", column.name, pl.col(column.name).is_null()


def _check_values(conditions: pl.DataFrame, faults: pl.DataFrame, table: type[Table], campaign: Campaign) -> None:
    """Raise `DatasetError` for the first fault in the frames that `_conditions` returned for a table."""
    key = [column for column in table.columns if column.key]
    # Rows must be of the campaign and study in campaign.json, and of the link of their folder.
    belongs = {"campaign": pl.lit(campaign.campaign), "study": pl.lit(campaign.study)}
    belongs["link"] = pl.col("_folder").str.extract(r"link=([^/]*)$")
    for name, expected in ((name, expected) for name, expected in belongs.items() if name in conditions.columns):
        wrong = conditions.with_columns(expected=expected).filter(pl.col(name) != pl.col("expected"))
        if wrong.height:
            _refuse(f"holds rows of {name} {wrong[name][0]}, expected {wrong['expected'][0]}", wrong["_folder"][0])
    for column in (column for column in faults.columns if ":" in column):
        fault, _, name = column.partition(":")
        for folder, number in faults.filter(pl.col(column) > 0).select("_folder", column).iter_rows():
            _refuse(f"column {name} has {number} {fault}", folder)
    for of in key:
        wrong = conditions.filter(pl.col(of.name).is_null())
        if of.required and wrong.height:
            _refuse(f"column {of.name} has {wrong['rows'].sum()} rows without a value", wrong["_folder"][0])
        # Rows with an unknown value would silently be left out or evade a rule (0-RTT counts only with evidence).
        wrong = conditions.filter(~pl.col(of.name).is_in(of.values)) if of.values else wrong.clear()
        if wrong.height:
            _refuse(
                f"column {of.name} holds {wrong[of.name][0]!r}, expected {', '.join(of.values)}",
                wrong["_folder"][0],
            )
    if table is LinkChecks:
        for _, of_link in conditions.group_by("link", maintain_order=True):
            nominal = of_link["nominal_rtt_ms"].drop_nulls()
            if len(nominal) > 1:
                _refuse(
                    f"was checked against several nominal RTTs: {', '.join(f'{rtt:g}' for rtt in nominal)} ms",
                    of_link["_folder"][0],
                    "Its times are multiples of one RTT: measure each link profile in a campaign of its own.",
                )
    twice = conditions.filter(pl.col("rows") > pl.col("rounds"))
    if table.observed and twice.height:
        extra = (twice["rows"] - twice["rounds"]).sum()
        first = ", ".join(str(v) for v in twice.select(column.name for column in key).row(0) if v is not None)
        _refuse(f"{extra} observations are there more than once, first in {first}", twice["_folder"][0])
