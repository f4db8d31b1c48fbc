"""What can be checked of the way in without Nix: the Makefile and the scripts beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / ".ci" / "run", *sorted(path for path in (ROOT / "setup").iterdir() if not path.suffix)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_that_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[1].startswith("# ")
    subprocess.run(["bash", "-n", str(script)], check=True)
