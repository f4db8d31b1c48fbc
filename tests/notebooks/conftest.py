"""run_all, executed once for everybody who looks at what it made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import papermill
import pytest

import synthetic

FOLDER = Path(__file__).parents[2] / "notebooks"


@dataclass(frozen=True)
class WholeRun:
    """What run_all made of a dataset."""

    notebook: Path
    """It, with its outputs."""
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
    """Of a synthetic campaign of the coalescing study; every other study's is the committed one."""
    folder = tmp_path_factory.mktemp("run_all")
    dataset = synthetic.write(folder / "dataset", rounds=7, failures=0.02)
    return WholeRun(run_all(folder, campaign=str(dataset), figures=str(folder / "figures")), folder / "figures")
