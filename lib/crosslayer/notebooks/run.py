"""`run_all.ipynb`: measure or open a dataset, run the other notebooks, and write the page of all figures."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl
from IPython.display import display

from crosslayer import claims, report
from crosslayer.campaign.dataset import Dataset, paired_campaigns
from crosslayer.claims import Verdict
from crosslayer.decode import choice
from crosslayer.notebooks import figure_view, session
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.figure_view import AnswerText
from crosslayer.notebooks.measuring import committed, measured_or_committed
from crosslayer.notebooks.paths import existing, find_root
from crosslayer.report.files import saved_claims, saved_figures
from crosslayer.studies import DEFAULT, STUDIES
from crosslayer.study import SIZES
from crosslayer.vocabulary import Clock


def start(*, size: str, clock: str, campaign: str, studies: str | Sequence[str], figures: str) -> Run:
    """Begin `run_all.ipynb`: check its parameters and return the object that runs it.

    Parameters
    ----------
    size
        Size of the campaigns to measure: `smoke`, `quick` or `paper`.
    clock
        Clock of the measurement: `wall`, or `virtual` in guests.
    campaign
        Folder of an existing dataset of the default study, or empty. A given dataset is analysed, and the default study
        is not measured.
    studies
        Names of the studies to measure: a list, a JSON list (from `papermill -p`), or a text with commas.
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
                    f"there is no {kind} {name!r}", where=where, next_step=choice(name, known, say="Choose from")
                )
    os.environ["CROSSLAYER_CLOCK"] = clock  # the other notebooks read it
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
    """State of `run_all.ipynb`: the default study's dataset, the notebooks that were run, and the output folder."""

    root: Path
    size: str
    studies: tuple[str, ...]
    """Studies to measure; for all others, the committed campaigns are analysed."""
    campaign: Path | None
    """Dataset folder of the default study; None if none was given and `measure` was not called yet."""
    figures: Path
    notice: str = ""
    _shown: set[str] = field(default_factory=set)
    """Names of the notebooks that were run."""
    _spent_s: float = 0.0
    """Total duration of the notebooks that were run, s."""

    def measure(self) -> AnswerText:
        """Measure the default study, unless a dataset was given; returns a description of the analysed campaign.

        If this machine cannot measure, or the study is not one of `studies`, the committed campaign is analysed. A
        notice then says so in the notebooks and on the page of all figures.

        Raises
        ------
        NotebookError
            If measuring fails; finished rounds are stored, and a further call resumes.
        """
        if self.campaign is None and DEFAULT in self.studies:
            self.campaign, self.notice = measured_or_committed(DEFAULT, self.size, self.root)
        elif self.campaign is None:
            self.campaign = committed(DEFAULT, self.root)
            self.notice = f"The study {DEFAULT} was not asked for, so its committed campaign is shown."
        return AnswerText(figure_view.top(self._dataset, self.notice))

    def notebook(self, name: str) -> None:
        """Run one notebook with papermill and show its figures; the executed copy is in `build/notebooks`.

        A notebook of the default study analyses the dataset of this run. A notebook of another study measures that
        study if it is in `studies`; otherwise it analyses the committed campaign. If a figure cannot be drawn, a text
        replaces it here, and `report` raises `NotebookError` later.

        Raises
        ------
        NotebookError
            If a cell of the notebook fails; the message contains the error of this cell.
        """
        total = len({section.notebook for study in STUDIES.values() for section in study.sections} | {name})
        print(f"Notebook {len(self._shown) + 1} of {total}: {name}", flush=True)
        self._shown.add(name)
        started = time.monotonic()
        study = next((s.name for s in STUDIES.values() if name in {section.notebook for section in s.sections}), None)
        if study == DEFAULT:
            self._execute(name, campaign=str(self._dataset.folder), notice=self.notice)
        elif study in self.studies:
            self._execute(name, campaign="", size=self.size)
        else:
            self._execute(name)
        self._report_progress(time.monotonic() - started, total)
        for saved in saved_figures(self.figures):
            if saved.figure.notebook == name and saved.error:
                display(figure_view.failure(saved.error))
            elif saved.figure.notebook == name:
                figure_view.show_saved(self.figures / saved.study.name / f"{saved.figure.name}.png", saved.figure)

    def _report_progress(self, took_s: float, total: int) -> None:
        """Print the duration of a notebook, and the expected total duration of the notebooks that remain.

        It is their number times the mean duration of those that were run.
        """
        self._spent_s += took_s
        left_s = self._spent_s / len(self._shown) * (total - len(self._shown))
        rest = f"; the remaining {total - len(self._shown)} take about {_duration(left_s)}" if left_s else ""
        print(f"  done in {_duration(took_s)}{rest}", flush=True)

    def others(self) -> None:
        """Run every notebook that has not been run yet, of all studies; this includes new studies automatically.

        Raises
        ------
        NotebookError
            As for `notebook`.
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
                stdout_file=sys.stdout,  # a notebook that measures prints its progress
                extra_arguments=["--log-level=ERROR"],  # hide warnings of the inner kernel
            )
        except PapermillExecutionError as error:
            raise NotebookError(
                f"{error.ename} in cell {error.exec_count}: {error.evalue}",
                where=str(source),
                next_step=f"Open {target} to see the output up to the failure.",
            ) from None

    def report(self) -> None:
        """Check the claims, write `index.html` with claims and figures, and print a summary and the path.

        Raises
        ------
        NotebookError
            If a figure could not be drawn; it is raised after the page and the summary were written and printed.
        """
        verdicts = report.check_claims(self._dataset)
        report.save_claims(verdicts, self._dataset, self.figures)
        report.save_answer(self._dataset, verdicts, self.figures)
        report.check_others(self._dataset, paired_campaigns(self._dataset), self.figures)
        path = report.write_index(self._dataset, self.figures, notice=self.notice)
        where = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        summary = self._summary(verdicts)
        print(f"{summary}\nFigures and claims on one page: {where}", flush=True)
        display(AnswerText(f"{summary}\n\nFigures and claims on one page: `{where}`"))
        if failed := [saved.error for saved in saved_figures(self.figures) if saved.error]:
            raise NotebookError(f"{len(failed)} could not be drawn: {' '.join(failed)}", where=str(where))

    def _summary(self, verdicts: pl.DataFrame) -> str:
        """Sentence with the number of claims of each verdict.

        If the dataset is not the committed campaign, a second sentence has the number of claims whose verdict equals
        that of the committed campaign.
        """
        counts = {verdict: n for verdict, n in claims.counts(verdicts).items() if n and verdict != Verdict.NOT_MEASURED}
        if not counts:
            own = STUDIES[self._dataset.campaign.study].claims
            reasons = verdicts.filter(pl.col("claim_id").is_in(list(own.checks if own else ())))["why"]
            why = f" {Counter(reasons).most_common(1)[0][0]}" if reasons.len() else ""
            return f"No claim could be judged.{why} {self._dataset.caption}"
        line = f"{sum(counts.values())} claims judged: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}."
        committed_campaign = committed(self._dataset.campaign.study, self.root)
        if not committed_campaign.is_dir() or self._dataset.folder.resolve() == committed_campaign.resolve():
            return line
        reference = saved_claims(Dataset.open(committed_campaign), self.root / "figures")
        if reference is None:
            return line
        both = claims.compared(verdicts, reference)
        same = both.height - both["changed"].sum()
        return f"{line} {same} of {both.height} have the verdict of the committed campaign."

    @cached_property
    def _dataset(self) -> Dataset:
        if self.campaign is None:
            raise NotebookError("nothing has been measured", where="run_all", next_step="Call run.measure() first.")
        return Dataset.open(self.campaign)


def _duration(seconds: float) -> str:
    """A duration as text: in seconds below two minutes, else in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
