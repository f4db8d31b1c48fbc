"""Packages: none below the studies names one, and a part of a study is imported only where it is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import crosslayer
from crosslayer.studies import STUDIES

LIBRARY = Path(crosslayer.__file__).parent
ROOT = Path(__file__).parents[2]


ALSO_A_WORD = {
    # of resumption, and of a command of the servers
    "early-data": {"vocabulary.py", "commands/stub.py", "testbed/server.py", "testbed/aioquic_server/__main__.py"},
    "gateway": {"testbed/network.py"},  # of a route
    "loss": {"links.py"},  # of tc
    "resolvers": {"resolvers/plan.py", "commands/compare.py"},  # its study, and its argument
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_named_in_the_studies_only(name: str) -> None:
    quoted = re.compile(rf"""["'`]{re.escape(name)}["'`]""")
    results = {
        str(path.relative_to(LIBRARY))
        for path in LIBRARY.rglob("*.py")
        if quoted.search(path.read_text(encoding="utf-8")) and path.relative_to(LIBRARY).parts[0] != "studies"
    }
    assert results <= ALSO_A_WORD.get(name, set())


def _imported(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_analysis_imports_no_browser_and_measuring_no_charts() -> None:
    parts = "from crosslayer.studies import STUDIES\nfor study in STUDIES.values(): study."
    assert not {"selenium", "aioquic", "pyroute2"} & _imported(f"{parts}figures; study.claims")
    assert not {"altair", "vl_convert"} & _imported(f"{parts}measured_by or study.measurer")
    assert not {"altair", "polars"} & _imported("import crosslayer.testbed.run_command")


def test_the_library_itself_imports_next_to_nothing() -> None:
    assert not {"polars", "altair", "selenium", "aioquic", "numpy"} & _imported("import crosslayer, crosslayer.cli")


def test_every_study_explains_itself_and_has_its_parts() -> None:
    for study in STUDIES.values():
        assert study.sections
        assert {figure.notebook for figure in study.figures} <= {section.notebook for section in study.sections}
        assert set(study.headlines) <= set(study.claims.checks if study.claims else ())
        assert (study.claims is not None) or not study.headlines


@pytest.fixture(scope="module")
def linted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A function that adds a study with a `measure.py` to a copy of the library, and checks the order of imports."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "lib", tree / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    study = tree / "lib" / "crosslayer" / "studies" / "added"
    study.mkdir()
    (study / "__init__.py").write_text("")

    def run(measure: str) -> subprocess.CompletedProcess[str]:
        (study / "measure.py").write_text(measure)
        return subprocess.run(
            [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree / "lib"), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("from crosslayer.studies.loss import STUDY\n", ""),
        (
            "from crosslayer.studies.loss.measure import Loss\n",
            "crosslayer.studies.added.measure -> crosslayer.studies.loss.measure",
        ),
        ("from crosslayer.report import Drawer\n", "crosslayer.studies is not allowed to import crosslayer.report"),
    ],
)
def test_a_new_study_may_import_only_the_package_of_another(
    linted: Callable[[str], subprocess.CompletedProcess[str]], measure: str, message: str
) -> None:
    done = linted(measure)
    assert done.returncode == bool(message), done.stdout
    assert message in done.stdout
