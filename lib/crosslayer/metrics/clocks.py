"""Comparison of real time with virtual time: the duration of each condition, and differences between two conditions.

A duration in virtual time contains only network and timers; in real time it also contains computing. This module is
independent of studies: the key columns of its rows identify a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from crosslayer.metrics.intervals import groups, rounds_of
from crosslayer.metrics.paced import paced
from crosslayer.metrics.resampling import Estimate, derived
from crosslayer.metrics.rows import ROUND, exchanges, page_loads
from crosslayer.metrics.self_check import without_repetitions
from crosslayer.vocabulary import BROWSERS, Browser, Connection, Http3, Protocol, Resumption

START, PLT, EXCHANGE, PACED = "response start", "PLT", "DNS exchange", "paced query"

LOAD_MEASURES = {"response_start_ms": START, "plt_ms": PLT}
"""Names of the durations of page loads, by column. Only these durations depend on the page."""

EXPLAINS = ("client's CPU time", "packets sent")
"""Quantities of DNS exchanges that can explain a difference between real and virtual time."""

RESOLUTION_MS = 0.1
"""Resolution of a browser's clock, ms. Differences up to this value do not count."""

_KEYS = ("measure", "transport", "h3", "kind", "condition")


@dataclass(frozen=True, slots=True)
class ComparedCondition:
    """A quantity, usually a duration, and the condition in which it was measured.

    A field is empty if its value is the usual one (no resumption, Chromium, the condition `main`), or if the field does
    not apply to the quantity.
    """

    measure: str
    """`START`, `PLT`, `EXCHANGE`, `PACED`, or one of `EXPLAINS`."""
    transport: str = ""
    h3: str = ""
    kind: str = ""
    """Resumption of an exchange, or connection mode of a paced query."""
    condition: str = ""
    """Browser and condition of the rows; empty for Chromium and the condition `main`."""

    @property
    def name(self) -> str:
        """The condition as text, without the quantity."""
        return self.named("transport", "h3", "kind", "condition")

    def named(self, *keys: str) -> str:
        """The values of the given fields as text, without empty and repeated values."""
        return " ".join(dict.fromkeys(str(getattr(self, word)) for word in keys if getattr(self, word)))


@dataclass(frozen=True, slots=True)
class Step:
    """Two conditions that differ in one field of `ComparedCondition`."""

    condition: ComparedCondition
    reference: ComparedCondition
    word: str
    """Name of the field in which the two conditions differ."""


def durations(dns_exchanges: pl.LazyFrame, loads: pl.LazyFrame, paced_queries: pl.LazyFrame) -> pl.DataFrame:
    """Median duration of the valid observations of each condition in each round, for any study.

    The arguments are complete tables. Loads of the A/A self-check are left out.

    Returns
    -------
    polars.DataFrame
        campaign, round, host, link, page (empty for rows without a page), the fields of `ComparedCondition`, value (ms,
        or a number of packets).
    """
    counted = without_repetitions(page_loads(loads, condition=None, role=None))
    condition = pl.col("condition").replace("main", "")
    others = {name: name for name in map(str, Browser)} | {name: one.title for name, one in BROWSERS.items()}
    del others[Browser.CHROMIUM]
    other = pl.col("browser").replace_strict(others, default=None, return_dtype=pl.String)
    parts = [
        _rows(
            counted,
            pl.col(column),
            measure=pl.lit(measure),
            transport=pl.col("dns_protocol").fill_null(""),
            h3=pl.format("H3 {}", pl.col("h3").str.to_uppercase()),
            condition=pl.concat_str(other, pl.when(condition != "").then(condition), separator=" ", ignore_nulls=True),
        )
        for column, measure in LOAD_MEASURES.items()
    ]
    for resumption in Resumption:
        kind = pl.lit("" if resumption is Resumption.NONE else resumption.value)
        asked = exchanges(dns_exchanges, resumption=resumption)
        keys = {"transport": pl.col("protocol"), "kind": kind, "condition": condition}
        packets = (pl.col("handshake_sent_packets") + pl.col("query_sent_packets")).cast(pl.Float64)
        columns = {EXCHANGE: pl.col("total_ms"), **dict(zip(EXPLAINS, (pl.col("cpu_ms"), packets), strict=True))}
        parts += [_rows(asked, value, measure=pl.lit(measure), **keys) for measure, value in columns.items()]
    for connection in Connection:
        keys = {"measure": pl.lit(PACED), "transport": pl.col("protocol"), "kind": pl.lit(connection.value)}
        parts.append(_rows(paced(paced_queries, connection), pl.col("response_ms"), **keys))
    rows = pl.concat(parts).group_by(*ROUND, *_KEYS).agg(pl.col("value").median())
    return rows.sort(*ROUND, *_KEYS).collect(engine="streaming")


def _rows(frame: pl.LazyFrame, value: pl.Expr, **keys: pl.Expr) -> pl.LazyFrame:
    columns = {name: keys.get(name, pl.lit("")) for name in _KEYS}
    return frame.select(
        "campaign", "round", "host", "link", page=pl.col("page").fill_null(""), value=value, **columns
    ).filter(pl.col("value").is_not_null())


def conditions(rows: pl.DataFrame) -> list[ComparedCondition]:
    """The conditions in rows of `durations`, sorted by the values of their keys.

    Quantities have a fixed order. Of each other key, values that `crosslayer.vocabulary` lacks come first, sorted by
    name. Its own values follow in its order.
    """
    listed = {"measure": (PLT, START, EXCHANGE, *EXPLAINS, PACED), "transport": tuple(Protocol)}
    listed |= {"kind": (*Resumption, *Connection), "h3": tuple(Http3)}

    def rank(condition: ComparedCondition) -> list[tuple[int, str]]:
        keys = [(name, str(getattr(condition, name)).removeprefix("H3 ")) for name in _KEYS]
        orders = [(word, [str(one).upper() for one in listed.get(name, ())]) for name, word in keys]
        return [(order.index(word.upper()) if word.upper() in order else -1, word) for word, order in orders]

    return sorted((ComparedCondition(*row) for row in rows.select(_KEYS).unique().iter_rows()), key=rank)


def steps(of: Iterable[ComparedCondition]) -> list[Step]:
    """Steps between the given conditions.

    Conditions that differ only in one field other than `measure` form a group. In each group, one step leads from the
    first given condition to each of the other conditions.
    """
    known = list(of)
    rows = []
    for condition in known:
        for word in _KEYS[1:]:
            alike = [other for other in known if replace(other, **{word: getattr(condition, word)}) == condition]
            if alike[0] != condition:
                rows.append(Step(condition, alike[0], word))
    return rows


def values(rows: pl.DataFrame, condition: ComparedCondition) -> pl.DataFrame:
    """Rows of `durations` that belong to a condition; `page` is empty if the duration does not depend on the page."""
    keys = {name: getattr(condition, name) for name in _KEYS}
    return _per_cell(rows.filter(**keys), condition)


def differences(rows: pl.DataFrame, step: Step) -> pl.DataFrame:
    """Duration of a step's condition minus that of its reference, in each round that has both.

    The rows are like those of `values`.
    """
    one, other = (
        rows.filter(**{name: getattr(side, name) for name in _KEYS}) for side in (step.condition, step.reference)
    )
    both = one.join(other.select(*ROUND, reference="value"), on=ROUND)
    return _per_cell(both.with_columns(value=pl.col("value") - pl.col("reference")), step.condition)


def reasons(wall: pl.DataFrame, virtual: pl.DataFrame, step: Step) -> pl.DataFrame:
    """Possible reasons why a step adds a different time in real than in virtual time.

    `wall` and `virtual` are results of `durations`.

    Returns
    -------
    polars.DataFrame
        link, page. For the PLT also before_ms: how much of the difference between real and virtual time exists when the
        response starts. For an exchange also cpu_ms and packets: cpu_ms is the client's CPU time that the step adds in
        real time. packets is the number of packets that the step adds in real time, minus the number that it adds in
        virtual time.
    """

    def of(measure: str) -> tuple[pl.DataFrame, pl.DataFrame]:
        same = Step(replace(step.condition, measure=measure), replace(step.reference, measure=measure), step.word)
        return differences(wall, same), differences(virtual, same)

    if step.condition.measure == PLT:
        return compared(*of(START)).select("link", "page", before_ms="apart")
    cell = ("link", "page")
    if step.condition.measure == EXCHANGE:
        cpu, packets = (of(measure) for measure in EXPLAINS)
        computed = cpu[0].group_by(cell).agg(cpu_ms=pl.col("value").median())
        return compared(*packets).select(*cell, packets="apart").join(computed, on=cell, how="left")
    return pl.DataFrame(schema=dict.fromkeys(cell, pl.String()))


def _per_cell(rows: pl.DataFrame, condition: ComparedCondition) -> pl.DataFrame:
    # A separate lookup does not depend on the page.
    return rows if condition.measure in LOAD_MEASURES.values() else rows.with_columns(page=pl.lit(""))


def compared(wall: pl.DataFrame, virtual: pl.DataFrame) -> pl.DataFrame:
    """Medians in real and in virtual time, and their difference. The rounds of each campaign are resampled separately.

    Parameters
    ----------
    wall, virtual
        From `values` or `differences`, of one condition or step.

    Returns
    -------
    polars.DataFrame
        link, page, n, rounds, wall, wall_low, wall_high, virtual, virtual_low, virtual_high, apart (real minus
        virtual), low, high. There is one row for each cell that both frames have. n and rounds are the smaller numbers
        of both samples. The other values have the unit of the frames, usually ms. low and high, also in wall_low etc.,
        are the ends of 95 % intervals; they are null below `MIN_ROUNDS` rounds.
    """
    by = ("link", "page")
    ours, others = (dict(_medians(rows, by, seed)) for seed, rows in enumerate((wall, virtual)))
    rows = []
    for key in (key for key in ours if key in others):
        apart = derived(lambda x, y: x - y, ours[key], others[key])
        ends = [end for one in (ours[key], others[key], apart) for end in (one.value, *(one.interval or (None, None)))]
        rows.append((*key, apart.n, apart.rounds, *ends))
    names = [f"{name}{end}" for name in ("wall", "virtual") for end in ("", "_low", "_high")]
    schema = {"link": pl.String(), "page": pl.String(), "n": pl.Int64(), "rounds": pl.Int64()}
    return pl.DataFrame(
        rows, schema=schema | dict.fromkeys((*names, "apart", "low", "high"), pl.Float64()), orient="row"
    )


def _medians(rows: pl.DataFrame, by: Sequence[str], seed: int) -> Iterator[tuple[tuple[str, ...], Estimate]]:
    for key, group in groups(rows.lazy(), ["value"], by):
        rounds = rounds_of(group)
        sample = rounds.sample(group["value"].to_numpy())
        draws = [sample.quantiles(0.5, weights) for weights in rounds.drawn(seed=seed)]
        yield key, Estimate(sample.quantile(0.5), sample.size, rounds.count, np.concatenate(draws) if draws else None)
