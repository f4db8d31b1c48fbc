"""Figures that compare series of durations: medians of each series, and differences of two series within a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import TEXT_WIDTH, AnyChart, Style, with_titles

MEASURED, DIFFERENCE, POOLED = "measured", "difference", "pooled"
"""Values of the column `source`: from what the median of a row is computed.

`MEASURED`: from a series in one cell. `DIFFERENCE`: from the differences between two series within each round of a
cell. `POOLED`: from several cells together. If the comparison has `differences`, pooled rows have medians of
differences, otherwise medians of series.
"""

_KEYS = ("measure", "source", "page", "link", "series")
_CELL = ["link", "page"]

Unit = Literal["RTT", "ms"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A comparison of series of durations; the method `figure` makes its `Figure`.

    In every study, the rows have the columns link, page, series, n, rounds, median, low, high (95 % interval; null
    under `MIN_ROUNDS` rounds), measure and source (`MEASURED`, `DIFFERENCE`, `POOLED`).
    """

    observations: Callable[[Inputs], pl.LazyFrame]
    """Makes the observations: rows with `series`, the columns in `metrics.ROUND`, and a column for each measure."""
    measures: Mapping[str, str]
    """Maps the label of each measure to its column (ms) of the observations.

    All measures are drawn if `columns_by` is `measure`, else only the first.
    """
    measures_in_ms: Mapping[str, str] = field(default_factory=dict)
    """Further measures, whose rows are always in ms; they are not drawn."""
    unit: Unit = "RTT"
    """Unit of `measures`: ms, or multiples of the link's nominal RTT."""
    differences: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Differences by name, each a pair of series: the first minus the second within a round."""
    pooled: Sequence[str] | None = None
    """Columns by which pooled rows are grouped, in addition to the series; None for no pooled rows.

    For example, `page` alone gives one row for each page and series, from all links together.
    """
    styles: Mapping[str, Style]
    """Style of each series that is drawn, in the order of the legend."""
    axis: str
    """Title of the axis of values."""
    drawn: str = MEASURED
    """Source of the rows that are drawn."""
    least: tuple[float, float] = (0.0, 1.0)
    """Range that the axis of values always includes."""
    margin: float = 0.1
    """Distance from the outermost intervals to the ends of the axis, in the unit of the axis."""
    reference: float | None = None
    """Value at which the plot has a dashed line, e.g. one RTT."""
    zero_line: bool = False
    """Whether the plot has a line at 0."""
    rows_by: Literal["link_title", "page"] = "link_title"
    """Column whose values are the rows of each plot."""
    columns_by: Literal["page", "measure"] = "page"
    """Column whose values have a plot each, side by side."""
    facet_rows_by: Literal["link_title"] | None = None
    """Column by which the plots are divided into rows: one row for each value, one below the other."""
    counted: str = "loads"
    """Name of the observations that `n` counts."""
    empty: str = "no observations of this study"
    """Text in place of the plot if there are no rows."""

    def rows(self, inputs: Inputs) -> pl.DataFrame:
        """Medians with 95 % intervals, sorted by the link's RTT and by page."""
        observed = self.observations(inputs)
        units: list[tuple[Unit, Mapping[str, str]]] = [(self.unit, self.measures), ("ms", self.measures_in_ms)]
        parts = [
            part.with_columns(measure=pl.lit(measure), source=pl.lit(source))
            for unit, measures in units
            for measure, column in measures.items()
            for source, part in self._parts(inputs, observed, column, unit)
        ]
        return inputs.by_rtt(pl.concat(parts, how="diagonal"), "page")

    def _parts(self, inputs: Inputs, observed: pl.LazyFrame, column: str, unit: Unit) -> list[tuple[str, pl.DataFrame]]:
        """Rows of one measure (`column`), by source."""

        def medians(frame: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
            if unit == "ms":
                return metrics.medians(frame, "value_ms", by)
            return metrics.medians(metrics.in_rtts(frame, inputs.rtts, ["value_ms"]), "value_rtt", by)

        values = observed.with_columns(value_ms=pl.col(column))
        parts = [(MEASURED, medians(values, [*_CELL, "series"]))]
        if self.pooled is not None and not self.differences:
            parts.append((POOLED, medians(values, [*self.pooled, "series"])))
        for series, (first, second) in self.differences.items():
            paired = metrics.paired(observed, column, "series", first, second).rename({"difference": "value_ms"})
            of_pairs = [(DIFFERENCE, medians(paired, _CELL))]
            if self.pooled is not None:
                of_pairs.append((POOLED, medians(paired, self.pooled)))
            parts += [(source, part.with_columns(series=pl.lit(series))) for source, part in of_pairs]
        return parts

    def chart(self, frame: pl.DataFrame) -> AnyChart:
        """Chart of dots with intervals, a plot for each value of `columns_by`."""
        shown = frame.filter(pl.col("source") == self.drawn, pl.col("series").is_in(list(self.styles)))
        first, *others = self.measures
        shown = shown.filter(pl.col("measure").is_in([first, *others] if self.columns_by == "measure" else [first]))
        if shown.is_empty():
            return marks.empty_plot(self.empty, TEXT_WIDTH - 60)
        shown = with_titles(shown)
        rows = list(shown[self.rows_by].unique(maintain_order=True))
        columns = list(self.measures) if self.columns_by == "measure" else sorted(shown["page"].unique())
        facets: dict[str, Any] = {"column": marks.facet_columns(self.columns_by, columns)}
        if self.facet_rows_by:
            links = list(shown[self.facet_rows_by].unique(maintain_order=True))
            facets["row"] = marks.facet_rows(self.facet_rows_by, links)
        scale = marks.domain(shown, least=self.least, margin=self.margin)
        x = alt.X("median:Q", title=self.axis, scale=scale, axis=alt.Axis(tickCount=5))
        encodings = marks.encode_series(
            "series", self.styles, "color", "shape", "offset", columns=2 if len(self.styles) > 3 else None
        )
        who = ("page", "link_title", "series", "measure")
        tooltip = marks.tooltip(*who, value=f"median, {self.unit}", digits=".3f", counted=self.counted)
        base = alt.Chart(width=(TEXT_WIDTH - 150) // len(columns), height=12 * len(self.styles) * len(rows))
        layers = marks.intervals(base, x, marks.rows(self.rows_by, rows), tooltip, encodings)
        if self.reference is not None:
            layers.insert(0, marks.line_at(base, x=self.reference, dashed=True))
        if self.zero_line:
            layers.insert(0, marks.line_at(base, x=0))
        chart: AnyChart = marks.multiples(layers, spacing=14, **facets)
        chart.data = shown
        return chart

    def table(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Table of measure, source, page, link, series, n, median, low, high; in `unit` or in ms."""
        return frame.select(*_KEYS, "n", "median", "low", "high")

    def figure(self, **fields: Any) -> Figure:
        """Figure of this comparison; `fields` are the other fields of `Figure`, e.g. name, title and caption."""
        return Figure(data=self.rows, chart=self.chart, table=self.table, width=TEXT_WIDTH, **fields)
