"""Write datasets from measurements that were not made with crosslayer."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer.campaign.crate import write_json
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import write_part
from crosslayer.campaign.tables import Table

UNKNOWN_HOST = {"cpu": "an unknown machine", "cores": 0, "memory_bytes": 0, "kernel": "unknown", "os": "unknown"}
"""Value of `host` in `campaign.json` if the machine is unknown."""


def check_new(folder: Path) -> None:
    """Raise `CampaignError` unless a folder is empty or missing."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CampaignError("is not an empty folder", where=str(folder), next_step="Name a new folder for the dataset.")


def ends_of(started_s: pl.Series) -> tuple[str, str]:
    """First and last of some Unix times (s), in the format of `started` and `ended` in `campaign.json`."""
    ends = pl.from_epoch(pl.Series([started_s.min(), started_s.max()]) * 1000, "ms")
    first, last = ends.dt.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_list()
    return first, last


def write_dataset(
    folder: Path, tables: Iterable[tuple[type[Table], pl.DataFrame]], campaign: str, description: Mapping[str, Any]
) -> None:
    """Write `campaign.json` and the rows of tables, all or nothing; `CampaignError` if the folder cannot be written.

    If the rows lack a column of their table, the column becomes null. Columns that the table does not have are left
    out.
    """
    fresh = folder.with_name(f".{folder.name}.new")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        for table, rows in tables:
            if rows.height:
                _write(table, rows.with_columns(campaign=pl.lit(campaign)), fresh)
        write_json(fresh / "campaign.json", dict(description))
        fresh.replace(folder)
    except OSError as error:
        raise CampaignError(
            f"the dataset cannot be written ({error.strerror})", where=str(folder), next_step="Name another folder."
        ) from error


def _write(table: type[Table], rows: pl.DataFrame, folder: Path) -> None:
    given = rows.select(
        (pl.col(name).cast(kind) if name in rows.columns else pl.lit(None, kind)).alias(name)
        for name, kind in table.polars_schema().items()
    )
    for (link,), part in given.group_by(["link"], maintain_order=True):
        ordered = part.sort("round", maintain_order=True).to_arrow()
        write_part([ordered.cast(table.arrow_schema())], folder / table.table, str(link))
