"""`crosslayer sample-size`: estimate from a pilot how many rounds a campaign needs."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import PATH
from crosslayer.errors import CrosslayerError

if TYPE_CHECKING:
    import polars as pl

    from crosslayer.campaign.dataset import Dataset


class SampleSizeError(CrosslayerError):
    """A pilot or a precision from which no number of rounds can be computed."""


def parse_precision(text: str) -> float:
    """Parse a percentage: `1%` returns 1.0.

    Raises
    ------
    SampleSizeError
        If the text is not a percentage, or the percentage is not between 0 and 100.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    percent = float(match[1]) if match else math.nan
    if not 0 < percent < 100:
        raise SampleSizeError(
            f"{text!r} is not a precision", where="--precision", next_step="Write a percentage, e.g. 1%."
        )
    return percent


def rounds_needed(dataset: Dataset, precision_percent: float) -> pl.DataFrame:
    """For each cell and each of TNSM24's combinations: number of rounds for a precision, estimated from a pilot.

    The precision is the half-width of the 95 % interval of the median PLT, in percent of this median. The columns are
    those of `crosslayer.metrics.precision.rounds_needed`. Rows are in the order of the campaign's links and pages.

    Raises
    ------
    SampleSizeError
        If no round of the pilot has both a DNS exchange and a page load.
        If every cell has too few rounds for an interval.
    """
    import polars as pl

    from crosslayer import metrics
    from crosslayer.metrics.precision import rounds_needed

    combinations = metrics.combine(
        metrics.exchanges(dataset.table("dns_exchanges")), metrics.page_loads(dataset.table("page_loads"))
    )
    plan = rounds_needed(combinations, precision_percent)
    if plan.is_empty():
        raise SampleSizeError(
            "has no round with both a DNS exchange and a page load",
            where=str(dataset.folder),
            next_step="Use a campaign that has both as the pilot.",
        )
    if plan["rounds_needed"].null_count() == plan.height:
        raise SampleSizeError(
            f"has fewer than {metrics.MIN_ROUNDS} complete rounds in every cell, too few for an interval",
            where=str(dataset.folder),
            next_step="Continue the pilot: the same `crosslayer measure` command with --rounds 30, for example.",
        )
    campaign = dataset.campaign
    ranks = {
        name: rank
        for names in (campaign.links, campaign.pages, metrics.COMBINATIONS)
        for rank, name in enumerate(names)
    }
    return plan.sort(
        *(pl.col(name).replace_strict(ranks, default=len(ranks)) for name in ("link", "page", "combination")),
        maintain_order=True,
    )


def _line(*cells: object) -> str:
    link, page, combination, *numbers = cells
    pilot, median, half, needed, enough = numbers
    return f"{link:<10} {page:<15} {combination:<17} {pilot:>6} {median:>10} {half:>8} {needed:>7} {enough:>7}"


@click.command("sample-size")
@click.argument("folder", type=PATH)
@click.option(
    "--precision",
    default="1%",
    show_default=True,
    help="Wanted half-width of the 95 % interval of the median PLT, in percent of this median.",
)
def command(folder: Path, precision: str) -> None:
    """Estimate from the pilot campaign in FOLDER how many rounds narrow the 95 % PLT intervals to ± --precision.

    \b
    crosslayer measure --size smoke --rounds 10 --out data/local/pilot
    crosslayer sample-size data/local/pilot --precision 2%
    """
    import polars as pl

    from crosslayer import metrics
    from crosslayer.campaign.dataset import Dataset

    percent = parse_precision(precision)
    dataset = Dataset.open(folder)
    rounds = rounds_needed(dataset, percent)
    click.echo(f"Rounds until the 95 % interval of the median PLT is within ±{percent:g} %, from this pilot:")
    click.echo("")
    click.echo(_line("link", "page", "combination", "pilot", "median", "±", "needed", "enough"))
    for row in rounds.iter_rows(named=True):
        half = row["half_width_percent"]
        click.echo(
            _line(
                *(row[name] for name in ("link", "page", "combination", "rounds")),
                f"{row['median_ms']:.1f} ms",
                "?" if half is None else f"{half:.2f} %",
                *("?" if half is None else row[name] for name in ("rounds_needed", "rounds_enough")),
            )
        )
    click.echo("")
    click.echo(
        "needed: best estimate; enough: with 90 % confidence. The pilot's interval is bootstrapped by round; its"
    )
    click.echo("width is assumed to fall with the square root of the number of rounds.")
    if unknown := rounds["half_width_percent"].null_count():
        click.echo(f"?: fewer than {metrics.MIN_ROUNDS} complete rounds, no interval ({unknown} of {rounds.height}).")
    needed, enough = rounds.select(pl.col("rounds_needed", "rounds_enough").max()).row(0)
    click.echo(f"For this precision in every cell: --rounds {needed} ({enough} with 90 % confidence).")
    click.echo(dataset.caption)
