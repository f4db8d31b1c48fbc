"""Paths in notebooks, which are relative to the checkout."""

from __future__ import annotations

from pathlib import Path

from crosslayer.notebooks.errors import NotebookError


def find_root() -> Path:
    """Find the checkout: the working folder or a folder above it, else the checkout that contains this package.

    Raises
    ------
    NotebookError
        If there is no checkout.
    """
    if root := _checkout():
        return root
    raise NotebookError(
        "not in a checkout of crosslayer",
        where=str(Path.cwd()),
        next_step="Start Jupyter or papermill inside the checkout.",
    )


def existing(path: str | Path) -> Path:
    """Path for reading: relative to the checkout if the file or folder exists there, else to the working folder."""
    root = _checkout()
    return root / path if root and (root / path).exists() else Path(path).absolute()


def fresh(path: str | Path) -> Path:
    """Path for writing: relative to the checkout, or to the working folder if there is no checkout."""
    return (_checkout() or Path.cwd()) / path


def _checkout() -> Path | None:
    here = Path.cwd()
    folders = (here, *here.parents, Path(__file__).parents[3])
    return next((folder for folder in folders if (folder / "notebooks" / "run_all.ipynb").is_file()), None)
