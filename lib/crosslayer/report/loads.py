"""Captured loads of a campaign, each drawn as one HTML page. Points in the report's figures link to these pages."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosslayer.campaign.dataset import Dataset
from crosslayer.packets import PacketsError
from crosslayer.report.files import write
from crosslayer.report.waterfall import WaterfallLoad, captured, waterfall

_FOLDER = "loads"


def save_loads(dataset: Dataset, folder: Path) -> None:
    """Draw each captured load as `folder/STUDY/loads/NAME.html`; pages of an earlier campaign are removed.

    Raises
    ------
    ReportError
        If the folder cannot be written.
    """
    shutil.rmtree(folder / dataset.campaign.study / _FOLDER, ignore_errors=True)
    for load in captured(dataset.folder):
        try:
            page = waterfall(load.file)
        except PacketsError as error:
            page = f"<!doctype html><title>crosslayer</title><p>{error.what}, so it cannot be drawn.</p>"
        write(_page(dataset, folder, load), page.encode())


def saved_loads(dataset: Dataset, folder: Path) -> list[dict[str, Any]]:
    """For each captured load that has a page: the page's address, and the load's duration and conditions.

    The keys are `href` (the address, relative to the study's page), `ms` (the duration, in ms) and `conditions` (value
    by column).
    """
    pages = [(load, _page(dataset, folder, load)) for load in captured(dataset.folder)]
    return [
        {
            "href": quote(page.relative_to(folder / dataset.campaign.study).as_posix()),
            "ms": load.length_ms,
            "conditions": {name: str(value) for name, value in load.conditions.items()},
        }
        for load, page in pages
        if page.is_file()
    ]


def _page(dataset: Dataset, folder: Path, load: WaterfallLoad) -> Path:
    name = "-".join(load.file.relative_to(dataset.folder).with_suffix("").parts[1:])
    return folder / dataset.campaign.study / _FOLDER / f"{name}.html"
