"""Compare repeated rounds with those of the original campaign, and decide for each condition whether they agree."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import polars as pl

from crosslayer.campaign.tables import TABLES, Table
from crosslayer.metrics.intervals import medians
from crosslayer.metrics.resampling import MIN_ROUNDS
from crosslayer.metrics.rows import CLUSTER

LIMIT_MS = 0.1
"""Durations that differ by at most this value, ms, count as equal."""
LIMIT_SHARE = 0.003
"""Durations that differ by at most this share of the campaign's median count as equal too."""
_ROUNDING_MS = 1e-6
"""Rounding error: browsers report steps of 0.1 ms, whose differences are not exact in binary."""

_SAME = ("link", "page")
_NOT_CONDITIONS = frozenset({"campaign", "study", "client", "number", *_SAME})
"""Key columns that do not distinguish conditions.

If a round has several clients or queries of a condition, their median is used.
"""


class Drift(StrEnum):
    """Verdict on a condition, from rounds that were measured again."""

    CONFIRMED = "confirmed"
    """The whole interval of the difference lies within the limit."""
    DRIFTED = "drifted"
    """At least `MIN_ROUNDS` rounds were compared; the whole interval is above the limit, or below minus the limit."""
    UNDECIDED = "undecided"
    """The interval shows neither; more rounds are necessary."""


def drift(committed: Callable[[str], pl.LazyFrame], again: Callable[[str], pl.LazyFrame]) -> pl.DataFrame:
    """Compare the durations of the common rounds of two campaigns with the same plan.

    Parameters
    ----------
    committed, again
        For each campaign, a function that returns a table by its name, like `Dataset.table`.

    Returns
    -------
    polars.DataFrame
        table, link, page, condition, measure, rounds, committed_ms, difference_ms, low_ms, high_ms, limit_ms, verdict
        (`Drift`). committed_ms and difference_ms are medians over the rounds. A difference is the new value minus the
        committed value of the same round. low_ms and high_ms are the 95 % interval of difference_ms; below `MIN_ROUNDS`
        rounds, they are the least and the greatest difference.
    """
    parts = [_table(TABLES[name], committed(name), again(name)) for name in TABLES if TABLES[name].observed]
    return pl.concat(parts)


def _table(table: type[Table], committed: pl.LazyFrame, again: pl.LazyFrame) -> pl.DataFrame:
    keys_of_table = [column.name for column in table.columns if column.key and column.name not in _NOT_CONDITIONS]
    # A key that is empty in one of the two, such as the browser in older campaigns, distinguishes nothing.
    recorded = [rows.select(pl.col(keys_of_table).is_not_null().any()).collect() for rows in (committed, again)]
    conditions = [name for name in keys_of_table if all(each[name].item() for each in recorded)]
    measures = [column.name for column in table.columns if column.success and column.unit == "ms"]
    index = [*_SAME, "condition", "round"]

    def values(rows: pl.LazyFrame) -> pl.DataFrame:
        parts = [pl.col(name).cast(pl.String) for name in conditions]
        label = pl.concat_str(parts, separator=" ", ignore_nulls=True) if parts else pl.lit("")
        return (
            rows.with_columns(
                pl.col(*_SAME).cast(pl.String).fill_null(""),  # rows without a page
                condition=label.str.strip_chars(),
            )
            .group_by(index)
            .agg(pl.col(*measures).median())
            .unpivot(measures, index=index, variable_name="measure", value_name="value")
            .drop_nulls("value")
            .collect()
        )

    keys = [*_SAME, "condition", "measure"]
    both = values(committed).join(values(again), on=[*keys, "round"], suffix="_again")
    both = both.with_columns(
        difference=pl.col("value_again") - pl.col("value"),
        **{name: pl.lit("") for name in CLUSTER if name not in both.columns},
    )
    spread = both.group_by(keys).agg(
        committed_ms=pl.col("value").median(),
        least=pl.col("difference").min(),
        greatest=pl.col("difference").max(),
    )
    few = pl.col("rounds") < MIN_ROUNDS
    limit = pl.max_horizontal(pl.lit(LIMIT_MS), LIMIT_SHARE * pl.col("committed_ms").abs())
    inside = (pl.col("low_ms") >= -pl.col("limit_ms") - _ROUNDING_MS) & (
        pl.col("high_ms") <= pl.col("limit_ms") + _ROUNDING_MS
    )
    outside = (pl.col("low_ms") > pl.col("limit_ms") + _ROUNDING_MS) | (
        pl.col("high_ms") < -pl.col("limit_ms") - _ROUNDING_MS
    )
    verdict = pl.when(inside).then(pl.lit(Drift.CONFIRMED.value)).when(outside & ~few).then(pl.lit(Drift.DRIFTED.value))
    return (
        medians(both.lazy(), "difference", keys)
        .join(spread, on=keys, maintain_order="left")
        .with_columns(
            low_ms=pl.when(few).then("least").otherwise("low"),
            high_ms=pl.when(few).then("greatest").otherwise("high"),
            limit_ms=limit,
        )
        .with_columns(verdict=verdict.otherwise(pl.lit(Drift.UNDECIDED.value)))
        .select(
            pl.lit(table.table).alias("table"),
            *keys,
            pl.col("rounds").cast(pl.Int64),
            "committed_ms",
            pl.col("median").alias("difference_ms"),
            "low_ms",
            "high_ms",
            "limit_ms",
            "verdict",
        )
        .sort(*keys)
    )
