"""The whole report of a campaign far larger than any: memory, computing and time, from Parquet to the last figure.

    python -m tests.benchmarks.bench_dataset [--write] [--times 33660]

The committed campaign again and again, with jitter: by default 34 million page loads. It takes 3 GB in TMPDIR, and
4 GB more while claims are checked. Must hold (issue "one campaign, many machines"): 4 GB of resident memory. Each part
runs in a process of its own, as in `bench_evidence`; where others share the machine, computing tells more than time.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks._common import option, report
from tests.benchmarks.bench_evidence import REFERENCE, run


def main() -> None:
    """Make the campaign, report on it, and say what that took."""
    times = option("--times", 33_660)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        dataset = folder / "large"
        run("tests.benchmarks._repeated", REFERENCE, dataset, times, folder=folder)
        campaign = json.loads((dataset / "campaign.json").read_text(encoding="utf-8"))
        before = os.times()
        seconds, peak, _ = run("crosslayer", "report", dataset, "--out", folder / "figures", folder=folder)
        after = os.times()
        result: dict[str, Any] = {
            "times": times,
            "rounds_of_a_cell": campaign["plan"]["rounds"],
            "rows": campaign["rows"],
            "parquet_mb": round(sum(path.stat().st_size for path in dataset.rglob("*.parquet")) / 1e6),
            "peak_mb": round(peak / 1e6),
            "cpu_seconds": round(sum(after[2:4]) - sum(before[2:4])),
            "seconds": round(seconds),
            "figures": len(list(folder.glob("figures/*/*.svg"))),
        }
    report("dataset", result)


if __name__ == "__main__":
    main()
