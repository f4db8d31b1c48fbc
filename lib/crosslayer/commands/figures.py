"""`crosslayer figures`: draw the figures of a dataset."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import COMPARE, DATASET, FIGURES, others, tell


@click.command("figures")
@DATASET
@FIGURES
@COMPARE
def command(folder: Path, out: Path, compare: tuple[Path, ...]) -> None:
    """Draw every figure of the dataset in FOLDER: SVG, PNG, Vega-Lite and CSV in OUT/STUDY.

    The command also writes OUT/index.html with the figures. If OUT already has the claims of this campaign, index.html
    also shows the claims. `crosslayer report` draws figures and checks claims. With --compare, if one campaign was
    measured in real time and the other in virtual time, a further figure compares their times.

    The command needs no namespaces, no browser and no root. The default FOLDER is data/raw/coalescing.
    """
    from crosslayer.campaign.dataset import Dataset

    dataset = Dataset.open(folder)
    from crosslayer.report import cores, write_figures  # imported late, because it imports a chart library

    tell(write_figures(dataset, out, others=others(dataset, compare), processes=cores()))
