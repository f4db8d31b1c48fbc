"""What a commit may add to the repository: generated files only within a bound, or with a line in CHANGELOG.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zlib
from pathlib import Path

import pytest

import crosslayer

ROOT = Path(__file__).parents[2]
GENERATED = ("figures", "notebooks")
BOUND_MB = 5.0

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")


def git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), "-c", f"safe.directory={root}", *arguments]
    return subprocess.run(command, capture_output=True, check=True).stdout


def added_mb(root: Path) -> float:
    """Compressed size (MB) of the generated files that the newest commit adds or changes, each for itself."""
    changed = git(root, "diff-tree", "-r", "--raw", "-z", "--diff-filter=AM", "HEAD^", "HEAD", "--", *GENERATED)
    blobs = {line.split()[3].decode() for line in changed.split(b"\0") if line.startswith(b":")}
    return sum(len(zlib.compress(git(root, "cat-file", "blob", blob))) for blob in blobs) / 1e6


def undeclared_mb(root: Path) -> float:
    """As `added_mb`; 0 if that is within the bound, or if CHANGELOG.md names the commit by its subject."""
    added = added_mb(root)
    subject = git(root, "log", "-1", "--format=%s").decode().strip()
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return 0.0 if added <= BOUND_MB or subject in " ".join(changes.split()) else added


def test_the_newest_commit_adds_little_or_says_so() -> None:
    try:
        git(ROOT, "rev-parse", "--verify", "HEAD^")
    except subprocess.CalledProcessError:
        pytest.skip("there is no history: not a git checkout, or a shallow one")
    added = undeclared_mb(ROOT)
    assert added == 0, f"{added:.1f} MB of generated files: add a line with the commit's subject to CHANGELOG.md"


@pytest.mark.slow
def test_growth_is_detected_and_can_be_declared(tmp_path: Path) -> None:
    def commit(message: str) -> None:
        git(tmp_path, "add", "--all")
        git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "--quiet", "--message", message)

    git(tmp_path, "init", "--quiet")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n", encoding="utf-8")
    commit("Start")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "small.svg").write_bytes(bytes(20_000_000))
    (tmp_path / "data.bin").write_bytes(os.urandom(6_000_000))
    commit("Much that compresses, and data that nothing generates")
    assert undeclared_mb(tmp_path) == 0

    (tmp_path / "figures" / "large.png").write_bytes(os.urandom(6_000_000))
    commit("All figures are drawn again")
    assert undeclared_mb(tmp_path) == pytest.approx(6.0, abs=0.1)
    (tmp_path / "CHANGELOG.md").write_text("- All figures are\n  drawn again: a new font\n", encoding="utf-8")
    assert undeclared_mb(tmp_path) == 0


def test_every_file_that_names_the_version_names_the_same() -> None:
    def version(file: str, pattern: str) -> str:
        match = re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        assert match, file
        return match[1]

    versions = {
        version("pyproject.toml", r'^version = "(.*)"'),
        version("CITATION.cff", r"^version: (.*)"),
        version(".zenodo.json", r'"version": "(.*)"'),
        version("Containerfile", r'image\.version="(.*)"'),
        version("CHANGELOG.md", r"^## (\S+)"),
    }
    assert versions == {crosslayer.__version__}
    dates = {version("CITATION.cff", r"^date-released: (.*)"), version(".zenodo.json", r'"publication_date": "(.*)"')}
    assert len(dates) == 1
