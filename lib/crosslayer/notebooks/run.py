"""`run_all.ipynb`: measure, or take a given dataset, run the other notebooks, and make the page of all figures."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from IPython.display import display

from crosslayer import claims, report
from crosslayer.campaign.dataset import Dataset, found_beside
from crosslayer.notebooks import session, shown
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.measuring import committed, measured_or_committed
from crosslayer.notebooks.paths import existing, find_root
from crosslayer.notebooks.shown import Text
from crosslayer.report.files import saved_figures
from crosslayer.studies import DEFAULT, STUDIES
from crosslayer.study import SIZES
from crosslayer.words import Clock


def start(*, size: str, clock: str, campaign: str, studies: str | Sequence[str], figures: str) -> Run:
    """Begin `run_all.ipynb`.

    Parameters
    ----------
    size
        Size of the campaigns to measure: `smoke`, `quick` or `paper`.
    clock
        To measure by: `wall`, or `virtual` in guests.
    campaign
        A dataset folder to analyse instead of measuring; empty to measure.
    studies
        Studies to measure: a list, a list in JSON as `papermill -p` passes it on, or names separated by commas.
    figures
        Folder for figures and the page that shows them.

    Raises
    ------
    NotebookError
        For an unknown parameter, size, clock or study.
    """
    session.begin()
    wanted = _names(studies)
    for where, kind, names, known in (
        ("size", "size", [size], SIZES),
        ("clock", "clock", [clock], tuple(Clock)),
        ("studies", "study", wanted, STUDIES),
    ):
        for name in names:
            if name not in known:
                raise NotebookError(
                    f"there is no {kind} {name!r}", where=where, next_step=f"Choose from: {', '.join(known)}."
                )
    os.environ["CROSSLAYER_CLOCK"] = clock  # the other notebooks measure their studies by it too
    root = find_root()
    return Run(root, size, tuple(wanted), existing(campaign) if campaign else None, root / figures)


def _names(studies: str | Sequence[str]) -> list[str]:
    if not isinstance(studies, str):
        return list(studies)
    if not studies.lstrip().startswith("["):
        return [name.strip() for name in studies.split(",")]
    try:
        return [str(name) for name in json.loads(studies)]
    except ValueError as error:
        raise NotebookError(
            f"not a list in JSON: {error}",
            where="studies",
            next_step=f"Write it as {json.dumps(list(STUDIES)[:2])}.",
        ) from None


@dataclass
class Run:
    """A dataset of the first study, the notebooks on it and on all others, and the page of all figures."""

    root: Path
    size: str
    studies: tuple[str, ...]
    """What may be measured; of the others, the committed campaigns are analysed."""
    campaign: Path | None
    """Dataset folder; None until it is measured."""
    figures: Path
    notice: str = ""
    _shown: set[str] = field(default_factory=set)
    """Notebooks that were run."""

    def measure(self) -> Text:
        """Measure a campaign of this size, unless a dataset was given, and say what is analysed.

        Where this machine cannot measure, the committed campaign is analysed instead, and every page says so.

        Raises
        ------
        NotebookError
            Where measuring broke; finished rounds are safe, running again goes on from there.
        """
        if self.campaign is None and DEFAULT in self.studies:
            self.campaign, self.notice = measured_or_committed(DEFAULT, self.size, self.root)
        elif self.campaign is None:
            self.campaign = committed(DEFAULT, self.root)
            self.notice = f"The study {DEFAULT} was not asked for, so its committed campaign is shown."
        return Text(shown.top(self._dataset, self.notice))

    def notebook(self, name: str) -> None:
        """Run one notebook by papermill and show its figures; the executed copy goes to `build/notebooks`.

        A notebook of another study measures it where it is among the studies asked for, and analyses the committed
        campaign otherwise.

        Raises
        ------
        NotebookError
            With the error of the cell that failed. A figure that cannot be drawn is a box, and `report` tells of it.
        """
        self._shown.add(name)
        study = next((s.name for s in STUDIES.values() if name in {section.notebook for section in s.sections}), None)
        if study == DEFAULT:
            self._execute(name, campaign=str(self._dataset.folder), notice=self.notice)
        elif study in self.studies:
            self._execute(name, campaign="", size=self.size)
        else:
            self._execute(name)
        for saved in saved_figures(self.figures):
            if saved.figure.notebook == name and saved.error:
                display(shown.failure(saved.error))
            elif saved.figure.notebook == name:
                shown.show_saved(self.figures / saved.study.name / f"{saved.figure.name}.png", saved.figure)

    def others(self) -> None:
        """Run the notebooks of all studies that have not been run by name: a study that is added shows itself.

        Raises
        ------
        NotebookError
            As `notebook`.
        """
        for section in (section for study in STUDIES.values() for section in study.sections):
            if section.notebook not in self._shown:
                self.notebook(section.notebook)

    def _execute(self, name: str, **parameters: str) -> None:
        import papermill
        from papermill.exceptions import PapermillExecutionError

        source, target = self.root / "notebooks" / f"{name}.ipynb", self.root / "build" / "notebooks" / f"{name}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            papermill.execute_notebook(
                str(source),
                str(target),
                parameters=parameters | {"figures": str(self.figures)},
                cwd=str(source.parent),
                progress_bar=False,
                extra_arguments=["--log-level=ERROR"],  # else the inner kernel's warnings stand among the figures
            )
        except PapermillExecutionError as error:
            raise NotebookError(
                f"{error.ename} in cell {error.exec_count}: {error.evalue}",
                where=str(source),
                next_step=f"Open {target} to see how far it got.",
            ) from None

    def report(self) -> None:
        """Check the claims, write `index.html` with them and every figure, and say what came out and where it is.

        Raises
        ------
        NotebookError
            When all of that is done, where the page has a box in place of a figure.
        """
        verdicts = report.check_claims(self._dataset)
        report.save_claims(verdicts, self._dataset, self.figures)
        report.check_beside(self._dataset, found_beside(self._dataset), self.figures)
        path = report.write_index(self._dataset, self.figures, notice=self.notice)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(verdicts).items())
        where = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        display(Text(f"Claims: {counts}.\n\nFigures and claims on one page: `{where}`"))
        if failed := [saved.error for saved in saved_figures(self.figures) if saved.error]:
            raise NotebookError(f"{len(failed)} could not be drawn: {' '.join(failed)}", where=str(where))

    @cached_property
    def _dataset(self) -> Dataset:
        if self.campaign is None:
            raise NotebookError("nothing is measured yet", where="run_all", next_step="Call run.measure() first.")
        return Dataset.open(self.campaign)
