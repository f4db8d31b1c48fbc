"""Drawing a dataset's figures, over processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from crosslayer import published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import Figure, FigureError, Inputs, clocks, draw
from crosslayer.report import page
from crosslayer.report.files import save_drawing, save_failure
from crosslayer.studies import STUDIES

_WORTH_PROCESSES = 6
"""Figures from which on processes draw more than they take to start."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def draw_all(dataset: Dataset, others: Sequence[Dataset], folder: Path, processes: int) -> dict[str, str]:
    """Draw and save every figure of a dataset's study; those that could not be drawn by name, and why.

    Beside a campaign by the other clock, what both say is drawn too, and who asks a question is answered by both.
    """
    beside = next((other for other in others if other.campaign.clock != dataset.campaign.clock), None)
    study = STUDIES.get(dataset.campaign.study)
    figures = study.figures if study else ()
    if processes == 1 or len(figures) < _WORTH_PROCESSES:
        errors = _Drawer(dataset, beside, folder).errors(figures)
    else:
        # Not forked: polars has threads, and a fork of those may wait for ever.
        with ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(dataset, beside, folder)
        ) as pool:
            drawn = pool.map(_draw, (figure.name for figure in figures))
            page.script()  # takes as long as a few figures, and nothing of them
            errors = drawn
    failed = {figure.name: error for figure, error in zip(figures, errors, strict=True) if error}
    return failed | (_draw_clocks(dataset, beside, folder) if beside else {})


def _draw_clocks(dataset: Dataset, other: Dataset, folder: Path) -> dict[str, str]:
    """The figures that have both clocks; those that could not be drawn."""
    wall, virtual = (dataset, other) if other.campaign.clock == "virtual" else (other, dataset)
    values = published.load()
    both = clocks.Beside(Inputs.of(wall, values), Inputs.of(virtual, values))
    failed = {}
    for figure in clocks.figures(dataset.campaign.study):
        try:
            drawing = draw(figure, both, f"{wall.caption} {virtual.caption}")
            save_drawing(drawing, dataset, folder, beside=other.campaign.campaign)
        except FigureError as error:
            save_failure(figure, error, dataset, folder)
            failed[figure.name] = str(error)
    return failed


class _Drawer:
    """A dataset, ready to be drawn."""

    def __init__(self, dataset: Dataset, beside: Dataset | None, folder: Path) -> None:
        self.dataset, self.folder = dataset, folder
        self._inputs = Inputs.of(dataset, published.load())
        self._virtual = beside if beside and beside.campaign.clock == "virtual" else None

    def errors(self, figures: tuple[Figure, ...]) -> Iterator[str]:
        """Draw and save; for each figure why it could not be drawn, or an empty text."""
        for figure in figures:
            try:
                drawing = draw(figure, self._inputs, self.dataset.caption)
                about = {"verdict_virtual": verdict_of(figure, self._virtual)} if self._virtual else {}
                save_drawing(drawing, self.dataset, self.folder, **about)
                yield ""
            except FigureError as error:
                save_failure(figure, error, self.dataset, self.folder)
                yield str(error)


def verdict_of(figure: Figure, dataset: Dataset) -> str:
    """The answer to a figure's question by another campaign; empty where it asks none.

    Raises
    ------
    FigureError
        Where that campaign cannot be drawn.
    """
    if figure.verdict is None:
        return ""
    return draw(figure, Inputs.of(dataset, published.load()), dataset.caption).verdict or ""


_drawers: list[_Drawer] = []
"""That of a drawing process."""


def _begin(dataset: Dataset, beside: Dataset | None, folder: Path) -> None:
    _drawers.append(_Drawer(dataset, beside, folder))


def _draw(name: str) -> str:
    (drawer,) = _drawers
    figures = STUDIES[drawer.dataset.campaign.study].figures
    return next(drawer.errors(tuple(figure for figure in figures if figure.name == name)))
