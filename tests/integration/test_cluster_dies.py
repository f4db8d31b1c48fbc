"""Worker, starter and scheduler of a cluster are killed during a campaign (tests/long kills 50 times).

Also: the identity that a worker reports.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crosslayer.campaign import dask_worker
from crosslayer.guest import Clock
from crosslayer.studies import STUDIES, sized
from tests import sleeping
from tests.cluster import Cluster, check_whole

pytest.importorskip("distributed")

ROUNDS = 60


def test_whatever_is_killed_every_round_is_there_once(tmp_path: Path) -> None:
    environment = {sleeping.ROUND_S: "0.1"}
    with Cluster(tmp_path, rounds=ROUNDS, batch=3, environment=environment) as cluster:
        cluster.scheduler()
        cluster.worker("one")
        cluster.worker("two")
        cluster.wait_for_log("one", "Registered to")
        cluster.wait_for_log("two", "Registered to")
        cluster.starter()
        cluster.wait_for_log("starter", " 10/120 ")
        cluster.kill("one")
        cluster.wait_for_log("starter", " 20/120 ")
        cluster.kill("starter")
        cluster.worker("other", **{sleeping.VERSION: "2"})
        cluster.wait_for_log("other", "Registered to")
        cluster.starter()
        output = cluster.wait_for_log("starter", "A worker is left out")
        assert "other: it differs from the others in chromium (2 instead of 1)" in output
        cluster.kill("scheduler")
        assert cluster.running["starter"].wait(60) == 1
        assert "Dask's scheduler does not respond" in cluster.wait_for_log("starter", "scheduler does not respond")
        assert "Traceback" not in cluster.log("starter").read_text()
        before = cluster.finished()
        assert 20 <= before < 2 * ROUNDS
        cluster.kill("starter")
        cluster.kill("two")
        cluster.scheduler()
        cluster.worker("two")
        cluster.starter()
        assert cluster.running["starter"].wait(120) == 0, cluster.log("starter").read_text()
        loads = check_whole(cluster.dataset, ROUNDS)
    assert set(loads["host"]) == {"one", "two"}


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_a_worker_says_what_it_measures_with(
    request: pytest.FixtureRequest, browser_machine: None, clock: Clock
) -> None:
    """The starter requests these properties first, because they must be the same on all workers."""
    if clock == "virtual":
        request.getfixturevalue("virtual_clock")
    plan = sized("coalescing", "smoke")
    unable, identity = dask_worker.examine(STUDIES[plan.study].measurer, plan, clock)
    assert unable == ""
    assert {"commit", "code", "chromium", "server", "guest_kernel" if clock == "virtual" else "kernel"} <= set(identity)
