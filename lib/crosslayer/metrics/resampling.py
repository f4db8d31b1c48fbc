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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
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
"""Maximum number of blocks: above it, whole blocks of neighbouring rounds are drawn (Carlstein 1986).

The width of an interval is then known to 1.6 %, better than from the resamples, and no campaign is too large.
"""

_CELLS_IN_MEMORY = 4_000_000
_CELLS_KEPT = MOST_BLOCKS * RESAMPLES
_CELLS_IN_CACHE = 64_000
_OF_PILOT = 65_536
"""Observations that show roughly where a quantile of a larger sample is."""
_PARTS = 16
"""Number of parts in which the values around a quantile are counted, before one part is searched."""

Reals = NDArray[np.float64]
Counts = NDArray[np.float64]
"""Whole numbers, as reals: so they multiply ten times as fast, and exactly too."""
Clusters = NDArray[np.signedinteger]


def weighted_sums(weights: Reals, values: NDArray[Any]) -> Reals:
    """Sum over each row of weights (rows, n) of weight times value (n,): `weights @ values`, alike on every processor.

    A matrix product adds up in an order that the BLAS picks for the processor it finds, so that its last bits differ
    from one machine to the next, and with them the files of a report.
    """
    return np.asarray((weights * values).sum(axis=1))


def drawn(rounds: int, resamples: int = RESAMPLES, seed: int = 0, hosts: Clusters | None = None) -> Iterator[Counts]:
    """Number of times that each round is drawn, in batches of shape (resamples, rounds); none for too few rounds.

    As many rounds are drawn, with replacement, as there are. `hosts` is the number of the host of each round, shape
    (rounds,); None if there is one.
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
    """All of the counts: drawing them takes longer than using them, and most groups of a frame have equal rounds."""
    counts = np.concatenate(list(_counted(rounds, resamples, seed, max(1, _CELLS_IN_CACHE // rounds))))
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _kept_by_host(hosts: bytes, resamples: int, seed: int) -> Counts:
    """As `_kept`, for the hosts of rounds."""
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
    """Number of times that each block is drawn, shape (resamples, blocks), where a host is a pair of two clusters.

    Clusters of each kind are drawn with replacement and independently; a pair is drawn as often as the product of both
    (pigeonhole bootstrap: Owen, The Annals of Applied Statistics 1, 2007), and its blocks are drawn with replacement.

    Parameters
    ----------
    hosts
        Host of each block.
    kinds
        Cluster of each host, of the first kind and of the second.
    """
    draw = np.random.default_rng(seed)

    def times(size: int) -> Counts:
        """Number of times that each of so many is drawn, shape (resamples, size)."""
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
    """Half-width of an interval in standard errors of the bootstrap, by the number of rounds; 1.96 for many."""
    return student_reach(rounds, NormalDist().inv_cdf((1 + level) / 2))


def student_reach(rounds: int, z: float) -> float:
    """The same from the quantile of a normal distribution, which may be farther out than a level can express."""
    n = rounds - 1
    # Quantile of Student's t (Abramowitz and Stegun, 26.7.5); exact to 0.1 % from 5 degrees of freedom on.
    t = z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return t * math.sqrt(rounds / n)


def rank_of(q: float, size: Any) -> Any:
    """Rank of a quantile among so many observations, from 0 for the least; an array of sizes gives one of ranks.

    Unbiased in the median whatever the distribution (Hyndman and Fan, The American Statistician 50, 1996, definition
    8). Values and resamples use it alike: with two definitions an estimate can lie outside of its own interval.
    """
    return np.clip((size + 1 / 3) * q - 2 / 3, 0, np.maximum(size - 1, 0))


class Sample:
    """Observations of one condition. What a resample has of them is counted: only those near a quantile are sorted.

    `clusters` is the number of the round each of them belongs to, `blocks` the number of what each round is drawn with.
    With `several_hosts`, hosts are drawn before rounds.
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
        """The observations of these ranks, from 0 for the least."""
        below, near = self._near(min(ranks), max(ranks))
        start = np.count_nonzero(below)
        return [float(self.values[near[rank - start]]) for rank in ranks]

    def quantile(self, q: float) -> float:
        """Quantile of the observations, interpolated linearly between the ranks of `rank_of`."""
        rank = float(rank_of(q, self.size))
        low, high = self.at(math.floor(rank), math.ceil(rank))
        return low + rank % 1 * (high - low)

    def quantiles(self, q: float, weights: Counts) -> Reals:
        """The quantile in each resample, shape (resamples,); NaN where one has none of this sample's rounds.

        `weights` is how often each round was drawn, shape (resamples, rounds); as often in all as there are rounds.
        Ranks are those of `rank_of`, as in `quantile`.
        """
        position = self.size * q
        # Ranks of a resample's quantile scatter by so much (1 sigma) where rounds are alike; hosts rarely are. Where a
        # resample's quantile is not among these, it is looked for further away.
        reach = self._sigmas * math.sqrt(position * (1 - q)) + 2
        while True:
            first, last = max(0, int(position - reach)), min(self.size - 1, int(position + reach))
            result, sure = self._search(q, weights, first, last)
            if sure:
                return result
            reach *= 4

    def _search(self, q: float, weights: Counts, first: int, last: int) -> tuple[Reals, bool]:
        """Quantiles looked for among the observations from rank `first` to `last`, and whether all were there."""
        rounds = weights.shape[1]
        below, near = self._near(first, last)
        cut = first - np.count_nonzero(below)
        runs = np.add.reduceat(below, self._runs, dtype=np.int64)
        before = np.bincount(self.clusters[self._runs], runs, rounds)
        before += np.bincount(self.clusters[near[:cut]], minlength=rounds)
        near = near[cut : cut + last + 1 - first]
        values, clusters = self.values[near], self.clusters[near].astype(np.intp)
        # They are in parts, so that each resample has only one of them to be looked through.
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
            """The observations of these ranks in some resamples, as far as the part with the first one reaches."""
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
        """Which observations are below, and where those are from there to rank `last` at least, in ascending order."""
        size = len(self._pilot)
        share, unsure = size / self.size, 0.0 if size == self.size else 2.5 * math.sqrt(size)  # 5 sigma at the most
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
        """A sample of the observations, ascending, that shows roughly where all are."""
        if self.size <= _OF_PILOT:
            return np.sort(self.values)
        return np.sort(self.values[np.random.default_rng(0).integers(0, self.size, _OF_PILOT)])

    @cached_property
    def _runs(self) -> NDArray[np.intp]:
        """Where the round changes from one observation to the next."""
        return np.append(0, np.flatnonzero(self.clusters[1:] != self.clusters[:-1]) + 1)


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
        """A sample of the observations, or of those of them that are chosen."""
        return Sample(values[chosen], self.numbers[chosen], self.blocks, several_hosts=bool(self.hosts.any()))

    def drawn(self, resamples: int = RESAMPLES, seed: int = 0) -> Iterator[Counts]:
        """Number of times that each block is drawn, see `drawn`."""
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
    """Shape (resamples,); None if there is no interval: too few rounds, or a statistic the bootstrap cannot do."""
    ends: tuple[float, float] | None = None
    """The interval of a statistic the bootstrap cannot do, where there is one; not of what is derived from it."""
    needed: int = MIN_ROUNDS
    """Rounds that an interval of this statistic takes: `ROUNDS_OF_MOMENTS` a mean, `FEWEST_BEYOND` a quantile."""
    in_logarithm: bool = False
    """The interval is that of the logarithm, as of a variance: it narrows on that scale."""

    @property
    def enough(self) -> bool:
        """Whether there are rounds and observations enough for an interval, if the statistic has one at all."""
        return self.rounds >= self.needed or self.ends is not None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval, None if there is none."""
        if self.ends is not None or self.draws is None:
            return self.ends
        return interval(self.draws, self.rounds)


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
        needed=max(e.needed for e in estimates),
    )
