"""The command line: help that teaches, the doctor's JSON, errors as one line."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from crosslayer.cli import COMMANDS, cli
from crosslayer.links import load_profiles
from crosslayer.pages import find_spec_dir, load_pages
from crosslayer.resources import ResourceError, locate
from crosslayer.studies import STUDIES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) > 5


def test_the_doctors_json_says_what_is_missing_and_the_way_out() -> None:
    result = CliRunner().invoke(cli, ["doctor", "--json"])
    report = json.loads(result.output)
    assert result.exit_code == (0 if report["can_measure"] else 1)
    items = {finding["item"] for finding in report["findings"]}
    assert {"namespaces", "netem", "uml", "chromium", "crosslayer-server", "disk"} <= items
    for finding in report["findings"]:
        assert finding["state"] in ("ok", "note", "missing")
        assert finding["detail"]
        if finding["state"] == "missing":
            assert finding["way_out"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "--size", "huge"], "no size 'huge'"),
        (["measure", "--rounds", "0"], "key 'rounds': must be at least 1"),
        (["measure", "--rounds", "0"], "is 0. Give it another value."),
        (["measure", "--rounds", "1000000000000"], "key 'rounds': must be at most 100000"),
        (["measure", "--links", "nope.toml"], "Name a TOML file of links"),
        (["measure", "--links", "fibre", "--out", "x"], "Did you mean 'fiber'? Choose one of: 4g, "),
        (["measure", "--links", "fibre", "--out", "x"], "rtt-50; or one with one property changed, like 4g-loss-2"),
        (["measure", "--pages", "wikipedia", "--out", "x"], "Did you mean 'wikipedia.org'?"),
        (["measure", "--study", "los"], "Did you mean 'loss'?"),
        (["measure", "--size", "Papers"], "Did you mean 'paper'?"),
        (["link", "fibre", "--", "true"], "Did you mean 'fiber'?"),
        (["servers", "knott"], "Did you mean 'knot'?"),
        (["measure", "--study", "nothing"], "no study 'nothing'"),
        (["measure", "--links", "fibre", "--out", "x"], "no link profile 'fibre'"),
        (["measure", "--pages", "nowhere.org", "--out", "x"], "no page 'nowhere.org'"),
        (["measure", "--plan", "missing.toml"], "cannot be read"),
        (["export", "missing"], "no campaign here"),
        (["claims", "missing"], "no such dataset folder"),
        (["sample-size", "missing"], "no such dataset folder"),
        (["sample-size", "missing", "--precision", "1"], "'1' is not a precision"),
        (["import", "missing.db", "x"], "no such file"),
        (["discover", "192.0.2.0/24"], "is a network, and networks are not probed"),
        (["discover", "--allow-external"], "there is no target"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "--out", ""], "'--out': It is empty. Name a file"),
        (["measure", "--links", ""], "'--links': It is empty"),
        (["measure", "--pages", " "], "'--pages': It is empty"),
        (["measure", "--capture", ""], "'--capture': It is empty"),
        (["measure", "--plan", ""], "'--plan': It is empty. Name a file"),
        (["measure", "--capture-rounds", "3"], "--capture-rounds needs --capture"),
        (["measure", "--plan", "PLAN", "--size", "quick"], "--plan determines study and size"),
        (["measure", "--cluster", "local", "--hosts", "one"], "--hosts needs --cluster ssh"),
        (["stub", "--upstream", "udp://127.0.0.1:1", "--ca", "nope"], "udp and tcp have no certificate"),
        (["stub", "--upstream", "TCP://127.0.0.1:1", "--ca", "nope"], "udp and tcp have no certificate"),
        (["claims", "--out", ""], "'--out': It is empty. Name a file"),
        (["claims", ""], "It is empty. Name a file"),
        (["figures", "--compare", ""], "'--compare': It is empty. Name a file"),
        (["link", "4g", "--no-server", "--retry", "--", "true"], "--retry configures the server"),
        (["link", "4g", "--capture", "campaign.pcapng", "--", "true"], "--capture would overwrite campaign.json"),
    ],
)
def test_what_means_nothing_or_would_be_passed_over_is_refused_at_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    (tmp_path / "PLAN").write_text('study = "loss"\n', encoding="utf-8")
    (tmp_path / "campaign.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert {path.name for path in tmp_path.iterdir()} == {"PLAN", "campaign.json"}


def test_a_limit_of_open_files_is_named_and_not_taken_for_namespaces() -> None:
    command = [sys.executable, "-m", "crosslayer", "link", "fiber", "--", "true"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 3
    assert "a process may open 64 files here, but measuring needs 1024. Raise the limit" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_is_no_file_for_the_metrics(tmp_path: Path) -> None:
    try:
        locate("stub")
    except ResourceError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-m", "crosslayer", "stub", "--upstream", "udp://127.0.0.1:1", "--listen", "127.0.0.1:0"]
    for more in ([], ["--", "true"]):
        done = subprocess.run(
            [*command, "--metrics", str(tmp_path), *more], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert str(tmp_path) in line
        assert "is a directory" in line.lower()


def test_a_variable_that_is_empty_is_none() -> None:
    done = CliRunner().invoke(cli, ["measure", "--size", "huge"], env={"CROSSLAYER_SCHEDULER": ""})
    assert "no size 'huge'" in str(done.exception)


def test_the_help_of_measure_has_an_example_and_every_name() -> None:
    output = " ".join(CliRunner().invoke(cli, ["measure", "-h"]).output.split())
    assert "crosslayer measure --study loss --links 4g,4g-loss-2" in output
    studies = [name for name, study in STUDIES.items() if not study.measured_by]
    for name in (*studies, *load_profiles(), *load_pages(find_spec_dir()), "rtt-50"):
        assert re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", output), name


@pytest.mark.parametrize("command", ["claims", "figures", "report"])
def test_a_missing_dataset_is_named_before_a_chart_library_is_imported(command: str) -> None:
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom crosslayer.cli import cli\n"
        f"done = CliRunner().invoke(cli, [{command!r}, 'missing'])\n"
        "print(done.exception)\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    output, modules = done.stdout.splitlines()
    assert "there is no such dataset folder" in output
    assert not {"altair", "vl_convert", "jinja2", "crosslayer.report"} & set(modules.split())


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
@pytest.mark.parametrize("command", ["doctor", "sample-size"])
def test_colours_are_for_terminals_without_no_color(command: str, variable: dict[str, str], coloured: bool) -> None:
    arguments = [sys.executable, "-m", "crosslayer", command, *(["missing"] if command == "sample-size" else [])]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | variable
    ours, others = pty.openpty()
    with subprocess.Popen(arguments, stdin=others, stdout=others, stderr=others, env=environment, cwd=ROOT):
        os.close(others)
        output = b""
        with contextlib.suppress(OSError):  # of a terminal that nobody has open any more
            while part := os.read(ours, 65536):
                output += part
    os.close(ours)
    assert (b"\x1b[" in output) is coloured, output


@pytest.mark.slow
@pytest.mark.parametrize("command", [["--help"], ["claims"], ["doctor"]])
def test_an_output_that_takes_nothing_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = [sys.executable, "-m", "crosslayer", *command]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr == "crosslayer: standard output cannot be written (No space left on device)\n"


def test_studies_lists_each_with_its_links_and_pages() -> None:
    shown = CliRunner().invoke(cli, ["studies"])
    assert shown.exit_code == 0
    text = " ".join(shown.output.split())
    for study in STUDIES.values():
        plan = study.sizes["quick"]
        assert f"{study.name} question " in text
        assert f"links {', '.join(plan.links)} pages {', '.join(plan.pages)} browser " in text
