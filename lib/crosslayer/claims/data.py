"""Observations of a campaign, and the estimates that checks compute from them.

A series is the values of one quantity, e.g. the durations of exchanges over DoQ. An estimate is for one series on some
links and pages. All estimates use the same resamples of the rounds. A study constructs an `Observed` from its rows. If
the campaign lacks data for an estimate, `Observed` raises `NotMeasured` with the reason. So no check needs to handle
this case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, Sample, drawn_crossed

FEWEST_ROUNDS = 3
"""Minimum number of rounds of any estimate: one or two observations do not describe a distribution."""

_KEPT_IN_MEMORY = 40_000_000
"""Maximum number of observations in all cached samples together; they are cached because many checks share a sample."""

_SAME_RTT = 0.01
_EQUAL_SHARES = 0.8

Statistic = Callable[[Sample, Counts | None], Estimate]
"""Function that computes an `Estimate` from a sample and its resamples.

The second argument is an array that has, for each resample and each block of rounds (`Rounds.blocks`), how often the
resample contains the block. It is None if there are too few rounds for resamples. The function must be hashable,
because it is part of the cache key of estimates.
"""


class NotMeasured(Exception):  # noqa: N818 - an answer, not a fault
    """The campaign lacks data that a claim needs; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Series:
    """Which observations an estimate uses: one named series, or a weighted sum of several, pooled over links and pages.

    The sum is computed within each round.
    """

    terms: tuple[tuple[str, float], ...]
    """Name and factor of each summed series: `(("DoH exchange", 1), ("DoQ exchange", -1))` is the difference."""
    links: tuple[str, ...] | Callable[[Observed], Sequence[str]] | None = None
    """Links to pool, or a function that chooses them; each must have observations. None for `Observed.links`."""
    pages: tuple[str, ...] | None = None
    """Pages to pool, each of which must have observations; None for all pages with observations."""
    in_rtts: bool = False
    """Whether values are multiples of the link's nominal RTT instead of the unit of the rows."""


class Observed:
    """Observations of a campaign, by series and cell.

    Parameters
    ----------
    rows
        Every valid observation, as `metrics.Cells` or as frames. Columns of a frame: campaign, round, host, link, page,
        series (text) and value (in the unit of its series). If there are several frames, only one is in memory at a
        time.
    rtts_ms
        Nominal RTT of each link, ms, ascending.
    links
        Links that are pooled if a series names none; by default every link with observations, by ascending RTT.
    published_rtts_ms
        RTT of each link in the paper, ms. If a link of the campaign has the same name but another RTT, it is not the
        link of the paper, and `rtt_ms` raises `NotMeasured`.
    tables
        Tables of the dataset, for measures that are not statistics of a series.
    pairs
        For each value of the column `host`, the vantage point and the resolver for which it stands; None if the values
        stand for machines. With pairs, the bootstrap draws vantage points and resolvers, and links are pooled even if
        their numbers of observations differ.
    """

    def __init__(
        self,
        rows: metrics.Frames | metrics.Cells,
        *,
        rtts_ms: Mapping[str, float],
        links: Sequence[str] | None = None,
        published_rtts_ms: Mapping[str, float] | None = None,
        tables: Mapping[str, pl.LazyFrame] | None = None,
        pairs: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self.tables, self._paired = tables or {}, pairs is not None
        self._rtts_ms, self._published_rtts_ms = rtts_ms, published_rtts_ms or {}
        self._cells = rows if isinstance(rows, metrics.Cells) else metrics.Cells.of(rows)
        self.rounds = self._cells.rounds.count
        drawings = [_drawn_pairs(self._cells.rounds, pairs)] if pairs else list(self._cells.rounds.drawn())
        self.weights: Counts | None = np.concatenate(drawings) if drawings else None
        self._with_rows = {link for _, link, _ in self._cells.cells}
        self._links = tuple(links or (link for link in rtts_ms if link in self._with_rows))
        self._pooled_links: dict[Series, tuple[str, ...]] = {}
        self._asked: dict[Series, None] = {}
        self._samples: dict[Series, Sample] = {}
        self._estimates: dict[tuple[Series, Statistic], Estimate] = {}

    @property
    def asked(self) -> list[tuple[Series, tuple[str, ...]]]:
        """Every series requested since the last `forget_asked`, with the links that were pooled."""
        return [(series, self._pooled_links[series]) for series in self._asked if series in self._pooled_links]

    def forget_asked(self) -> None:
        """Clear the list of requested series; cached samples and estimates are kept."""
        self._asked.clear()

    @property
    def links(self) -> tuple[str, ...]:
        """Links that are pooled if a series names no links; raises `NotMeasured` if there are none."""
        if not self._links:
            raise NotMeasured("this campaign has no observations of this kind on a link whose RTT is known")
        return self._links

    def rtt_ms(self, link: str) -> float:
        """Nominal RTT of a link, ms.

        Raises `NotMeasured` if the RTT is unknown, or if it differs from that of the paper's link of the same name.
        """
        if link not in self._rtts_ms:
            known = f"the RTT of {link} is not known"
            raise NotMeasured(known if link in self._with_rows else f"this campaign has no link {link}")
        rtt = float(self._rtts_ms[link])
        published = self._published_rtts_ms.get(link, rtt)
        if abs(rtt / published - 1) > _SAME_RTT:
            raise NotMeasured(f"the RTT of {link} is {rtt:.1f} ms here and {published} ms in the paper")
        return rtt

    def pages(self, series: str, link: str) -> tuple[str, ...]:
        """Pages with observations of a series on a link."""
        return self._cells.pages(series, link)

    def sample(self, series: Series) -> Sample:
        """The observations of a series."""
        self._asked[series] = None
        if series not in self._samples:
            sample = self._pooled(series)
            while self._samples and sample.size + sum(one.size for one in self._samples.values()) > _KEPT_IN_MEMORY:
                del self._samples[next(iter(self._samples))]
            self._samples[series] = sample
        return self._samples[series]

    def estimate(self, series: Series, statistic: Statistic) -> Estimate:
        """A statistic of a series, with its resamples if there are at least `MIN_ROUNDS` rounds."""
        self._asked[series] = None
        key = (series, statistic)
        if key not in self._estimates:
            sample = self.sample(series)
            self._estimates[key] = statistic(sample, self.weights if sample.rounds >= MIN_ROUNDS else None)
        return self._estimates[key]

    def enough(self, rounds: int) -> None:
        """Raise `NotMeasured` if there are too few rounds for an estimate."""
        if rounds < FEWEST_ROUNDS:
            raise NotMeasured(
                f"only {rounds} {'round' if rounds == 1 else 'rounds'} measured, a number needs {FEWEST_ROUNDS}"
            )

    def _pooled(self, series: Series) -> Sample:
        factors = dict(series.terms)
        first = next(iter(factors))
        values, clusters, sizes = [], [], []
        links = tuple(series.links(self) if callable(series.links) else series.links or self.links)
        self._pooled_links[series] = links
        for link in links:
            unit = self.rtt_ms(link) if series.in_rtts else 1.0
            parts = [self._cell(factors, link, page) for page in series.pages or self.pages(first, link)]
            if not parts:
                raise NotMeasured(f"no {first} on {link}")
            values += [part[0] / unit for part in parts]
            clusters += [part[1] for part in parts]
            sizes.append(sum(len(part[0]) for part in parts))
        if min(sizes) < _EQUAL_SHARES * max(sizes) and not self._paired:
            raise NotMeasured("the links have unequal numbers of observations, pooling them would weigh them unequally")
        sample = Sample(np.concatenate(values), np.concatenate(clusters), self._cells.rounds.blocks)
        self.enough(sample.rounds)
        return sample

    def _cell(self, factors: dict[str, float], link: str, page: str) -> metrics.Numbers:
        """Weighted sum of the terms in each round of a cell; a round that lacks a term is left out."""
        for name in factors:
            if (name, link, page) not in self._cells.cells:
                raise NotMeasured(f"no {name} on {link}, {page}")
        sample = self._cells.total(factors, link, page)
        if not len(sample.values):
            raise NotMeasured(f"no round on {link}, {page} has all of {', '.join(factors)}")
        return sample


def _drawn_pairs(rounds: metrics.Rounds, pairs: Mapping[str, tuple[str, str]]) -> Counts:
    """How often each resample contains each block of rounds, as an array of shape (resamples, blocks).

    Each host stands for a pair of a vantage point and a resolver, from `pairs`. `Rounds` numbers the hosts in the order
    of their names.
    """
    first, second = zip(*(pairs[name] for name in sorted(pairs)), strict=True)
    kinds = tuple(np.unique(kind, return_inverse=True)[1] for kind in (first, second))
    return drawn_crossed(rounds.hosts, (kinds[0], kinds[1]))
