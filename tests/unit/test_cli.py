"""The command line: help that teaches, the doctor's JSON, errors as one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from crosslayer.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    said = CliRunner().invoke(cli, [command, "--help"])
    assert said.exit_code == 0
    assert len(said.output.splitlines()) > 5


def test_the_doctors_json_says_what_is_missing_and_the_way_out() -> None:
    said = CliRunner().invoke(cli, ["doctor", "--json"])
    report = json.loads(said.output)
    assert said.exit_code == (0 if report["can_measure"] else 1)
    items = {finding["item"] for finding in report["findings"]}
    assert {"namespaces", "netem", "uml", "chromium", "crosslayer-server", "disk"} <= items
    for finding in report["findings"]:
        assert finding["state"] in ("ok", "note", "missing")
        assert finding["detail"]
        if finding["state"] == "missing":
            assert finding["way_out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "--size", "huge"], "no size 'huge'"),
        (["measure", "--rounds", "0"], "key 'rounds': must be at least 1"),
        (["measure", "--study", "nothing"], "no study 'nothing'"),
        (["measure", "--profile", "smoke"], "--profile is now --size"),
        (["plan", "x"], "`crosslayer plan` is now `crosslayer rounds`"),
        (["measure", "--links", "fibre", "--out", "x"], "no link profile 'fibre'"),
        (["measure", "--pages", "nowhere.org", "--out", "x"], "no page 'nowhere.org'"),
        (["measure", "--plan", "missing.toml"], "cannot be read"),
        (["export", "missing"], "no campaign here"),
        (["claims", "missing"], "no such dataset folder"),
        (["rounds", "missing"], "no such dataset folder"),
        (["rounds", "missing", "--precision", "1"], "'1' is not a precision"),
        (["import", "missing.db", "x"], "no such file"),
        (["discover", "192.0.2.0/24"], "is a network, and networks are not probed"),
        (["discover", "--outside"], "there is no target"),
        (["discover", "--out", "x/y.csv"], "cannot be written"),
    ],
)
def test_a_bad_call_is_one_line_that_says_what_to_do(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crosslayer", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("crosslayer: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("command", [["--help"], ["claims"], ["doctor"]])
def test_an_output_that_takes_nothing_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "crosslayer", *command]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr == "crosslayer: standard output cannot be written (No space left on device)\n"
