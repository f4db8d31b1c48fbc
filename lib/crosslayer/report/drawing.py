"""Drawing a dataset's figures, over processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from crosslayer import published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import Figure, FigureError, Inputs, draw
from crosslayer.report import page
from crosslayer.report.files import save_drawing, save_failure
from crosslayer.studies import STUDIES

_WORTH_PROCESSES = 6
"""Figures from which on processes draw more than they take to start."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def draw_all(dataset: Dataset, folder: Path, processes: int) -> dict[str, str]:
    """Draw and save every figure of a dataset's study; those that could not be drawn by name, and why."""
    study = STUDIES.get(dataset.campaign.study)
    figures = study.figures if study else ()
    if processes == 1 or len(figures) < _WORTH_PROCESSES:
        errors = _Drawer(dataset, folder).errors(figures)
    else:
        # Not forked: polars has threads, and a fork of those may wait for ever.
        with ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(dataset, folder)
        ) as pool:
            drawn = pool.map(_draw, (figure.name for figure in figures))
            page.script()  # takes as long as a few figures, and nothing of them
            errors = drawn
    return {figure.name: error for figure, error in zip(figures, errors, strict=True) if error}


class _Drawer:
    """A dataset, ready to be drawn."""

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        self.dataset, self.folder = dataset, folder
        self._inputs = Inputs.of(dataset, published.load())

    def errors(self, figures: tuple[Figure, ...]) -> Iterator[str]:
        """Draw and save; for each figure why it could not be drawn, or an empty text."""
        for figure in figures:
            try:
                save_drawing(draw(figure, self._inputs, self.dataset.caption), self.dataset, self.folder)
                yield ""
            except FigureError as error:
                save_failure(figure, error, self.dataset, self.folder)
                yield str(error)


_drawers: list[_Drawer] = []
"""That of a drawing process."""


def _begin(dataset: Dataset, folder: Path) -> None:
    _drawers.append(_Drawer(dataset, folder))


def _draw(name: str) -> str:
    (drawer,) = _drawers
    figures = STUDIES[drawer.dataset.campaign.study].figures
    return next(drawer.errors(tuple(figure for figure in figures if figure.name == name)))
