"""Figures of a comparison of resolvers: their order, the self-check, times over the campaign, and figures of IMC22."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import altair as alt
import polars as pl

from crosslayer.claims import NotMeasured
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure
from crosslayer.claims.single_queries import size
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.single_queries import (
    ALL,
    TIMES,
    heatmaps,
    ordered_times,
    printed_handshakes,
    table1,
    table1_table,
    times_table,
    whole_table1,
)
from crosslayer.figures.style import INK, RULE, TEXT_WIDTH, TRANSPORTS, AnyChart
from crosslayer.figures.world import points_on_a_map
from crosslayer.resolvers import analysis
from crosslayer.resolvers.frames import FIGURE, MEASURES, figure_rows
from crosslayer.resolvers.plan import measured_of
from crosslayer.studies.resolvers.claims import VANTAGES, observed
from crosslayer.vocabulary import PAPER_SERIES, SIZES_BY_PART, CacheUse, LocatedKind, QueryState, Role

_SELF_CHECKS = {
    "resolver": pl.String, "transport": pl.String, "measure": pl.String, "n": pl.Int64, "rounds": pl.Int64,
    "median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "source": pl.String,
}  # fmt: skip
_ROW_PX, _PANEL_PX = 22, 90
_MOST_RESOLVERS, _MOST_POINTS = 12, 4000
"""Maximum number of resolvers, and of points, in the chart of times over the campaign."""


def compared(inputs: Inputs) -> pl.DataFrame:
    """Rows of the figure that compares resolvers, one for each target and measure."""
    measured = measured_of(inputs.resolver_queries, inputs.resolver_events)
    return figure_rows(analysis.results_of(measured, MEASURES))


def self_check_data(inputs: Inputs) -> pl.DataFrame:
    """Times of the self-check minus the measured times of the same resolver and round, ms; by transport and measure."""
    queries = inputs.resolver_queries
    twice = queries.filter(role=Role.SELF_CHECK.value).select("resolver", "address").unique()
    measured = measured_of(queries.join(twice, on=["resolver", "address"], how="semi"), inputs.resolver_events)
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
        for check in analysis.self_checks(measured.plan, measured.visits)
    ]
    return pl.DataFrame(rows, schema=_SELF_CHECKS)


def self_check(frame: pl.DataFrame) -> AnyChart:
    """Chart of the self-check: a row for each measure, with a colour and a shape for each transport."""
    if frame.is_empty():
        return marks.empty_plot("no resolver was measured twice", TEXT_WIDTH - 60, 80)
    order = list(dict.fromkeys(frame["measure"]))
    looks = {name: look for name, look in TRANSPORTS.items() if name in set(frame["transport"])}
    base = alt.Chart(width=TEXT_WIDTH - 130, height=max(80, _ROW_PX * len(order) * max(2, len(looks) // 2)))
    x = alt.X("median:Q", title="Same resolver: second target minus first (ms)", axis=alt.Axis(tickCount=7))
    tooltip = marks.tooltip("resolver", "measure", "transport", value="difference, ms", counted="rounds")
    look = marks.encode_series("transport", looks, "color", "shape", "offset")
    chart: AnyChart = alt.layer(*marks.intervals(base, x, marks.rows("measure", order), tooltip, look))
    chart.data = frame
    return chart


def time_data(inputs: Inputs) -> pl.DataFrame:
    """Time of the first query on a new connection, in the course of the campaign, for the twelve fastest resolvers.

    The fastest resolvers are those with the shortest time of a first query. A row summarises a block of successive
    rounds. A block has one round, or several if the chart would have too many points. Columns vantage, resolver,
    transport, round (number of the block), hours (since the earliest of these queries), first_ms (median over the
    block), n, source.
    """
    first = inputs.resolver_queries.filter(state="cold", cache="hit", role="measured").filter(pl.col("error").is_null())
    frame = first.select(
        "round", vantage="link", resolver="resolver", transport="protocol", first_ms="total_ms",
        hours=(pl.col("started_s") - pl.col("started_s").min()) / 3600,
    ).collect()  # fmt: skip
    fastest = (
        frame.group_by("resolver").agg(pl.col("first_ms").min()).sort("first_ms", "resolver").head(_MOST_RESOLVERS)
    )
    frame = frame.filter(pl.col("resolver").is_in(fastest["resolver"].to_list()))
    keys = ["vantage", "resolver", "transport", "round"]
    block = 1 + frame.select(keys).unique().height // _MOST_POINTS
    return (
        frame.with_columns(pl.col("round") // block)
        .group_by(keys)
        .agg(pl.col("hours").min(), pl.col("first_ms").median(), n=pl.len())
        .with_columns(source=pl.lit("measured"))
        .sort(keys)
    )


def over_time(frame: pl.DataFrame) -> AnyChart:
    """Chart with the hours of the campaign on the x axis and the time of the first query on the y axis.

    It has a plot for each vantage point and resolver, with a line for each transport.
    """
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


def fig2_data(inputs: Inputs) -> pl.DataFrame:
    """Median handshake and resolve time for each vantage point and for all together, estimated as in the claims; ms.

    The columns are those of `ordered_times`.
    """
    seen = observed(inputs.resolver_queries)
    rows = []
    for measure, point, series in itertools.product(TIMES, (*_vantages(seen), ALL), PAPER_SERIES):
        if (measure, series) != (TIMES[0], "DoUDP"):
            duration = VANTAGES.duration(series, measure, *(() if point == ALL else (point,)))
            if row := _row(duration, seen):
                rows.append(row | {"vantage_point": point, "series": series, "measure": measure, "source": "measured"})
    ours = pl.DataFrame(rows, schema=_TIMES)
    return ordered_times(pl.concat([ours, printed_handshakes(inputs.published)], how="diagonal_relaxed"), PAPER_SERIES)


def table1_data(inputs: Inputs) -> pl.DataFrame:
    """Median IP payload of every part of an exchange, bytes; the columns are those of `whole_table1`."""
    seen = observed(inputs.resolver_queries)
    rows = [
        row | {"series": series, "part": part}
        for series, part in itertools.product(PAPER_SERIES, SIZES_BY_PART)
        if (row := _row(size(series, part), seen))
    ]
    return whole_table1(pl.DataFrame(rows, schema=_SIZES), inputs.published)


_KINDS = {
    LocatedKind.RESOLVER.value: ("#d95f02", "circle"),
    LocatedKind.VANTAGE_POINT.value: ("#1f4e9e", "diamond"),
}


def map_data(inputs: Inputs) -> pl.DataFrame:
    """Positions of resolvers and vantage points, and their autonomous systems.

    Columns kind, subject (address or vantage point), resolver, asn, as_name, latitude, longitude.
    """
    names = inputs.resolver_queries.select(subject="address", resolver="resolver").unique(["subject"], keep="any")
    located = inputs.resolver_locations.select("kind", "subject", "asn", "as_name", "latitude", "longitude")
    return located.join(names, on="subject", how="left").sort("kind", "subject").collect()


def world_map(frame: pl.DataFrame) -> AnyChart:
    """Map with a point for each resolver and vantage point whose position is known."""
    placed = frame.drop_nulls(["latitude", "longitude"])
    if placed.is_empty():
        return marks.empty_plot("no position is known: neither the list nor a database has one", TEXT_WIDTH - 60, 80)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("kind", "resolver", "subject", "as_name")]
    return points_on_a_map(placed, _KINDS, tooltip)


def positions(frame: pl.DataFrame) -> str:
    """Sentence with the number of resolvers and vantage points that the map shows."""
    names = {LocatedKind.VANTAGE_POINT: "vantage points", LocatedKind.RESOLVER: "addresses of resolvers"}
    parts = []
    for kind, name in names.items():
        rows = frame.filter(kind=kind.value)
        placed = rows.drop_nulls(["latitude", "longitude"]).height
        parts.append(f"{placed} of {rows.height} {name}" if rows.height else f"no {name}: none has a recorded position")
    return f"The map shows {' and '.join(parts)}."


def systems(frame: pl.DataFrame) -> pl.DataFrame:
    """The ten autonomous systems (AS) with the most resolver addresses.

    Columns asn, as_name, count, percent (of all addresses whose AS is known).
    """
    known = frame.filter(pl.col("kind") == LocatedKind.RESOLVER, pl.col("asn").is_not_null())
    counted = known.group_by("asn").agg(pl.col("as_name").first(), count=pl.len())
    share = (100 * pl.col("count") / pl.col("count").sum()).round(1)
    return counted.with_columns(percent=share).sort("count", "asn", descending=[True, False]).head(10)


def support_data(inputs: Inputs) -> pl.DataFrame:
    """Counts for each transport: addresses of resolvers, and first queries.

    Counts of addresses: those that are listed, that answer, and that resume sessions. Counts of first queries: those
    that succeeded, and those that failed. Columns transport, what (name of the count), count, source.
    """
    rows = inputs.resolver_queries.filter(role=Role.MEASURED.value, cache=CacheUse.HIT.value)
    answered, cold = pl.col("error").is_null(), pl.col("state") == QueryState.COLD
    counts = rows.group_by(transport="protocol").agg(
        listed=pl.col("address").n_unique(),
        answering=pl.col("address").filter(answered & cold).n_unique(),
        resuming=pl.col("address").filter(pl.col("session_resumed").fill_null(False)).n_unique(),
        queries=(cold & answered).sum(),
        failed=(cold & ~answered).sum(),
    )
    counted = (
        counts.collect()
        .cast(dict.fromkeys(_COUNTS, pl.Int64))
        .unpivot(list(_COUNTS), index="transport", variable_name="what", value_name="count")
    )
    unencrypted = pl.col("transport").is_in(["DoUDP", "DoTCP"]) & (pl.col("what") == "resuming")
    order = {name: number for number, name in enumerate((*PAPER_SERIES, "DoH3"))}
    return (
        counted.filter(~unencrypted)
        .with_columns(pl.col("what").replace(_COUNTS), source=pl.lit("measured"))
        .sort(pl.col("transport").replace_strict(order), maintain_order=True)
    )


def support(frame: pl.DataFrame) -> AnyChart:
    """Table drawn as a chart: a row for each transport, a column for each count of `support_data`."""
    if frame.is_empty():
        return marks.empty_plot("no resolver was asked", TEXT_WIDTH - 60, 80)
    transports = frame["transport"].unique(maintain_order=True).to_list()
    base = alt.Chart(width=TEXT_WIDTH - 90, height=24 * len(transports)).encode(
        marks.columns("what", list(_COUNTS.values()), orient="top"), marks.rows("transport", transports, bold=True)
    )
    tooltip = [alt.Tooltip("transport:N"), alt.Tooltip("what:N"), alt.Tooltip("count:Q")]
    number = marks.CellText(alt.Text("count:Q", format=",d"), alt.value(INK))
    chart: AnyChart = marks.heatmap(base, alt.value("white"), tooltip, number, stroke=RULE)
    chart.data = frame
    return chart


_COUNTS = {
    "listed": "listed resolvers",
    "answering": "that answer",
    "resuming": "that resume sessions",
    "queries": "first queries",
    "failed": "failed ones",
}
_ESTIMATE = {"n": pl.Int64, "rounds": pl.Int64, "median": pl.Float64, "low": pl.Float64, "high": pl.Float64}
_TIMES = _ESTIMATE | {"vantage_point": pl.String, "series": pl.String, "measure": pl.String, "source": pl.String}
_SIZES = _ESTIMATE | {"series": pl.String, "part": pl.String}


def _vantages(seen: Observed) -> list[str]:
    try:
        return VANTAGES.of(seen)
    except NotMeasured:
        return []


def _row(measure: Measure, seen: Observed) -> dict[str, Any] | None:
    """Estimate and interval of a measure as a row; None if the campaign has no data for the measure."""
    try:
        ours = measure(seen)
    except NotMeasured:
        return None
    low, high = ours.interval or (None, None)
    return {"n": ours.n, "rounds": ours.rounds, "median": ours.value, "low": low, "high": high}


FIGURES = (
    Figure(
        name="imc22-fig1",
        title="Resolvers, vantage points and autonomous systems",
        paper_figure="IMC22 Fig. 1",
        notebook=FIGURE.notebook,
        caption="Positions of resolvers and vantage points, and the autonomous systems with the most resolvers. "
        "Positions and systems of resolvers come from the list of resolvers or from the user's geolocation database.",
        data=map_data,
        chart=world_map,
        table=systems,
        verdict=positions,
        width=TEXT_WIDTH,
    ),
    replace(FIGURE, data=compared),
    Figure(
        name="self-check",
        title="A resolver compared with itself",
        notebook=FIGURE.notebook,
        caption="Every round measures the first resolver twice, as if it were two. The true difference is 0, so each "
        "measured difference is an error.",
        note="Marks: medians of the differences within rounds; bars: 95 % intervals (bootstrap over vantage points "
        "and rounds).",
        data=self_check_data,
        chart=self_check,
        table=lambda frame: frame.select("resolver", "measure", "transport", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="imc22-support",
        title="Resolvers and queries by transport",
        paper_figure="IMC22 Table 1",
        notebook=FIGURE.notebook,
        caption="Number of resolver addresses: in the list, with at least one answer, and with a resumed session. "
        "Number of first queries on new connections: successful, and failed.",
        data=support_data,
        chart=support,
        table=lambda frame: frame.select("transport", "what", "count"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="imc22-table1",
        title="Bytes of a single query in the field",
        paper_figure="IMC22 Table 1",
        notebook=FIGURE.notebook,
        caption="Median IP payload of each part of an exchange on a new connection, counted from the packets. "
        "Over encrypted transports, this connection resumes a TLS session. Only resolvers that answered over DoUDP, "
        "DoTCP, DoQ, DoH and DoT.",
        note="Bold: measured; below: published. Packets are counted only if the client may capture them. Our queries "
        "have padding and no cookie; the paper's have a cookie and no padding.",
        data=table1_data,
        chart=table1,
        table=table1_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="imc22-fig2",
        title="Handshake and resolve time by vantage point in the field",
        paper_figure="IMC22 Fig. 2",
        notebook=FIGURE.notebook,
        caption="Median handshake and resolve time (query to answer) on a new connection, for a name in the resolver's "
        "cache. Over encrypted transports, this connection resumes a TLS session. Only resolvers that answered over "
        "DoUDP, DoTCP, DoQ, DoH and DoT.",
        note="Numbers: medians, ms. Intervals (in the CSV file) resample vantage points and resolvers. Published: "
        "median handshakes over all vantage points, from the text of the paper.",
        data=fig2_data,
        chart=partial(heatmaps, series=PAPER_SERIES),
        table=times_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="over-time",
        title="First query over time",
        notebook=FIGURE.notebook,
        caption="Time of the first query on a new connection in each round, from each vantage point.",
        note="Each point is one round; in long campaigns, the median of several rounds. Where transports have equal "
        "times, only one is visible. With more than 12 resolvers, only the fastest are drawn.",
        data=time_data,
        chart=over_time,
        table=lambda frame: frame.group_by("vantage", "resolver", "transport", maintain_order=True).agg(
            n=pl.len(), median=pl.col("first_ms").median(), most=pl.col("first_ms").max()
        ),
        width=TEXT_WIDTH,
    ),
)
