"""RO-Crates that follow the Process Run Crate profile.

They record which run of which program made which file, from which inputs.
`python -m crosslayer.campaign.crate FOLDER...` writes the crates of datasets again, from their `campaign.json`.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from crosslayer.campaign import provenance
from crosslayer.campaign.tables import TABLES

FILE_NAME = "ro-crate-metadata.json"

_RO_CRATE, _PROFILE = "1.1", "https://w3id.org/ro/wfrun/process/0.5"
_LICENCE = "https://creativecommons.org/licenses/by/4.0/"
# Not in the context of RO-Crate 1.1; the profile's own term.
_TERMS = {"sha256": "https://w3id.org/ro/terms/workflow-run#sha256"}
_PARQUET = "application/vnd.apache.parquet"


def of_campaign(folder: Path) -> Path:
    """Write the RO-Crate of a dataset.

    It describes the measurement, the plan in `campaign.json`, and the dataset's files. Returns the path of the crate's
    metadata file.

    Raises
    ------
    DatasetError
        If `campaign.json` cannot be read.
    OSError
        If the folder cannot be written.
    """
    from crosslayer.campaign.dataset import Campaign

    campaign = Campaign.read(folder / "campaign.json")
    cells = f"{len(campaign.links)} links x {len(campaign.pages)} pages"
    tables = {
        path.relative_to(folder).as_posix(): f"table {name}"
        for name in TABLES
        for path in sorted(folder.glob(f"{name}/link=*/*.parquet"))
    }
    return _write(
        folder,
        name=f"crosslayer campaign {campaign.campaign}",
        description=f"Study {campaign.study}: {campaign.rounds} rounds of {cells}, measured over the "
        f"{campaign.backend} backend.",
        run="measurement",
        started=campaign.started,
        ended=campaign.ended or campaign.started,
        versions=campaign.versions,
        revision=campaign.git_revision,
        inputs=[
            {"@id": f"#plan-{name}", "@type": "PropertyValue", "name": f"plan: {name}", "value": _plain(value)}
            for name, value in campaign.plan.items()
        ],
        files={"campaign.json": "plan, host, versions, backend", **tables},
    )


def of_figures(folder: Path, dataset: Path, files: Iterable[Path], started: datetime) -> Path:
    """Write the RO-Crate of a folder of figures.

    The crate describes the run that drew the figures. Inputs of this run are a dataset and the published values. If no
    figure has changed, the existing crate is kept, because it describes the run that drew the figures. Returns the path
    of the crate's metadata file.

    Parameters
    ----------
    folder
        Folder of the figures, e.g. `figures/coalescing`.
    dataset
        Folder of the dataset.
    files
        Files in `folder` that the run has written.
    started
        Start of the run. The crate records the time of this call as the end of the run.

    Raises
    ------
    DatasetError, OSError
        As for `of_campaign`.
    """
    from crosslayer.campaign.dataset import Campaign, dataset_sha256

    campaign = Campaign.read(dataset / "campaign.json")
    return _write(
        folder,
        name=f"Figures and claims of crosslayer campaign {campaign.campaign}",
        description=f"Study {campaign.study}: drawn from the campaign's tables, beside the published values.",
        run="drawing",
        started=_iso(started),
        ended=_iso(datetime.now(UTC)),
        versions=provenance.packages(),
        revision=provenance.revision()["revision"] or "",
        inputs=[
            {
                "@id": f"#{campaign.campaign}",
                "@type": "Dataset",
                "name": f"crosslayer campaign {campaign.campaign}",
                "description": f"measured {campaign.started} to {campaign.ended}",
                "sha256": dataset_sha256(dataset),
            },
            {
                "@id": "#published-values",
                "@type": "Dataset",
                "name": "published values",
                "description": "data/published of the program's revision: numbers that the papers print",
            },
        ],
        files={path.relative_to(folder).as_posix(): _about_figure(path) for path in sorted(files)},
    )


def _write(
    folder: Path,
    *,
    name: str,
    description: str,
    run: str,
    started: str,
    ended: str,
    versions: Mapping[str, Any],
    revision: str,
    inputs: list[dict[str, Any]],
    files: Mapping[str, str],
) -> Path:
    from rocrate.model import ContextEntity  # imported here, since its import takes as long as all others
    from rocrate.rocrate import ROCrate

    path = folder / FILE_NAME
    hashes = {file: _sha256(folder / file) for file in files}
    if _hashes_in(path) == hashes and run != "measurement":
        return path
    crate = ROCrate(version=_RO_CRATE)
    crate.metadata.extra_terms.update(_TERMS)

    def entity(values: Mapping[str, Any]) -> Any:
        return crate.add(
            ContextEntity(crate, values["@id"], properties={k: v for k, v in values.items() if k != "@id"})
        )

    crate.name, crate.description = name, description
    crate.datePublished = datetime.fromisoformat(ended)
    crate.root_dataset["license"] = entity(
        {"@id": _LICENCE, "@type": "CreativeWork", "name": "CC BY 4.0", "description": "Creative Commons Attribution"}
    )
    crate.root_dataset["conformsTo"] = entity(
        {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": _PROFILE.rpartition("/")[2]}
    )
    results = [
        crate.add_file(
            dest_path=file,
            properties={
                "name": file,
                "description": about,
                "encodingFormat": mimetypes.guess_type(file)[0] or _PARQUET,
                "contentSize": str((folder / file).stat().st_size),
                "sha256": hashes[file],
            },
        )
        for file, about in files.items()
    ]
    others = ", ".join(f"{of} {version}" for of, version in versions.items() if of != "crosslayer")
    # A git revision identifies the code wherever the repository is (https://swhid.org).
    program = f"https://archive.softwareheritage.org/swh:1:rev:{revision}" if revision else "#crosslayer"
    instrument = entity(
        {
            "@id": program,
            "@type": "SoftwareApplication",
            "name": "crosslayer",
            "softwareVersion": f"{versions.get('crosslayer', 'unknown')}, git revision {revision or 'unknown'}",
            "description": f"with {others}",
            "url": program,
        }
    )
    # No name of a person or machine is taken from the system. Users who want to be named set CROSSLAYER_AGENT.
    who = os.environ.get("CROSSLAYER_AGENT", "whoever ran it (not recorded)")
    agent = entity({"@id": "#agent", "@type": "Organization", "name": who})
    action = crate.add_action(
        instrument,
        f"#{run}",
        object=[entity(values) for values in inputs],
        result=results,
        properties={
            "name": f"{run} by crosslayer",
            "description": description,
            "startTime": started,
            "endTime": ended,
            "actionStatus": "http://schema.org/CompletedActionStatus",
        },
    )
    action["agent"] = agent
    crate.root_dataset["mentions"] = action
    crate.root_dataset["author"] = crate.root_dataset["publisher"] = agent
    write_json(path, crate.metadata.generate())
    return path


def write_json(file: Path, value: object) -> None:
    """Write a value as a JSON file. The file is renamed into place when complete, so that no reader sees half of it."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(file)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _hashes_in(crate: Path) -> dict[str, str]:
    """SHA-256 of each file that a crate describes, by file name; empty if there is no readable crate."""
    try:
        graph = json.loads(crate.read_text(encoding="utf-8"))["@graph"]
        return {unquote(entity["@id"]): entity["sha256"] for entity in graph if entity.get("@type") == "File"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _about_figure(path: Path) -> str:
    if path.stem == "claims":
        return "every published result against the campaign"
    what = {"csv": "the rows that are drawn", "json": "Vega-Lite"}.get(path.suffix[1:], "picture")
    return f"figure {path.stem}: {what}"


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(of_campaign(Path(argument)))
