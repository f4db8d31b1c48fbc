"""The house: no room below the studies knows one by name, and a study's parts are imported by whoever needs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import crosslayer
from crosslayer.studies import STUDIES

LIBRARY = Path(crosslayer.__file__).parent


ALSO_A_WORD = {
    "early-data": {"vocabulary.py", "commands/stub.py", "testbed/server.py"},  # of resumption
    "gateway": {"testbed/network.py"},  # of a route
    "loss": {"links.py"},  # of tc
    "resolvers": {"resolvers/plan.py", "commands/compare.py"},  # its study, and its argument
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_named_in_the_studies_rooms_only(name: str) -> None:
    quoted = re.compile(rf"""["'`]{re.escape(name)}["'`]""")
    found = {
        str(path.relative_to(LIBRARY))
        for path in LIBRARY.rglob("*.py")
        if quoted.search(path.read_text(encoding="utf-8")) and path.relative_to(LIBRARY).parts[0] != "studies"
    }
    assert found <= ALSO_A_WORD.get(name, set())


def _imported(statement: str) -> set[str]:
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.slow
def test_analysis_imports_no_browser_and_measuring_no_charts() -> None:
    parts = "from crosslayer.studies import STUDIES\nfor study in STUDIES.values(): study."
    assert not {"selenium", "aioquic", "pyroute2"} & _imported(f"{parts}figures; study.claims")
    assert not {"altair", "vl_convert"} & _imported(f"{parts}measured_by or study.measurer")


def test_the_library_itself_imports_next_to_nothing() -> None:
    assert not {"polars", "altair", "selenium", "aioquic", "numpy"} & _imported("import crosslayer, crosslayer.cli")


def test_every_study_explains_itself_and_has_its_parts() -> None:
    for study in STUDIES.values():
        assert study.sections
        assert {figure.notebook for figure in study.figures} <= {section.notebook for section in study.sections}
        assert set(study.headlines) <= set(study.claims.checks if study.claims else ())
        assert (study.claims is not None) or not study.headlines
