"""The A/A self-check: differences in PLT between loads that should have equal PLTs, and tests of this equality."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from crosslayer.metrics.cells import Cell, Cells, Part
from crosslayer.metrics.intervals import paired
from crosslayer.metrics.resampling import Clusters, Reals, interval
from crosslayer.metrics.rows import CELL, ROUND, page_loads
from crosslayer.vocabulary import Role

EQUAL_PERCENT = 3.0
"""Margin of equality, percent.

Loads count as equal if the interval of the median of their PLT differences lies within ± this margin.
"""

TEST_LEVEL = 0.9
"""Level of the interval in a test of equality.

A 90 % interval within the margins is equivalent to two one-sided tests at 5 % each (Schuirmann, 1987).
"""


class LoadKind(NamedTuple):
    """A kind of page load; loads of one kind differ only by chance."""

    h3: str
    condition: str
    role: Role = Role.MEASURED

    @property
    def series(self) -> str:
        """Name, in `Cells`, of the series with the PLTs of this kind."""
        role = () if self.role is Role.MEASURED else (self.role.value,)
        return " ".join((self.h3, self.condition, *role, "PLT"))


REPETITIONS = {
    f"A/A: H3 {name}": (LoadKind(h3, condition), LoadKind(h3, condition, Role.SELF_CHECK))
    for name, h3, condition in (
        ("1-RTT", "1-rtt", "main"),
        ("0-RTT with token", "0-rtt", "main"),
        ("0-RTT without token", "0-rtt", "no-token"),
    )
}
"""Each measured kind of load, and its repetition in the same round (A/A)."""

SELF_CHECKS = REPETITIONS | {
    "Ticket refused and H3 1-RTT": (LoadKind("1-rtt", "refused", Role.CONTROL), LoadKind("1-rtt", "main"))
}
"""Pairs of kinds of load. In a round, both loads of a pair should have the same PLT."""


class Pairs(NamedTuple):
    """PLTs of pairs of loads that should be equal, in percent.

    For each pair of the cell, the mean of its two PLTs is computed; the median of these means is 100 %.
    """

    first: Reals
    second: Reals
    rounds: Clusters
    """Number of the round of each pair."""


def without_repetitions(loads: pl.LazyFrame) -> pl.LazyFrame:
    """The rows of `page_loads`, without the loads that the A/A self-check added."""
    return loads.filter(pl.col("role") != Role.SELF_CHECK)


def repetition_differences(loads: pl.LazyFrame) -> pl.LazyFrame:
    """PLT of every load that the A/A self-check repeated, minus the PLT of its repetition; takes rows of `page_loads`.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, and the column `percent`: the difference, in percent of a median PLT. This is the median
        over the measured loads (not the repetitions) of the same kind in the cell.
    """
    parts = []
    for first, second in REPETITIONS.values():
        alike = page_loads(loads.filter(h3=first.h3), condition=first.condition, role=None)
        levels = alike.filter(role=first.role).group_by(CELL).agg(level_ms=pl.col("plt_ms").median())
        parts.append(paired(alike, "plt_ms", "role", first.role, second.role).join(levels, on=list(CELL)))
    return pl.concat(parts).select(*ROUND, percent=100 * pl.col("difference") / pl.col("level_ms"))


def loads_by_kind(loads: pl.LazyFrame, *, but: Collection[str] = ()) -> Part:
    """PLT of each kind of load in `SELF_CHECKS`, as series of `Cells`; takes rows of `page_loads`, e.g. of one link.

    Loads without the expected evidence in the server log are left out, and so are the series in `but`.
    """
    kinds = {kind.series: kind for pair in SELF_CHECKS.values() for kind in pair if kind.series not in but}
    of_kind = {
        series: (pl.col("h3") == kind.h3) & (pl.col("condition") == kind.condition) & (pl.col("role") == kind.role)
        for series, kind in kinds.items()
    }
    series = pl.coalesce(pl.when(wanted).then(pl.lit(name)) for name, wanted in of_kind.items())
    rows = page_loads(loads, condition=None, role=None).with_columns(kind=series)
    return Part(rows.filter(pl.col("kind").is_not_null()), "kind", {"{}": "plt_ms"})


def self_checked(cells: Cells, named: Mapping[str, str] | None = None) -> dict[Cell, Pairs]:
    """Pairs of loads that should be equal within a round, by series (of `SELF_CHECKS`), link and page.

    Parameters
    ----------
    cells
        With the series of `loads_by_kind`.
    named
        For each series of `loads_by_kind` that has another name in `cells`: this other name.
    """
    called = named or {}
    results = {}
    for series, kinds in SELF_CHECKS.items():
        first, second = (called.get(kind.series, kind.series) for kind in kinds)
        for _, link, page in sorted(cell for cell in cells.cells if cell[0] == second):
            if (first, link, page) in cells.cells:
                (one, other), rounds = cells.together((first, second), link, page)
                if len(rounds):
                    level = float(np.median((one + other) / 2))
                    results[series, link, page] = Pairs(100 * one / level, 100 * other / level, rounds)
    return results


def pooled_pairs(pairs: Mapping[Cell, Pairs]) -> dict[tuple[str, ...], Pairs]:
    """The pairs of each series, all cells together."""
    series = dict.fromkeys(name for name, *_ in pairs)
    of_series = ([some for cell, some in pairs.items() if cell[0] == name] for name in series)
    together = (Pairs(*map(np.concatenate, zip(*some, strict=True))) for some in of_series)
    return {(name,): some for name, some in zip(series, together, strict=True)}


def equivalence(
    cells: Cells,
    groups: Mapping[tuple[str, ...], Pairs] | Mapping[Cell, Pairs],
    by: Sequence[str],
    margin: float = EQUAL_PERCENT,
) -> pl.DataFrame:
    """Test whether the median difference of each group lies within a margin around 0, by two one-sided tests.

    Parameters
    ----------
    cells
        Cells with the rounds of the pairs.
    groups
        Pairs by key, from `self_checked` or `pooled_pairs`.
    by
        Column of each part of the key.
    margin
        A group counts as equal if the interval of its median difference lies within ± this margin, percent.

    Returns
    -------
    polars.DataFrame
        by..., n, median, low, high (90 % interval, rounds resampled), equal (whether the interval is within the
        margins; null with too few rounds for an interval), p (the larger p-value of both tests), ks (greatest distance
        of the two distributions), ks_p (probability of at least this distance if both are equal). median, low and high
        are in percent of the PLT; p, ks and ks_p are from 0 to 1.
    """
    rows = []
    for key, pairs in groups.items():
        rounds = cells.rounds_of(pairs.rounds)
        sample = rounds.sample(pairs.first - pairs.second)
        draws = [sample.quantiles(0.5, weights) for weights in rounds.drawn()]
        low = high = equal = p = None
        if draws:
            medians = np.concatenate(draws)
            low, high = interval(medians, rounds.count, TEST_LEVEL)
            equal = -margin < low and high < margin
            p = float(max(np.mean(medians <= -margin), np.mean(medians >= margin)))
        apart = kolmogorov_smirnov(pairs.first, pairs.second)
        rows.append((*key, sample.size, sample.quantile(0.5), low, high, equal, p, *apart))
    schema: dict[str, pl.DataType] = dict.fromkeys(by, pl.String()) | {"n": pl.Int64()}
    schema |= dict.fromkeys(("median", "low", "high", "equal", "p", "ks", "ks_p"), pl.Float64())
    return pl.DataFrame(rows, schema=schema | {"equal": pl.Boolean()}, orient="row")


def kolmogorov_smirnov(one: Reals, other: Reals) -> tuple[float, float]:
    """Greatest distance of two empirical distributions, and the probability of this distance or more if both are equal.

    It uses the asymptotic distribution with Stephens's correction (1970); with ties it errs towards "equal".
    """
    # Sorted, so that each search is near the previous one; polars sorts twice as fast as numpy.
    first, second, both = (pl.Series(of).sort().to_numpy() for of in (one, other, np.concatenate([one, other])))
    shares = [np.searchsorted(of, both, side="right") / len(of) for of in (first, second)]
    distance = float(np.max(np.abs(shares[0] - shares[1])))
    size = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    reduced = (size + 0.12 + 0.11 / size) * distance
    if reduced < 0.2:
        return distance, 1.0  # the series converges too slowly; its sum is 1 to twelve digits
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * reduced) ** 2) for k in range(1, 101))
    return distance, min(1.0, max(0.0, 2 * math.fsum(terms)))
