"""What can be checked of the way in without Nix: the Makefile and the scripts beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crosslayer.campaign.plan import OWN_CAMPAIGNS
from crosslayer.commands import figures, report

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / ".ci" / "run", *sorted(path for path in (ROOT / "setup").iterdir() if not path.suffix)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_that_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert script.read_text(encoding="utf-8").splitlines()[1].startswith("# ")
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_a_run_writes_only_where_git_ignores_it() -> None:
    """`make reproduce` leaves the checkout clean: defaults of measure, of the reports and of every notebook."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not in a git checkout")
    options = {option.name: option for command in (figures.command, report.command) for option in command.params}
    written = {OWN_CAMPAIGNS / "coalescing-smoke" / "campaign.json", options["out"].default / "index.html"}
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        source = "".join("".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"])
        written |= {Path(folder) / "x.svg" for folder in re.findall(r'^figures = "(.*?)"', source, re.MULTILINE)}
    assert len(written) > 2
    for path in written:
        ignored = subprocess.run(["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=False)
        assert ignored.returncode == 0, f"git does not ignore {path}"


def test_every_folder_of_committed_campaigns_is_committed() -> None:
    """Tests take all of data/raw for committed: nothing that is measured goes there by default."""
    assert not OWN_CAMPAIGNS.is_relative_to("data/raw")
