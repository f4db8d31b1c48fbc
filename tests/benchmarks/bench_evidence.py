"""From Parquet to figures and claims: time and memory, at the size of the reference, of the paper, and 100 times that.

    python -m tests.benchmarks.bench_evidence [--write] [--times 100]

Must hold (issue "evidence"), on 2 cores, without root and without Chromium: from data/raw/coalescing to every figure
and the claims table in under 60 s and 1.5 GB; at the paper's size (344,616 page loads, 3 x 172,308 exchanges, made up
with the published quantiles) in under 90 s; there the frame work 3 times as fast as the same work in pandas; and at
100 times that size (34 million loads) the frame work within 4 GB. The last needs some 10 GB of room in TMPDIR.

Every part runs in processes of its own, which see two cores; as root, they run without any capability. Peak memory is
the greatest resident set of any of them, their children included, as the kernel accounts for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks._common import report

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "data/raw/coalescing"
ROUNDS = -(-172_308 // 15)
"""Rounds of each of the 15 cells that are at least as many as the paper's."""
CONDITIONS = {"page_loads": 2, "dns_exchanges": 3}
RUNS = 15


def run(*arguments: object, folder: Path) -> tuple[float, int, str]:
    """Run a Python module in a process of its own: seconds, peak resident bytes, last line of its output."""
    # Not `nobody`: who works as root may have Python where only root can read.
    prefix = [str(shutil.which("setpriv")), "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    # No PATH: nothing can be started but this Python, no Chromium in particular.
    begin = time.perf_counter()
    with subprocess.Popen(
        [*prefix, sys.executable, "-m", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"PATH": "", "HOME": str(folder), "TMPDIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    ) as child:
        assert child.stdout is not None
        output = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, arguments))} ended with {child.returncode}")
    return seconds, usage.ru_maxrss * 1024, (output.strip().splitlines() or [""])[-1]


def evidence(dataset: Path, folder: Path) -> dict[str, Any]:
    """Every figure and the claims table, as a reviewer makes them."""
    out = folder / "figures"
    figures_s, figures_bytes, page = run("crosslayer", "figures", dataset, "--out", out, folder=folder)
    claims_s, claims_bytes, _ = run("crosslayer", "claims", dataset, "--out", out, folder=folder)
    assert (ROOT / page).is_file()
    return {
        "seconds": round(figures_s + claims_s, 1),
        "figures_seconds": round(figures_s, 1),
        "claims_seconds": round(claims_s, 1),
        "peak_mb": round(max(figures_bytes, claims_bytes) / 1e6),
        "figures": len(list(out.glob("*/*.svg"))),
    }


def made_up(folder: Path, times: int) -> tuple[Path, dict[str, Any]]:
    """A dataset of so many times the paper's size, with the published quantiles, and what is in it."""
    dataset = folder / f"paper-x{times}"
    run("tests.benchmarks._synthetic", dataset, ROUNDS * times, folder=folder)
    size = {table: 15 * ROUNDS * times * conditions for table, conditions in CONDITIONS.items()}
    size["parquet_mb"] = round(sum(path.stat().st_size for path in dataset.rglob("*.parquet")) / 1e6)
    return dataset, size


def main() -> None:
    """All four, one after the other."""
    times = int(sys.argv[sys.argv.index("--times") + 1]) if "--times" in sys.argv else 100
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        result: dict[str, Any] = {
            "cores": len(os.sched_getaffinity(0)),
            "rounds_of_the_reference": json.loads((REFERENCE / "campaign.json").read_text())["plan"]["rounds"],
            "reference": evidence(REFERENCE, folder),
        }
        paper, size = made_up(folder, 1)
        result["paper_size"] = size | evidence(paper, folder)
        _, _, compared = run("tests.benchmarks._frames", "compare", paper, RUNS, folder=folder)
        result["frames"] = json.loads(compared)
        huge, size = made_up(folder, times)
        _, peak, streamed = run("tests.benchmarks._frames", "stream", huge, folder=folder)
        result["huge"] = {"times": times} | size | json.loads(streamed) | {"peak_mb": round(peak / 1e6)}
    report("evidence", result)


if __name__ == "__main__":
    main()
