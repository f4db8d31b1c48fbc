"""A committed campaign in virtual time is confirmed by the current code, kernel and browser."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.integration.conftest import CROSSLAYER


def test_a_round_of_a_committed_campaign_is_confirmed(virtual_clock: list[str], tmp_path: Path) -> None:
    file = tmp_path / "drift.json"
    arguments = ["data/raw/key-share-virtual", "--rounds", "1", "--links", "fiber,4g", "--out", str(file)]
    done = subprocess.run([*CROSSLAYER, "drift", *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    assert result["counts"] == {"confirmed": 24, "drifted": 0, "undecided": 0}
    assert (result["rounds"], result["not_confirmed"]) == (1, [])
    assert result["versions"]["guest_kernel"] == result["campaign_versions"]["guest_kernel"]
