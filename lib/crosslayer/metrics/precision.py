"""Number of rounds that a campaign needs, computed from the intervals of a pilot campaign."""

from __future__ import annotations

import polars as pl

from crosslayer.metrics.intervals import medians
from crosslayer.metrics.resampling import MIN_ROUNDS, reach
from crosslayer.metrics.rows import CELL

_Z95 = 1.959964
_Z10 = -1.281552


def rounds_needed(combinations: pl.LazyFrame, precision_percent: float) -> pl.DataFrame:
    """Number of rounds for which the 95 % interval of the median PLT has a given half-width.

    The argument has the rows of `combine` from a pilot, whose intervals come from the bootstrap. With more rounds, the
    half-width is inversely proportional to the square root of their number, like that of any median asymptotically. The
    pilot's half-width is first divided by the factor that widens intervals of few rounds (`reach`). With many rounds,
    this factor approaches 1.

    The pilot's half-width is itself uncertain, because only about `1.96 sqrt(rounds)` observations lie within the
    interval. The half-width varies like a gamma variable whose shape is this number of observations. `rounds_enough`
    takes this into account.

    Returns
    -------
    polars.DataFrame
        link, page, combination, rounds, median_ms, half_width_percent, rounds_needed (best estimate), rounds_enough
        (with 90 % confidence). rounds, median_ms and half_width_percent are those of the pilot. half_width_percent,
        rounds_needed and rounds_enough are null if the pilot has fewer than `MIN_ROUNDS` rounds. Otherwise
        rounds_needed and rounds_enough are at least `MIN_ROUNDS`.
    """
    rounds = pl.col("rounds").cast(pl.Float64)
    shape = _Z95 * rounds.sqrt()
    # 10th percentile of a gamma variable with mean 1 (Wilson and Hilferty's approximation).
    least = (1 - 1 / (9 * shape) + _Z10 / (3 * shape.sqrt())).pow(3)
    needed = rounds * (pl.col("half_width_percent") / pl.col("longer") / precision_percent).pow(2)
    pilot = medians(combinations, "plt_ms", [*CELL, "combination"])
    longer = [reach(max(rounds, MIN_ROUNDS)) / _Z95 for rounds in pilot["rounds"]]
    return (
        pilot.with_columns(longer=pl.Series(longer, dtype=pl.Float64))
        .with_columns(half_width_percent=(pl.col("high") - pl.col("low")) / 2 / pl.col("median") * 100)
        .with_columns(median_ms="median", rounds_needed=_whole(needed), rounds_enough=_whole(needed / least.pow(2)))
        .select(*CELL, "combination", "rounds", "median_ms", "half_width_percent", "rounds_needed", "rounds_enough")
    )


def _whole(rounds: pl.Expr) -> pl.Expr:
    up = rounds.ceil().cast(pl.Int64)
    return pl.when(up.is_null()).then(None).otherwise(pl.max_horizontal(up, pl.lit(MIN_ROUNDS, pl.Int64)))
