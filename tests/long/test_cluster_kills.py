"""One plan on a cluster, killed 50 times at random moments: its scheduler, its workers, the one who started it.

Not of `make test`: `make test-long` runs it. The testbed sleeps; what kills do to a real one is `test_kills`.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import sleeping
from tests.cluster import Cluster, check_whole

pytest.importorskip("distributed")

KILLS = 50
ROUNDS = 600
LONGEST_S = 2.0
"""From one kill to the next, while a plan is measured."""
WORKERS = ("one", "two")


def test_nothing_is_lost_or_there_twice(tmp_path: Path) -> None:
    draw = random.Random(1)
    kills: Counter[str] = Counter()
    begin = time.monotonic()
    safe = 0
    with Cluster(tmp_path, rounds=ROUNDS, batch=3, environment={sleeping.ROUND_S: "0.2"}) as cluster:
        while kills.total() < KILLS:
            if "scheduler" not in cluster.running:
                cluster.scheduler()
            for name in WORKERS:
                if name not in cluster.running:
                    cluster.worker(name)
            if "starter" not in cluster.running:
                cluster.log("starter").write_text("", encoding="utf-8")
                cluster.starter()
                cluster.wait_for_log("starter", "Measuring on a cluster", within_s=300)
            time.sleep(draw.uniform(0, LONGEST_S))
            assert cluster.running["starter"].poll() is None, cluster.log("starter").read_text(encoding="utf-8")
            victim = draw.choice(["starter", "scheduler", *WORKERS])
            cluster.kill(victim)
            kills[victim if victim not in WORKERS else "worker"] += 1
            print(f"{kills.total()}: {victim}, {time.monotonic() - begin:.0f} s", flush=True)
            if victim == "scheduler":
                assert cluster.running["starter"].wait(120) == 1, "it says that the scheduler is gone"
                cluster.kill("starter")
                for name in WORKERS:
                    cluster.kill(name)
            if victim in ("starter", "scheduler"):
                before, safe = safe, cluster.finished()
                assert safe >= before
        for name in list(cluster.running):
            cluster.kill(name)
        cluster.scheduler()
        for name in WORKERS:
            cluster.worker(name)
        cluster.starter()
        assert cluster.running["starter"].wait(900) == 0, cluster.log("starter").read_text(encoding="utf-8")
        check_whole(cluster.dataset, ROUNDS)
    counts = ", ".join(f"{number} {name}" for name, number in sorted(kills.items()))
    print(
        f"\n{kills.total()} kills ({counts}) of a plan of {2 * ROUNDS} rounds, {time.monotonic() - begin:.0f} s: 0 lost"
    )
