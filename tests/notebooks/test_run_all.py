"""The notebooks as files and as a whole: thin, parameterised, and they run from a dataset to the page of figures."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import vl_convert
from papermill.exceptions import PapermillExecutionError

from crosslayer.studies import STUDIES
from tests.compare_figures import differing
from tests.notebooks.conftest import WholeRun, run_all

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
FIGURES = [(study.name, figure.name) for study in STUDIES.values() for figure in study.figures]
OF_STUDIES = {section.notebook: study for study in STUDIES.values() for section in study.sections}
CHART = "application/vnd.vegalite.v5+json"
VEGA_LITE_IN_JUPYTERLAB = "5.21"
ALL = ("run_all", *OF_STUDIES, "clocks", "server_cost", "cluster")


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def cells_of(name: str) -> list[Any]:
    return [cell for cell in read(FOLDER / f"{name}.ipynb").cells if cell.cell_type == "code"]


@pytest.mark.parametrize("name", ALL)
def test_a_notebook_holds_imports_parameters_and_calls(name: str) -> None:
    cells = cells_of(name)
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    for cell in cells:
        for statement in ast.parse(cell.source).body:
            if cell is tagged[0]:
                assert isinstance(statement, ast.Assign)
            else:
                assert isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr))
                if isinstance(statement, (ast.Assign, ast.Expr)):
                    assert isinstance(statement.value, (ast.Call, ast.Name))  # a name shows itself


def test_every_notebook_is_known() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {*ALL, "explore"}


def test_exploring_takes_twenty_lines() -> None:
    """From the import to the figure, as one would write them."""
    statements = [statement for cell in cells_of("explore") for statement in ast.parse(cell.source).body]
    assert len(statements) <= 20


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_notebook_shows_the_figures_that_belong_to_it(name: str) -> None:
    source = "\n".join(cell.source for cell in cells_of(name))
    shown = re.findall(r'study\.figure\("([^"]+)"\)', source)
    own = {figure.name: figure for figure in OF_STUDIES[name].figures if figure.notebook == name}
    assert sorted(shown) == sorted(own)
    assert set(re.findall(r'study\.table\("([^"]+)"\)', source)) == {name for name in shown if own[name].table}
    assert set(re.findall(r'study\.verdict\("([^"]+)"\)', source)) == {name for name in shown if own[name].verdict}


def test_run_all_makes_every_figure_and_the_page(whole_run: WholeRun) -> None:
    executed, figures = read(whole_run.notebook), whole_run.figures
    for study, name in FIGURES:
        page = (figures / study / "index.html").read_text()
        for ending in ("svg", "png", "json", "csv"):
            assert (figures / study / f"{name}.{ending}").stat().st_size > 0
        assert f'<figure id="{name}"' in page
    assert '<tr id="T079"' in (figures / "claims.html").read_text()
    assert (figures / "index.html").stat().st_size <= 300_000
    assert (figures / "coalescing" / "claims.parquet").stat().st_size > 0
    pictures = [out for cell in executed.cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
    assert len(pictures) == len(FIGURES)
    errors = [out for cell in executed.cells for out in cell.get("outputs", []) if out.get("name") == "stderr"]
    assert not errors


def test_figures_are_those_that_are_committed(whole_run: WholeRun) -> None:
    drawn = {(path.parent.name, path.stem) for path in whole_run.figures.glob("*/*.csv")}
    assert drawn == set(FIGURES)
    assert differing(whole_run.figures) == []


@pytest.mark.parametrize("name", OF_STUDIES)
def test_jupyterlab_can_draw_the_figures_of_a_notebook(whole_run: WholeRun, name: str) -> None:
    """With the rows as CSV, as notebooks store them, and the version of Vega-Lite that JupyterLab has."""
    outputs = [out for cell in read(whole_run.notebooks / f"{name}.ipynb").cells for out in cell.get("outputs", [])]
    charts = [out.data[CHART] for out in outputs if CHART in out.get("data", {})]
    assert len(charts) >= sum(figure.notebook == name for figure in OF_STUDIES[name].figures)
    for chart in charts:
        vl_convert.vegalite_to_vega(json.dumps(chart), vl_version=VEGA_LITE_IN_JUPYTERLAB)


def shown(notebook: Path) -> list[tuple[str, Any]]:
    """Source and outputs of each code cell, but for the cell that papermill adds."""
    cells = [cell for cell in read(notebook).cells if cell.cell_type == "code"]
    return [
        (cell.source, [(out.output_type, out.get("name"), out.get("text"), out.get("data")) for out in cell.outputs])
        for cell in cells
        if "injected-parameters" not in cell.metadata.get("tags", [])
    ]


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_notebook_shows_what_is_committed(whole_run: WholeRun, name: str) -> None:
    """Every table, verdict and line of output; pictures and provenance are left out, as nbval leaves them out."""
    committed, executed = shown(FOLDER / f"{name}.ipynb"), shown(whole_run.notebooks / f"{name}.ipynb")
    assert [source for source, _ in executed] == [source for source, _ in committed]
    compared = [
        number
        for number, cell in enumerate(cells_of(name))
        if "nbval-ignore-output" not in cell.metadata.get("tags", [])
    ]
    assert [executed[number] for number in compared] == [committed[number] for number in compared]
    assert any(outputs for _, outputs in (executed[number] for number in compared))


def test_an_unknown_parameter_stops_run_all(tmp_path: Path) -> None:
    with pytest.raises(PapermillExecutionError, match="unknown parameter campain"):
        run_all(tmp_path, campain="data/raw/coalescing")


def test_papermill_itself_refuses_an_unknown_parameter(tmp_path: Path) -> None:
    """As a user types it, on a notebook of one study too."""
    for name in ("run_all", "question_key_share"):
        command = [sys.executable, "-m", "papermill", f"notebooks/{name}.ipynb", str(tmp_path / "out.ipynb")]
        output = subprocess.run([*command, "-p", "profil", "x"], cwd=ROOT, capture_output=True, text=True, check=False)
        assert output.returncode != 0
        assert "NotebookError: parameters: unknown parameter profil." in output.stderr
        assert "Parameters are: campaign, " in output.stderr


def test_a_dataset_that_is_not_there_stops_run_all(tmp_path: Path) -> None:
    with pytest.raises(PapermillExecutionError, match="no such dataset folder"):
        run_all(tmp_path, campaign=str(tmp_path / "nowhere"))
