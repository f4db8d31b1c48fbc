"""What the notebooks call: parameters, the measuring child, tables."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import polars as pl
import pytest

from crosslayer import notebook, places
from crosslayer.notebook import NotebookError

ROOT = Path(__file__).parents[2]


def namespace(**values: object) -> dict[str, object]:
    """Globals of a notebook: imports, IPython's own names, and parameters."""
    return {"notebook": notebook, "_i1": "text", "__name__": "__main__", "Path": Path} | values


def start(**changed: object) -> notebook.Run:
    parameters = {"profile": "quick", "campaign": "", "studies": ["coalescing"], "figures": "figures"} | changed
    return notebook.start(namespace(**parameters), **parameters)  # type: ignore[arg-type]


def test_known_parameters_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    run = start(studies="coalescing", figures="figures/mine")
    assert (run.profile, run.campaign, run.figures) == ("quick", None, ROOT / "figures/mine")


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(NotebookError, match="unknown parameter campain, rounds"):
        notebook.open_page(
            namespace(campaign="x", figures="y", notice="", campain="x", rounds=3), campaign="x", figures="y", notice=""
        )


@pytest.mark.parametrize("written", [["single-query", "web"], '["single-query","web"]', "single-query, web"])
def test_studies_are_a_list_however_it_is_written(written: object) -> None:
    assert start(studies=written).studies == ("single-query", "web")


def test_a_broken_list_of_studies_is_an_error() -> None:
    with pytest.raises(NotebookError, match="studies: not a list in JSON"):
        start(studies='["single-query", web]')


def test_an_unknown_study_is_an_error() -> None:
    with pytest.raises(NotebookError, match="no study 'dnssec'"):
        start(studies=["coalescing", "dnssec"])


def test_paths_are_from_the_root_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT / "tests" / "unit")
    assert start(campaign="data/published").campaign == ROOT / "data" / "published"
    if places.home() is None:
        pytest.skip("the package is installed: outside a checkout there is no root")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert start(campaign="mine").campaign == tmp_path / "mine"


def fake_crosslayer(folder: Path, body: str) -> str:
    """A program to run in place of Python: it ignores its arguments."""
    program = folder / "python"
    program.write_text("#!/bin/sh\n" + textwrap.dedent(body))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def measure(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path | None, str]:
    monkeypatch.setattr(sys, "executable", fake_crosslayer(folder, body))
    return notebook._measure("coalescing", "smoke", folder)


def test_the_last_line_of_output_is_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = r"""
    printf 'Measuring over uml\n' >&2
    printf '\r 10%%|#' >&2; printf '\r100%%|#####\n' >&2
    echo some other line
    echo data/raw/x
    """
    assert measure(tmp_path, body, monkeypatch) == (Path("data/raw/x"), "")
    assert capsys.readouterr().out.endswith("Measuring over uml\n100%|#####\n")


def test_a_machine_that_cannot_measure_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure(tmp_path, "echo 'no netem here' >&2; exit 3", monkeypatch) == (None, "no netem here")


def test_a_failed_measurement_is_an_error_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotebookError, match="the disk is full") as error:
        measure(tmp_path, "echo 'the disk is full' >&2; exit 1", monkeypatch)
    assert "goes on from there" in error.value.next_step


def test_the_arguments_are_those_of_crosslayer_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = measure(tmp_path, 'echo "$*"', monkeypatch)
    assert (
        str(folder)
        == f"-m crosslayer measure --study coalescing --profile smoke --out {tmp_path}/data/raw/coalescing-smoke"
    )


KERNEL = """
import pathlib, sys
from crosslayer import notebook, places
sys.executable = sys.argv[1]
notebook._measure("coalescing", "smoke", pathlib.Path("/"))
"""


def test_a_killed_kernel_takes_its_measurement_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = fake_crosslayer(tmp_path, f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60")
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL, program])
    try:
        _wait_until(pid_file.exists)
        child = int(pid_file.read_text())
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
        _wait_until(lambda: not _runs(child))
    finally:
        kernel.kill()
        kernel.wait()


def _wait_until(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_measuring_falls_back_to_the_reference_campaign_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import synthetic

    synthetic.write(tmp_path / notebook.REFERENCE, links=["fiber"], pages=["example.org"], rounds=2)
    monkeypatch.setattr(notebook, "_measure", lambda *_: (None, "There is no Chromium."))
    shown: list[object] = []
    monkeypatch.setattr(notebook, "display", lambda *objects: shown.extend(objects))
    run = notebook.Run(tmp_path, "smoke", ("coalescing",), None, tmp_path / "figures")
    run.measure()
    assert run.campaign == tmp_path / notebook.REFERENCE
    assert run.notice.startswith("This machine cannot measure, so the reference campaign is shown.")
    assert "There is no Chromium." in shown[0].data  # type: ignore[attr-defined]


def test_a_study_that_was_not_asked_for_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import synthetic

    synthetic.write(tmp_path / notebook.REFERENCE, links=["fiber"], pages=["example.org"], rounds=2)
    monkeypatch.setattr(notebook, "display", lambda *_: None)
    run = notebook.Run(tmp_path, "smoke", ("key-share",), None, tmp_path / "figures")
    run.measure()
    assert run.campaign == tmp_path / notebook.REFERENCE
    assert run.notice == "The study coalescing was not asked for, so its reference campaign is shown."


def test_a_question_refuses_a_dataset_of_another_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import synthetic

    folder = synthetic.write(tmp_path / "d", links=["fiber"], pages=["example.org"], rounds=2)
    parameters = {"campaign": str(folder), "profile": "quick", "figures": "figures", "notice": ""}
    with pytest.raises(NotebookError, match="campaign of the study coalescing, not of key-share"):
        notebook.open_question({}, study="key-share", **parameters)


def test_tables_are_markdown_with_four_digits_and_no_null() -> None:
    table = pl.DataFrame({"link": ["fiber"], "median_ms": [14.76543], "published": [None], "n": [3]})
    assert notebook._as_markdown(table) == (
        "| link | median ms | published | n |\n| --- | ---: | --- | ---: |\n| fiber | 14.77 | – | 3 |"
    )


def test_a_figure_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    import synthetic
    from crosslayer.campaign.dataset import Dataset

    folder = synthetic.write(tmp_path / "d", links=["fiber"], pages=["example.org"], rounds=2)
    page = notebook.Page(Dataset.open(folder), tmp_path)
    with pytest.raises(NotebookError, match="no figure 'fig99'"):
        page.show("fig99")


def test_server_cost_is_drawn_from_the_benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    step = {"rate": 500, "cpu_s_per_10000": 1.5, "rss_mb": 60.0, "peak_mb": 61.0, "median_response_ms": 0.3}
    step |= {"late_ms": 0.1, "lost": 0, "held": True}
    result = {
        "queries": 100,
        "bind": "BIND 9",
        "transports": {"ours DoQ": [step], "bind DoT": [step | {"held": False}]},
    }
    results, figures = str(tmp_path / "results.json"), str(tmp_path / "figures")
    whole = {
        "when": "2026-01-01T00:00:00",
        "host": {"cpu": "a CPU"},
        "git": {"revision": "0123456789"},
        "result": result,
    }
    Path(results).write_text(json.dumps(whole), encoding="utf-8")
    notebook.server_cost(namespace(results=results, figures=figures), results=results, figures=figures)
    drawn = pl.read_csv(tmp_path / "figures/server-cost/server-cost.csv")
    assert drawn.select("server", "series", "held").rows() == [
        ("our server (CoreDNS)", "DoQ", True),
        ("BIND 9 alone", "DoT", False),
    ]


def test_results_that_are_not_of_the_benchmark_are_an_error(tmp_path: Path) -> None:
    results = str(tmp_path / "results.json")
    for content in ("{", "{}", '{"result": {}}'):
        Path(results).write_text(content, encoding="utf-8")
        with pytest.raises(NotebookError, match="cannot be read"):
            notebook.server_cost(namespace(results=results, figures="f"), results=results, figures="f")
