"""A dataset as files to keep, and one page that joins them.

Every figure is saved as SVG, PNG, Vega-Lite JSON and CSV, the verdicts on the claims as Parquet and Markdown.
`write_index` gathers what a folder has of a campaign into `index.html`, which needs no network: charts, their library
and the pictures are inside. `write_report` makes all of it. `pdf.write_pdf` prints the page: it alone needs Chromium.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from crosslayer import claims, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import FIGURES, Inputs, draw
from crosslayer.report.files import ReportError, save, save_claims, save_drawing
from crosslayer.report.page import write_index
from crosslayer.studies import STUDIES

__all__ = [
    "ReportError",
    "check_claims",
    "save",
    "save_claims",
    "save_drawing",
    "write_figures",
    "write_index",
    "write_report",
]


def check_claims(dataset: Dataset) -> pl.DataFrame:
    """Every published result held against a dataset; columns as `crosslayer.claims.check` gives them."""
    owners = {claim: study.name for study in STUDIES.values() if study.claims for claim in study.claims.checks}
    elsewhere = {claim: f"the study {study} is not in this dataset" for claim, study in owners.items()}
    own = STUDIES[dataset.campaign.study].claims if dataset.campaign.study in STUDIES else None
    return claims.check(dataset, own, published.load().claims, elsewhere=elsewhere)


def write_figures(dataset: Dataset, folder: Path) -> Path:
    """Draw and save every figure of a dataset's study, then renew the page.

    Parameters
    ----------
    dataset
        What to draw.
    folder
        E.g. `figures`; the figures go to a folder of their study in it.

    Returns
    -------
    Path
        `folder/index.html`.
    """
    inputs = Inputs.of(dataset, published.load())
    for figure in FIGURES.values():
        if figure.study == dataset.campaign.study:
            save_drawing(draw(figure, inputs, dataset.caption), dataset, folder)
    return write_index(dataset, folder)


def write_report(dataset: Dataset, folder: Path) -> Path:
    """Check and save the claims, draw and save the figures, and join them on the page.

    Parameters
    ----------
    dataset
        What to report.
    folder
        E.g. `figures`; claims and figures go to a folder of their study in it.

    Returns
    -------
    Path
        `folder/index.html`.
    """
    save_claims(check_claims(dataset), dataset, folder)
    return write_figures(dataset, folder)
