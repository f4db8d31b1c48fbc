"""What can be checked of the way in without Nix: the Makefile and the scripts beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / ".ci" / "run", *sorted(path for path in (ROOT / "setup").iterdir() if not path.suffix)]


def test_the_old_name_of_a_size_is_refused_with_the_new_one() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("there is no make on this machine")
    words = [make, "--dry-run", "reproduce", "PROFILE=smoke"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "make reproduce SIZE=smoke" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_that_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[1].startswith("# ")
    subprocess.run(["bash", "-n", str(script)], check=True)
