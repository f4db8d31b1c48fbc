"""Other processes use all processors during one round: the machine's counters show this, and the round is left out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from tests.integration.conftest import CROSSLAYER

pytestmark = pytest.mark.alone

PLAN = ["--study", "serialisation", "--links", "dsl", "--rounds", "3", "--clock", "wall"]
HOG = [sys.executable, "-c", "while True: pass"]


def test_a_round_on_a_busy_host_is_excluded(testbed_machine: None, tmp_path: Path) -> None:
    folder = tmp_path / "starved"
    hogs: list[subprocess.Popen[bytes]] = []
    with subprocess.Popen([*CROSSLAYER, "measure", *PLAN, "--out", str(folder)], stderr=subprocess.PIPE) as campaign:
        assert campaign.stderr is not None
        output = b""
        try:
            while more := os.read(campaign.stderr.fileno(), 4096):
                output += more
                if b" 2/3 " in output:
                    _end(hogs)
                elif b" 1/3 " in output and not hogs:
                    hogs += [subprocess.Popen(HOG) for _ in range(2 * (os.cpu_count() or 1))]
        finally:
            _end(hogs)
    assert campaign.returncode == 0, output.decode(errors="replace")
    dataset = Dataset.open(folder)
    disturbed = set(dataset.busy["round"])
    assert 1 in disturbed
    if dataset.campaign.backend == "uml":
        wire = dataset.table("forwarding_delay").group_by("round").agg(pl.col("packets").sum()).collect()
        assert set(wire["round"]) == {0, 1, 2}
        assert wire.filter(pl.col("packets") == 0).is_empty()
    # On a shared machine, other rounds may be busy too. If most rounds are busy, none is left out.
    left = set(dataset.table("dns_exchanges").select("round").collect()["round"])
    assert left == {0, 1, 2} - (disturbed if dataset.left_out else set())


def _end(hogs: list[subprocess.Popen[bytes]]) -> None:
    for hog in hogs:
        hog.kill()
        hog.wait()
