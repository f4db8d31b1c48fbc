"""The report of a dataset: files of figures and claims, and HTML pages that show them.

Every figure is saved as SVG, PNG, Vega-Lite JSON and CSV, the verdicts on the claims as Parquet and Markdown.
`write_index` writes pages from the files of a folder: the answer, the claims, and one page per study. `write_report`
makes the complete report and skips each part whose data and code have not changed. `pdf.write_pdf` prints the report;
only this step needs Chromium.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
"""Files in a study's folder that the RO-Crate omits, because later reports overwrite them."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of writing a report."""

    page: Path
    """Path of `index.html`."""
    failed: Mapping[str, str]
    """Errors of the figures that could not be drawn, by name; the page has a box in place of such a figure."""


def check_claims(dataset: Dataset, only: str | None = None) -> pl.DataFrame:
    """Compare every published result with a dataset; returns the frame of `crosslayer.claims.check`.

    With `only`, the frame has the row of this claim alone. The dataset's study must check this claim.
    """
    elsewhere = {claim: f"the study {study} is not in this dataset" for claim, study in owners().items()}
    own = STUDIES[dataset.campaign.study].claims if dataset.campaign.study in STUDIES else None
    published_claims = published.load().claims
    if own is not None and only is not None:
        own, published_claims = replace(own, checks={only: own.checks[only]}), published_claims.filter(claim_id=only)
    return claims.check(dataset, own, published_claims, elsewhere=elsewhere)


def check_others(dataset: Dataset, others: Sequence[Dataset], folder: Path) -> None:
    """Check the claims with other campaigns of the study and save the verdicts; see `files.save_other_verdicts`."""
    save_other_verdicts([(other, check_claims(other)) for other in others], dataset, folder)


def write_figures(dataset: Dataset, folder: Path, *, others: Sequence[Dataset] = (), processes: int = 1) -> Report:
    """Draw and save every figure of a dataset and every captured load, then write the pages.

    Parameters
    ----------
    dataset
        Dataset to draw.
    folder
        E.g. `figures`; the figures go to its subfolder STUDY.
    others
        Other campaigns of the study. If a campaign has another clock than `dataset`, figures that compare both clocks
        are drawn too.
    processes
        Maximum number of parallel processes. If it is above 1, the main module must be importable, because each process
        imports it again.

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
    """Check and save the claims, draw and save the figures, and write the pages.

    `ro-crate-metadata.json` in the folder of the figures describes this run. If `folder` is `figures` of a checkout and
    the dataset is in its `data/raw`, the answer in the README is updated too.

    Parameters
    ----------
    dataset, folder, others, processes
        As for `write_figures`. The claims are also checked with each of the other campaigns.

    Raises
    ------
    ReportError
        As for `write_figures`.
    """
    check_folder(dataset, folder)
    started = datetime.now(UTC)
    made = Made(dataset, [*others, *repeats(dataset)], folder)
    with ThreadPoolExecutor(1) as pool:
        # The claims are judged while the charts are drawn.
        judged = None if made.has("claims") else pool.submit(check_claims, dataset)
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
