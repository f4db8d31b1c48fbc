"""A campaign as the checks see it: estimates by series, link and page, all from the same resampled rounds.

A study composes it of its rows. A number that the campaign cannot give raises `NotMeasured` with the reason, so that no
check has to think of it.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer import metrics
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate, Rounds, Sample

FEWEST_ROUNDS = 3
"""Fewer rounds give no number at all: a median of one or two observations says nothing about a distribution."""

_IN_MEMORY = 256 << 20
"""Bytes of observations; more of them lie in a file without a name."""
_KEPT_IN_MEMORY = 40_000_000
"""Observations of the samples that are kept, since the next check may ask for the same."""

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


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the file an array lies."""

    start: int
    kind: np.dtype[Any]
    length: int


class Observed:
    """Observations of a campaign, by series and cell.

    Parameters
    ----------
    rows
        Every observation that counts: campaign, round, host, link, page, series (text), value (in the unit of its
        series). In parts, only one of them is in memory at a time.
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
        rows: metrics.Frames,
        *,
        rtts_ms: Mapping[str, float],
        links: Sequence[str] | None = None,
        published_rtts_ms: Mapping[str, float] | None = None,
        tables: Mapping[str, pl.LazyFrame] | None = None,
    ) -> None:
        self.tables = tables or {}
        self._rtts_ms, self._published_rtts_ms = rtts_ms, published_rtts_ms or {}
        self._cells: dict[tuple[str, str, str], tuple[_Place, ...]] = {}
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - open as long as checks may ask
        weakref.finalize(self, self._file.close)
        self._rounds = self._read([rows] if isinstance(rows, pl.LazyFrame) else rows)
        self.rounds = self._rounds.count
        drawings = list(self._rounds.drawn())
        self.weights: Counts | None = np.concatenate(drawings) if drawings else None
        self._with_rows = {link for _, link, _ in self._cells}
        self._links = tuple(links or (link for link in rtts_ms if link in self._with_rows))
        self._samples: dict[Series, Sample] = {}
        self._estimates: dict[tuple[Series, Statistic], Estimate] = {}

    def _read(self, parts: Sequence[pl.LazyFrame]) -> Rounds:
        """Write every cell's values and rounds; the number of a round is known when all have been read."""
        known = pl.DataFrame(schema={"campaign": pl.Categorical, "round": pl.Int32, "host": pl.Categorical})
        written: dict[bytes, _Place] = {}  # most series have the same rounds in the same order
        names = ["series", "link", "page"]
        for part in parts:
            for key, cell in metrics.gathered(part, names, ["value", *metrics.CLUSTER]):
                rounds = cell.select(metrics.CLUSTER)
                told = [rounds[name].to_physical().to_numpy().tobytes() for name in metrics.CLUSTER]
                digest = hashlib.blake2b(b"".join(told)).digest()
                if digest not in written:
                    fresh = rounds.unique().join(known, on=metrics.CLUSTER, how="anti")
                    known = pl.concat([known, fresh])
                    numbered = rounds.join(known.with_row_index("number"), on=metrics.CLUSTER, maintain_order="left")
                    written[digest] = self._write(numbered["number"].to_numpy().astype(np.int32))
                series, link, page = key
                self._cells[series, link, page] = self._write(cell["value"].to_numpy()), written[digest]
        return metrics.rounds_of(known)

    def _write(self, array: NDArray[Any]) -> _Place:
        place = _Place(self._file.seek(0, io.SEEK_END), array.dtype, len(array))
        self._file.write(array.tobytes())
        return place

    def _observations(self, cell: tuple[str, str, str]) -> _Observations:
        """The values of a cell and their rounds, in the order of rounds."""
        values, places = (self._written(place) for place in self._cells[cell])
        rounds = self._rounds.numbers[places]
        if np.all(rounds[1:] >= rounds[:-1]):
            return values, rounds
        order = np.argsort(rounds, kind="stable")
        return values[order], rounds[order]

    def _written(self, place: _Place) -> NDArray[Any]:
        self._file.seek(place.start)
        return np.frombuffer(self._file.read(place.length * place.kind.itemsize), place.kind)

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
        if series not in self._samples:
            found = self._pooled(series)
            while self._samples and found.size + sum(one.size for one in self._samples.values()) > _KEPT_IN_MEMORY:
                del self._samples[next(iter(self._samples))]
            self._samples[series] = found
        return self._samples[series]

    def estimate(self, series: Series, statistic: Statistic) -> Estimate:
        """A statistic of a series, with its resamples where there are rounds enough."""
        key = (series, statistic)
        if key not in self._estimates:
            sample = self.sample(series)
            self._estimates[key] = statistic(sample, self.weights if sample.rounds >= MIN_ROUNDS else None)
        return self._estimates[key]

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
        sample = Sample(np.concatenate(values), np.concatenate(clusters), self._rounds.blocks)
        self.enough(sample.rounds)
        return sample

    def _cell(self, factors: dict[str, float], link: str, page: str) -> _Observations:
        """The sum of the terms in every round of a cell that has all of them."""
        for name in factors:
            if (name, link, page) not in self._cells:
                raise NotMeasured(f"no {name} on {link}, {page}")
        of_series = [self._observations((name, link, page)) for name in factors]
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
