"""Draw a dataset's figures, in several processes if this is faster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path

from crosslayer import published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import Drawing, Figure, FigureError, Inputs, clocks, draw
from crosslayer.figures.hosts import HOSTS
from crosslayer.figures.sentences import differing
from crosslayer.report.files import ENDINGS, save_drawing, save_failure
from crosslayer.report.made import Made
from crosslayer.studies import STUDIES

_WORTH_PROCESSES = 6
"""Minimum number of figures for several processes. With fewer figures, the processes save less time than they cost."""
_ONE_AT_A_TIME = 5_000_000
"""Maximum number of rows of a dataset for several processes. One process draws the figures of a larger dataset.

These figures need much memory, and each of them uses all cores.
"""


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def draw_all(dataset: Dataset, others: Sequence[Dataset], folder: Path, processes: int) -> dict[str, str]:
    """Draw and save the figures that are missing or outdated in the folder.

    Returns the errors of the figures that failed, by name of the figure.
    """
    drawer = Drawer(dataset, others)
    made = Made(dataset, others, folder)
    names = [figure.name for figure in drawer.figures if not made.has(figure.name)]
    large = sum(dataset.campaign.rows.values()) > _ONE_AT_A_TIME
    if processes == 1 or large or len(names) < _WORTH_PROCESSES:
        errors = [_error(drawer, folder, name) for name in names]
    else:
        # Spawned, not forked: polars has threads, so a forked process may deadlock.
        with ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(dataset, others, folder)
        ) as pool:
            errors = list(pool.map(_draw, names))
    drawn = [name for name, error in zip(names, errors, strict=True) if not error]
    made.remember({name: [f"{name}.{ending}" for ending in ENDINGS] for name in drawn})
    return {name: error for name, error in zip(names, errors, strict=True) if error}


class Drawer:
    """Draws the figures of a dataset.

    Figures that compare clocks need a second campaign: the first of `others` that has another clock than the dataset.
    """

    def __init__(self, dataset: Dataset, others: Sequence[Dataset] = ()) -> None:
        self.dataset = dataset
        self.other = next((other for other in others if other.campaign.clock != dataset.campaign.clock), None)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """Figures of the study, then those that compare clocks or hosts, if there are two clocks or several hosts."""
        study = STUDIES.get(self.dataset.campaign.study)
        of_study = study.figures if study else ()
        of_clocks = clocks.figures(study.name, study.condition_titles) if study and self.other else ()
        several = len(self.dataset.campaign.hosts) > 1 and self.dataset.files["page_loads"]
        return (*of_study, *of_clocks, *((HOSTS,) if several else ()))

    def draw(self, figure: Figure) -> Drawing:
        """Draw a figure.

        Raises
        ------
        FigureError
            If it cannot be drawn.
        """
        if figure.notebook != clocks.NOTEBOOK:
            return draw(figure, self._inputs, self.dataset.caption)
        assert self.other is not None
        by_clock = {of.campaign.clock: of for of in (self.dataset, self.other)}
        inputs = {self.dataset.campaign.clock: self._inputs, self.other.campaign.clock: self._inputs_of_other}
        captions = f"{by_clock['wall'].caption} {by_clock['virtual'].caption}"
        return draw(figure, clocks.BothClocks(inputs["wall"], inputs["virtual"]), captions)

    def verdict_virtual(self, figure: Figure, verdict: str) -> str:
        """The second campaign's answer to a figure's question, without the sentences that are also in `verdict`.

        `verdict` is the answer from the first campaign. If no sentence remains, the result is "As in real time.". The
        result is empty unless the second campaign is in virtual time.

        Raises
        ------
        FigureError
            If the campaign in virtual time cannot be drawn.
        """
        other = self.other
        if figure.verdict is None or figure.notebook == clocks.NOTEBOOK or not other:
            return ""
        if other.campaign.clock != "virtual":
            return ""
        virtual = draw(figure, self._inputs_of_other, other.caption).verdict or ""
        return virtual and (differing(verdict, virtual) or "As in real time.")

    def save(self, figure: Figure, folder: Path) -> Drawing:
        """Draw and save a figure; if it cannot be drawn, save the error in its place.

        Raises
        ------
        FigureError
            As for `draw`, after the error is saved.
        """
        about = {"compared_with": self.other.campaign.campaign} if self.other else {}
        try:
            drawing = self.draw(figure)
            if virtual := self.verdict_virtual(figure, drawing.verdict or ""):
                about |= {"verdict_virtual": virtual}
            save_drawing(drawing, self.dataset, folder, **about)
        except FigureError as error:
            save_failure(figure, error, self.dataset, folder)
            raise
        return drawing

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs.of(self.dataset, published.load())

    @cached_property
    def _inputs_of_other(self) -> Inputs:
        assert self.other is not None
        return Inputs.of(self.other, published.load())


_drawers: list[tuple[Drawer, Path]] = []
"""Drawer and output folder of this drawing process; empty in the main process."""


def _begin(dataset: Dataset, others: Sequence[Dataset], folder: Path) -> None:
    _drawers.append((Drawer(dataset, others), folder))


def _draw(name: str) -> str:
    [(drawer, folder)] = _drawers
    return _error(drawer, folder, name)


def _error(drawer: Drawer, folder: Path, name: str) -> str:
    """Draw and save a figure; returns the error, or an empty text."""
    [figure] = [figure for figure in drawer.figures if figure.name == name]
    try:
        drawer.save(figure, folder)
    except FigureError as error:
        return str(error)
    return ""
