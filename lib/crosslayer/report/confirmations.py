"""When committed campaigns were last measured again, and the result: sentences on files of `crosslayer drift`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crosslayer import resources
from crosslayer.report.files import ReportError


def confirmations(study: str, folder: Path | None = None) -> dict[str, str]:
    """Sentences on the committed campaigns of a study that were measured again, by name of the campaign's folder.

    Parameters
    ----------
    study
        Name of a study.
    folder
        Has one file per campaign, as `crosslayer drift --out` writes it.  [default: `data/drift` of the checkout]

    Raises
    ------
    ReportError
        For a file that `crosslayer drift` did not write.
    """
    root = resources.checkout()
    if folder is None:
        if root is None:
            return {}
        folder = root / "data" / "drift"
    results = {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}
    return {name: _sentence(result) for name, result in results.items() if result["study"] == study}


def _read(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _sentence(result)
        result["study"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"is no result of `crosslayer drift` ({error!r})",
            where=str(path),
            next_step=f"Measure it again: crosslayer drift data/raw/{path.stem} --out {path}",
        ) from error
    return result


def _sentence(result: dict[str, Any]) -> str:
    counts: dict[str, int] = result["counts"]
    rounds: int = result["rounds"]
    of = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    measured = "the first round" if rounds == 1 else f"the first {rounds} rounds"
    revision = f"{result['revision'][:7]}{'' if result['clean'] else ' (with uncommitted changes)'}"
    return (
        f"{result['measured'][:10]}, revision {revision}: {measured} measured again, "
        f"{sum(counts.values())} medians compared: {of}."
    )
