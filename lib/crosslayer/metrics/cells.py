"""Observations of a campaign of any size by series, link and page, read once for many statistics.

A series is one quantity in one condition, e.g. the PLT of one kind of page load. For each series and cell, only the
values are stored, each with the number of its round. More than `_IN_MEMORY` bytes of them are stored in an unnamed
file. Pooling of cells and differences within rounds are therefore operations on arrays, without joins.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer.metrics.grouping import Frames, gathered
from crosslayer.metrics.intervals import rounds_of
from crosslayer.metrics.resampling import Clusters, Reals, Rounds
from crosslayer.metrics.rows import CLUSTER

_IN_MEMORY = 256 << 20
"""Maximum bytes of observations in memory; more are stored in an unnamed file."""
_KEPT = 32
"""Maximum number of different sequences of round numbers in memory. Nearly all cells have the same sequence."""

Cell = tuple[str, str, str]
"""Key of a cell's observations: series, link and page."""


class Numbers(NamedTuple):
    """Observations of a cell, and the number of the round of each observation."""

    values: Reals
    rounds: Clusters


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a table, and the series into which they are divided."""

    rows: pl.LazyFrame
    """Columns campaign, round, host, link, page, the column that `condition` names, and the columns of values."""
    condition: str = "series"
    series: Mapping[str, str] = field(default_factory=lambda: {"{}": "value"})
    """Maps the name of each series to the column that has its values.

    In the name, `{}` is replaced by the row's value in the column that `condition` names.
    """
    spelled: Callable[[str], str] = str
    """Function that converts a value of the column that `condition` names to the text that replaces `{}`."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Position of an array in the file."""

    start: int
    kind: np.dtype[Any]
    length: int


class _File:
    """A file of consecutive arrays, in memory while it is small. Several threads may read it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - stays open for later reads
        weakref.finalize(self, self._file.close)

    def write(self, array: NDArray[Any]) -> _Span:
        span = _Span(self._file.seek(0, io.SEEK_END), array.dtype, len(array))
        self._file.write(array.data)
        return span

    def read(self, span: _Span) -> NDArray[Any]:
        with self._lock:
            self._file.seek(span.start)
            return np.frombuffer(self._file.read(span.length * span.kind.itemsize), span.kind)


class _KnownRounds:
    """Assigns a number to each round, in the order in which rounds are read for the first time."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, ...], int] = {}
        self._frames = [pl.DataFrame(schema={"campaign": pl.Categorical, "round": pl.Int32, "host": pl.Categorical})]
        self._spans: dict[bytes, _Span] = {}  # most series have the same rounds in the same order

    @property
    def frame(self) -> pl.DataFrame:
        """Frame with a row for each round, in the order of their numbers: campaign, round, host."""
        return pl.concat(self._frames)

    def span(self, rows: pl.DataFrame, file: _File) -> _Span:
        """Write the number of each row's round to the file, and return the position of these numbers.

        Equal sequences of numbers are written once.
        """
        columns = [column.to_numpy() for column in rows.select(pl.col(CLUSTER).to_physical())]
        digest = hashlib.blake2b(b"".join(column.tobytes() for column in columns)).digest()
        if digest not in self._spans:
            code = np.zeros(rows.height, np.int64)  # one number for each round: sorting rows of three takes longer
            for column in columns:
                code = code * (int(column.max()) - int(column.min()) + 1) + (column - column.min())
            _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
            rounds = list(zip(*(column[first].tolist() for column in columns), strict=True))
            if new := [row for row, round_ in enumerate(rounds) if round_ not in self._numbers]:
                self._frames.append(rows[first[new]].select(CLUSTER))
                for row in new:
                    self._numbers[rounds[row]] = len(self._numbers)
            numbers = np.array([self._numbers[round_] for round_ in rounds], np.int32)
            self._spans[digest] = file.write(numbers[inverse])
        return self._spans[digest]


class Cells:
    """Observations by series, link and page.

    Parameters
    ----------
    parts
        Rows to read. Only one part is in memory at a time, so all rows of a series in a cell must be in the same part.
    sums
        For each series that is a sum of other series within each round: the names of these other series.
    """

    def __init__(self, parts: Iterable[Part], *, sums: Mapping[str, Sequence[str]] | None = None) -> None:
        self._file = _File()
        self._spans: dict[Cell, tuple[_Span, _Span]] = {}
        known = _KnownRounds()
        for part in parts:
            self._read(part, known)
        self._numbered(rounds_of(known.frame))
        self._sums = sums or {}
        cells = {(link, page) for _, link, page in self._spans}
        of_sums = ((name, *cell) for name in self._sums for cell in cells)
        self._choose([*self._spans, *(cell for cell in of_sums if self._has(cell))])

    @classmethod
    def of(cls, frames: Frames) -> Cells:
        """Make `Cells` from rows that have their series and value in the columns `series` and `value`."""
        return cls(Part(frame) for frame in ([frames] if isinstance(frames, pl.LazyFrame) else frames))

    def only(self, links: Sequence[str], pages: Sequence[str]) -> Cells:
        """Copy that contains only the cells of some links and pages, and only their rounds."""
        chosen = copy(self)
        chosen._choose(cell for cell in self.cells if cell[1] in links and cell[2] in pages)
        rounds = {span for cell, (_, span) in self._spans.items() if cell in chosen.cells}
        there = np.zeros(self.rounds.count, np.bool_)
        for span in rounds:
            there[self._rounds_at(span)[0]] = True
        if not there.all():
            numbers = np.cumsum(there, dtype=np.int32) - 1
            hosts = self.rounds.hosts[self.rounds.blocks][there]
            chosen._numbered(Rounds.of(numbers[self.rounds.numbers], np.unique(hosts, return_inverse=True)[1]))
        return chosen

    def pages(self, series: str, link: str) -> tuple[str, ...]:
        """Pages with observations of a series on a link; a query that belongs to no page has the page None."""
        return tuple(self._pages.get((series, link), ()))

    def numbers(self, cell: Cell) -> Numbers:
        """The observations of a cell, in the order of rounds."""
        series, link, page = cell
        if series in self._sums:
            return self.total(dict.fromkeys(self._sums[series], 1.0), link, page)
        values, (rounds, order) = self._file.read(self._spans[cell][0]), self._rounds_at(self._spans[cell][1])
        return Numbers(values if order is None else values[order], rounds)

    def total(self, factors: Mapping[str, float], link: str, page: str) -> Numbers:
        """Weighted sum of several series in a cell, for every round with an observation of each series.

        `factors` has the weight of each series, by the name of the series.
        """
        if list(factors.values()) == [1.0]:
            return self.numbers((next(iter(factors)), link, page))
        values, rounds = self.together(list(factors), link, page)
        return Numbers(sum(map(np.multiply, factors.values(), values), np.zeros(len(rounds))), rounds)

    def together(self, series: Sequence[str], link: str, page: str) -> tuple[list[Reals], Clusters]:
        """Observations of several series in those rounds of a cell that have an observation of each series.

        Also returns the number of each of these rounds.
        """
        terms = [self.numbers((name, link, page)) for name in series]
        rounds, values = terms[0].rounds, [term.values for term in terms]
        if not all(np.array_equal(term.rounds, rounds) for term in terms):
            times = np.zeros(self.rounds.count, np.int8)
            for term in terms:
                times[term.rounds] += 1
            whole = times == len(terms)
            rounds, values = np.flatnonzero(whole), [term.values[whole[term.rounds]] for term in terms]
        return values, rounds

    def rounds_of(self, numbers: Clusters) -> Rounds:
        """The `Rounds` of some observations, given the round number of each observation."""
        there = np.zeros(self.rounds.count, np.bool_)
        there[numbers] = True
        if there.all():
            return replace(self.rounds, numbers=numbers)
        hosts = self.rounds.hosts[self.rounds.blocks][there]
        return Rounds.of((np.cumsum(there, dtype=np.int32) - 1)[numbers], np.unique(hosts, return_inverse=True)[1])

    def _choose(self, cells: Iterable[Cell]) -> None:
        self.cells = frozenset(cells)
        """Cells that have observations."""
        self._pages: dict[tuple[str, str], list[str]] = {}
        for series, link, page in sorted(self.cells, key=lambda cell: (cell[2] is not None, cell[2])):
            self._pages.setdefault((series, link), []).append(page)

    def _numbered(self, rounds: Rounds) -> None:
        self.rounds = rounds
        """All rounds of this object.

        The file also has rounds that `only` left out: `rounds.numbers` maps the number of a round in the file to its
        number in this object.
        """
        self._kept: dict[_Span, tuple[Clusters, NDArray[np.intp] | None]] = {}

    def _rounds_at(self, span: _Span) -> tuple[Clusters, NDArray[np.intp] | None]:
        """The array of round numbers at a position in the file, sorted, and the permutation that sorts it.

        The permutation is None if the array in the file is already sorted.
        """
        kept = self._kept.get(span)
        if kept is None:
            rounds, order = self.rounds.numbers[self._file.read(span)], None
            if not np.all(rounds[1:] >= rounds[:-1]):
                order = np.argsort(rounds, kind="stable")
                rounds = rounds[order]
            kept = rounds, order
            if len(self._kept) < _KEPT:
                self._kept[span] = kept
        return kept

    def _has(self, cell: Cell) -> bool:
        """Whether a cell of a sum has at least one round with all terms of the sum."""
        series, link, page = cell
        terms = [(name, link, page) for name in self._sums[series]]
        if not all(term in self._spans for term in terms):
            return False
        return len({self._spans[term][1] for term in terms}) == 1 or len(self.numbers(cell).values) > 0

    def _read(self, part: Part, known: _KnownRounds) -> None:
        """Read a part, and write the values and round numbers of every cell to the file."""
        by, columns = list(dict.fromkeys((part.condition, "link", "page"))), list(dict.fromkeys(part.series.values()))
        # `gathered` drops rows without a value in the first column. A single column of values is therefore first, and
        # several follow `CLUSTER`. Also, polars 1.40 loses columns of concatenated frames that are filtered by another.
        wanted = [*columns, *CLUSTER] if len(columns) == 1 else [*CLUSTER, *columns]
        for key, group in gathered(part.rows, by, wanted):
            of = dict(zip(by, key, strict=True))
            for name, column in part.series.items():
                some = group if not group[column].null_count() else group.filter(pl.col(column).is_not_null())
                if not some.is_empty():
                    cell = (name.format(part.spelled(of[part.condition])), of["link"], of["page"])
                    if cell in self._spans:
                        raise ValueError(f"rows of {', '.join(map(str, cell))} are in two parts")
                    self._spans[cell] = self._file.write(some[column].to_numpy()), known.span(some, self._file)
