"""Compare drawn figures with the committed ones: the rows of the CSV, and the chart without its metadata.

`python -m tests.compare_figures FOLDER` compares all figures in FOLDER, which `crosslayer report --out FOLDER` wrote.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parents[1] / "figures"


def differing(drawn: Path, committed: Path = COMMITTED) -> list[str]:
    """Files `STUDY/NAME.csv` or `STUDY/NAME.json` in the folder `drawn` that differ from the committed ones.

    Numbers in CSV files are compared as numbers, all other cells as text. A figure that is not committed differs.
    """
    different = []
    for rows in sorted(drawn.glob("*/*.csv")):
        for path, read in ((rows, _rows), (rows.with_suffix(".json"), chart)):
            other = committed / path.relative_to(drawn)
            if not other.exists() or read(path) != read(other):
                different.append(path.relative_to(drawn).as_posix())
    return different


def _rows(path: Path) -> list[list[float | str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [[_value(cell) for cell in row] for row in csv.reader(file)]


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def chart(path: Path) -> dict[str, Any]:
    """Vega-Lite specification of a saved figure, without the metadata of its campaign."""
    spec: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    del spec["usermeta"]
    return spec


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not list(folder.glob("*/*.csv")):
        sys.exit(f"{folder} has no figures")
    if names := differing(folder):
        sys.exit(f"These figures differ from the committed ones (setup/regenerate figures): {', '.join(names)}")
