"""`crosslayer report`: figures and claims on one page."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import COMPARE, DATASET, FIGURES, others, tell


@click.command("report")
@DATASET
@FIGURES
@COMPARE
@click.option("--pdf", is_flag=True, help="Also print the page to OUT/report.pdf (A4) with the environment's Chromium.")
def command(folder: Path, out: Path, compare: tuple[Path, ...], pdf: bool) -> None:
    """Make the report of the dataset in FOLDER: its figures, its claims, and web pages that show them.

    OUT/index.html opens with the answer. It links to a page for each study and to the claims. No page needs a network.
    OUT/STUDY has the files that `crosslayer figures` and `crosslayer claims --out` write. If the dataset is compared
    with another one, the pages also show the other verdicts and how many differ. If one was measured in real time and
    one in virtual time, they show how much time computing adds.

    Needs no namespaces and no root; only --pdf needs a browser. The default FOLDER is data/raw/coalescing.

    \b
    crosslayer report                                  the committed campaign, into build/figures/
    crosslayer report data/local/mine --out mine --pdf  your own campaign, also as PDF
    """
    from crosslayer.campaign.dataset import Dataset

    dataset = Dataset.open(folder)
    from crosslayer.report import cores, write_report  # which imports a chart library

    if pdf:
        from crosslayer.browser import find_browser
        from crosslayer.report.pdf import write_pdf

        find_browser()  # a missing browser is reported before the figures are drawn
    written = write_report(dataset, out, others=others(dataset, compare), processes=cores())
    if pdf:
        click.echo(str(write_pdf(dataset, out, out / "report.pdf")))
    tell(written)
