"""Figures of a comparison of resolvers: who is fastest, the same resolver twice, and every round over time."""

from __future__ import annotations

from dataclasses import replace

import altair as alt
import polars as pl

from crosslayer import metrics
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


def _first_queries(inputs: Inputs) -> pl.LazyFrame:
    """First queries that hit the cache, without failures, A/A copies and voided attempts at a round."""
    voided = inputs.resolver_events.filter(pl.col("attempt").is_not_null()).select("link", "round", "attempt")
    first = inputs.resolver_queries.filter(pl.col("error").is_null(), state="cold", cache="hit", role="measured")
    return first.with_columns(pl.col("attempt").fill_null(0)).join(voided, on=["link", "round", "attempt"], how="anti")


def self_check_data(inputs: Inputs) -> pl.DataFrame:
    """A row for each transport and measure: the difference between a resolver and itself, ms."""
    rows = [
        {
            "resolver": check.target.name,
            "transport": str(check.target.protocol),
            "measure": check.measure,
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
    order = list(dict.fromkeys(frame["measure"]))
    looks = {name: look for name, look in TRANSPORTS.items() if name in set(frame["transport"])}
    base = alt.Chart(width=TEXT_WIDTH - 130, height=max(80, _ROW_PX * len(order) * max(2, len(looks) // 2)))
    x = alt.X("median:Q", title="Resolver minus itself (ms)", axis=alt.Axis(tickCount=7))
    tooltip = marks.tooltip("resolver", "measure", "transport", value="difference, ms", counted="rounds")
    look = marks.encode_series("transport", looks, "color", "shape", "offset")
    chart: AnyChart = alt.layer(*marks.intervals(base, x, marks.rows("measure", order), tooltip, look))
    chart.data = frame
    return chart


def time_data(inputs: Inputs) -> pl.DataFrame:
    """A row for each vantage point, resolver, transport and round: first query, ms, and hours since the start."""
    first = _first_queries(inputs)
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
    scale = alt.Scale(domain=list(looks), range=[look.color for look in looks.values()])
    color = alt.Color("transport:N", title=None, scale=scale, legend=alt.Legend(orient="top"))
    span = alt.Scale(domain=[0, float(frame["hours"].max()) or 1.0], nice=False)  # type: ignore[arg-type]
    tooltip = [
        alt.Tooltip("vantage:N"), alt.Tooltip("resolver:N"), alt.Tooltip("transport:N"),
        alt.Tooltip("hours:Q", format=".1f"), alt.Tooltip("first_ms:Q", format=".1f", title="first query, ms"),
    ]  # fmt: skip
    rows = []
    for number, resolver in enumerate(resolvers):
        panels = []
        for column, vantage in enumerate(vantages):
            last, left = number == len(resolvers) - 1, column == 0
            x_axis = alt.Axis(labels=last, tickCount=4)
            panel = (
                alt.Chart(width=width, height=_PANEL_PX)
                .mark_line(point={"size": 12}, strokeWidth=1)
                .encode(
                    x=alt.X("hours:Q", title="Hours since the start" if last else None, scale=span, axis=x_axis),
                    y=alt.Y("first_ms:Q", title=f"{resolver} (ms)" if left else None, axis=alt.Axis(labels=left)),
                    color=color,
                    tooltip=tooltip,
                )
                .transform_filter((alt.datum.vantage == vantage) & (alt.datum.resolver == resolver))
            )
            heading = alt.TitleParams(vantage, fontSize=10, anchor="middle", fontWeight="normal")
            panels.append(panel.properties(title=heading) if number == 0 else panel)
        rows.append(alt.hconcat(*panels, spacing=10).resolve_scale(y="shared"))
    plot: AnyChart = alt.vconcat(*rows, spacing=6)
    plot.data = frame
    return plot


_PARTS = {"handshake_ms": "handshake", "query_ms": "query"}


def parts_data(inputs: Inputs) -> pl.DataFrame:
    """A row for each vantage point, transport and part of a first query: median over all resolvers, ms."""
    first = _first_queries(inputs).with_columns(host=pl.col("resolver"))  # resolvers are resampled, then their rounds
    timed = {"handshake_ms": first.filter(pl.col("protocol") != "DoUDP"), "query_ms": first}
    frames = [
        metrics.medians(timed[part], part, ["link", "protocol"]).with_columns(
            part=pl.lit(name), source=pl.lit("measured")
        )
        for part, name in _PARTS.items()
    ]
    return pl.concat(frames).rename({"link": "vantage", "protocol": "transport"}).sort("part", "vantage", "transport")


def parts(frame: pl.DataFrame) -> AnyChart:
    """A panel for handshake and query, a row for each vantage point, a colour and a shape for each transport."""
    if frame.is_empty():
        return marks.empty_plot("no resolver answered", TEXT_WIDTH - 60, 80)
    vantages = sorted(set(frame["vantage"]))
    looks = {name: look for name, look in TRANSPORTS.items() if name in set(frame["transport"])}
    panels = []
    for number, name in enumerate(_PARTS.values()):
        base = alt.Chart(width=(TEXT_WIDTH - 110) // 2, height=max(80, 11 * len(looks) * len(vantages)))
        x = alt.X("median:Q", title=f"{name} (ms)", axis=alt.Axis(tickCount=5), scale=alt.Scale(zero=True))
        y = marks.rows("vantage", vantages)
        if number:
            y["axis"] = None
        tooltip = marks.tooltip("vantage", "transport", value="ms", counted="queries")
        look = marks.encode_series("transport", looks, "color", "shape", "offset", legend=number == 0)
        layers = marks.intervals(base, x, y, tooltip, look)
        panels.append(alt.layer(*layers).transform_filter(alt.datum.part == name))
    plot: AnyChart = alt.hconcat(*panels, spacing=14)
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
        name="parts",
        title="Handshake and query from each vantage point",
        notebook=FIGURE.notebook,
        caption="Handshake and query of the first query on a new connection, over all resolvers, for a name in the "
        "cache (as Fig. 2 of IMC 2022).",
        note="Marks: medians; bars: 95 % intervals, resolvers and rounds resampled.",
        data=parts_data,
        chart=parts,
        table=lambda frame: frame.select("part", "vantage", "transport", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="over-time",
        title="First query over time",
        notebook=FIGURE.notebook,
        caption="First query on a new connection in each round, from each vantage point.",
        note="A point is a round. Of transports with equal times, one is visible.",
        data=time_data,
        chart=over_time,
        table=lambda frame: frame.group_by("vantage", "resolver", "transport", maintain_order=True).agg(
            n=pl.len(), median=pl.col("first_ms").median(), most=pl.col("first_ms").max()
        ),
        width=TEXT_WIDTH,
    ),
)
