"""What every benchmark shares: how results are written, and with what they were measured."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crosslayer.campaign import provenance

RESULTS = Path(__file__).parent / "results"


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
