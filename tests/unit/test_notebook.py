"""What the notebooks call: opening and showing, parameters, the measuring child, running all."""

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
from typing import Any

import polars as pl
import pytest

import crosslayer
import synthetic
from crosslayer import notebooks, published, resources
from crosslayer.figures import FigureError
from crosslayer.notebooks import NotebookError, figure_view, measuring, run, session
from crosslayer.report import drawing

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("d"), links=["fiber"], pages=["example.org"], rounds=7)


def start(**changed: object) -> notebooks.Run:
    parameters = {
        "size": "quick",
        "clock": "wall",
        "campaign": "",
        "studies": ["coalescing"],
        "figures": "figures",
    } | changed
    return notebooks.start(**parameters)  # type: ignore[arg-type]


# Opening


def test_importing_crosslayer_is_light() -> None:
    heavy = "import sys, crosslayer; sys.exit(bool({'polars', 'altair', 'pyarrow', 'IPython'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        crosslayer.opne  # noqa: B018


def test_tables_are_attributes_and_listed(folder: Path) -> None:
    study = crosslayer.open(folder)
    assert {"page_loads", "dns_exchanges", "lookups"} <= set(dir(study.tables))
    loads = study.tables.page_loads
    assert isinstance(loads, pl.LazyFrame)
    assert loads.collect()["link"].unique().to_list() == ["fiber"]
    assert study.tables.lookups.collect().is_empty()
    assert study.campaign.study == "coalescing"
    with pytest.raises(AttributeError, match="no table loads; tables are: dns_exchanges"):
        study.tables.loads  # noqa: B018


def test_an_opened_campaign_says_what_it_is(folder: Path) -> None:
    study = crosslayer.open(folder, notice="Mind the gap.")
    assert study._repr_markdown_().startswith("> **Note.** Mind the gap.")
    assert "Links: fiber. Pages: example.org." in study._repr_markdown_()
    assert repr(study).startswith("Campaign synthetic")


def test_a_figure_is_named_or_the_beginning_of_it(folder: Path) -> None:
    study = crosslayer.open(folder)
    assert study.figure("fig05").figure.name == "fig05-dns-exchange"
    assert study.figure("fig05") is study.figure("fig05-dns-exchange")
    assert study.figure("early-data").figure.name == "early-data"  # although another begins with it
    with pytest.raises(NotebookError, match=r"there are 2 figures 'fig1'\.|there are 3 figures 'fig1'"):
        study.figure("fig1")
    with pytest.raises(
        NotebookError, match=r"there is no figure 'fig5-dns-exchange'\. Choose one of: fig05-dns-exchange"
    ):
        study.figure("fig5-dns-exchange")


@pytest.mark.slow
def test_a_figure_has_rows_table_and_chart_and_saves_itself(folder: Path, tmp_path: Path) -> None:
    figure = crosslayer.open(folder).figure("fig05")
    assert figure.rows.height
    assert figure.table is not None
    assert "DoQ" in figure.table["series"].to_list()
    assert figure.chart.to_dict(validate=False)["datasets"]
    assert "Campaign synthetic" in figure.caption
    assert figure.verdict is None
    paths = figure.save(tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == sorted(path.name for path in paths.values())


def test_a_figure_shows_itself_with_tooltips_and_as_a_picture(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown_: list[object] = []
    monkeypatch.setattr(figure_view, "display", lambda *objects, **_: shown_.extend(objects))
    crosslayer.open(folder).figure("failures")._ipython_display_()
    bundle, caption = shown_
    assert {"image/png", "text/plain", "application/vnd.vegalite.v5+json"} == set(bundle)  # type: ignore[call-overload]
    assert caption.data.startswith("**Failed observations.** ")  # type: ignore[attr-defined]


def test_figures_are_saved_only_where_a_folder_is_given(folder: Path, tmp_path: Path) -> None:
    crosslayer.open(folder, figures=tmp_path / "figures").figure("failures")
    assert (tmp_path / "figures" / "coalescing" / "failures.csv").is_file()
    crosslayer.open(folder).figure("failures")
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]


def test_a_figure_that_cannot_be_drawn_shows_its_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise FigureError("too many rows", where="failures")

    monkeypatch.setattr(drawing, "draw", fail)
    study = crosslayer.open(folder, figures=tmp_path)
    figure = study.figure("failures")
    assert "too many rows" in study.table("failures").data
    assert "too many rows" in figure.error
    with pytest.raises(FigureError, match="too many rows"):
        figure.rows  # noqa: B018
    assert "too many rows" in (tmp_path / "coalescing" / "failures.json").read_text()


def test_tables_verdicts_and_claims_keep_their_rows(folder: Path) -> None:
    study = crosslayer.open(folder)
    table = study.table("fig05-dns-exchange")
    assert table.rows is not None
    assert "| DoQ |" in table.data
    verdicts = study.claims()
    assert verdicts.rows is not None
    assert verdicts.rows.height == published.load().claims.filter(kind="result").height
    assert verdicts.data.count("\n| T") == verdicts.rows.filter(pl.col("verdict") != "not measured").height > 0
    with pytest.raises(NotebookError, match="answers no question"):
        study.verdict("fig05")
    with pytest.raises(NotebookError, match="has no table"):
        study.table("fig09")


def test_which_campaign_must_be_named() -> None:
    with pytest.raises(NotebookError, match="no campaign is named"):
        crosslayer.open()


# Parameters


def test_known_parameters_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "notebooks")
    begun = start(studies="coalescing", figures="figures/mine")
    assert (begun.size, begun.campaign, begun.figures) == ("quick", None, ROOT / "figures/mine")


DECLARED = 'campaign = "x"  # a folder\nfigures: str = "y"\nnotice = ""'


def test_an_unknown_parameter_is_an_error() -> None:
    with pytest.raises(NotebookError, match="unknown parameter campain, rounds"):
        session.check_parameters(["", "import crosslayer", DECLARED, '# Parameters\ncampain = "x"\nrounds = 3\n'])


def test_what_is_no_parameter_is_no_concern() -> None:
    injected = '# Parameters\ncampaign = "z"\n'
    for cells in (
        ["", "import crosslayer", DECLARED, injected],
        [DECLARED, "study = crosslayer.open(campaign)", "rows = 3"],
        ["import crosslayer", "# Parameters\nmine = 3\n"],
        ["%matplotlib inline", injected],
        [],
    ):
        session.check_parameters(cells)


def test_an_unknown_size_is_an_error() -> None:
    with pytest.raises(NotebookError, match=r"size: there is no size 'huge'\. Choose from: smoke, quick, paper"):
        start(size="huge")


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
    if resources.home() is None:
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
    return measuring.measure("coalescing", "smoke", folder)


def test_the_last_line_of_output_is_the_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body = r"""
    printf 'Measuring over uml\n' >&2
    printf '\r 10%%|#' >&2; printf '\r100%%|#####\n' >&2
    echo some other line
    echo data/raw/x
    """
    assert measure(tmp_path, body, monkeypatch) == (tmp_path / "data/raw/x", "")
    assert capsys.readouterr().out.endswith("Measuring over uml\n100%|#####\n")


def test_a_machine_that_cannot_measure_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure(tmp_path, "echo 'no netem here' >&2; exit 3", monkeypatch) == (None, "no netem here")


def test_a_failed_measurement_is_an_error_with_its_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotebookError, match="the disk is full") as error:
        measure(tmp_path, "echo 'the disk is full' >&2; exit 1", monkeypatch)
    assert "run the notebook again" in error.value.next_step


@pytest.mark.parametrize("status", [1, 2, 4, 130])
def test_a_run_that_broke_never_shows_another_campaign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(sys, "executable", fake_crosslayer(tmp_path, f"echo 'netem is gone' >&2; exit {status}"))
    begun = notebooks.Run(tmp_path, "smoke", ("coalescing",), None, tmp_path / "figures")
    with pytest.raises(NotebookError, match="netem is gone"):
        begun.measure()
    assert begun.campaign is None


def test_a_measurement_that_names_no_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotebookError, match="ended with status 0"):
        measure(tmp_path, "exit 0", monkeypatch)


def test_the_arguments_are_those_of_crosslayer_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = measure(tmp_path, 'echo "$*"', monkeypatch)
    assert folder == tmp_path / "-m crosslayer measure --study coalescing --size smoke"


KERNEL = """
import pathlib, sys
from crosslayer.notebooks import measuring
sys.executable = sys.argv[1]
measuring.measure("coalescing", "smoke", pathlib.Path("/"))
"""


@pytest.mark.slow
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


def _wait_until(condition: object, seconds: float = 300.0) -> None:
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


def test_measuring_falls_back_to_the_committed_campaign_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = tmp_path / "data" / "raw" / "coalescing"
    synthetic.write(committed, links=["fiber"], pages=["example.org"], rounds=2)
    monkeypatch.setattr(measuring, "measure", lambda *_: (None, "There is no Chromium."))
    begun = notebooks.Run(tmp_path, "smoke", ("coalescing",), None, tmp_path / "figures")
    top = begun.measure()
    assert begun.campaign == committed
    assert begun.notice.startswith("This machine cannot measure, so the committed campaign is shown.")
    assert "There is no Chromium." in top.data


def test_a_question_that_cannot_be_measured_shows_the_committed_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", lambda *_: (None, "There is no Chromium."))
    study = crosslayer.open("", study="key-share", size="smoke")
    assert study.dataset.folder == ROOT / "data" / "raw" / "key-share"
    assert study._repr_markdown_().startswith("> **Note.** This machine cannot measure")


def test_a_study_that_was_not_asked_for_is_not_measured(tmp_path: Path) -> None:
    committed = tmp_path / "data" / "raw" / "coalescing"
    synthetic.write(committed, links=["fiber"], pages=["example.org"], rounds=2)
    begun = notebooks.Run(tmp_path, "smoke", ("key-share",), None, tmp_path / "figures")
    begun.measure()
    assert begun.campaign == committed
    assert begun.notice == "The study coalescing was not asked for, so its committed campaign is shown."


def test_a_question_refuses_a_dataset_of_another_study(folder: Path) -> None:
    with pytest.raises(NotebookError, match="campaign of the study coalescing, not of key-share"):
        crosslayer.open(folder, study="key-share", size="quick", figures="figures", notice="")


def test_tables_are_markdown_with_four_digits_and_no_null() -> None:
    table = pl.DataFrame({"link": ["fiber"], "median_ms": [14.76543], "published": [None], "n": [3]})
    assert figure_view.table(table).data == (
        "| link | median ms | published | n |\n| --- | ---: | --- | ---: |\n| fiber | 14.77 | – | 3 |"
    )


def test_a_figure_that_does_not_exist_is_an_error(folder: Path) -> None:
    with pytest.raises(NotebookError, match="no figure 'xyz'"):
        crosslayer.open(folder).figure("xyz")


@pytest.mark.parametrize("failed", [False, True])
def test_run_all_says_at_the_end_which_figures_failed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    messages: list[object] = []
    monkeypatch.setattr(run, "display", lambda *objects: messages.extend(objects))
    if failed:
        (tmp_path / "figures" / "key-share").mkdir(parents=True)
        about = {"name": "key-share-cost", "campaign": "other", "error": "key-share-cost: too many rows"}
        spec = json.dumps({"usermeta": {"crosslayer": about}})
        (tmp_path / "figures" / "key-share" / "key-share-cost.json").write_text(spec)
    begun = notebooks.Run(tmp_path, "smoke", (), folder, tmp_path / "figures")
    if failed:
        with pytest.raises(NotebookError, match="1 could not be drawn: key-share-cost: too many rows"):
            begun.report()
    else:
        begun.report()
    assert "Figures and claims on one page: `figures/index.html`" in messages[0].data  # type: ignore[attr-defined]
    assert (tmp_path / "figures" / "index.html").is_file()


def test_run_all_gives_the_reason_if_no_claim_can_be_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[Any] = []
    monkeypatch.setattr(run, "display", lambda *objects: messages.extend(objects))
    few = synthetic.write(tmp_path / "few", links=["fiber"], pages=["example.org"], rounds=2)
    notebooks.Run(tmp_path, "smoke", (), few, tmp_path / "figures").report()
    assert "No claim could be judged. Only 2 rounds measured, a number needs 3. Campaign " in messages[0].data


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
    notebooks.server_cost(results=results, figures=figures)
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
            notebooks.server_cost(results=results, figures="f")
