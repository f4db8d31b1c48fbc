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

    The command also writes OUT/index.html with the figures. If OUT already has the verdicts on this campaign's claims,
    index.html also shows them. `crosslayer report` both draws the figures and checks the claims. If FOLDER was
    measured in real time and a dataset of --compare was measured in virtual time, or vice versa, two further figures
    compare the durations in real time with those in virtual time.

    The command needs no namespaces, no browser and no root. The default FOLDER is data/raw/coalescing.
    """
    from crosslayer.campaign.dataset import Dataset

    dataset = Dataset.open(folder)
    from crosslayer.report import cores, write_figures  # imported late, because it imports a chart library

    tell(write_figures(dataset, out, others=others(dataset, compare), processes=cores()))
