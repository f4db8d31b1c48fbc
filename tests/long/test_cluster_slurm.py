"""`--cluster slurm` where there is no SLURM: `sbatch` and `scancel` are scripts that start and end its job here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from crosslayer.campaign import run
from crosslayer.campaign.cluster import connected, dask_executor
from crosslayer.links import load_profiles
from tests import sleeping
from tests.cluster import ROOT, check_whole

pytest.importorskip("dask_jobqueue")

_SBATCH = """#!/bin/bash
cp "$1" "$HOME/job.sh"
setsid bash "$HOME/job.sh" >"$HOME/job.log" 2>&1 &
echo "Submitted batch job $!"
"""
_SCANCEL = """#!/bin/bash
for job; do kill -- "-$job"; done
"""


@pytest.mark.filterwarnings("ignore:Port 8787", "ignore::pytest.PytestUnraisableExceptionWarning")  # both Dask's
def test_a_campaign_on_jobs_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, script in (("sbatch", _SBATCH), ("scancel", _SCANCEL)):
        (tmp_path / name).write_text(script, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "lib"), str(ROOT)]))
    monkeypatch.chdir(tmp_path)
    messages: list[str] = []
    nobody: Any = None
    with connected(None, "slurm", workers=1, clock="virtual") as client:
        source = dask_executor(client, clock="virtual", hooks=sleeping.HOOKS)
        run.measure(sleeping.a_plan(4), tmp_path / "out", nobody, load_profiles(), say=messages.append, source=source)
    check_whole(tmp_path / "out", 4)
    assert any(line.startswith("Measuring on a cluster of 2 testbeds") for line in messages), messages
