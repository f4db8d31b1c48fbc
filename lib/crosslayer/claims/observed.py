"""A campaign as the checks see it: estimates by series, link and page, all from the same resampled rounds.

A number that the campaign cannot give raises `NotMeasured` with the reason, so that no check has to think of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer import metrics
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, Sample

LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
"""Links of TNSM24 by ascending RTT."""
RTT_MS = {"fiber": 14.8, "cable": 25.2, "dsl": 42.4, "4g": 91.9, "4g-medium": 104.5}
"""RTTs of TNSM24 Table II."""
PAGES = ("example.org", "wikipedia.org", "instagram.com")
"""Pages of TNSM24, simplest first."""

FEWEST_ROUNDS = 3
"""Fewer rounds give no number at all: a median of one or two observations says nothing about a distribution."""

_SAME_RTT = 0.01
_EQUAL_SHARES = 0.8

Cell = tuple[str, str]
_Observations = tuple[NDArray[np.float64], NDArray[np.intp]]
_Key = tuple[tuple[tuple[str, float], ...], tuple[str, ...], tuple[str, ...] | None, bool]


class NotMeasured(Exception):  # noqa: N818 - an answer, not a fault
    """What a claim needs is not in this campaign; the message is the reason."""


class Observed:
    """Observations of the study `coalescing`, by series and cell.

    A subclass is that of another study: it has its own `series`, `rtt_ms` and `pages`, and estimates them the same way.

    Parameters
    ----------
    dns_exchanges, tcp_rtts, page_loads, link_checks
        Tables of a dataset, whole: failures are left out here.

    Notes
    -----
    Series: `DoUDP exchange`, `DoQ exchange`, `DoH exchange`, `DoQ handshake`, `DoQ query`, `TCP RTT`; of page loads
    `H3 1-RTT connect`, `... PLT` (the browser's), `... request start`, `... response end`, `... DOM interactive`, and
    the same of `H3 0-RTT`; PLTs by the name of the combination, e.g. `DoQ + H3 0-RTT`. All in ms.
    """

    def __init__(
        self,
        *,
        dns_exchanges: pl.LazyFrame,
        tcp_rtts: pl.LazyFrame,
        page_loads: pl.LazyFrame,
        link_checks: pl.LazyFrame,
    ) -> None:
        self._failures = metrics.failures(dns_exchanges, tcp_rtts, page_loads)
        self._rtts = dict(metrics.nominal_rtts(link_checks).collect().iter_rows())
        rows = self.series(dns_exchanges, tcp_rtts, page_loads).collect(engine="streaming")
        rounds = rows.select("campaign", "round").unique().sort("campaign", "round").with_row_index("cluster")
        self._rounds = rounds.height
        self._weights: Counts | None = None
        if rounds.height >= MIN_ROUNDS:
            self._weights = np.concatenate(list(metrics.drawn(rounds.height, rounds.height)))
        self._cells: dict[tuple[str, str, str], _Observations] = {}
        numbered = rows.join(rounds, on=["campaign", "round"]).sort("cluster")
        for (series, link, page), cell in numbered.partition_by(["series", "link", "page"], as_dict=True).items():
            self._cells[series, link, page] = (cell["value_ms"].to_numpy(), cell["cluster"].to_numpy().astype(np.intp))
        self._samples: dict[_Key, Sample] = {}
        self._estimates: dict[tuple[_Key, float], Estimate] = {}

    @staticmethod
    def series(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
        """Every observation that counts: campaign, round, link, page, series, value_ms (or the unit of its series)."""
        return _series(dns_exchanges, tcp_rtts, page_loads)

    @property
    def links(self) -> tuple[str, ...]:
        """Links with observations, by ascending nominal RTT."""
        found = {link for _, link, _ in self._cells}
        return tuple(link for link in self._rtts if link in found)

    def rtt_ms(self, link: str) -> float:
        """Nominal RTT of a link of TNSM24, ms; refused where this campaign's link of that name is another."""
        if link not in self._rtts:
            there = any(link == of_cell for _, of_cell, _ in self._cells)
            raise NotMeasured(f"the RTT of {link} is not known" if there else f"this campaign has no link {link}")
        rtt = float(self._rtts[link])
        if abs(rtt / RTT_MS[link] - 1) > _SAME_RTT:
            raise NotMeasured(f"the RTT of {link} is {rtt:.1f} ms here and {RTT_MS[link]} ms in the paper")
        return rtt

    def pages(self, series: str, link: str) -> tuple[str, ...]:
        """Pages of TNSM24 with observations of a series on a link."""
        return tuple(page for page in PAGES if (series, link, page) in self._cells)

    def sample(
        self,
        terms: str | Mapping[str, float],
        links: Sequence[str],
        pages: Sequence[str] | None = None,
        *,
        in_rtts: bool = False,
    ) -> Sample:
        """Observations of a series, or a sum of several within each round, pooled over cells.

        Parameters
        ----------
        terms
            Name of a series, or the factor of each: `{"DoH + H3 1-RTT": 1, "DoQ + H3 1-RTT": -1}` is the difference.
        links
            Each of them must have observations.
        pages
            Each of them must have observations; None takes those there are, for what does not depend on the page.
        in_rtts
            As multiples of the link's nominal RTT instead of ms.
        """
        key = _key(terms, links, pages, in_rtts)
        if key not in self._samples:
            self._samples[key] = self._pooled(dict(key[0]), links, pages, in_rtts)
        return self._samples[key]

    def _pooled(
        self, factors: dict[str, float], links: Sequence[str], pages: Sequence[str] | None, in_rtts: bool
    ) -> Sample:
        values, clusters, sizes = [], [], []
        for link in links:
            unit = self.rtt_ms(link) if in_rtts else 1.0
            first = next(iter(factors))
            parts = [self._cell(factors, link, page) for page in (pages or self.pages(first, link))]
            if not parts:
                raise NotMeasured(f"no {first} on {link}")
            values += [part[0] / unit for part in parts]
            clusters += [part[1] for part in parts]
            sizes.append(sum(len(part[0]) for part in parts))
        if min(sizes) < _EQUAL_SHARES * max(sizes):
            raise NotMeasured("the links have unequal numbers of observations, pooling them would weigh them unequally")
        sample = Sample(np.concatenate(values), np.concatenate(clusters))
        _enough(sample.rounds)
        return sample

    def _cell(self, factors: dict[str, float], link: str, page: str) -> _Observations:
        """The sum of the terms in every round of a cell that has all of them."""
        for series in factors:
            if (series, link, page) not in self._cells:
                raise NotMeasured(f"no {series} on {link}, {page}")
        of_series = [self._cells[series, link, page] for series in factors]
        common = of_series[0][1]
        for _, clusters in of_series[1:]:
            common = np.intersect1d(common, clusters, assume_unique=True)
        if not len(common):
            raise NotMeasured(f"no round on {link}, {page} has all of {', '.join(factors)}")
        total = np.zeros(len(common))
        for factor, (values, clusters) in zip(factors.values(), of_series, strict=True):
            total += factor * values[np.searchsorted(clusters, common)]
        return total, common

    def quantile(
        self,
        terms: str | Mapping[str, float],
        q: float,
        links: Sequence[str],
        pages: Sequence[str] | None = None,
        *,
        in_rtts: bool = False,
    ) -> Estimate:
        """Quantile of a sample (see `sample`) with its resamples.

        The least and the greatest observation (0 and 1) have no interval: the bootstrap never goes beyond them.
        """
        key = (_key(terms, links, pages, in_rtts), q)
        if key not in self._estimates:
            self._estimates[key] = self._estimate(self.sample(terms, links, pages, in_rtts=in_rtts), q)
        return self._estimates[key]

    def _estimate(self, sample: Sample, q: float) -> Estimate:
        known = self._weights is not None and sample.rounds >= MIN_ROUNDS and 0 < q < 1
        draws = sample.quantiles(q, self._weights) if known and self._weights is not None else None
        return Estimate(sample.quantile(q), sample.size, sample.rounds, draws)

    def value(self, number: float, sample: Sample) -> Estimate:
        """A statistic without an interval."""
        return Estimate(number, sample.size, sample.rounds)

    def failed_exchanges(self, protocol: str) -> Estimate:
        """How many exchanges of a protocol failed, of how many tried (`n`)."""
        attempts = (
            self._failures.filter(pl.col("condition") == protocol, pl.col("link").is_in(LINKS))
            .select(pl.col("attempted", "failed").sum())
            .collect()
        )
        tried, failed = attempts.row(0)
        if not tried:
            raise NotMeasured(f"no {protocol} exchange was tried")
        _enough(self._rounds)
        return Estimate(float(failed), tried, self._rounds)


def _enough(rounds: int) -> None:
    if rounds < FEWEST_ROUNDS:
        raise NotMeasured(
            f"only {rounds} {'round' if rounds == 1 else 'rounds'} measured, a number needs {FEWEST_ROUNDS}"
        )


def _key(terms: str | Mapping[str, float], links: Sequence[str], pages: Sequence[str] | None, in_rtts: bool) -> _Key:
    factors = {terms: 1.0} if isinstance(terms, str) else terms
    return tuple(factors.items()), tuple(links), None if pages is None else tuple(pages), in_rtts


def _series(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
    exchanges, loads = metrics.exchanges(dns_exchanges), metrics.page_loads(page_loads)
    of_loads = {
        "connect": "connect_duration_ms",
        "PLT": "plt_ms",
        "request start": "request_start_ms",
        "response end": "response_end_ms",
        "DOM interactive": "dom_interactive_ms",
    }
    parts = [
        *(
            exchanges.filter(pl.col("protocol") == protocol).select(
                *metrics.ROUND, series=pl.lit(f"{protocol} {part}"), value_ms=column
            )
            for protocol in ("DoUDP", "DoQ", "DoH")
            for part, column in (("exchange", "total_ms"), ("handshake", "handshake_ms"), ("query", "query_ms"))
        ),
        metrics.tcp_rtts(tcp_rtts).select(*metrics.ROUND, series=pl.lit("TCP RTT"), value_ms="rtt_ms"),
        *(
            loads.select(
                *metrics.ROUND,
                series=pl.format("H3 {} " + name, pl.col("h3").str.to_uppercase()),
                value_ms=column,
            )
            for name, column in of_loads.items()
        ),
        metrics.combine(exchanges, loads).select(*metrics.ROUND, series="combination", value_ms="plt_ms"),
    ]
    known = pl.col("value_ms").is_not_null() & pl.col("link").is_in(LINKS) & pl.col("page").is_in(PAGES)
    return pl.concat(parts).filter(known)
