"""Rows and charts of single queries as in IMC 2022: bytes (Table 1), and durations by vantage point (Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from crosslayer.figures import marks
from crosslayer.figures.style import INK, RULE, TEXT_PX, TEXT_WIDTH, AnyChart
from crosslayer.published import Published
from crosslayer.vocabulary import PAPER_SERIES, SIZES_BY_PART, VANTAGE_POINTS

ALL, PRINTED = "All, measured", "All, published"
"""Names of the two rows of Fig. 2 that combine all vantage points: our medians, and the paper's medians."""

TIMES = ("handshake", "resolve")
"""The two parts of an exchange whose durations Fig. 2 shows."""


def whole_table1(ours: pl.DataFrame, published: Published) -> pl.DataFrame:
    """Rows of `table1`: measured and published bytes of each part of an exchange, and their totals.

    Columns series, part, source (`measured`, `published`), n, rounds, median, low, high. The last three are in bytes.
    In measured rows, `low` and `high` are the 95 % interval; in published rows, the 10th and 90th percentile over the
    paper's resolvers. The median of the part `total` is the sum of the medians of the other four parts, as in the
    paper.
    """
    printed = published.sizes.filter(pl.col("part").is_in(SIZES_BY_PART)).select(
        "series", "part", source=pl.lit("published"), median="table1", low="p10", high="p90"
    )
    frame = pl.concat([ours.with_columns(source=pl.lit("measured")), printed], how="diagonal_relaxed")
    total = frame.group_by("series", "source").agg(pl.col("median").sum(), pl.col("n").min(), part=pl.lit("total"))
    frame = pl.concat([frame, total], how="diagonal_relaxed")
    return frame.select("series", "part", "source", "n", "rounds", "median", "low", "high").sort(
        _rank("series", [*PAPER_SERIES, "DoH3"]), _rank("part", ["total", *SIZES_BY_PART]), "source"
    )


def table1(frame: pl.DataFrame) -> AnyChart:
    """IMC22 Table 1 as a chart: measured bytes, published bytes below them, shaded by the difference between both."""
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    if ours.is_empty():
        return marks.empty_plot("no single queries whose bytes were counted", TEXT_WIDTH - 60, 80)
    rows = ours.join(printed.select("series", "part", published="median"), on=["series", "part"], how="left")
    rows = rows.with_columns(
        percent=((pl.col("median") / pl.col("published") - 1) * 100).fill_nan(0.0),
        ours=pl.col("median").round(0).cast(pl.Int64).cast(pl.String),
        theirs=pl.format("({})", pl.col("published").cast(pl.Int64)).fill_null("not published"),
    )
    order = [name for name in (*PAPER_SERIES, "DoH3") if name in set(rows["series"])]
    short = "replace(replace(datum.label, 'client to resolver', 'sent'), 'resolver to client', 'received')"
    base = alt.Chart(width=TEXT_WIDTH - 90, height=38 * len(order)).encode(
        marks.columns("part", ["total", *SIZES_BY_PART], orient="top", labelExpr=short),
        marks.rows("series", order, bold=True),
    )
    scale = alt.Scale(domain=[-50, 0, 50], range=["#b2abd2", "#ffffff", "#fdb863"], interpolate="rgb", clamp=True)
    legend = alt.Legend(title="measured against published (%)", titleLimit=0, orient="bottom", gradientLength=180)
    shade = alt.Color("percent:Q", scale=scale, legend=legend)
    more = [alt.Tooltip("published:Q", format=".0f", title="published, bytes"), _EXCHANGES]
    tooltip = marks.tooltip("series", "part", value="measured, bytes", digits=".0f", more=more)
    chart: AnyChart = marks.heatmap(
        base,
        alt.condition("isValid(datum.percent)", shade, alt.value("white")),
        tooltip,
        marks.CellText("ours:N", alt.value(INK), dy=-6, size=TEXT_PX + 1, weight="bold"),
        marks.CellText("theirs:N", alt.value(INK), dy=8, size=TEXT_PX - 1),
        stroke=RULE,
    )
    chart.data = rows
    return chart


_EXCHANGES = alt.Tooltip("n:Q", title="exchanges")


def table1_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of measured and published bytes of each part of an exchange.

    Columns series, part, n, median, low, high, published, published_p10, published_p90. The percentiles are over the
    paper's resolvers.
    """
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    published = printed.select("series", "part", published="median", published_p10="low", published_p90="high")
    return ours.join(published, on=["series", "part"], how="left", maintain_order="left").drop("source", "rounds")


def printed_handshakes(published: Published) -> pl.DataFrame:
    """Median handshake times over all vantage points, as the text of the paper prints them.

    Columns vantage_point, series, measure, source, median (ms).
    """
    return published.claims.filter(
        pl.col("paper") == "IMC22", pl.col("quantity") == "handshake time", pl.col("statistic") == "median"
    ).select(
        vantage_point=pl.lit(PRINTED),
        series=pl.col("scope").str.split(";").list.first(),
        measure=pl.lit("handshake"),
        source=pl.lit("published"),
        median=pl.col("value").cast(pl.Float64),
    )


def ordered_times(frame: pl.DataFrame, series: Sequence[str]) -> pl.DataFrame:
    """Rows of Fig. 2 in the order of `heatmaps`, with the full names of vantage points.

    Columns vantage_point, series, measure, source, n, rounds, median, low, high.
    """
    columns = ["vantage_point", "series", "measure", "source", "n", "rounds", "median", "low", "high"]
    named = frame.select(columns).with_columns(pl.col("vantage_point").replace(VANTAGE_POINTS))
    return named.sort(_rank("measure", TIMES), _rank("vantage_point", _row_names(named)), _rank("series", series))


def times_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of vantage_point, series, measure, n, median, low, high; ms. Published values have rows of their own."""
    return frame.drop("source", "rounds")


def _row_names(frame: pl.DataFrame) -> list[str]:
    known = [*VANTAGE_POINTS.values(), ALL, PRINTED]
    others = [name for name in frame["vantage_point"].unique(maintain_order=True) if name not in known]
    return [name for name in (*VANTAGE_POINTS.values(), *others, ALL, PRINTED) if name in set(frame["vantage_point"])]


def heatmaps(frame: pl.DataFrame, series: Sequence[str]) -> AnyChart:
    """IMC22 Fig. 2: two heat maps, of median handshake and resolve time, with a row for each vantage point."""
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no single queries", TEXT_WIDTH - 60)
    names, top = _row_names(frame), float(frame["median"].max())  # type: ignore[arg-type]
    shade = alt.Color("median:Q", scale=alt.Scale(domain=[0, top], scheme="blues"), legend=None)
    number = marks.CellText(alt.Text("median:Q", format=".0f"), marks.light_where(alt.datum.median > 0.58 * top))
    tooltip = marks.tooltip("vantage_point", "series", "source", value="median, ms", digits=".1f", counted="exchanges")
    plots = []
    for measure in TIMES:
        shown = [name for name in series if name in set(frame.filter(pl.col("measure") == measure)["series"])]
        across = marks.columns("series", shown, orient="top")
        down = marks.rows("vantage_point", names, bold=True, labels=measure == "handshake")
        base = alt.Chart(width=(TEXT_WIDTH - 135) // 2, height=24 * len(names)).encode(across, down)
        base = base.transform_filter(alt.datum.measure == measure)
        title = f"{measure.capitalize()} time (ms)"
        plots.append(marks.heatmap(base, shade, tooltip, number).properties(title=title))
    chart: AnyChart = alt.hconcat(*plots, spacing=8)
    chart.data = frame
    return chart


def _rank(column: str, order: Sequence[str]) -> pl.Expr:
    ranks = {name: number for number, name in enumerate(order)}
    return pl.col(column).replace_strict(ranks, return_dtype=pl.Int64, default=len(ranks))
