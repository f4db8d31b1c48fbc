"""The bootstrap by round: resample whole rounds, and compute a statistic in every resample.

Observations of one round share what the machine did at that moment, so the round is what is drawn again, with all
its observations. Rounds of one host share the host: where there are several, hosts are drawn first, then rounds of
these. Of more than `MOST_BLOCKS` rounds, blocks of neighbours are drawn. An `Estimate` keeps a statistic's value in
every resample; whatever is computed from estimates that were drawn together (a ratio of medians, the greatest of 15
cells) keeps its uncertainty, and what they have in common cancels. Draws come from a seed: the same rounds give the
same interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

MIN_ROUNDS = 6
"""Fewer rounds give no 95 % interval: even the whole range of five holds the median with 93.75 % only."""

FEWEST_BEYOND = 4.5
"""Fewer observations beyond a quantile give no interval: resamples hardly ever reach further than the sample does."""

ROUNDS_OF_MOMENTS = 16
"""Fewer rounds give no interval of a mean, variance or share: their standard error is no better known than they are."""

RESAMPLES = 1000
LEVEL = 0.95

MOST_BLOCKS = 2_000
"""Of more rounds, so many blocks of neighbouring ones are drawn, each whole, as Carlstein (1986) has it: an interval's
width is then known to 1.6 %, better than from the resamples, and no campaign is too large."""

_CELLS_IN_MEMORY = 4_000_000
_CELLS_KEPT = MOST_BLOCKS * RESAMPLES
_CELLS_IN_CACHE = 64_000
_SORTED_BY_ALL_CORES = 100_000
"""Observations from which on polars sorts them, which takes half as long; numpy uses one core."""

_THREADS = ThreadPoolExecutor(os.cpu_count())

Reals = NDArray[np.float64]
Counts = NDArray[np.int32]
Clusters = NDArray[np.signedinteger]


def drawn(rounds: int, resamples: int = RESAMPLES, seed: int = 0, hosts: Clusters | None = None) -> Iterator[Counts]:
    """How often each round is drawn, some resamples at a time, shape (resamples, rounds); none for too few rounds.

    As many rounds are drawn, with replacement, as there are. `hosts` is the number of the host of each round, shape
    (rounds,); None where there is one.
    """
    if rounds < MIN_ROUNDS:
        return
    block = max(1, _CELLS_IN_MEMORY // rounds)
    if hosts is not None and hosts.max() > 0:
        yield from _counted_by_host(hosts, resamples, seed, block)
    elif rounds * resamples <= _CELLS_KEPT:
        counts = _kept(rounds, resamples, seed)
        yield from (counts[start : start + block] for start in range(0, resamples, block))
    else:
        yield from _counted(rounds, resamples, seed, block)


@lru_cache(maxsize=4)
def _kept(rounds: int, resamples: int, seed: int) -> Counts:
    """All of the counts: drawing them takes longer than using them, and most groups of a frame have equal rounds."""
    counts = np.concatenate(list(_counted(rounds, resamples, seed, max(1, _CELLS_IN_CACHE // rounds))))
    counts.flags.writeable = False
    return counts


def _counted(rounds: int, resamples: int, seed: int, block: int) -> Iterator[Counts]:
    draw = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        height = min(block, resamples - start)
        picked = draw.integers(0, rounds, (height, rounds)) + np.arange(height)[:, None] * rounds
        yield np.bincount(picked.ravel(), minlength=height * rounds).reshape(height, rounds).astype(np.int32)


def _counted_by_host(hosts: Clusters, resamples: int, seed: int, block: int) -> Iterator[Counts]:
    """As many hosts as there are, with replacement; then as many rounds as there are, among all of the drawn hosts."""
    draw = np.random.default_rng(seed)
    rounds, number = len(hosts), int(hosts.max()) + 1
    of_host = [np.flatnonzero(hosts == host) for host in range(number)]
    for start in range(0, resamples, block):
        counts = np.empty((min(block, resamples - start), rounds), np.int32)
        for row in counts:
            there = np.concatenate([of_host[host] for host in draw.integers(0, number, number)])
            row[:] = np.bincount(there[draw.integers(0, len(there), rounds)], minlength=rounds)
        yield counts


def interval(draws: Reals, rounds: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a statistic from its value in every resample of so many rounds (expanded percentile method).

    The bootstrap takes the scatter of few rounds for known: its percentiles are those of a normal distribution and of a
    variance too small by 1/rounds. They are taken as far out as Student's t is, and the unbiased variance (Hesterberg,
    The American Statistician 69, 2015, section 5.3).
    """
    below = NormalDist().cdf(-reach(rounds, level))
    low, high = np.nanquantile(draws, [below, 1 - below])
    return float(low), float(high)


@cache
def reach(rounds: int, level: float = LEVEL) -> float:
    """How many of the bootstrap's standard errors an interval of so many rounds reaches to each side; 1.96 of many."""
    n, z = rounds - 1, NormalDist().inv_cdf((1 + level) / 2)
    # Quantile of Student's t (Abramowitz and Stegun, 26.7.5); exact to 0.1 % from 5 degrees of freedom on.
    t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return t * math.sqrt(rounds / n)


class Sample:
    """Observations of one condition, sorted once, so that each resample is a cumulative sum and no sorting.

    `clusters` is the number of the round each of them belongs to, `blocks` the number of what each round is drawn with.
    """

    def __init__(self, values: Reals, clusters: Clusters, blocks: Clusters | None = None) -> None:
        large = len(values) >= _SORTED_BY_ALL_CORES
        order = pl.Series(values).arg_sort().to_numpy() if large else np.argsort(values)
        self.values: Reals = values[order]
        self.clusters: Clusters = (clusters if blocks is None else blocks[clusters])[order]
        self.size = len(values)
        self.rounds = int(np.count_nonzero(np.bincount(clusters)))

    def quantile(self, q: float) -> float:
        """Quantile of the observations, interpolated linearly."""
        return float(np.quantile(self.values, q))

    def quantiles(self, q: float, weights: Counts) -> Reals:
        """The quantile in each resample, shape (resamples,); NaN where one has none of this sample's rounds.

        `weights` is how often each round was drawn, shape (resamples, rounds); as often in all as there are rounds.
        Ranks are unbiased in the median whatever the distribution (Hyndman and Fan 1996, definition 8): with those of
        `quantile` an interval of P10 lies too far inside.
        """
        of_round = self._per_round(self.size, weights)
        # Ranks of a resample's quantile scatter by this much (1 sigma), so in a large sample it is enough to look
        # around it; should one lie outside, all of it is looked at.
        spread = np.sqrt(np.square(self._per_round(int(self.size * q), weights) - q * of_round).sum())
        first, last = (int(np.clip(self.size * q + side * (5 * spread + 2), 0, self.size)) for side in (-1, 1))
        equal = bool((of_round == of_round[0]).all())  # then every resample has as many observations as there are
        total = np.full(len(weights), self.size) if equal else weights @ of_round
        # Few enough resamples at a time that what is made of them stays in the processor's cache.
        rows = max(1, _CELLS_IN_CACHE // (last - first))

        below = self._per_round(first, weights)

        def block(start: int) -> Reals:
            of_block, totals = weights[start : start + rows], total[start : start + rows]
            found, sure = self._search(q, of_block, totals, of_block @ below, first, last)
            return found if sure else self._search(q, of_block, totals, 0, 0, self.size)[0]

        starts = range(0, len(weights), rows)
        # numpy lets other threads run meanwhile; the parts are put together in their order.
        return np.concatenate(list(_THREADS.map(block, starts) if len(starts) > 4 else map(block, starts)))

    def _per_round(self, end: int, weights: Counts) -> Counts:
        """How many of the first observations, up to rank `end`, each round has."""
        return np.bincount(self.clusters[:end], minlength=weights.shape[1]).astype(np.int32)

    def _search(
        self, q: float, weights: Counts, total: Counts, before: Counts | int, first: int, last: int
    ) -> tuple[Reals, bool]:
        """Quantiles looked for among the observations from rank `first` to `last`, and whether all were there."""
        cumulated = weights[:, self.clusters[first:last]].cumsum(axis=1, dtype=np.int32)
        place = np.clip((total + 1 / 3) * q - 2 / 3, 0, np.maximum(total - 1, 0))
        low_rank = np.floor(place) + 1 - before
        high_rank = np.ceil(place) + 1 - before
        some = total > 0
        sure = bool(np.all(~some | ((low_rank > 0) & (high_rank <= cumulated[:, -1]))))
        low, high = (
            self.values[first + np.argmax(cumulated >= rank.astype(np.int32)[:, None], axis=1)]
            for rank in (low_rank, high_rank)
        )
        return np.where(some, low + (place - np.floor(place)) * (high - low), np.nan), sure


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds that some observations belong to, and what is drawn of them."""

    numbers: Clusters
    """Round of each observation, from 0."""
    blocks: Clusters
    """What each round is drawn with: itself, or its block where there are more than `MOST_BLOCKS`."""
    hosts: Clusters
    """Host of each block."""

    @classmethod
    def of(cls, numbers: Clusters, hosts: Clusters) -> Rounds:
        """From the round of each observation, and the host of each round."""
        rounds = len(hosts)
        if rounds <= MOST_BLOCKS:
            return cls(numbers, np.arange(rounds), hosts)
        sizes = np.bincount(hosts)  # a block is of one host
        counts = np.maximum(1, sizes * MOST_BLOCKS // rounds)
        place = np.arange(rounds) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first, share = np.repeat(np.cumsum(counts) - counts, sizes), np.repeat(counts / sizes, sizes)
        blocks = np.empty(rounds, np.int32)
        blocks[np.argsort(hosts, kind="stable")] = first + (place * share).astype(np.int32)
        return cls(numbers, blocks, np.repeat(np.arange(len(sizes)), counts))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.blocks)

    def sample(self, values: Reals, chosen: Any = slice(None)) -> Sample:
        """A sample of the observations, or of those of them that are chosen."""
        return Sample(values[chosen], self.numbers[chosen], self.blocks)

    def drawn(self, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Counts]:
        """How often each block is drawn, as `drawn` says."""
        return drawn(len(self.hosts), resamples, seed, self.hosts)


def beyond(nearest: float, second: float) -> tuple[float, float]:
    """95 % interval of where a distribution ends, from its outermost observation and the next one.

    Robson and Whitlock (1964): as far beyond the outermost as 19 times its distance from the next. It holds where the
    density has an edge there; where it trails off, it is too short.
    """
    far = nearest + (1 / (1 - LEVEL) - 1) * (nearest - second)
    return min(nearest, far), max(nearest, far)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic, and what it is in every resample of the rounds."""

    value: float
    n: int
    """Observations of the smallest sample it was computed from."""
    rounds: int
    """Rounds of the sample that has fewest."""
    draws: Reals | None = None
    """Shape (resamples,); None where there is no interval: too few rounds, or a statistic the bootstrap cannot do."""
    ends: tuple[float, float] | None = None
    """The interval of a statistic the bootstrap cannot do, where there is one; what is derived from it has none."""
    sparse: bool = False
    """This statistic takes more for an interval than `MIN_ROUNDS`: `FEWEST_BEYOND` a quantile, `ROUNDS_OF_MOMENTS`."""

    @property
    def enough(self) -> bool:
        """Whether there are rounds and observations enough for an interval, if the statistic has one at all."""
        return self.rounds >= MIN_ROUNDS and not self.sparse

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval, None where there is none."""
        return self.ends if self.draws is None else interval(self.draws, self.rounds)


def derived(function: Callable[..., Any], *estimates: Estimate) -> Estimate:
    """A statistic computed from others that were drawn together, from the same rounds.

    The function takes as many numbers as there are estimates, or as many arrays of the same shape, elementwise.
    """
    draws = [e.draws for e in estimates if e.draws is not None]
    return Estimate(
        value=float(function(*(e.value for e in estimates))),
        n=min(e.n for e in estimates),
        rounds=min(e.rounds for e in estimates),
        draws=function(*draws) if len(draws) == len(estimates) else None,
        sparse=any(e.sparse for e in estimates),
    )
