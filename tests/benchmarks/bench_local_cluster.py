"""A plan on a LocalCluster against the same plan by `--jobs`, both by the virtual clock.

    python -m tests.benchmarks.bench_local_cluster [--write] [--jobs 2] [--rounds 8] [--times 2] [--links fiber,4g]
        [--pages example.org]

Must hold (issue "one campaign, many machines"): at most 5 % slower. One after the other, in turns, so that both meet
the same machine; starting and ending are part of either.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from tests.benchmarks._common import option, report
from tests.benchmarks.bench_virtual import frame, timed, words

LIMIT = 1.05


def main() -> None:
    """Measure in turns, and say how much longer the cluster took."""
    jobs, rounds = option("--jobs", os.cpu_count() or 1), option("--rounds", 8)
    cells = ["--links", words("--links", "fiber,4g"), "--pages", words("--pages", "example.org")]
    plan = [*cells, "--rounds", str(rounds), "--jobs", str(jobs)]
    ways = {"jobs": [], "cluster": ["--cluster", "local"]}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(option("--times", 2)):
            for name, options in ways.items():
                folder = Path(directory) / f"{name}-{turn}"
                seconds[name].append(
                    timed("measure", "--clock", "virtual", *plan, *options, "--out", str(folder)),
                )
                loads = frame(folder, "page_loads").height
    median = {name: statistics.median(times) for name, times in seconds.items()}
    result = {"plan": plan, "loads": loads, "seconds": seconds, "limit": LIMIT}
    report("local_cluster", result | {"cluster_over_jobs": median["cluster"] / median["jobs"]})


if __name__ == "__main__":
    main()
