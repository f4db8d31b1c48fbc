"""What every benchmark shares: how results are written, and with what they were measured."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosslayer.campaign import provenance

RESULTS = Path(__file__).parent / "results"


def option(name: str, default: int) -> int:
    """Value of a command-line option."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def paired_difference(differences: NDArray[np.float64]) -> tuple[float, float, float]:
    """Hodges and Lehmann's estimate of paired differences, with the 95 % interval of Wilcoxon's signed-rank test.

    The median of all means of two (Walsh averages): made for pairs, indifferent to the tails of page loads, and
    surer than the median (Hollander, Wolfe and Chicken, 2014, section 3.3).
    """
    n = len(differences)
    one, other = np.triu_indices(n)
    walsh = np.sort((differences[one] + differences[other]) / 2)
    below = int(len(walsh) / 2 - 1.96 * np.sqrt(n * (n + 1) * (2 * n + 1) / 24))
    return float(np.median(walsh)), float(walsh[max(below, 0)]), float(walsh[-1 - max(below, 0)])


def report(name: str, result: dict[str, Any]) -> None:
    """Print the result as JSON; with --write keep it in `results/NAME.json`."""
    whole = {
        "benchmark": name,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": provenance.host(),
        "versions": provenance.packages(),
        "git": provenance.revision(),
        "result": result,
    }
    print(json.dumps(whole["result"], indent=2))
    if "--write" in sys.argv:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
