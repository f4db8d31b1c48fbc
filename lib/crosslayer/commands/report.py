"""`crosslayer report`: write the figures and claims of a dataset as web pages."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import COMPARE, DATASET, FIGURES, others, tell


@click.command("report")
@DATASET
@FIGURES
@COMPARE
@click.option("--pdf", is_flag=True, help="Also print the report to OUT/report.pdf (A4) with crosslayer's Chromium.")
def command(folder: Path, out: Path, compare: tuple[Path, ...], pdf: bool) -> None:
    """Make the report of the dataset in FOLDER: its figures, its claims, and HTML files that show them.

    OUT/index.html has a summary of the results, and links to the studies and claims. The HTML files need no network.
    OUT/STUDY has the files that `crosslayer figures` and `crosslayer claims --out` write. For each dataset of
    --compare, the report also shows the verdicts on the claims, and how many of these verdicts differ from the verdicts
    for FOLDER. If FOLDER was measured in real time and a dataset of --compare was measured in virtual time, or vice
    versa, the report also shows how much of each measured duration is computing time.

    The command needs no namespaces and no root; only --pdf needs a browser. The default FOLDER is data/raw/coalescing.

    \b
    crosslayer report                                   the dataset data/raw/coalescing, into the folder build/figures/
    crosslayer report data/local/mine --out mine --pdf  your own campaign, also as PDF
    """
    from crosslayer.campaign.dataset import Dataset

    dataset = Dataset.open(folder)
    from crosslayer.report import cores, write_report  # imported late, because it imports a chart library

    if pdf:
        from crosslayer.browser import find_browser
        from crosslayer.report.pdf import write_pdf

        find_browser()  # a missing browser is reported before the figures are drawn
    written = write_report(dataset, out, others=others(dataset, compare), processes=cores())
    if pdf:
        click.echo(str(write_pdf(dataset, out, out / "report.pdf")))
    tell(written)
