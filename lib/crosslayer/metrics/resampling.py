"""The bootstrap by round: resample whole rounds, and compute a statistic in every resample.

Observations of one round depend on the state of the machine at that time, so a round is drawn with all its
observations. Rounds of one host depend on the host, so with several hosts, hosts are drawn first, then their rounds.
With more than `MOST_BLOCKS` rounds, blocks of neighbouring rounds are drawn. An `Estimate` stores the value of a
statistic in every resample. A statistic derived from estimates that were drawn together (a ratio of medians, the
greatest of 15 cells) therefore has an interval too, and common variation cancels. Draws use a seed, so the same rounds
give the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_ROUNDS = 6
"""Minimum number of rounds for a 95 % interval.

The range of only five values contains the median with a probability of 93.75 %.
"""

FEWEST_BEYOND = 4.5
"""Minimum of `n min(q, 1 - q)` for an interval of the quantile `q` of `n` observations.

This is the expected number of observations between the quantile and the nearer end of the sample. Resamples cannot
reach beyond the sample.
"""

ROUNDS_OF_MOMENTS = 16
"""Minimum number of rounds for an interval of a mean, variance or share; with fewer, the error is too uncertain."""

RESAMPLES = 1000
LEVEL = 0.95

MOST_BLOCKS = 2_000
"""Maximum number of blocks that are drawn.

With more rounds, a block consists of several neighbouring rounds (Carlstein 1986). With 2,000 blocks, the width of an
interval has a standard error of 1.6 %, less than the error from the number of resamples. Campaigns can therefore have
any size.
"""

_CELLS_IN_MEMORY = 4_000_000
_CELLS_KEPT = MOST_BLOCKS * RESAMPLES
_CELLS_IN_CACHE = 64_000
_OF_PILOT = 65_536
"""Size of the pilot, a sample of observations that shows roughly where a quantile of a larger sample is."""
_PARTS = 16
"""Number of parts in which the values around a quantile are counted, before one part is searched."""

Reals = NDArray[np.float64]
Counts = NDArray[np.float64]
"""How often each round is drawn: whole numbers as floats.

Matrix products of such floats are exact, and ten times as fast as those of integers.
"""
Clusters = NDArray[np.signedinteger]


def weighted_sums(weights: Reals, values: NDArray[Any]) -> Reals:
    """`weights @ values` with the same result on every processor; weights (rows, n), values (n,).

    In a matrix product, the order of summation depends on the BLAS and the processor. The last bits then differ between
    machines, and so do the files of a report.
    """
    return np.asarray((weights * values).sum(axis=1))


def drawn(rounds: int, resamples: int = RESAMPLES, seed: int = 0, hosts: Clusters | None = None) -> Iterator[Counts]:
    """Number of times that each round is drawn, in batches of shape (resamples, rounds); none for too few rounds.

    A resample has as many rounds as there are, drawn with replacement. `hosts` has the number of each round's host,
    shape (rounds,); None if there is only one host.
    """
    if rounds < MIN_ROUNDS:
        return
    block = max(1, _CELLS_IN_MEMORY // rounds)
    several = hosts is not None and hosts.max() > 0
    if rounds * resamples <= _CELLS_KEPT:
        of_hosts = np.asarray(hosts, np.int64).tobytes() if several else b""
        counts = _kept_by_host(of_hosts, resamples, seed) if several else _kept(rounds, resamples, seed)
        yield from (counts[start : start + block] for start in range(0, resamples, block))
    elif hosts is not None and several:
        yield from _counted_by_host(hosts, resamples, seed, block)
    else:
        yield from _counted(rounds, resamples, seed, block)


@lru_cache(maxsize=4)
def _kept(rounds: int, resamples: int, seed: int) -> Counts:
    """The counts of all resamples, cached.

    Drawing them takes longer than using them, and most groups have the same number of rounds.
    """
    counts = np.concatenate(list(_counted(rounds, resamples, seed, max(1, _CELLS_IN_CACHE // rounds))))
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _kept_by_host(hosts: bytes, resamples: int, seed: int) -> Counts:
    """The counts of all resamples for rounds of several hosts, cached.

    `hosts` has the host of each round, as the bytes of 64-bit integers.
    """
    counts = next(_counted_by_host(np.frombuffer(hosts, np.int64), resamples, seed, resamples))
    counts.flags.writeable = False
    return counts


def _counted(rounds: int, resamples: int, seed: int, block: int) -> Iterator[Counts]:
    draw = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        height = min(block, resamples - start)
        picked = draw.integers(0, rounds, (height, rounds)) + np.arange(height)[:, None] * rounds
        yield np.bincount(picked.ravel(), minlength=height * rounds).reshape(height, rounds).astype(np.float64)


def _counted_by_host(hosts: Clusters, resamples: int, seed: int, block: int) -> Iterator[Counts]:
    """Draw hosts with replacement, then rounds of the drawn hosts; the numbers of hosts and rounds stay the same."""
    draw = np.random.default_rng(seed)
    rounds, number = len(hosts), int(hosts.max()) + 1
    of_host = [np.flatnonzero(hosts == host) for host in range(number)]
    for start in range(0, resamples, block):
        counts = np.empty((min(block, resamples - start), rounds))
        for row in counts:
            there = np.concatenate([of_host[host] for host in draw.integers(0, number, number)])
            row[:] = np.bincount(there[draw.integers(0, len(there), rounds)], minlength=rounds)
        yield counts


def drawn_crossed(
    hosts: Clusters, kinds: tuple[Clusters, Clusters], resamples: int = RESAMPLES, seed: int = 0
) -> Counts:
    """Number of times that each block is drawn if each host stands for a pair of clusters; shape (resamples, blocks).

    An example of a pair is a vantage point and a resolver. Clusters of each kind are drawn with replacement and
    independently. The number of draws of a pair is the product of the numbers of draws of its two clusters (pigeonhole
    bootstrap: Owen, The Annals of Applied Statistics 1, 2007). Within a pair, its blocks are drawn with replacement.

    Parameters
    ----------
    hosts
        Host of each block.
    kinds
        Two arrays with a cluster of each host: its cluster of the first kind, and its cluster of the second kind.
    """
    draw = np.random.default_rng(seed)

    def times(size: int) -> Counts:
        """Number of times that each of `size` items is drawn, shape (resamples, size)."""
        picked = draw.integers(0, size, (resamples, size)) + np.arange(resamples)[:, None] * size
        return np.bincount(picked.ravel(), minlength=resamples * size).reshape(resamples, size).astype(np.float64)

    first, second = (times(int(kind.max()) + 1)[:, kind] for kind in kinds)
    counts = np.empty((resamples, len(hosts)))
    order = np.argsort(hosts, kind="stable")
    ends = np.cumsum(np.bincount(hosts, minlength=len(kinds[0])))
    for host, blocks in enumerate(np.split(order, ends[:-1])):
        if len(blocks):
            counts[:, blocks] = (first[:, host] * second[:, host])[:, None] * times(len(blocks))
    return counts


def interval(draws: Reals, rounds: int, level: float = LEVEL) -> tuple[float, float]:
    """Interval of a statistic from its value in every resample of `rounds` rounds (expanded percentile method).

    With few rounds, bootstrap percentiles give too narrow intervals. These percentiles correspond to a normal
    distribution, and to a variance that is too small by the factor 1 - 1/rounds. Percentiles farther out correspond to
    Student's t and to the unbiased variance (Hesterberg, The American Statistician 69, 2015, section 5.3).
    """
    below = NormalDist().cdf(-reach(rounds, level))
    low, high = np.nanquantile(draws, [below, 1 - below])
    return float(low), float(high)


@cache
def reach(rounds: int, level: float = LEVEL) -> float:
    """Half-width of an interval in standard errors of the bootstrap, by the number of rounds; 1.96 for many."""
    return student_reach(rounds, NormalDist().inv_cdf((1 + level) / 2))


def student_reach(rounds: int, z: float) -> float:
    """Like `reach`, but with a normal quantile `z` in place of the level.

    It is needed if `z` is so large that its level would be rounded to 1.
    """
    n = rounds - 1
    # Quantile of Student's t (Abramowitz and Stegun, 26.7.5); exact to 0.1 % from 5 degrees of freedom on.
    t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return t * math.sqrt(rounds / n)


def rank_of(q: float, size: Any) -> Any:
    """Rank of a quantile among `size` observations, from 0 for the least; an array of sizes gives an array of ranks.

    It is approximately median-unbiased for any distribution (Hyndman and Fan, The American Statistician 50, 1996,
    definition 8). Values and resamples use the same definition: with two definitions, an estimate can lie outside of
    its own interval.
    """
    return np.clip((size + 1 / 3) * q - 2 / 3, 0, np.maximum(size - 1, 0))


class Sample:
    """Observations of one condition.

    `clusters` has the round number of each observation, and `blocks` the number of each round's block. With
    `several_hosts`, hosts are drawn before rounds. For quantiles of resamples, only the observations near the quantile
    are sorted.
    """

    def __init__(
        self, values: Reals, clusters: Clusters, blocks: Clusters | None = None, *, several_hosts: bool = False
    ) -> None:
        self.values = values
        self._sigmas = 20 if several_hosts else 5
        self.clusters: Clusters = clusters if blocks is None else blocks[clusters]
        self.size = len(values)
        self.rounds = int(np.count_nonzero(np.bincount(clusters)))

    def at(self, *ranks: int) -> list[float]:
        """The observations at these ranks, from 0 for the least."""
        below, near = self._near(min(ranks), max(ranks))
        start = np.count_nonzero(below)
        return [float(self.values[near[rank - start]]) for rank in ranks]

    def quantile(self, q: float) -> float:
        """Quantile of the observations, interpolated linearly between the ranks of `rank_of`."""
        rank = float(rank_of(q, self.size))
        low, high = self.at(math.floor(rank), math.ceil(rank))
        return low + rank % 1 * (high - low)

    def quantiles(self, q: float, weights: Counts) -> Reals:
        """The quantile in each resample, shape (resamples,); NaN for a resample without rounds of this sample.

        `weights` has the number of times that each round was drawn, shape (resamples, rounds). Ranks are those of
        `rank_of`, as in `quantile`.
        """
        position = self.size * q
        # If rounds are independent, the square root is the standard deviation of the rank of a resample's quantile.
        # Hosts make rounds dependent. If a resample's quantile is outside this range, the range is widened.
        reach = self._sigmas * math.sqrt(position * (1 - q)) + 2
        while True:
            first, last = max(0, int(position - reach)), min(self.size - 1, int(position + reach))
            result, sure = self._search(q, weights, first, last)
            if sure:
                return result
            reach *= 4

    def _search(self, q: float, weights: Counts, first: int, last: int) -> tuple[Reals, bool]:
        """Quantile of each resample from the observations of rank `first` to `last`, and whether this range suffices.

        It suffices if it contains the quantile of every resample. Otherwise the first result has no meaning.
        """
        rounds = weights.shape[1]
        below, near = self._near(first, last)
        cut = first - np.count_nonzero(below)
        runs = np.add.reduceat(below, self._runs, dtype=np.int64)
        before = np.bincount(self.clusters[self._runs], runs, rounds)
        before += np.bincount(self.clusters[near[:cut]], minlength=rounds)
        near = near[cut : cut + last + 1 - first]
        values, clusters = self.values[near], self.clusters[near].astype(np.intp)
        # The observations are divided into parts, so that each resample searches only one part.
        length = -(-len(near) // _PARTS)
        counts = np.bincount(clusters * _PARTS + np.arange(len(near)) // length, minlength=rounds * _PARTS)
        ends = np.cumsum(np.column_stack([before, counts.reshape(rounds, _PARTS)]), axis=1, dtype=np.float64)
        # Whole numbers: their sums are exact in any order (see `weighted_sums`).
        drawn = weights @ np.column_stack([ends, np.bincount(self.clusters, minlength=rounds)])
        ends, total = drawn[:, :-1], drawn[:, -1]
        position = rank_of(q, total)
        some = total > 0
        sure = bool(np.all(~some | ((np.floor(position) + 1 > ends[:, 0]) & (np.ceil(position) + 1 <= ends[:, -1]))))
        if not sure:
            return position, False

        def at(ranks: Sequence[Reals], rows: NDArray[np.intp]) -> list[Reals]:
            """The observations at these ranks in the resamples `rows`.

            Each resample searches only the part that contains its rank in the first array of `ranks`. A result for
            another array is correct only if its rank lies in the same part.
            """
            part = np.minimum((ends[rows, 1:] < ranks[0][:, None]).sum(axis=1), _PARTS - 1)
            positions = np.minimum(part[:, None] * length + np.arange(length), len(near) - 1)
            sums = weights[rows[:, None], clusters[positions]].cumsum(axis=1) + ends[rows, part][:, None]
            each = np.arange(len(rows))
            return [values[positions[each, np.argmax(sums >= rank[:, None], axis=1)]] for rank in ranks]

        lower, upper = np.floor(position) + 1, np.ceil(position) + 1
        low, high = at([lower, upper], np.arange(len(weights)))
        (further,) = np.nonzero((ends < upper[:, None]).sum(axis=1) > (ends < lower[:, None]).sum(axis=1))
        if len(further):
            (high[further],) = at([upper[further]], further)
        return np.where(some, low + (position - np.floor(position)) * (high - low), np.nan), True

    def _near(self, first: int, last: int) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Mask of the observations below a range, and indices of the observations in the range, sorted by value.

        The range contains at least the ranks `first` to `last`.
        """
        size = len(self._pilot)
        share, unsure = size / self.size, 0.0 if size == self.size else 2.5 * math.sqrt(size)  # at least 5 sigma
        low, high = math.floor(first * share - unsure), math.ceil(last * share + unsure)
        least = self._pilot[low] if low >= 0 else -math.inf
        greatest = self._pilot[high] if high < size else math.inf
        below = self.values < least
        near = np.flatnonzero((self.values >= least) & (self.values <= greatest))
        if not np.count_nonzero(below) <= first <= last < np.count_nonzero(below) + len(near):
            below, near = np.zeros_like(below), np.arange(self.size)
        return below, near[np.argsort(self.values[near])]

    @cached_property
    def _pilot(self) -> Reals:
        """A sorted sample of the observations, which shows roughly their distribution."""
        if self.size <= _OF_PILOT:
            return np.sort(self.values)
        return np.sort(self.values[np.random.default_rng(0).integers(0, self.size, _OF_PILOT)])

    @cached_property
    def _runs(self) -> NDArray[np.intp]:
        """Positions of observations whose round differs from that of the previous observation."""
        return np.append(0, np.flatnonzero(self.clusters[1:] != self.clusters[:-1]) + 1)


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of some observations, and the blocks in which they are drawn."""

    numbers: Clusters
    """Round of each observation, from 0."""
    blocks: Clusters
    """Block of each round. If there are at most `MOST_BLOCKS` rounds, each round is its own block."""
    hosts: Clusters
    """Host of each block."""

    @classmethod
    def of(cls, numbers: Clusters, hosts: Clusters) -> Rounds:
        """Make the rounds and their blocks from the round of each observation and the host of each round."""
        rounds = len(hosts)
        if rounds <= MOST_BLOCKS:
            return cls(numbers, np.arange(rounds), hosts)
        sizes = np.bincount(hosts)  # all rounds of a block are of one host
        counts = np.maximum(1, sizes * MOST_BLOCKS // rounds)
        position = np.arange(rounds) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first, share = np.repeat(np.cumsum(counts) - counts, sizes), np.repeat(counts / sizes, sizes)
        blocks = np.empty(rounds, np.int32)
        blocks[np.argsort(hosts, kind="stable")] = first + (position * share).astype(np.int32)
        return cls(numbers, blocks, np.repeat(np.arange(len(sizes)), counts))

    @property
    def count(self) -> int:
        """Number of rounds."""
        return len(self.blocks)

    def sample(self, values: Reals, chosen: Any = slice(None)) -> Sample:
        """The `Sample` of all observations, or of the chosen ones."""
        return Sample(values[chosen], self.numbers[chosen], self.blocks, several_hosts=bool(self.hosts.any()))

    def drawn(self, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Counts]:
        """Number of times that each block is drawn; see the function `drawn` of this module."""
        return drawn(len(self.hosts), resamples, seed, self.hosts)


def beyond(nearest: float, second: float) -> tuple[float, float]:
    """95 % interval of the end of a distribution, from its outermost observation and the next one.

    The interval extends from the outermost observation by 19 times its distance from the next one (Robson and Whitlock
    1964). It is correct if the density has an edge there, and too short if the density decreases gradually.
    """
    far = nearest + (1 / (1 - LEVEL) - 1) * (nearest - second)
    return min(nearest, far), max(nearest, far)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic, and its value in every resample of the rounds."""

    value: float
    n: int
    """Number of observations of the smallest sample behind the statistic."""
    rounds: int
    """Number of rounds of the sample that has the fewest rounds."""
    draws: Reals | None = None
    """Values in the resamples, shape (resamples,); None with too few rounds or without a bootstrap."""
    ends: tuple[float, float] | None = None
    """The interval of a statistic for which the bootstrap is not applicable; derived statistics do not inherit it."""
    needed: int = MIN_ROUNDS
    """Number of rounds that an interval needs: `ROUNDS_OF_MOMENTS` for a mean; see `FEWEST_BEYOND` for a quantile."""
    in_logarithm: bool = False
    """Whether the interval of the logarithm, not of the value, narrows with the square root of rounds.

    This holds for a variance.
    """

    @property
    def enough(self) -> bool:
        """Whether there are enough rounds and observations for an interval.

        This may be true for a statistic that can have no interval.
        """
        return self.rounds >= self.needed or self.ends is not None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval, None if there is none."""
        if self.ends is not None or self.draws is None:
            return self.ends
        return interval(self.draws, self.rounds)


def derived(function: Callable[..., Any], *estimates: Estimate) -> Estimate:
    """A statistic computed from estimates: `function` of their values, and of their draws in every resample.

    `function` takes one number for each estimate, or one array of draws for each estimate (elementwise).
    """
    draws = [e.draws for e in estimates if e.draws is not None]
    return Estimate(
        value=float(function(*(e.value for e in estimates))),
        n=min(e.n for e in estimates),
        rounds=min(e.rounds for e in estimates),
        draws=function(*draws) if len(draws) == len(estimates) else None,
        needed=max(e.needed for e in estimates),
    )
