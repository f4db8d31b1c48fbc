"""`crosslayer plan`: how many rounds a campaign needs, from a pilot."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.metrics.precision import rounds_needed


class PlanError(CrosslayerError):
    """A pilot or a precision that gives no plan."""


def parse_precision(text: str) -> float:
    """Percent from a text such as `1%`.

    Raises
    ------
    PlanError
        For anything else, 0 % and 100 % and more included.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    percent = float(found[1]) if found else math.nan
    if not 0 < percent < 100:
        raise PlanError(f"{text!r} is not a precision", where="--precision", next_step="Write a percentage, e.g. 1%.")
    return percent


def plan_of(dataset: Dataset, precision_percent: float) -> pl.DataFrame:
    """Rounds each cell and combination of TNSM24 needs, in the order of the campaign's links and pages.

    Columns as `crosslayer.metrics.precision.rounds_needed` gives them.

    Raises
    ------
    PlanError
        Where the dataset has no PLTs, or too few rounds for an interval.
    """
    combinations = metrics.combine(
        metrics.exchanges(dataset.table("dns_exchanges")), metrics.page_loads(dataset.table("page_loads"))
    )
    plan = rounds_needed(combinations, precision_percent)
    if plan.is_empty():
        raise PlanError(
            "has no round with both a DNS exchange and a page load",
            where=str(dataset.folder),
            next_step="Use a campaign of the study coalescing as the pilot.",
        )
    if plan["rounds_needed"].null_count() == plan.height:
        raise PlanError(
            f"has fewer than {metrics.MIN_ROUNDS} complete rounds in every cell, too few for an interval",
            where=str(dataset.folder),
            next_step="Go on with the pilot: the same `crosslayer measure` command with, say, --rounds 30.",
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


def run(folder: Path, precision: str, say: Callable[[str], None]) -> None:
    """Say how many rounds each cell of a pilot needs.

    Parameters
    ----------
    folder
        Dataset of the pilot.
    precision
        Half-width of the 95 % interval of the median PLT, e.g. `1%`.
    say
        Takes one line at a time.
    """
    percent = parse_precision(precision)
    dataset = Dataset.open(folder)
    plan = plan_of(dataset, percent)
    say(f"Rounds until the 95 % interval of the median PLT is within ±{percent:g} %, from this pilot:")
    say("")
    say(_line("link", "page", "combination", "pilot", "median", "±", "needed", "enough"))
    for row in plan.iter_rows(named=True):
        half = row["half_width_percent"]
        say(
            _line(
                *(row[name] for name in ("link", "page", "combination", "rounds")),
                f"{row['median_ms']:.1f} ms",
                "?" if half is None else f"{half:.2f} %",
                *("?" if half is None else row[name] for name in ("rounds_needed", "rounds_enough")),
            )
        )
    say("")
    say("needed: best estimate; enough: with 90 % confidence. The pilot's interval is bootstrapped by round, its width")
    say("is taken to fall with the square root of the rounds.")
    if unknown := plan["half_width_percent"].null_count():
        say(f"?: fewer than {metrics.MIN_ROUNDS} complete rounds, no interval ({unknown} of {plan.height}).")
    needed, enough = plan.select(pl.col("rounds_needed", "rounds_enough").max()).row(0)
    say(f"For this precision everywhere: --rounds {needed} ({enough} with 90 % confidence).")
    say(dataset.caption)


def _line(*cells: object) -> str:
    link, page, combination, *numbers = cells
    pilot, median, half, needed, enough = numbers
    return f"{link:<10} {page:<15} {combination:<17} {pilot:>6} {median:>10} {half:>8} {needed:>7} {enough:>7}"
