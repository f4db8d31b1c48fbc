"""`crosslayer.open`: a campaign, its tables as frames, its figures and claims as things that show themselves."""

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
        Dataset folder. Empty to measure `study`; if this machine cannot, the committed campaign is opened, with a
        notice.
    study
        The study that it must be of; any if this is empty.
    size
        Size of the campaign to measure: smoke, quick or paper.
    figures
        Folder for the figures that are shown, e.g. `figures`; they go to the folder of their study. None saves none.
    notice
        Text to show on top; empty for none.

    Returns
    -------
    Opened
        Shows itself as what was measured, where and when.

    Raises
    ------
    NotebookError
        For an unknown parameter of the notebook, a dataset of another study, or where measuring failed.
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
    """Rows of one table that a claim is judged by."""

    table: str
    rows: pl.Expr
    """The Parquet filter, of the table's columns."""
    code: str
    """The filter written out, as Python that reads the dataset."""
    frame: pl.LazyFrame
    """The rows, without rounds that a busy machine spoilt."""

    def __repr__(self) -> str:
        return self.code


def observations(dataset: Dataset, claim: str) -> tuple[Observations, ...]:
    """The rows of a dataset that a claim of its study is judged by; see `CampaignView.observations`."""
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
            f"has no rows in this campaign: {reason}", where=claim, next_step="Choose a claim with a number."
        ) from reason
    return tuple(
        Observations(of.table, of.rows, of.code(str(dataset.folder)), dataset.table(of.table).filter(of.rows))
        for of in rows
    )


class CampaignView:
    """A dataset with everything that can be asked of it."""

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
        """Names of its study's figures, in the order of the paper; `hosts` where several machines measured it."""
        return tuple(self._figures)

    def figure(self, name: str) -> FigureView:
        """A figure by its name or the beginning of it, drawn, and saved if `open` received a folder.

        Raises
        ------
        NotebookError
            For a name that is none of its figures', or of several. A figure that cannot be drawn shows its error.
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
        """Numbers of a figure: measured values, their 95 % intervals and published values; `.rows` is the frame."""
        figure = self.figure(name)
        if figure.error:
            return figure_view.failure(figure.error)
        if figure.table is None:
            raise NotebookError("has no table", where=name, next_step="Show the figure; its CSV has every number.")
        return figure_view.table(figure.table)

    def verdict(self, name: str) -> AnswerText:
        """The answer to the question of a figure's study, in a sentence computed from its numbers."""
        figure = self.figure(name)
        if figure.error:
            return figure_view.failure(figure.error)
        if figure.verdict is None:
            raise NotebookError("answers no question", where=name)
        virtual = self._drawer.verdict_virtual(figure.figure)
        return AnswerText(f"**Verdict.** {figure.verdict}" + (f"\n\n**In virtual time.** {virtual}" if virtual else ""))

    def claims(self) -> AnswerText:
        """What became of the published results: those that this dataset measures, and how many of each verdict."""
        verdicts = report.check_claims(self.dataset)
        measured = verdicts.filter(pl.col("verdict") != Verdict.NOT_MEASURED)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(verdicts).items())
        return AnswerText(f"{figure_view.table(measured.select(_CLAIMS_SHOWN)).data}\n\n{counts}.", verdicts)

    def observations(self, claim: str) -> tuple[Observations, ...]:
        """The rows that a claim is judged by: `view.observations("T123")[0].frame.collect()`.

        Returns
        -------
        tuple of Observations
            One of each table that the claim needs.

        Raises
        ------
        NotebookError
            For a claim that this study does not judge, or that is not judged by single rows of this campaign.
        """
        return observations(self.dataset, claim)

    def frame(self, measure: str) -> pl.DataFrame:
        """One duration as a frame, a row per measured observation: `view.frame("plt")`; see `frames.frame`.

        Raises
        ------
        NotebookError
            For a measure that no table of the campaign has, or that several have.
        """
        return frames.frame(self.dataset, measure)

    def compared(self) -> AnswerText:
        """The claims whose verdict differs in another campaign of the study, and how many; campaign by campaign."""
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
