"""A campaign as the checks see it: estimates by series, link and page, all from the same resampled rounds.

A study composes it of its rows. A number that the campaign cannot give raises `NotMeasured` with the reason, so that no
check has to think of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer import metrics
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, Sample

FEWEST_ROUNDS = 3
"""Fewer rounds give no number at all: a median of one or two observations says nothing about a distribution."""

_SAME_RTT = 0.01
_EQUAL_SHARES = 0.8

_Observations = tuple[NDArray[np.float64], NDArray[np.intp]]
Statistic = Callable[[Sample, Counts | None], Estimate]
"""Of a sample, with the rounds drawn in each resample; hashable, since estimates are kept by it."""


class NotMeasured(Exception):  # noqa: N818 - an answer, not a fault
    """What a claim needs is not in this campaign; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Series:
    """Which observations: a series, or a sum of several within each round, pooled over cells."""

    terms: tuple[tuple[str, float], ...]
    """Names and factors: `(("DoH exchange", 1), ("DoQ exchange", -1))` is the difference."""
    links: tuple[str, ...] | Callable[[Observed], Sequence[str]] | None = None
    """Each of them must have observations; None takes the study's."""
    pages: tuple[str, ...] | None = None
    """Each of them must have observations; None takes those there are, for what does not depend on the page."""
    in_rtts: bool = False
    """As multiples of the link's nominal RTT instead of the unit of the rows."""


class Observed:
    """Observations of a campaign, by series and cell.

    Parameters
    ----------
    rows
        Every observation that counts: campaign, round, link, page, series (text), value (in the unit of its series).
    rtts_ms
        Nominal RTT of each link, ms, ascending.
    links
        What is pooled where no link is named; by default every link with observations, by ascending RTT.
    published_rtts_ms
        RTTs in the paper: a link of that name with another RTT is not the paper's link.
    tables
        Tables of the dataset, for what is no statistic of a series.
    """

    def __init__(
        self,
        rows: pl.LazyFrame,
        *,
        rtts_ms: Mapping[str, float],
        links: Sequence[str] | None = None,
        published_rtts_ms: Mapping[str, float] | None = None,
        tables: Mapping[str, pl.LazyFrame] | None = None,
    ) -> None:
        self.tables = tables or {}
        self._rtts_ms, self._published_rtts_ms = rtts_ms, published_rtts_ms or {}
        found = rows.filter(pl.col("value").is_not_null()).collect(engine="streaming")
        rounds = found.select(metrics.CLUSTER).unique().sort(metrics.CLUSTER).with_row_index("cluster")
        self.rounds = rounds.height
        self.weights: Counts | None = None
        if self.rounds >= MIN_ROUNDS:
            self.weights = np.concatenate(
                list(metrics.drawn(self.rounds, self.rounds, hosts=metrics.clusters_of(rounds)[2]))
            )
        self._cells: dict[tuple[str, str, str], _Observations] = {}
        numbered = found.join(rounds, on=metrics.CLUSTER).sort("cluster")
        for (series, link, page), cell in numbered.partition_by(["series", "link", "page"], as_dict=True).items():
            self._cells[series, link, page] = (cell["value"].to_numpy(), cell["cluster"].to_numpy().astype(np.intp))
        self._with_rows = {link for _, link, _ in self._cells}
        self._links = tuple(links or (link for link in rtts_ms if link in self._with_rows))
        self._kept: dict[Any, Any] = {}

    @property
    def links(self) -> tuple[str, ...]:
        """What is pooled where no link is named; at least one."""
        if not self._links:
            raise NotMeasured("this campaign has no observations of this kind on a link whose RTT is known")
        return self._links

    def rtt_ms(self, link: str) -> float:
        """Nominal RTT of a link, ms; refused where it is not that of the paper's link of this name."""
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
        return tuple(sorted(page for name, where, page in self._cells if (name, where) == (series, link)))

    def sample(self, series: Series) -> Sample:
        """The observations of a series."""
        if series not in self._kept:
            self._kept[series] = self._pooled(series)
        return self._kept[series]  # type: ignore[no-any-return]

    def estimate(self, series: Series, statistic: Statistic) -> Estimate:
        """A statistic of a series, with its resamples where there are rounds enough."""
        key = (series, statistic)
        if key not in self._kept:
            sample = self.sample(series)
            self._kept[key] = statistic(sample, self.weights if sample.rounds >= MIN_ROUNDS else None)
        return self._kept[key]  # type: ignore[no-any-return]

    def enough(self, rounds: int) -> None:
        """Refuse a number from too few rounds."""
        if rounds < FEWEST_ROUNDS:
            raise NotMeasured(
                f"only {rounds} {'round' if rounds == 1 else 'rounds'} measured, a number needs {FEWEST_ROUNDS}"
            )

    def _pooled(self, series: Series) -> Sample:
        factors = dict(series.terms)
        first = next(iter(factors))
        values, clusters, sizes = [], [], []
        for link in series.links(self) if callable(series.links) else series.links or self.links:
            unit = self.rtt_ms(link) if series.in_rtts else 1.0
            parts = [self._cell(factors, link, page) for page in series.pages or self.pages(first, link)]
            if not parts:
                raise NotMeasured(f"no {first} on {link}")
            values += [part[0] / unit for part in parts]
            clusters += [part[1] for part in parts]
            sizes.append(sum(len(part[0]) for part in parts))
        if min(sizes) < _EQUAL_SHARES * max(sizes):
            raise NotMeasured("the links have unequal numbers of observations, pooling them would weigh them unequally")
        sample = Sample(np.concatenate(values), np.concatenate(clusters))
        self.enough(sample.rounds)
        return sample

    def _cell(self, factors: dict[str, float], link: str, page: str) -> _Observations:
        """The sum of the terms in every round of a cell that has all of them."""
        for name in factors:
            if (name, link, page) not in self._cells:
                raise NotMeasured(f"no {name} on {link}, {page}")
        of_series = [self._cells[name, link, page] for name in factors]
        if len(of_series) == 1 and factors[name] == 1:
            return of_series[0]
        common = of_series[0][1]
        for _, clusters in of_series[1:]:
            common = np.intersect1d(common, clusters, assume_unique=True)
        if not len(common):
            raise NotMeasured(f"no round on {link}, {page} has all of {', '.join(factors)}")
        total = np.zeros(len(common))
        for factor, (values, clusters) in zip(factors.values(), of_series, strict=True):
            total += factor * values[np.searchsorted(clusters, common)]
        return total, common
