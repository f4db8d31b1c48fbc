"""Sentences on when committed campaigns were last measured again, from files of `crosslayer drift`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosslayer import resources
from crosslayer.decode import checked, read_json
from crosslayer.report.files import ReportError


@dataclass(frozen=True, slots=True)
class _DriftResult:
    """The keys that this module reads from a file of `crosslayer drift`."""

    study: str
    measured: str
    revision: str
    clean: bool | None
    rounds: int
    counts: dict[str, int]


def confirmations(study: str, folder: Path | None = None) -> dict[str, str]:
    """For each committed campaign of a study that was measured again: its folder name, and a sentence on the result.

    Parameters
    ----------
    study
        Name of a study.
    folder
        Folder with one file of `crosslayer drift --out` per campaign; by default `data/drift` of the checkout.

    Raises
    ------
    ReportError
        For a file that `crosslayer drift` did not write.
    """
    if folder is None:
        root = resources.checkout()
        if root is None:
            return {}
        folder = root / "data" / "drift"
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    return {name: _sentence(result) for name, result in results.items() if result.study == study}


def _read(path: Path) -> _DriftResult:
    step = f"Measure it again: crosslayer drift data/raw/{path.stem} --out {path}"
    values = read_json(path, ReportError, step)
    return checked(
        values, _DriftResult, where=str(path), error=ReportError, next_step=step, foreign_keys=True, json_file=True
    )


def _sentence(result: _DriftResult) -> str:
    counts = result.counts
    of = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    measured = "the first round" if result.rounds == 1 else f"the first {result.rounds} rounds"
    revision = f"{result.revision[:7]}{'' if result.clean else ' (with uncommitted changes)'}"
    return (
        f"{result.measured[:10]}, revision {revision}: {measured} measured again, "
        f"{sum(counts.values())} medians compared: {of}."
    )
