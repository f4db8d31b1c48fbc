"""Cache of figures and tables: a figure or table is made again only if its data or code have changed.

`.made.json` in the folder of a study has two entries for each figure or table: a hash of the data and code that made
it, and the SHA-256 of each of its files. Git ignores `.made.json`, so a fresh clone makes everything once.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from crosslayer import resources
from crosslayer.campaign.dataset import Dataset, dataset_sha256
from crosslayer.report.files import write

RECORD = ".made.json"
_PACKAGE = Path(__file__).parents[1]
_ELSEWHERE = ("commands", "notebooks", "testbed", "browser", "guest", "stub", "dns", "h3", "discover", "packets")
"""Packages on which neither figures nor claims depend."""
_LIBRARIES = ("altair", "numpy", "polars", "vl-convert-python")


class Made:
    """Record of the figures and tables in `folder/STUDY` that were made from a dataset and other campaigns."""

    def __init__(self, dataset: Dataset, others: Sequence[Dataset], folder: Path) -> None:
        self._folder = folder / dataset.campaign.study
        data = [dataset_sha256(one.folder) for one in (dataset, *others)]
        self._key = _sha256(json.dumps([*data, _code(dataset.campaign.study)]).encode())

    def has(self, name: str) -> bool:
        """Whether figure or table `name` was made from this data by the current code, and its files are unchanged."""
        record = self._records().get(name)
        if record is None or record["key"] != self._key:
            return False
        return all(self._hash(file) == expected for file, expected in record["files"].items())

    def remember(self, made: dict[str, Iterable[str]]) -> None:
        """Record figures or tables with their files. If a file is missing, `has` requires that it remains missing.

        Raises
        ------
        ReportError
            If the folder cannot be written.
        """
        fresh = {
            name: {"key": self._key, "files": {file: self._hash(file) for file in files}}
            for name, files in made.items()
        }
        write(self._folder / RECORD, json.dumps(self._records() | fresh, indent=1).encode())

    def _records(self) -> dict[str, dict[str, Any]]:
        """Content of the record; empty if the file cannot be read."""
        try:
            records: dict[str, dict[str, Any]] = json.loads((self._folder / RECORD).read_bytes())
        except (OSError, ValueError):
            return {}
        return records

    def _hash(self, file: str) -> str:
        path = self._folder / file
        return _sha256(path.read_bytes()) if path.is_file() else ""


@cache
def _code(study: str) -> str:
    """Hash of the code, published values, profiles and library versions that a study's figures and claims depend on."""
    own = study.replace("-", "_")
    files = []
    for path in sorted(path for path in _PACKAGE.rglob("*") if path.suffix in (".py", ".ttf", ".otf")):
        parts = path.relative_to(_PACKAGE).parts
        inside_another = parts[0] == "studies" and len(parts) > 2 and parts[1] != own and parts[-1] != "__init__.py"
        if parts[0] not in _ELSEWHERE and not inside_another:
            files.append(path)
    files += [*sorted(resources.locate("published").path.glob("*.csv")), resources.locate("profiles").path]
    versions = [importlib.metadata.version(name) for name in _LIBRARIES]
    return _sha256(json.dumps([versions, *(_sha256(path.read_bytes()) for path in files)]).encode())


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
