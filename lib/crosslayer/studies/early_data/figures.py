"""Figure: time that early data saves if the server answers it at once, answers it late, or refuses it."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach, row, with_interval
from crosslayer.figures.style import (
    BLUE,
    CHAIN,
    COLUMN_WIDTH,
    EARLY_DATA,
    GREY,
    LONG,
    PURPLE,
    RED,
    SOLID,
    TEXT_WIDTH,
    WIDE,
    AnyChart,
    Style,
    with_titles,
)
from crosslayer.studies.coalescing import TNSM24

_PAPER = TNSM24.name
_ESTIMATE = {name: pl.Float64() for name in ("median", "low", "high")}

_KINDS = {"main": "H3 0-RTT", "late": "H3 0-RTT answered late", "resumed": "resumed, no early data"}
_STYLES = {
    "H3 0-RTT": EARLY_DATA,
    "H3 0-RTT answered late": Style(RED, "triangle-down", LONG),
    "resumed, no early data": Style(GREY, "square", CHAIN),
    "wikipedia.org as published": Style(BLUE, "diamond", SOLID),
    "instagram.com as published": Style(PURPLE, "cross", WIDE),
}
_MEASURES = {"response_start_ms": "start of the response", "plt_ms": "PLT"}


def early_data_data(inputs: Inputs) -> pl.DataFrame:
    """Time that each kind of load saves compared with a full handshake in the same round, ms.

    Columns link, measure, series, source, x (RTT, ms), n, rounds, median, low, high. Rows of source `slope` have the
    saving per ms of RTT.
    """
    loads = _loads(inputs).with_columns(
        series=pl.when(pl.col("h3") == "1-rtt", pl.col("condition") == "main")
        .then(pl.lit("full"))
        .otherwise(pl.col("condition").replace(_KINDS))
    )
    parts = []
    for column, measure in _MEASURES.items():
        for series in _KINDS.values():
            saved = metrics.paired(loads, column, "series", "full", series).join(inputs.rtts, on="link")
            named = {"measure": pl.lit(measure), "series": pl.lit(series)}
            rtts = saved.group_by("link").agg(x=pl.col("nominal_rtt_ms").first()).collect()
            ours = metrics.medians(saved, "difference", ["link"]).join(rtts, on="link").sort("link")
            parts.append(ours.with_columns(**named, source=pl.lit("measured")))
            if fitted := metrics.line(saved, "nominal_rtt_ms", "difference", ["link"]):
                low, high = fitted[0].interval or (None, None)
                values = {"median": fitted[0].value, "low": low, "high": high, "n": fitted[0].n}
                slope = pl.DataFrame([values | {"rounds": fitted[0].rounds}], schema_overrides=_ESTIMATE)
                parts.append(slope.with_columns(**named, source=pl.lit("slope")))
    named = {"measure": pl.lit("PLT"), "series": pl.format("{} as published", "page"), "source": pl.lit("published")}
    parts.append(inputs.published_saving.select("link", **named, x="nominal_rtt_ms", median="saving_ms"))
    return pl.concat(parts, how="diagonal_relaxed")


def early_data(frame: pl.DataFrame) -> AnyChart:
    """Chart: time saved compared with a load with a full handshake (y axis), and RTT of the link (x axis)."""
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no pairs of page loads of this study", COLUMN_WIDTH - 60)
    shown = frame.filter(pl.col("source") != "slope")
    right = float(shown["x"].max()) * 1.08  # type: ignore[arg-type]
    x = alt.X("x:Q", title="RTT of the link (ms)", scale=alt.Scale(domain=[0, right], nice=False))
    scale = marks.domain(shown, least=(-5.0, right), margin=3)
    y = alt.Y("median:Q", title="Saved over a full handshake (ms)", scale=scale)
    encodings = marks.encode_series("series", _STYLES, "color", "shape", columns=2)
    tooltip = marks.tooltip("link_title", "series", "measure", value="saved, ms", digits=".1f", counted="pairs")
    base = alt.Chart(width=288, height=230)
    layers = [
        marks.diagonal(base, 0, right),  # one RTT
        *marks.intervals(marks.rows_from(base, "measured"), x, y, tooltip, encodings, upright=True),
        marks.published_points(base, x, y, tooltip, encodings, size=70),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("measure", [*_MEASURES.values()]), spacing=14)
    chart.data = with_titles(shown)
    return chart


def early_data_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Saved times (ms) and slopes (ms per ms of RTT): measure, series, source, link, n, median, low, high."""
    order = pl.col("source").replace_strict({"measured": 0, "published": 1, "slope": 2}, return_dtype=pl.Int64)
    return frame.sort(
        "measure", "series", order, "x", descending=[True, False, False, False], maintain_order=True
    ).select("measure", "series", "source", "link", "n", "median", "low", "high")


def early_data_verdict(frame: pl.DataFrame) -> str:
    """Verdict: why 0-RTT saves a whole round-trip here, but only a fraction of a round-trip in the paper."""
    slopes = {
        series: row(frame, source="slope", measure="start of the response", series=series) for series in _KINDS.values()
    }
    early, late, resumed = (slopes[name] for name in _KINDS.values())
    if not (early and late and resumed):
        return "Not answered: this dataset lacks one of the kinds of load, or has one link only."
    published = frame.filter(pl.col("source") == "published").drop_nulls("median").sort("x")
    slope = (pl.col("median").last() - pl.col("median").first()) / (pl.col("x").last() - pl.col("x").first())
    # NaN: only one link of the paper is here
    growth = published.group_by("series").agg(slope).filter(pl.col("median").is_not_nan()).sort("series")
    by_page = " and ".join(
        f"{reach(pl.Series([value]), 2)} ms on {series.removesuffix(' as published')}"
        for series, value in growth.rows()
    )
    return (
        "Early data saves a round-trip only if the server answers it on arrival. Time that a resumed load saves until "
        f"the response starts, for each further ms of RTT [95 % interval]: {with_interval(early, 'ms', 2)} if the "
        f"server answers early data on arrival, {with_interval(late, 'ms', 2)} if it answers after the handshake, and "
        f"{with_interval(resumed, 'ms', 2)} without early data."
    ) + (
        f" In {_PAPER}, the median PLT is shorter with 0-RTT than with a full handshake. Between the links with RTTs "
        f"of 15 and 92 ms, the time that 0-RTT saves changes by {by_page} for each further ms of RTT. If the paper's "
        "server answered early data on arrival, we would expect a change of about 1 ms. So the paper's 0-RTT loads "
        "behave like requests that are answered after the handshake."
        if growth.height
        else ""
    )


def _loads(inputs: Inputs) -> pl.LazyFrame:
    conditions = ("main", "late", "resumed")
    return pl.concat(metrics.page_loads(inputs.page_loads, condition=name) for name in conditions)


FIGURES = (
    Figure(
        name="early-data-mechanism",
        title="Time that a resumed load saves, with three treatments of early data",
        notebook="question_early_data",
        caption="Start of the response and PLT: time with a full handshake minus time of a resumed load in the same "
        "round, against the link's RTT. Three kinds of resumed load: the server answers early data on arrival, the "
        "server answers it after the handshake, or there is no early data.",
        note="Dashed: one RTT. Bars: 95 % intervals. Hollow: differences between medians in Figs. 10 and 11 of the "
        f"paper {_PAPER}.",
        data=early_data_data,
        chart=early_data,
        table=early_data_table,
        width=TEXT_WIDTH,
        verdict=early_data_verdict,
    ),
)
