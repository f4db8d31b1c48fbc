"""Medians with their intervals, as frames; `resampling` draws the rounds.

All functions use a seed, so the same frame gives the same interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.combinations import BASELINE
from crosslayer.metrics.grouping import Frames, gathered, schema_of
from crosslayer.metrics.resampling import MIN_ROUNDS, RESAMPLES, Reals, Rounds, Sample, interval
from crosslayer.metrics.rows import CELL, CLUSTER, ROUND


def medians(
    frame: Frames,
    value: str,
    by: Sequence[str],
    *,
    level: float = 0.5,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pl.DataFrame:
    """Median of each group with its 95 % interval; nulls are left out.

    Parameters
    ----------
    level
        Level of the quantile, from 0 to 1; by default that of the median.

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, median, low, high. The interval is null under `MIN_ROUNDS` rounds.
    """
    rows = [
        (*key, *median(group[value].to_numpy(), rounds_of(group), level=level, resamples=resamples, seed=seed))
        for key, group in groups(frame, [value], by)
    ]
    return estimates_frame(frame, by, rows, "median")


def median(
    values: Reals, rounds: Rounds, *, level: float = 0.5, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[int, int, float, float | None, float | None]:
    """Median of observations with its 95 % interval, as a tuple like the columns of `medians`.

    The tuple has n, rounds, median, low and high.
    """
    sample = rounds.sample(values)
    estimates = [sample.quantiles(level, weights) for weights in rounds.drawn(resamples, seed)]
    return sample.size, rounds.count, sample.quantile(level), *_interval(estimates, rounds.count)


def quantile_differences(
    frame: pl.LazyFrame,
    value: str,
    condition: str,
    first: str,
    second: str,
    by: Sequence[str],
    *,
    level: float,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pl.DataFrame:
    """Quantile of the condition `first` minus that of `second` in each group, with the 95 % interval of the difference.

    Both conditions are resampled together. Unlike `paired`, this function compares distributions: events that are rare
    in one condition and common in the other need not occur in the same round.

    Returns
    -------
    polars.DataFrame
        by..., n (observations of the smaller sample), rounds, median (the difference), low, high.
    """
    rows = []
    for key, group in groups(frame.filter(pl.col(condition).is_in([first, second])), [value, condition], by):
        rounds = rounds_of(group)
        chosen = [(group[condition] == name).to_numpy() for name in (first, second)]
        if not all(some.any() for some in chosen):
            continue
        one, other = (rounds.sample(group[value].to_numpy(), some) for some in chosen)
        estimates = [
            one.quantiles(level, weights) - other.quantiles(level, weights) for weights in rounds.drawn(resamples, seed)
        ]
        difference = one.quantile(level) - other.quantile(level)
        rows.append((*key, min(one.size, other.size), rounds.count, difference, *_interval(estimates, rounds.count)))
    return estimates_frame(frame, by, rows, "median")


def relative_medians(
    combinations: pl.LazyFrame, *, baseline: str = BASELINE, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Median PLT increase of each combination over the baseline's median, per cell, with its 95 % interval.

    Takes the rows of `combine`. Baseline and combination are resampled together, so the interval contains the
    uncertainty of both, and variation that both have in common cancels.

    Returns
    -------
    polars.DataFrame
        link, page, combination, n, rounds, increase_percent, low, high. Cells without the baseline are left out.
        The interval is null for the baseline itself and under `MIN_ROUNDS` rounds.
    """
    rows = []
    for cell, group in groups(combinations, ["plt_ms", "combination"], CELL):
        rounds = rounds_of(group)
        samples = {
            name: rounds.sample(group["plt_ms"].to_numpy(), chosen)
            for name in sorted(group["combination"].unique())
            for chosen in [(group["combination"] == name).to_numpy()]
        }
        estimates = (
            relative_to(baseline, samples, rounds, resamples=resamples, seed=seed) if baseline in samples else []
        )
        rows += [(*cell, *row) for row in estimates]
    return estimates_frame(combinations, [*CELL, "combination"], rows, "increase_percent")


def relative_to(
    baseline: str, samples: Mapping[str, Sample], rounds: Rounds, *, resamples: int = RESAMPLES, seed: int = 0
) -> Iterator[tuple[str, int, int, float, float | None, float | None]]:
    """Yield the increase of each sample's median over the median of the baseline's sample.

    Each result has the name, n, rounds, increase (percent), low and high.
    """
    estimates: dict[str, list[Reals]] = {name: [] for name in samples}
    for weights in rounds.drawn(resamples, seed):
        base = samples[baseline].quantiles(0.5, weights)
        for name, sample in samples.items():
            estimates[name].append((sample.quantiles(0.5, weights) / base - 1) * 100)
    for name, sample in samples.items():
        increase = (sample.quantile(0.5) / samples[baseline].quantile(0.5) - 1) * 100
        fewest = min(sample.rounds, samples[baseline].rounds)
        enough = name != baseline and fewest >= MIN_ROUNDS
        ends = _interval(estimates[name], fewest) if enough else (None, None)
        yield name, sample.size, sample.rounds, increase, *ends


def paired(frame: pl.LazyFrame, value: str, condition: str, first: str, second: str) -> pl.LazyFrame:
    """Difference of two conditions within each round, `first` minus `second`, as input of `medians`.

    The frame has at most one observation of each condition in a round.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, difference (unit of the value). A row for each round that has both conditions.
    """
    one, other = (
        frame.filter(pl.col(condition) == name).select(*ROUND, pl.col(value).alias(column))
        for name, column in ((first, "first"), (second, "second"))
    )
    return one.join(other, on=ROUND).select(*ROUND, (pl.col("first") - pl.col("second")).alias("difference"))


def paired_costs(frame: pl.LazyFrame, value: str, condition: str, name: str, baseline: str) -> pl.LazyFrame:
    """Increase of a value in ms over the baseline within each round, as input of `medians`.

    The frame has at most one observation of each condition in a round.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, difference_ms, difference_percent (of the baseline's median in the cell).
    """
    of_baseline = frame.filter(pl.col(condition) == baseline)
    level = of_baseline.group_by(CELL).agg(level=pl.col(value).median())
    differences = paired(frame, value, condition, name, baseline).join(level, on=list(CELL))
    return differences.select(
        *ROUND,
        difference_ms="difference",
        difference_percent=100 * pl.col("difference") / pl.col("level"),
    )


def _interval(estimates: list[Reals], rounds: int) -> tuple[float | None, float | None]:
    return interval(np.concatenate(estimates), rounds) if estimates else (None, None)


def groups(frame: Frames, columns: Sequence[str], by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Observations of each group: the given columns, and `CLUSTER` for resampling."""
    return gathered(frame, by, [*columns, *CLUSTER])


def rounds_of(frame: pl.DataFrame) -> Rounds:
    """The rounds of a frame's observations, numbered in the order of `CLUSTER`."""
    if frame.is_empty():
        return Rounds.of(np.empty(0, np.intp), np.empty(0, np.intp))
    campaign, host = (_codes(frame[name]) for name in ("campaign", "host"))
    number = frame["round"].to_numpy().astype(np.int64)
    number -= number.min()
    # One number for each round, in the order of its three columns; then without gaps. Sorting would take longer.
    code = (campaign * (int(number.max()) + 1) + number) * (int(host.max()) + 1) + host
    there = np.zeros(int(code.max()) + 1, np.bool_)
    there[code] = True
    numbers = (np.cumsum(there, dtype=np.int32) - 1)[code]
    hosts = np.zeros(int(np.count_nonzero(there)), np.intp)
    if host.max():
        hosts[numbers] = host
    return Rounds.of(numbers, hosts)


def _codes(labels: pl.Series) -> NDArray[np.int64]:
    """Rank of each label among the different labels, from 0.

    If all labels are equal, the array has only one element, 0.
    """
    if labels.n_unique() == 1:
        return np.zeros(1, np.int64)
    return labels.cast(pl.String).rank("dense").to_numpy().astype(np.int64) - 1


def estimates_frame(source: Frames, by: Sequence[str], rows: list[tuple[Any, ...]], estimate: str) -> pl.DataFrame:
    """Frame of estimates with one row per group: by..., n, rounds, the estimate, low, high."""
    schema = schema_of(source, by) | {"n": pl.Int64(), "rounds": pl.Int64()}
    schema |= {name: pl.Float64() for name in (estimate, "low", "high")}
    return pl.DataFrame(rows, schema=schema, orient="row")
