"""A copy of the source tree for tests that change it, and a function that runs Python with the copied library."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

Run = Callable[..., str]


def copied(folder: Path, *datasets: str) -> Path:
    """Copy the parts of the source tree that the library needs to `folder`; returns `folder`.

    These are library, pages, profiles, traces, notebooks, published values, the reference documentation and the
    given datasets. The built programs are linked, not copied.
    """
    for part in ("lib", "sites", "data/published", "notebooks", "emulation/traces", "docs/reference", *datasets):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "emulation" / "profiles.toml", folder / "emulation")
    (folder / "build").symlink_to(ROOT / "build")
    return folder


def runner(tree: Path) -> Run:
    """Make a function that runs Python with the library of a copy and returns Python's output.

    The arguments of the function are those of Python. Of the environment variables CROSSLAYER_*, Python gets only those
    that the function's parameter `keep` names. With the parameter `errors`, the output includes standard error.
    """

    def run(*arguments: str, keep: Collection[str] = (), errors: bool = False) -> str:
        kept = {name: value for name, value in os.environ.items() if name in keep or not name.startswith("CROSSLAYER_")}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env=kept | {"PYTHONPATH": str(tree / "lib")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + (done.stderr if errors else "")

    return run


class Tree:
    """A copy of the source tree that can list its changed files."""

    def __init__(self, folder: Path) -> None:
        self.folder = copied(folder)
        self.run = runner(folder)
        self.commit()

    def commit(self) -> None:
        """Make the current files the reference for `changed`."""
        self._committed = self._hashes()

    def changed(self) -> set[str]:
        """Files that were added, changed or removed since the last `commit`."""
        return {name for name, _ in self._committed.items() ^ self._hashes().items()}

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in a file; `AssertionError` if the file does not contain the text exactly once."""
        file = self.folder / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} contains {text.count(old)} times {old!r}"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a text to the file `name` of the copy."""
        (self.folder / name).write_text(text, encoding="utf-8")

    def _hashes(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for part in ("lib", "notebooks", "sites", "emulation", "docs")
            for path in (self.folder / part).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }


def files_of_recipe(heading: str, **names: str) -> set[str]:
    """Paths of the files that the steps of a recipe in CONTRIBUTING.md name, from the root of the source tree.

    `heading` is the heading of the recipe. `names` replaces placeholders in the paths, e.g. `NAME="loss"`.
    """
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    files = re.findall(r"^\d\. `([^`]+)`", section, re.MULTILINE)
    assert files, heading
    for capitals, name in names.items():
        files = [file.replace(capitals, name) for file in files]
    elsewhere = ("docs/", "notebooks/", "emulation/")
    return {file if file.startswith(elsewhere) else f"lib/crosslayer/{file}" for file in files}
