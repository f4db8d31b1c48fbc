"""A campaign on two machines of which one loses its network and comes back: two namespaces and a switch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crosslayer.testbed import namespaces
from tests.cluster import ROOT

pytest.importorskip("distributed")


def test_a_machine_that_loses_its_network_and_comes_back_costs_no_round(testbed_machine: None, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "lib"), str(ROOT)])
    command = ["unshare", *namespaces.UNSHARE, "--", sys.executable, "-m", "tests.two_machines", str(tmp_path)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left" in done.stdout
    assert "right" in done.stdout
