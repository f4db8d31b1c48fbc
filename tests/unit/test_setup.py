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
SCRIPTS = [
    ROOT / ".ci" / "run",
    *sorted(path for path in (ROOT / "setup").iterdir() if path.is_file() and not path.suffix),
]


def test_apt_asks_nothing_also_behind_sudo(tmp_path: Path) -> None:
    """`sudo` starts with an environment of its own; nobody sees a dialog, since the output is dropped."""
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {
        "id": "echo 1000",
        "sudo": 'unset DEBIAN_FRONTEND; case "$*" in *apt-get*) exec "$@" ;; esac',
        "apt-get": f'echo "$DEBIAN_FRONTEND $*" >> {tmp_path}/asked',
    }
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    for name in ("bash", "env", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    script = ROOT / "setup" / "system-packages"
    done = subprocess.run([script, "guest"], env={"PATH": str(programs)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert len(asked) == 2
    assert all(line.startswith("noninteractive ") for line in asked)


def test_no_program_opens_the_standard_output_again() -> None:
    """A user who was switched to by `su` or `sudo` may write to the output of another user, but may not open it."""
    files = [ROOT / "Makefile", ROOT / "nix" / "reproduce.sh", *SCRIPTS]
    opened = re.compile("^[^#\n]*/dev/std(out|err)", re.MULTILINE)
    assert [file.name for file in files if opened.search(file.read_text(encoding="utf-8"))] == []


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


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the linters of Go, scripts and workflows read, with this checkout's programs."""
    root = tmp_path / "copy"
    for name in (".ci", ".github", "emulation", "nix", "setup"):
        shutil.copytree(ROOT / name, root / name)
    (root / ".venv" / "bin").mkdir(parents=True)
    shellcheck = shutil.which(ROOT / ".venv" / "bin" / "shellcheck") or shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("there is no ShellCheck on this machine")
    (root / ".venv" / "bin" / "shellcheck").symlink_to(shellcheck)
    for program in ("python", "go"):
        if (own := ROOT / ".venv" / "bin" / program).exists():
            (root / ".venv" / "bin" / program).symlink_to(own)
    return root


def lint(root: Path, step: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([root / "setup" / "lint", step], capture_output=True, text=True, check=False)


def test_lint_finds_go_that_is_not_formatted(copy: Path) -> None:
    if not any(shutil.which(go) for go in ("go", "/usr/local/go/bin/go", copy / ".venv" / "bin" / "go")):
        pytest.skip("there is no Go on this machine")
    (copy / "emulation" / "internal" / "jsonl" / "spaced.go").write_text("package   jsonl\n", encoding="utf-8")
    done = lint(copy, "go")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "run gofmt -w on: internal/jsonl/spaced.go"


@pytest.mark.slow
def test_lint_finds_a_fault_of_any_script(copy: Path) -> None:
    assert lint(copy, "scripts").returncode == 0
    (copy / "setup" / "new").write_text("#!/usr/bin/env bash\n# New.\nrm $1\n", encoding="utf-8")
    done = lint(copy, "scripts")
    assert done.returncode == 1
    assert "SC2086" in done.stdout


def test_lint_finds_a_fault_of_a_workflow(copy: Path) -> None:
    if not any(shutil.which(go) for go in ("go", "/usr/local/go/bin/go", copy / ".venv" / "bin" / "go")):
        pytest.skip("there is no Go on this machine")
    workflow = copy / ".github" / "workflows" / "ci.yml"
    workflow.write_text(workflow.read_text(encoding="utf-8").replace("matrix.release", "matrix.realease"), "utf-8")
    done = lint(copy, "workflows")
    if "dial tcp" in done.stderr or "no such host" in done.stderr:
        pytest.skip("the Go modules are out of reach")
    assert done.returncode == 1
    assert 'property "realease" is not defined' in done.stdout


def test_the_kernel_of_the_guest_is_pinned_by_version_and_hash() -> None:
    lines = (ROOT / "setup" / "kernel.pin").read_text(encoding="utf-8").splitlines()
    (pin,) = [line for line in lines if not line.startswith("#")]
    assert re.fullmatch(r"linux-source-(\d+\.\d+) \1\.\d+\S* [0-9a-f]{64}", pin)
