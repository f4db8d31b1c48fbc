"""Medians and their uncertainty: bootstrap intervals that resample whole rounds.

Observations of one round share what the machine did at that moment, so the round is what is drawn again, with all
its observations. All functions draw from a seed: the same frame gives the same interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.combinations import BASELINE
from crosslayer.metrics.observations import CELL, ROUND

MIN_ROUNDS = 6
"""Fewer rounds give no 95 % interval: even the whole range of five holds the median with 93.75 % only."""

RESAMPLES = 1000
LEVEL = 0.95

_CELLS_IN_MEMORY = 4_000_000

_Reals = NDArray[np.float64]
_Counts = NDArray[np.int32]


def medians(
    frame: pl.LazyFrame, value: str, by: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Median of each group with its 95 % interval.

    Parameters
    ----------
    frame
        Observations with `campaign` and `round`.
    value
        Column whose median is wanted; its nulls are left out.
    by
        Columns that name a group.
    resamples, seed
        Of the bootstrap (percentile method).

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, median, low, high. The interval is null under `MIN_ROUNDS` rounds.
    """
    rows = []
    for key, group in _groups(frame, [value], by):
        clusters, rounds = _clusters(group)
        sample = _Sample(group[value].to_numpy(), clusters)
        estimates = [sample.medians(weights) for weights in _weights(rounds, sample.size, resamples, seed)]
        rows.append((*key, sample.size, rounds, sample.median, *_interval(estimates)))
    return _frame(frame, by, rows, "median")


def relative_medians(
    combinations: pl.LazyFrame, *, baseline: str = BASELINE, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Median PLT increase of each combination over the baseline's median, per cell, with its 95 % interval.

    Baseline and combination are resampled together, so the interval holds the uncertainty of both and not what
    they have in common.

    Parameters
    ----------
    combinations
        From `crosslayer.metrics.combine`.
    baseline
        Combination whose median is 0 %.

    Returns
    -------
    polars.DataFrame
        link, page, combination, n, rounds, increase_percent, low, high. Cells without the baseline are left out.
        The interval is null for the baseline itself and under `MIN_ROUNDS` rounds.
    """
    rows = []
    for cell, group in _groups(combinations, ["plt_ms", "combination"], CELL):
        clusters, rounds = _clusters(group)
        samples = {
            str(name): _Sample(group["plt_ms"].to_numpy()[chosen], clusters[chosen])
            for name in group["combination"].unique().sort()
            for chosen in [(group["combination"] == name).to_numpy()]
        }
        if baseline not in samples:
            continue
        estimates: dict[str, list[_Reals]] = {name: [] for name in samples}
        for weights in _weights(rounds, group.height, resamples, seed):
            base = samples[baseline].medians(weights)
            for name, sample in samples.items():
                estimates[name].append((sample.medians(weights) / base - 1) * 100)
        for name, sample in samples.items():
            increase = (sample.median / samples[baseline].median - 1) * 100
            enough = name != baseline and min(sample.rounds, samples[baseline].rounds) >= MIN_ROUNDS
            interval = _interval(estimates[name]) if enough else (None, None)
            rows.append((*cell, name, sample.size, sample.rounds, increase, *interval))
    return _frame(combinations, [*CELL, "combination"], rows, "increase_percent")


def paired(frame: pl.LazyFrame, value: str, condition: str, first: str, second: str) -> pl.LazyFrame:
    """Difference of two conditions within each round.

    Parameters
    ----------
    frame
        Observations, at most one of each condition in a round.
    value
        Column to subtract.
    condition
        Column that names the condition.
    first, second
        The difference is first minus second.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, difference (unit of the value); rounds that have both. Give it to `medians`.
    """
    one, other = (
        frame.filter(pl.col(condition) == name).select(*ROUND, pl.col(value).alias(column))
        for name, column in ((first, "first"), (second, "second"))
    )
    return one.join(other, on=ROUND).select(*ROUND, (pl.col("first") - pl.col("second")).alias("difference"))


class _Sample:
    """Observations of one condition, sorted once, so that each resample is a cumulative sum and no sorting."""

    def __init__(self, values: _Reals, clusters: NDArray[np.intp]) -> None:
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._clusters = clusters[order]
        self.size = len(values)
        self.rounds = len(np.unique(clusters))
        self.median = float(np.median(values))

    def medians(self, weights: _Counts) -> _Reals:
        """Median of each resample; `weights` has how often each round was drawn, shape (resamples, rounds)."""
        # Ranks of a resample's median scatter by at most this much (1 sigma, were the observations of a round equal),
        # so in a large sample it is enough to look at the middle; should one lie outside, all of it is looked at.
        spread = np.sqrt(self.size * self.size / self.rounds) / 2
        first, last = (int(np.clip(self.size / 2 + side * 8 * spread, 0, self.size)) for side in (-1, 1))
        estimates, sure = self._search(weights, first, last)
        return estimates if sure else self._search(weights, 0, self.size)[0]

    def _search(self, weights: _Counts, first: int, last: int) -> tuple[_Reals, bool]:
        """Medians looked for among the observations from rank `first` to `last`, and whether all were there."""
        rounds = weights.shape[1]
        before = weights @ np.bincount(self._clusters[:first], minlength=rounds)
        total = weights @ np.bincount(self._clusters, minlength=rounds)
        cumulated = weights[:, self._clusters[first:last]].cumsum(axis=1)
        low_rank, high_rank = (total + 1) // 2 - before, total // 2 + 1 - before
        drawn = total > 0
        sure = bool(np.all(~drawn | ((low_rank > 0) & (high_rank <= cumulated[:, -1]))))
        low, high = (np.argmax(cumulated >= rank[:, None], axis=1) for rank in (low_rank, high_rank))
        middle: _Reals = (self._values[first + low] + self._values[first + high]) / 2
        return np.where(drawn, middle, np.nan), sure


def _weights(rounds: int, observations: int, resamples: int, seed: int) -> Iterator[_Counts]:
    """How often each round is drawn, in blocks that fit in memory; nothing where there are too few rounds."""
    if rounds < MIN_ROUNDS:
        return
    draw = np.random.default_rng(seed)
    block = max(1, _CELLS_IN_MEMORY // max(rounds, observations))
    for start in range(0, resamples, block):
        height = min(block, resamples - start)
        drawn = draw.integers(0, rounds, (height, rounds)) + np.arange(height)[:, None] * rounds
        yield np.bincount(drawn.ravel(), minlength=height * rounds).reshape(height, rounds).astype(np.int32)


def _interval(estimates: list[_Reals]) -> tuple[float | None, float | None]:
    if not estimates:
        return None, None
    low, high = np.nanquantile(np.concatenate(estimates), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _groups(
    frame: pl.LazyFrame, columns: list[str], by: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Each group's observations, in an order that does not depend on the order of the frame."""
    wanted = frame.filter(pl.col(columns[0]).is_not_null()).select(*by, "campaign", "round", *columns)
    rows = wanted.collect(engine="streaming").sort(*by, "campaign", "round", columns[0])
    if by:
        yield from rows.group_by(by, maintain_order=True)
    elif rows.height:
        yield (), rows


def _clusters(group: pl.DataFrame) -> tuple[NDArray[np.intp], int]:
    """Number of the round each observation belongs to, and how many rounds there are."""
    numbers = group.select(pl.struct("campaign", "round").rank("dense") - 1).to_series().to_numpy()
    return numbers.astype(np.intp), int(numbers.max()) + 1


def _frame(source: pl.LazyFrame, by: Sequence[str], rows: list[tuple[Any, ...]], estimate: str) -> pl.DataFrame:
    kinds = source.collect_schema()
    schema: dict[str, pl.DataType] = {name: kinds[name] for name in by}
    schema |= {"n": pl.Int64(), "rounds": pl.Int64()}
    schema |= {name: pl.Float64() for name in (estimate, "low", "high")}
    return pl.DataFrame(rows, schema=schema, orient="row")
