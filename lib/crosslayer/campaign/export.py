"""From the store to a dataset: Parquet partitioned by table and link, `campaign.json`, RO-Crate metadata."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.schema import SCHEMA_VERSION, TABLES, arrow_schema
from crosslayer.campaign.store import Store

_FACTS = ("plan", "started", "ended", "backend", "host", "versions", "git", "notes")


def export(store: Store, folder: Path) -> Path:
    """Write the dataset: `TABLE/link=LINK/part-0.parquet`, `campaign.json`, `ro-crate-metadata.json`.

    Each table is written beside and then put in place, so a reader never sees half of one.

    Raises
    ------
    CampaignError
        Where the folder cannot be written or the disk is full; the store keeps every row.
    """
    try:
        for table in TABLES:
            _write_table(store, folder, table)
        facts = {name: store.fact(name) for name in _FACTS}
        campaign = {"campaign": store.fact("campaign"), "schema_version": SCHEMA_VERSION} | facts
        campaign["notes"] = campaign["notes"] or []
        campaign["rows"] = {table: len(store.rows(table)) for table in TABLES}
        _write_json(folder / "campaign.json", campaign)
        _write_json(folder / "ro-crate-metadata.json", _crate(folder, campaign))
    except OSError as error:
        raise CampaignError(
            f"the dataset cannot be written ({error.strerror})",
            where=str(folder),
            next_step="Make room, then run `crosslayer export` on the folder; nothing measured is lost.",
        ) from error
    return folder


def _write_table(store: Store, folder: Path, table: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table)
    by_link: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in store.rows(table):
        by_link[row["link"]].append(row)
    fresh = folder / f".{table}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    for link, rows in by_link.items():
        part = fresh / f"link={link}" / "part-0.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), part, compression="zstd")
    shutil.rmtree(folder / table, ignore_errors=True)
    if by_link:
        fresh.rename(folder / table)


def _write_json(file: Path, value: object) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(file)


def _crate(folder: Path, campaign: dict[str, Any]) -> dict[str, Any]:
    """RO-Crate 1.1 metadata of the dataset (https://w3id.org/ro/crate/1.1)."""
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.parquet"))
    parts = [*files, "campaign.json"]
    plan = campaign["plan"]
    return {
        "@context": "https://w3id.org/ro/crate/1.1/context",
        "@graph": [
            {
                "@id": "ro-crate-metadata.json",
                "@type": "CreativeWork",
                "about": {"@id": "./"},
                "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
            },
            {
                "@id": "./",
                "@type": "Dataset",
                "name": f"crosslayer campaign {campaign['campaign']}",
                "description": (
                    f"Study {plan['study']}: {plan['rounds']} rounds of {len(plan['links'])} links x "
                    f"{len(plan['pages'])} pages, measured over the {campaign['backend']} backend."
                ),
                "datePublished": campaign["ended"] or campaign["started"],
                "license": {"@id": "https://creativecommons.org/licenses/by/4.0/"},
                "hasPart": [{"@id": name} for name in parts],
            },
            {
                "@id": "campaign.json",
                "@type": "File",
                "encodingFormat": "application/json",
                "description": "plan, host, versions, backend",
            },
            *(
                {
                    "@id": name,
                    "@type": "File",
                    "encodingFormat": "application/vnd.apache.parquet",
                    "description": f"table {name.split('/')[0]}",
                }
                for name in files
            ),
        ],
    }
