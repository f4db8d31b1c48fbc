"""Simulated scale: 100 workers whose testbed sleeps, 345,000 loads, one who keeps it all.

    python -m tests.benchmarks.bench_cluster [--write] [--workers 100] [--loads 345000] [--round-s 1]

Says how many rounds a second the starter kept and what it computed for each, its memory at a tenth of the plan, at the
end and with the export, and what it takes to resume. Workers are threads of a few processes: they only sleep.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from crosslayer.campaign import run
from crosslayer.campaign.cluster import connected, dask_executor
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.store import Store
from crosslayer.links import load_profiles
from tests import sleeping
from tests.benchmarks._common import report
from tests.cluster import Cluster

LOADS_OF_A_ROUND = 15
LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
PAGES = ("example.org", "wikipedia.org", "instagram.com")


def resident_mb() -> float:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class _Watch:
    """What the starter did by when."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.kept, self.peak_mb, self.early_mb = rounds, 0, 0.0, 0.0
        self.first = self.last = time.monotonic()
        self.last_cpu_s = 0.0

    def of(self, source: Any) -> Any:
        """The same source, watched."""

        def watched(*arguments: Any) -> Any:
            for part in source(*arguments):
                if part.cell is not None:
                    self.last, self.last_cpu_s = time.monotonic(), time.process_time()
                    self.first = self.last if not self.kept else self.first
                    self.kept += 1
                    if self.kept % 100 == 0:
                        self.peak_mb = max(self.peak_mb, resident_mb())
                    if self.kept == self.rounds // 10:
                        self.early_mb = self.peak_mb
                yield part

        return watched


def main() -> None:
    """Measure, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--loads", type=int, default=345_000)
    parser.add_argument("--round-s", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="keep the result")
    options = parser.parse_args()
    os.environ |= {sleeping.ROUND_S: str(options.round_s), sleeping.LOADS: str(LOADS_OF_A_ROUND)}
    cells = len(LINKS) * len(PAGES)
    plan = Plan(
        study="coalescing",
        links=LINKS,
        pages=PAGES,
        rounds=-(-options.loads // (LOADS_OF_A_ROUND * cells)),
        clock="virtual",
    )
    total = plan.rounds * cells
    threads = -(-options.workers // options.processes)
    folder = Path(tempfile.mkdtemp())
    nobody: Any = None
    results: dict[str, Any] = {
        "rounds": total,
        "loads": total * LOADS_OF_A_ROUND,
        "testbeds": threads * options.processes,
    }
    try:
        with Cluster(folder, rounds=0, batch=0, environment={}) as cluster:
            cluster.scheduler()
            for index in range(options.processes):
                cluster.worker(f"worker-{index}", threads)
            for index in range(options.processes):
                cluster.wait_for_log(f"worker-{index}", "Registered to", within_s=600)
            with connected(cluster.address, None) as client:
                source = dask_executor(client, clock="virtual", hooks=sleeping.HOOKS)
                watch = _Watch(total)
                before_s = time.process_time()
                run.measure(plan, cluster.dataset, nobody, load_profiles(), say=print, source=watch.of(source))
        measured_s = watch.last_cpu_s - before_s
        results |= {
            "rounds_per_s": round((watch.kept - 1) / (watch.last - watch.first), 1),
            "rounds_per_s_of_the_testbeds_alone": round(threads * options.processes / options.round_s, 1),
            "starter_cpu_ms_per_round": round(1000 * measured_s / total, 2),
            "starter_could_keep_rounds_per_s": round(total / measured_s),
            "resident_mb_at_a_tenth": round(watch.early_mb),
            "resident_mb_at_the_end": round(watch.peak_mb),
            "resident_mb_at_most_with_the_export": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
            "export_cpu_s": round(time.process_time() - watch.last_cpu_s, 1),
        }
        begin_s = time.process_time()
        with Store(cluster.dataset, plan) as store:
            assert len(store.done()) == total
        results["resume_cpu_s"] = round(time.process_time() - begin_s, 2)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report("cluster", results)


if __name__ == "__main__":
    main()
