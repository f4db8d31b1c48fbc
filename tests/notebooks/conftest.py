"""run_all, executed once for all tests of what it makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import papermill
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"


@dataclass(frozen=True)
class WholeRun:
    """What run_all makes of the committed campaigns."""

    notebook: Path
    """The executed run_all."""
    notebooks: Path
    """Folder of the executed notebooks that run_all runs."""
    figures: Path


def run_all(folder: Path, **parameters: Any) -> Path:
    """Execute run_all with parameters; the notebook with its outputs."""
    executed = folder / "out.ipynb"
    papermill.execute_notebook(
        str(FOLDER / "run_all.ipynb"),
        str(executed),
        parameters=parameters,
        cwd=str(FOLDER),
        progress_bar=False,
        extra_arguments=["--log-level=ERROR"],
    )
    return executed


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """Every notebook of a study on its committed campaign, executed once."""
    folder = tmp_path_factory.mktemp("run_all")
    executed = run_all(folder, campaign=str(ROOT / "data" / "raw" / "coalescing"), figures=str(folder / "figures"))
    return WholeRun(executed, ROOT / "build" / "notebooks", folder / "figures")
