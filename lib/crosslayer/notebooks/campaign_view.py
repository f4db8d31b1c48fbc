"""`crosslayer.open`: open a campaign in a notebook, with tables as frames, and figures and claims for display."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

import polars as pl

from crosslayer import claims, report
from crosslayer.campaign.dataset import Campaign, Dataset, paired_campaigns
from crosslayer.campaign.tables import TABLES
from crosslayer.claims import Verdict
from crosslayer.figures import Figure, FigureError
from crosslayer.notebooks import figure_view, frames, session
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.figure_view import AnswerText, FigureView
from crosslayer.notebooks.measuring import measured_or_committed
from crosslayer.notebooks.paths import existing, find_root, fresh
from crosslayer.studies import STUDIES, owners

_CLAIMS_SHOWN = ["claim_id", "quantity", "scope", "published", "ours", "low", "high", "unit", "verdict", "why"]


def open_campaign(
    campaign: str | Path = "",
    *,
    study: str = "",
    size: str = "quick",
    figures: str | Path | None = None,
    notice: str = "",
) -> CampaignView:
    """Open a campaign: `crosslayer.open("data/raw/web")`.

    Parameters
    ----------
    campaign
        Dataset folder. If empty, `study` is measured. On a machine that cannot measure, the committed campaign of the
        study is opened with a notice.
    study
        Study that the dataset must have; empty for any study.
    size
        Size of the campaign to measure: `smoke`, `quick` or `paper`.
    figures
        Folder in which displayed figures are saved, e.g. `figures`, each in a subfolder of its study. None: not saved.
    notice
        Text above the description of the campaign; empty for none.

    Returns
    -------
    CampaignView
        The campaign; a notebook displays it as a description.

    Raises
    ------
    NotebookError
        If papermill gave the notebook an unknown parameter, the dataset is of another study, the measurement failed, or
        neither `campaign` nor `study` is given.
    DatasetError
        If the dataset cannot be analysed.
    """
    session.begin()
    if campaign:
        folder = existing(campaign)
    elif study:
        folder, why = measured_or_committed(study, size, find_root())
        notice = f"{why} {notice}".strip()
    else:
        raise NotebookError(
            "no campaign is named", where="campaign", next_step="Name its folder, or a study to measure."
        )
    dataset = Dataset.open(folder)
    if study and dataset.campaign.study != study:
        raise NotebookError(
            f"is a campaign of the study {dataset.campaign.study}, not of {study}",
            where=str(folder),
            next_step=f"Give data/raw/{study}, or an empty campaign to measure one.",
        )
    return CampaignView(dataset, None if figures is None else fresh(figures), notice)


class CampaignTables:
    """The tables of a dataset as attributes, each a `polars.LazyFrame`: `tables.page_loads`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def __dir__(self) -> list[str]:
        return list(TABLES)

    def __getattr__(self, name: str) -> pl.LazyFrame:
        if name.startswith("_") or name not in TABLES:
            raise AttributeError(f"there is no table {name}; tables are: {', '.join(TABLES)}")
        return self._dataset.table(name)

    def __repr__(self) -> str:
        return f"Tables({', '.join(name for name in TABLES if self._dataset.files[name])})"


@dataclass(frozen=True, slots=True)
class Observations:
    """Rows of one table from which the verdict of a claim is computed."""

    table: str
    rows: pl.Expr
    """Filter that selects the rows in the Parquet files."""
    code: str
    """Python code that reads these rows from the dataset."""
    frame: pl.LazyFrame
    """The rows, except those of rounds that the dataset leaves out because the machine was busy."""

    def __repr__(self) -> str:
        return self.code


def observations(dataset: Dataset, claim: str) -> tuple[Observations, ...]:
    """Rows of a dataset from which the verdict of a claim is computed; see `CampaignView.observations`."""
    study = STUDIES.get(dataset.campaign.study)
    own = study.claims if study else None
    if own is None or claim not in own.checks:
        judged = owners().get(claim, "")
        raise NotebookError(
            f"the study {dataset.campaign.study} does not judge this claim",
            where=claim,
            next_step=f"Open data/raw/{judged}." if judged else "`crosslayer claims FOLDER` lists the claims.",
        )
    try:
        rows = claims.rows_behind(dataset, own, claim)
    except claims.NotMeasured as reason:
        raise NotebookError(
            f"has no rows of its own in this campaign: {reason}",
            where=claim,
            next_step=f"Read the tables that the study uses: {', '.join(own.tables)}.",
        ) from reason
    folder = str(dataset.folder)
    return tuple(
        Observations(
            of.table,
            of.rows,
            of.code(folder, dataset.left_out_of(of.table)),
            dataset.table(of.table).filter(of.rows),
        )
        for of in rows
    )


class CampaignView:
    """An opened dataset: its tables, figures, claims and comparisons."""

    def __init__(self, dataset: Dataset, folder: Path | None = None, notice: str = "") -> None:
        self.dataset = dataset
        self.tables = CampaignTables(dataset)
        self._folder = folder
        self._notice = notice
        self._shown: dict[str, FigureView] = {}

    @property
    def campaign(self) -> Campaign:
        """Content of `campaign.json`: plan, host, versions."""
        return self.dataset.campaign

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Names of the figures that `figure` draws, in the order of `report.Drawer.figures`."""
        return tuple(self._figures)

    def figure(self, name: str) -> FigureView:
        """Draw a figure, given by its name or an unambiguous prefix; save it if `open_campaign` received a folder.

        If the figure cannot be drawn, the returned object displays the reason.

        Raises
        ------
        NotebookError
            If no figure or several figures match the name.
        """
        chosen = self._choose(name)
        if chosen.name not in self._shown:
            self._shown[chosen.name] = self._draw(chosen)
        return self._shown[chosen.name]

    def _draw(self, figure: Figure) -> FigureView:
        try:
            drawing = self._drawer.save(figure, self._folder) if self._folder else self._drawer.draw(figure)
        except FigureError as error:
            return FigureView(figure, self.dataset, error)
        return FigureView(figure, self.dataset, drawing)

    def table(self, name: str) -> AnswerText:
        """Table of a figure: measured values, 95 % intervals and published values; `.rows` has them as a frame.

        Raises
        ------
        NotebookError
            If no figure or several figures match the name, or the figure has no table.
        """
        figure = self.figure(name)
        if figure.error:
            return figure_view.failure(figure.error)
        if figure.table is None:
            raise NotebookError("has no table", where=name, next_step="Show the figure; its CSV has every number.")
        return figure_view.table(figure.table)

    def verdict(self, name: str) -> AnswerText:
        """Answer to the question of a figure's study: a sentence computed from the figure's numbers.

        Raises
        ------
        NotebookError
            If no figure or several figures match the name, or the figure does not answer the question.
        """
        figure = self.figure(name)
        if figure.error:
            return figure_view.failure(figure.error)
        if figure.verdict is None:
            raise NotebookError("answers no question", where=name)
        virtual = self._drawer.verdict_virtual(figure.figure, figure.verdict)
        return AnswerText(f"**Verdict.** {figure.verdict}" + (f"\n\n**In virtual time.** {virtual}" if virtual else ""))

    def claims(self) -> AnswerText:
        """Table of the published results that this dataset measures, and the number of claims with each verdict."""
        verdicts = report.check_claims(self.dataset)
        measured = verdicts.filter(pl.col("verdict") != Verdict.NOT_MEASURED)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(verdicts).items())
        return AnswerText(f"{figure_view.table(measured.select(_CLAIMS_SHOWN)).data}\n\n{counts}.", verdicts)

    def observations(self, claim: str) -> tuple[Observations, ...]:
        """Rows from which the verdict of a claim is computed: `view.observations("T123")[0].frame.collect()`.

        Returns
        -------
        tuple of Observations
            One element for each table that the claim needs.

        Raises
        ------
        NotebookError
            If the claim belongs to another study, or its verdict is not computed from rows of this campaign.
        """
        return observations(self.dataset, claim)

    def frame(self, measure: str) -> pl.DataFrame:
        """A frame with every measured value of one duration, e.g. of the PLT: `view.frame("plt")`; see `frames.frame`.

        Raises
        ------
        NotebookError
            If no table of the campaign has the measure, or several have it.
        """
        return frames.frame(self.dataset, measure)

    def compared(self) -> AnswerText:
        """Compare this campaign's verdicts with those of the same study's campaigns in virtual time.

        These campaigns are in folders next to the dataset (see `campaign.dataset.paired_campaigns`). Returns the claims
        whose verdicts differ, and their number.
        """
        verdicts, shown, parts = report.check_claims(self.dataset), [], []
        for other in paired_campaigns(self.dataset):
            both = claims.compared(verdicts, report.check_claims(other))
            changed = both.filter("changed").drop("changed")
            parts.append(changed.with_columns(campaign=pl.lit(other.campaign.campaign)))
            shown += [figure_view.table(changed).data] if changed.height else []
            shown.append(f"{changed.height} of {both.height} verdicts differ. Other campaign: {other.caption}")
        if not shown:
            return AnswerText("There is no other campaign of this study.")
        return AnswerText("\n\n".join(shown), pl.concat(parts))

    @cached_property
    def _drawer(self) -> report.Drawer:
        return report.Drawer(self.dataset, paired_campaigns(self.dataset))

    def _choose(self, name: str) -> Figure:
        known = self._figures
        matches = (
            [known[name]]
            if name in known
            else [figure for known_as, figure in known.items() if known_as.startswith(name)]
        )
        if len(matches) == 1:
            return matches[0]
        meant = [figure.name for figure in matches] or get_close_matches(name, known, n=3) or list(known)
        what = f"there are {len(matches)} figures {name!r}" if matches else f"there is no figure {name!r}"
        raise NotebookError(what, where=self.campaign.study, next_step=f"Choose one of: {', '.join(meant)}?")

    @cached_property
    def _figures(self) -> dict[str, Figure]:
        return {figure.name: figure for figure in self._drawer.figures}

    def __repr__(self) -> str:
        return f"{self.dataset.caption} {self.tables!r}"

    def _repr_markdown_(self) -> str:
        return figure_view.top(self.dataset, self._notice)
