"""Clusters with one unusable worker: the others measure everything without delay, and a message names the reason."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests import sleeping
from tests.cluster import ROOT, Cluster, check_whole

pytest.importorskip("distributed")

ROUNDS = 10
BATCH = 2
OF_DASK = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10 minutes"}
"""Settings with which Dask does not remove a silent worker during a test."""


def cluster(folder: Path, **environment: str) -> Cluster:
    return Cluster(folder, rounds=ROUNDS, batch=BATCH, environment=OF_DASK | environment)


def begin(of: Cluster, **workers: dict[str, str]) -> None:
    """Start a scheduler and workers, each with its own environment variables."""
    of.scheduler()
    for name, environment in workers.items():
        of.worker(name, **environment)
    for name in workers:
        of.wait_for_log(name, "Registered to")


def other_code(folder: Path) -> dict[str, str]:
    """Environment variables of a worker with another commit."""
    copy = shutil.copytree(ROOT / "lib" / "crosslayer", folder / "elsewhere" / "crosslayer")
    with (copy / "vocabulary.py").open("a", encoding="utf-8") as file:
        file.write("# of another commit\n")
    return {
        "PYTHONPATH": os.pathsep.join([str(copy.parent), str(ROOT)]),
        "CROSSLAYER_REVISION": "f" * 40,
        "CROSSLAYER_PROFILES": str(ROOT / "emulation" / "profiles.toml"),
    }


@pytest.mark.parametrize("why", ["another commit", "another browser", "no kernel for the guest", "it fails"])
def test_what_waits_for_a_worker_that_is_left_out_goes_to_the_others(tmp_path: Path, why: str) -> None:
    environment, message = {
        "another commit": (other_code(tmp_path), "bad: it differs from the others in code"),
        "another browser": ({sleeping.VERSION: "2"}, "bad: it differs from the others in chromium (2 instead of 1)"),
        "no kernel for the guest": ({sleeping.UNABLE: "no kernel"}, "bad: no kernel"),
        "it fails": ({sleeping.FAILS: "1"}, "KeyError: 'nobody foresees this'"),
    }[why]
    with cluster(tmp_path) as of:
        begin(of, good={}, better={}, bad=environment)
        of.starter()
        status = of.running["starter"].wait(60)
        output = of.log("starter").read_text(encoding="utf-8")
        assert status == 0, output
        assert "A worker is left out: " in output
        assert message in output
        loads = check_whole(of.dataset, ROUNDS)
    assert set(loads["host"]) == {"good", "better"}


def test_a_worker_that_is_frozen_before_the_start_is_left_behind(tmp_path: Path) -> None:
    with cluster(tmp_path) as of:
        begin(of, good={}, frozen={})
        of.pause("frozen")
        start = time.monotonic()
        of.starter()
        of.wait_for_log("starter", "No answer within 10 s, so it goes on without: tcp://127.0.0.1:", within_s=40)
        of.wait_for_log("starter", "Measuring on a cluster of 1 testbed: 10 tasks of up to 2 rounds of a cell. ")
        assert of.running["starter"].wait(60) == 0, of.log("starter").read_text(encoding="utf-8")
        assert time.monotonic() - start < 60
        loads = check_whole(of.dataset, ROUNDS)
        of.resume("frozen")
        of.wait_for_log("frozen", "worker-heartbeat-missing")
    assert set(loads["host"]) == {"good"}


def test_a_worker_of_another_commit_is_taken_where_the_plan_says_so_and_recorded(tmp_path: Path) -> None:
    with cluster(tmp_path, **{sleeping.ROUND_S: "0.2"}) as of:
        begin(of, ours={}, theirs=other_code(tmp_path))
        of.starter(**{sleeping.MIXED: "1"})
        assert of.running["starter"].wait(120) == 0, of.log("starter").read_text(encoding="utf-8")
        loads = check_whole(of.dataset, ROUNDS)
        about = json.loads((of.dataset / "campaign.json").read_text(encoding="utf-8"))
    assert set(loads["host"]) == {"ours", "theirs"}
    [note] = about["notes"]
    assert note.endswith("with other versions of: code, commit")
    differing = {name: host["other_versions"] for name, host in about["hosts"].items() if host["other_versions"]}
    [(_, other)] = differing.items()
    assert set(other) == {"code", "commit"}
    assert {about["versions"]["commit"], other["commit"]} >= {"f" * 40}
