"""A dataset as files to keep, and one page that joins them.

Every figure is saved as SVG, PNG, Vega-Lite JSON and CSV, the verdicts on the claims as Parquet and Markdown.
`write_index` gathers what a folder has into pages that need no network: the answer, the claims, a page a study.
`write_report` makes all of it, and nothing again whose data and code did not change. `pdf.write_pdf` prints it: only
that needs Chromium.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from crosslayer import claims, published
from crosslayer.campaign import crate
from crosslayer.campaign.dataset import Dataset
from crosslayer.report.answer import renew_readme, repeats, save_answer
from crosslayer.report.drawing import Drawer, cores, draw_all
from crosslayer.report.files import (
    VERDICT_FILES,
    ReportError,
    check_folder,
    made_from,
    save,
    save_claims,
    save_drawing,
    save_failure,
    save_other_verdicts,
)
from crosslayer.report.loads import save_loads
from crosslayer.report.made import RECORD, Made
from crosslayer.report.page import write_index
from crosslayer.studies import STUDIES, owners

__all__ = [
    "Drawer",
    "Report",
    "ReportError",
    "check_claims",
    "check_others",
    "cores",
    "made_from",
    "save",
    "save_answer",
    "save_claims",
    "save_drawing",
    "save_failure",
    "write_figures",
    "write_index",
    "write_report",
]


OF_SEVERAL = ("index.html", RECORD)
"""Files in the folder of a study that are not made by one run: a report of another study renews the page."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was written."""

    page: Path
    """`index.html`."""
    failed: Mapping[str, str]
    """Figures that could not be drawn, and why; the page has a box in place of each."""


def check_claims(dataset: Dataset) -> pl.DataFrame:
    """Compare every published result with a dataset; columns of `crosslayer.claims.check`."""
    elsewhere = {claim: f"the study {study} is not in this dataset" for claim, study in owners().items()}
    own = STUDIES[dataset.campaign.study].claims if dataset.campaign.study in STUDIES else None
    return claims.check(dataset, own, published.load().claims, elsewhere=elsewhere)


def check_others(dataset: Dataset, others: Sequence[Dataset], folder: Path) -> None:
    """Check the claims of other campaigns of the study and save the verdicts; see `files.save_other_verdicts`."""
    save_other_verdicts([(other, check_claims(other)) for other in others], dataset, folder)


def write_figures(dataset: Dataset, folder: Path, *, others: Sequence[Dataset] = (), processes: int = 1) -> Report:
    """Draw and save every figure of a dataset's study, and each load whose packets were kept, then renew the page.

    Parameters
    ----------
    dataset
        What to draw.
    folder
        E.g. `figures`; the figures go to a folder of their study in it.
    others
        Other campaigns of the study; with one in virtual time, the comparison of the clocks is drawn too.
    processes
        How many may draw at the same time; more than one only from a program whose main module may be imported again.

    Raises
    ------
    ReportError
        If the folder cannot be written, or there is nothing to show.
    """
    check_folder(dataset, folder)
    failed = draw_all(dataset, others, folder, processes)
    save_loads(dataset, folder)
    return Report(write_index(dataset, folder), failed)


def write_report(dataset: Dataset, folder: Path, *, others: Sequence[Dataset] = (), processes: int = 1) -> Report:
    """Check and save the claims, draw and save the figures, and join them on the page.

    `ro-crate-metadata.json` in the folder of the figures describes the run that made them. If folder and campaign are
    committed ones, the answer in the README is renewed too.

    Parameters
    ----------
    dataset, folder, others, processes
        As for `write_figures`; the claims of other campaigns are checked too.

    Raises
    ------
    ReportError
        As for `write_figures`.
    """
    check_folder(dataset, folder)
    started = datetime.now(UTC)
    made = Made(dataset, [*others, *repeats(dataset)], folder)
    with ThreadPoolExecutor(1) as pool:
        judged = None if made.has("claims") else pool.submit(check_claims, dataset)  # numbers, while charts are drawn
        failed = draw_all(dataset, others, folder, processes)
        if judged:
            save_claims(judged.result(), dataset, folder)
    if judged:
        save_answer(dataset, judged.result(), folder)
        check_others(dataset, others, folder)
        made.remember({"claims": VERDICT_FILES})
    save_loads(dataset, folder)
    written = Report(write_index(dataset, folder), failed)
    study = folder / dataset.campaign.study
    crate.of_figures(
        study,
        dataset.folder,
        (path for path in study.iterdir() if path.is_file() and path.name not in (crate.FILE_NAME, *OF_SEVERAL)),
        started,
    )
    renew_readme(dataset, folder)
    return written
