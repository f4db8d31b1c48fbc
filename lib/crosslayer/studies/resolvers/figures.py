"""Figures of a comparison of resolvers: who is fastest, the same resolver twice, and every round over time."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import polars as pl

from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.style import TEXT_WIDTH, TRANSPORTS, AnyChart
from crosslayer.resolvers import analysis
from crosslayer.resolvers.frames import FIGURE, figure_rows
from crosslayer.resolvers.plan import measured_of

_SELF_CHECKS = {
    "resolver": pl.String, "transport": pl.String, "measure": pl.String, "n": pl.Int64, "rounds": pl.Int64,
    "median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "source": pl.String,
}  # fmt: skip
_ROW_PX, _PANEL_PX = 22, 90


def compared(inputs: Inputs) -> analysis.ResolverComparison:
    """The comparison that the tables contain."""
    queries, events = (table.collect().to_dicts() for table in (inputs.resolver_queries, inputs.resolver_events))
    return analysis.of(measured_of(queries, events))


def self_check_data(inputs: Inputs) -> pl.DataFrame:
    """A row for each transport and measure: the difference between a resolver and itself, ms."""
    rows = [
        {
            "resolver": check.target.name,
            "transport": str(check.target.protocol),
            "measure": analysis.TIMES[check.key],
            "n": check.difference.rounds,
            "rounds": check.difference.rounds,
            "median": check.difference.median,
            "low": check.difference.low,
            "high": check.difference.high,
            "source": "measured",
        }
        for check in compared(inputs).self_checks
    ]
    return pl.DataFrame(rows, schema=_SELF_CHECKS)


def self_check(frame: pl.DataFrame) -> AnyChart:
    """Difference of each measure, a colour and a shape for each transport."""
    if frame.is_empty():
        return marks.empty_plot("no resolver was measured twice", TEXT_WIDTH - 60, 80)
    order = [name for name in analysis.TIMES.values() if name in set(frame["measure"])]
    looks = {name: look for name, look in TRANSPORTS.items() if name in set(frame["transport"])}
    base = alt.Chart(width=TEXT_WIDTH - 130, height=max(80, _ROW_PX * len(order) * max(2, len(looks) // 2)))
    x = alt.X("median:Q", title="Resolver minus itself (ms)", axis=alt.Axis(tickCount=7))
    tooltip = marks.tips("resolver", "measure", "transport", value="difference, ms", counted="rounds")
    look = marks.by("transport", looks, "color", "shape", "offset")
    chart: AnyChart = alt.layer(*marks.intervals(base, x, marks.rows("measure", order), tooltip, look))
    chart.data = frame
    return chart


def time_data(inputs: Inputs) -> pl.DataFrame:
    """A row for each vantage point, resolver, transport and round: first query, ms, and hours since the start."""
    first = inputs.resolver_queries.filter(state="cold", cache="hit", role="measured").filter(pl.col("error").is_null())
    hours = (pl.col("started_s") - pl.col("started_s").min()) / 3600
    keys = ["link", "resolver", "protocol", "round"]
    return (
        first.with_columns(hours=hours)
        .group_by(keys)
        .agg(pl.col("hours").min(), first_ms=pl.col("total_ms").median(), n=pl.len())
        .rename({"link": "vantage", "protocol": "transport"})
        .with_columns(source=pl.lit("measured"))
        .sort("vantage", "resolver", "transport", "round")
        .collect()
    )


def over_time(frame: pl.DataFrame) -> AnyChart:
    """A panel for each vantage point and resolver, a line for each transport."""
    if frame.is_empty():
        return marks.empty_plot("no resolver answered", TEXT_WIDTH - 60, 80)
    vantages = frame["vantage"].unique().sort().to_list()
    resolvers = frame.group_by("resolver").agg(pl.col("first_ms").min()).sort("first_ms")["resolver"].to_list()
    width = (TEXT_WIDTH - 90) // len(vantages) - 24
    looks = {name: look for name, look in TRANSPORTS.items() if name in set(frame["transport"])}
    color = alt.Color(
        "transport:N",
        title=None,
        scale=alt.Scale(domain=list(looks), range=[look.color for look in looks.values()]),
        legend=alt.Legend(orient="top"),
    )
    tooltip = [
        alt.Tooltip("vantage:N"), alt.Tooltip("resolver:N"), alt.Tooltip("transport:N"),
        alt.Tooltip("hours:Q", format=".1f"), alt.Tooltip("first_ms:Q", format=".1f", title="first query, ms"),
    ]  # fmt: skip
    rows = []
    for number, resolver in enumerate(resolvers):
        panels = []
        for vantage in vantages:
            title = {"title": vantage} if number == 0 else {}
            last = number == len(resolvers) - 1
            panels.append(
                alt.Chart(width=width, height=_PANEL_PX, **title)
                .mark_line(point={"size": 12}, strokeWidth=1)
                .encode(
                    x=alt.X("hours:Q", title="Hours since the start" if last else None),
                    y=alt.Y("first_ms:Q", title=f"{resolver} (ms)" if vantage == vantages[0] else None),
                    color=color,
                    tooltip=tooltip,
                )
                .transform_filter((alt.datum.vantage == vantage) & (alt.datum.resolver == resolver))
            )
        rows.append(alt.hconcat(*panels, spacing=10).resolve_scale(y="shared"))
    plot: AnyChart = alt.vconcat(*rows, spacing=6)
    plot.data = frame
    return plot


FIGURES = (
    replace(FIGURE, data=lambda inputs: figure_rows(compared(inputs))),
    Figure(
        name="self-check",
        title="A resolver compared with itself",
        notebook=FIGURE.notebook,
        caption="The first resolver is in every round twice, as if it were two. The difference of the two is that of "
        "equals.",
        note="Marks: medians of the differences within rounds; bars: 95 % intervals, vantage points and rounds "
        "resampled.",
        data=self_check_data,
        chart=self_check,
        table=lambda frame: frame.select("resolver", "measure", "transport", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="over-time",
        title="First query over time",
        notebook=FIGURE.notebook,
        caption="First query on a new connection in each round, from each vantage point.",
        note="A point is a round; a gap is a round without an answer.",
        data=time_data,
        chart=over_time,
        table=lambda frame: frame.group_by("vantage", "resolver", "transport", maintain_order=True).agg(
            n=pl.len(), median=pl.col("first_ms").median(), most=pl.col("first_ms").max()
        ),
        width=TEXT_WIDTH,
    ),
)
