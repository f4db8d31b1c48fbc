"""Export of the store as a dataset: Parquet partitioned by table and link, `campaign.json`, RO-Crate metadata."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from crosslayer.campaign import crate
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.store import FILE_NAME, Store
from crosslayer.campaign.tables import SCHEMA_VERSION, TABLES, Table

if TYPE_CHECKING:
    import pyarrow

_FACTS = ("plan", "options_changed", "started", "ended", "backend", "host", "hosts", "versions", "git", "notes")


def export(store: Store, folder: Path) -> Path:
    """Write the dataset: `TABLE/link=LINK/part-0.parquet`, `campaign.json`, `ro-crate-metadata.json`.

    Each table is written to a temporary folder, which is then renamed, so a reader never sees half a table. Returns
    `folder`.

    Raises
    ------
    CampaignError
        If the folder cannot be written, the disk is full (the store keeps every row), or `check_kept` refuses the
        folder.
    """
    from crosslayer.campaign.dataset import Campaign

    check_kept(store, folder)
    try:
        rows = {name: _write_table(store, folder, table) for name, table in TABLES.items()}
        facts = {name: store.fact(name) for name in _FACTS}
        campaign = {"campaign": store.fact("campaign"), "schema_version": SCHEMA_VERSION}
        path = folder / "campaign.json"
        crate.write_json(path, campaign | facts | {"rows": rows})
        method = Campaign.read(path).method
        crate.write_json(path, campaign | facts | {"method": method, "rows": rows})
        crate.of_campaign(folder)
        store.check_untouched()
    except OSError as error:
        raise CampaignError(
            f"the dataset cannot be written ({error.strerror})",
            where=str(folder),
            next_step="Free disk space, then run `crosslayer export` on the folder; no measurement is lost.",
        ) from error
    return folder


def check_kept(store: Store, folder: Path) -> None:
    """Refuse a folder whose dataset has rows that the store lacks, because an export would delete these rows.

    A file that cannot be read counts as a file without rows, so an export can replace it.

    Raises
    ------
    CampaignError
        If the folder has rows of another campaign, or a table with more rows than in the store.
    """
    store.check_untouched()
    campaign = store.fact("campaign")
    for name in TABLES:
        rows, campaigns = _rows_of(folder / name)
        if others := campaigns - {campaign}:
            _refuse(folder, f"holds the dataset of another campaign ({', '.join(sorted(others))})")
        if rows > (kept := store.count(name)):
            _refuse(folder, f"holds {rows} rows of {name}, and its {FILE_NAME} only {kept}")


def _refuse(folder: Path, what: str) -> NoReturn:
    raise CampaignError(
        f"{what}: an export would delete it",
        where=str(folder),
        next_step="Choose another folder with --out; nothing was changed.",
    )


def _rows_of(table: Path) -> tuple[int, set[str]]:
    """Number of rows in the readable files of a table, and the campaigns of these rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows, campaigns = 0, set[str]()
    for part in table.glob("link=*/*.parquet"):
        with contextlib.suppress(OSError, pa.ArrowException, KeyError), pq.ParquetFile(part) as file:
            rows += file.metadata.num_rows
            for first in itertools.islice(file.iter_batches(1, columns=["campaign"]), 1):
                campaigns |= set(first["campaign"].to_pylist())
    return rows, campaigns


def _write_table(store: Store, folder: Path, table: type[Table]) -> int:
    """Write a table of the dataset; returns its number of rows."""
    fresh = folder / f".{table.table}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    total = sum(write_part(store.chunks(table.table, link), fresh, link) for link in store.links(table.table))
    shutil.rmtree(folder / table.table, ignore_errors=True)
    if total:
        fresh.rename(folder / table.table)
    return total


def write_part(chunks: Iterable[pyarrow.Table], folder: Path, link: str) -> int:
    """Write the rows of one link as a Parquet file below `folder`; returns the number of rows.

    `chunks` must not be empty.
    """
    import pyarrow.parquet as pq

    part = folder / f"link={link}" / "part-0.parquet"
    part.parent.mkdir(parents=True)
    chunks = iter(chunks)
    first = next(chunks)
    total = 0
    with pq.ParquetWriter(part, first.schema, compression="zstd") as writer:
        for chunk in itertools.chain((first,), chunks):
            writer.write_table(chunk)
            total += chunk.num_rows
    return total
