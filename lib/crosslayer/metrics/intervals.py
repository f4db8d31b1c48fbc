"""Medians and their uncertainty, as frames; `resampling` has how rounds are drawn again.

All functions draw from a seed: the same frame gives the same interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from crosslayer.metrics.combinations import BASELINE
from crosslayer.metrics.observations import CELL, CLUSTER, ROUND
from crosslayer.metrics.resampling import MIN_ROUNDS, RESAMPLES, Clusters, Reals, Sample, drawn, interval


def medians(
    frame: pl.LazyFrame,
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
        Of another quantile that is to stand in place of the median, from 0 to 1.

    Returns
    -------
    polars.DataFrame
        by..., n (observations), rounds, median, low, high. The interval is null under `MIN_ROUNDS` rounds.
    """
    rows = []
    for key, group in groups(frame, [value], by):
        clusters, rounds, hosts = clusters_of(group)
        sample = Sample(group[value].to_numpy(), clusters)
        estimates = [sample.quantiles(level, weights) for weights in drawn(rounds, sample.size, resamples, seed, hosts)]
        rows.append((*key, sample.size, rounds, sample.quantile(level), *_interval(estimates, rounds)))
    return estimates_frame(frame, by, rows, "median")


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
    """Quantile of one condition minus that of another in each group, with its 95 % interval.

    Both are resampled together. Unlike `paired`, it is about the distributions: what is rare in one condition and
    common in the other need not happen in the same round.

    Returns
    -------
    polars.DataFrame
        by..., n (observations of the smaller sample), rounds, median (the difference), low, high.
    """
    rows = []
    for key, group in groups(frame.filter(pl.col(condition).is_in([first, second])), [value, condition], by):
        clusters, rounds, hosts = clusters_of(group)
        chosen = [(group[condition] == name).to_numpy() for name in (first, second)]
        if not all(some.any() for some in chosen):
            continue
        one, other = (Sample(group[value].to_numpy()[some], clusters[some]) for some in chosen)
        estimates = [
            one.quantiles(level, weights) - other.quantiles(level, weights)
            for weights in drawn(rounds, group.height, resamples, seed, hosts)
        ]
        difference = one.quantile(level) - other.quantile(level)
        rows.append((*key, min(one.size, other.size), rounds, difference, *_interval(estimates, rounds)))
    return estimates_frame(frame, by, rows, "median")


def relative_medians(
    combinations: pl.LazyFrame, *, baseline: str = BASELINE, resamples: int = RESAMPLES, seed: int = 0
) -> pl.DataFrame:
    """Median PLT increase of each combination over the baseline's median, per cell, with its 95 % interval.

    Takes the rows of `combine`. Baseline and combination are resampled together, so the interval holds the uncertainty
    of both and not what they have in common.

    Returns
    -------
    polars.DataFrame
        link, page, combination, n, rounds, increase_percent, low, high. Cells without the baseline are left out.
        The interval is null for the baseline itself and under `MIN_ROUNDS` rounds.
    """
    rows = []
    for cell, group in groups(combinations, ["plt_ms", "combination"], CELL):
        clusters, rounds, hosts = clusters_of(group)
        samples = {
            str(name): Sample(group["plt_ms"].to_numpy()[chosen], clusters[chosen])
            for name in group["combination"].unique().sort()
            for chosen in [(group["combination"] == name).to_numpy()]
        }
        if baseline not in samples:
            continue
        estimates: dict[str, list[Reals]] = {name: [] for name in samples}
        for weights in drawn(rounds, group.height, resamples, seed, hosts):
            base = samples[baseline].quantiles(0.5, weights)
            for name, sample in samples.items():
                estimates[name].append((sample.quantiles(0.5, weights) / base - 1) * 100)
        for name, sample in samples.items():
            increase = (sample.quantile(0.5) / samples[baseline].quantile(0.5) - 1) * 100
            fewest = min(sample.rounds, samples[baseline].rounds)
            enough = name != baseline and fewest >= MIN_ROUNDS
            ends = _interval(estimates[name], fewest) if enough else (None, None)
            rows.append((*cell, name, sample.size, sample.rounds, increase, *ends))
    return estimates_frame(combinations, [*CELL, "combination"], rows, "increase_percent")


def paired(frame: pl.LazyFrame, value: str, condition: str, first: str, second: str) -> pl.LazyFrame:
    """Difference of two conditions within each round, `first` minus `second`; give it to `medians`.

    The frame has at most one observation of each condition in a round.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, difference (unit of the value); rounds that have both.
    """
    one, other = (
        frame.filter(pl.col(condition) == name).select(*ROUND, pl.col(value).alias(column))
        for name, column in ((first, "first"), (second, "second"))
    )
    return one.join(other, on=ROUND).select(*ROUND, (pl.col("first") - pl.col("second")).alias("difference"))


def _interval(estimates: list[Reals], rounds: int) -> tuple[float | None, float | None]:
    return interval(np.concatenate(estimates), rounds) if estimates else (None, None)


def groups(
    frame: pl.LazyFrame, columns: Sequence[str], by: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Each group's observations, in an order that does not depend on the order of the frame."""
    wanted = frame.filter(pl.col(columns[0]).is_not_null()).select(*dict.fromkeys((*by, *CLUSTER, *columns)))
    rows = wanted.collect(engine="streaming").sort(*by, *CLUSTER, columns[0])
    if by:
        yield from rows.group_by(by, maintain_order=True)
    elif rows.height:
        yield (), rows


def clusters_of(frame: pl.DataFrame) -> tuple[Clusters, int, Clusters]:
    """Number of the round each observation belongs to, how many rounds there are, and the number of each one's host."""
    host = frame["host"].cast(pl.String)
    several = frame.height > 0 and host.n_unique() > 1
    key = ["campaign", "round", host] if several else ["campaign", "round"]
    numbers = frame.select(pl.struct(key).rank("dense") - 1).to_series().to_numpy().astype(np.intp)
    hosts = np.zeros(int(numbers.max(initial=-1)) + 1, np.intp)
    if several:
        hosts[numbers] = host.rank("dense").to_numpy() - 1
    return numbers, len(hosts), hosts


def estimates_frame(
    source: pl.LazyFrame, by: Sequence[str], rows: list[tuple[Any, ...]], estimate: str
) -> pl.DataFrame:
    """One row a group: by..., n, rounds, the estimate, low, high."""
    kinds = source.collect_schema()
    schema: dict[str, pl.DataType] = {name: kinds[name] for name in by}
    schema |= {"n": pl.Int64(), "rounds": pl.Int64()}
    schema |= {name: pl.Float64() for name in (estimate, "low", "high")}
    return pl.DataFrame(rows, schema=schema, orient="row")
