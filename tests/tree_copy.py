"""A copy of the tree for tests that change it: the library, what it reads, and Python on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Run = Callable[..., str]


def copied(folder: Path, *datasets: str) -> Path:
    """Copy the library, pages, profiles, notebooks and some datasets; the built programs are linked."""
    for part in ("lib", "sites", "data/published", "notebooks", "emulation/traces", *datasets):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "emulation" / "profiles.toml", folder / "emulation")
    (folder / "build").symlink_to(ROOT / "build")
    return folder


def runner(tree: Path) -> Run:
    """A function that runs Python with some arguments on the library of a copy and returns its output."""

    def run(*arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CROSSLAYER_")}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env=kept | {"PYTHONPATH": str(tree / "lib")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
