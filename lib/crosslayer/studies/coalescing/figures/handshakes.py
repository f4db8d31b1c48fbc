"""TNSM24 section IV-A: how long handshakes take (Figs. 3 and 4), and what early data changes."""

from __future__ import annotations

from functools import partial
from itertools import cycle

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs, cdf, marks
from crosslayer.figures.style import (
    BLUE,
    COLUMN_WIDTH,
    GREEN,
    INK,
    PURPLE,
    RED,
    SOLID,
    AnyChart,
    Look,
    link_title,
    with_titles,
)
from crosslayer.studies.coalescing.figures.common import (
    OURS,
    PAPER,
    beside_published,
    each,
    figure,
    published_saving,
)

SERIES = ("H3 0-RTT connect", "H3 1-RTT connect", "DoQ handshake", "TCP RTT")
_TITLE = "Handshake duration (multiples of the RTT)"

FIG3 = (cdf.Panel("all links", _TITLE, SERIES),)
FIG4 = (cdf.Panel("(a) Fiber", _TITLE, SERIES), cdf.Panel("(b) 4G", _TITLE, SERIES))
_FIG4_LINKS = {"(a) Fiber": "fiber", "(b) 4G": "4g"}


def handshakes(inputs: Inputs) -> pl.LazyFrame:
    """Handshakes and TCP RTTs: campaign, round, link, page, series, handshake_ms, handshake_rtt."""
    row = [*metrics.ROUND, "series"]
    parts = [
        inputs.exchanges.filter(pl.col("protocol") == "DoQ")
        .with_columns(series=pl.lit("DoQ handshake"))
        .select(*row, "handshake_ms"),
        inputs.loads.with_columns(series=pl.format("H3 {} connect", pl.col("h3").str.to_uppercase())).select(
            *row, handshake_ms="connect_duration_ms"
        ),
        inputs.connects.with_columns(series=pl.lit("TCP RTT")).select(*row, handshake_ms="rtt_ms"),
    ]
    return metrics.in_rtts(pl.concat(parts), inputs.rtts, ["handshake_ms"])


def fig3_data(inputs: Inputs) -> pl.DataFrame:
    """Rows of Fig. 3."""
    observations = [handshakes(one).with_columns(panel=pl.lit("all links")) for one in inputs.of_links]
    points = inputs.published.points.filter(figure="Fig. 3").with_columns(panel=pl.lit("all links"))
    return pl.concat([cdf.measured(observations, "handshake_rtt"), cdf.published_points(points)])


def fig4_data(inputs: Inputs) -> pl.DataFrame:
    """Rows of Fig. 4."""
    panels = {link: name for name, link in _FIG4_LINKS.items()}
    observations = [
        handshakes(inputs.only(link)).with_columns(panel=pl.lit(panel))
        for link, panel in panels.items()
        if link in inputs.links
    ]
    points = inputs.published.points.filter(pl.col("figure").is_in(["Fig. 4(a)", "Fig. 4(b)"]))
    return pl.concat(
        [
            cdf.measured(observations, "handshake_rtt"),
            cdf.published_points(points.with_columns(panel=pl.col("link").replace(panels))),
        ]
    )


_EVENTS = {
    "request sent": "request_start_ms",
    "handshake done": "connect_ms",
    "response starts": "response_start_ms",
}


_BAR = "M-0.14,-1H0.14V1H-0.14Z"
"""A symbol: a thin upright bar."""

_EVENT_LOOKS = {
    "request sent": Look(GREEN, "triangle-right", SOLID),
    "handshake done": Look(INK, _BAR, SOLID),
    "response starts": Look(RED, "circle", SOLID),
}


def early_data_data(inputs: Inputs) -> pl.DataFrame:
    """When the request leaves, the handshake ends and the response starts.

    Columns link, h3, event, source, n, rounds, median, low, high (95 % interval), p5, p95; multiples of the RTT.
    """
    by = ["link", "h3", "event"]

    def of_event(one: Inputs, event: str) -> pl.DataFrame:
        rows = one.loads.select(
            *metrics.ROUND, h3=pl.col("h3").str.to_uppercase(), event=pl.lit(event), time_ms=_EVENTS[event]
        )
        times = metrics.in_rtts(rows, one.rtts, ["time_ms"])
        spread = metrics.summary(times, "time_rtt", by).select(*by, "p5", "p95").collect(engine="streaming")
        return metrics.medians(times, "time_rtt", by).with_columns(source=pl.lit("measured")).join(spread, on=by)

    def of_link(one: Inputs) -> pl.DataFrame:
        return pl.concat(of_event(one, event) for event in _EVENTS)

    return inputs.by_rtt(each(inputs, inputs.of_links, of_link), "h3", "event")


def early_data(frame: pl.DataFrame) -> AnyChart:
    """When a page load's request leaves: the evidence for early data, link by link."""
    if frame.is_empty():
        return marks.empty_plot("no page loads", COLUMN_WIDTH - 60, 80)
    high = max(2.2, float(frame["median"].max()) * 1.04)  # type: ignore[arg-type]
    scale = alt.Scale(domain=[0, high], nice=False)
    axis = alt.Axis(values=[0, 0.5, 1, 1.5, 2, 2.5, 3], format="~f")
    x = alt.X("median:Q", title="Time after navigation start (multiples of the RTT)", scale=scale, axis=axis)
    conditions = ["1-RTT", "0-RTT"]
    y = alt.Y("h3:N", title=None, sort=conditions, scale=alt.Scale(domain=conditions), axis=alt.Axis(domain=False))
    more = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("p5", "p95")]
    tooltip = marks.tips("link_title", "h3", "event", value="median, RTT", digits=".3f", counted="loads", more=more)
    look = marks.by("event", _EVENT_LOOKS, "color", "shape")
    base = alt.Chart(width=COLUMN_WIDTH - 112, height=34)
    layers = marks.intervals(base, x, y, tooltip, look, ends=("p5", "p95"), size=64, width=1, clip=True)
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    row = marks.down("link_title", links, labelAngle=0, labelAlign="left", labelAnchor="middle", labelPadding=2)
    chart: AnyChart = marks.multiples(layers, row=row, spacing=6)
    chart.data = with_titles(frame)
    return chart


def early_data_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Request, handshake and response as numbers: link, h3, event, n, median, low, high; multiples of the RTT."""
    return frame.select("link", "h3", "event", "n", "median", "low", "high")


def saving_data(inputs: Inputs) -> pl.DataFrame:
    """What early data saves within a round: H3 1-RTT minus H3 0-RTT.

    Columns link, series (`response start`, `PLT, PAGE`), source, n, rounds, median, low, high; multiples of the RTT.
    """
    by = ["link", "series"]

    def savings(one: Inputs, column: str, label: pl.Expr) -> pl.LazyFrame:
        differences = metrics.paired(one.loads, column, "h3", "1-rtt", "0-rtt").rename({"difference": "saving_ms"})
        return metrics.in_rtts(differences.with_columns(series=label), one.rtts, ["saving_ms"])

    labels = {"response_start_ms": pl.lit("response start"), "plt_ms": pl.format("PLT, {}", "page")}
    ours = pl.concat(
        metrics.medians([savings(one, *what) for one in inputs.of_cells or [inputs]], "saving_rtt", by)
        for what in labels.items()
    ).with_columns(source=pl.lit("measured"))
    printed = published_saving(inputs).select(
        "link",
        series=pl.format("PLT, {}", "page"),
        source=pl.lit("published"),
        median=pl.col("saving_ms") / pl.col("nominal_rtt_ms"),
    )
    return inputs.by_rtt(pl.concat([ours, printed], how="diagonal").filter(pl.col("link").is_in(inputs.links)))


def saving(frame: pl.DataFrame) -> AnyChart:
    """What H3 0-RTT saves over 1-RTT, in round-trips."""
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no pairs of H3 1-RTT and 0-RTT loads", COLUMN_WIDTH - 60, 80)
    series = {"response start", *frame["series"]}
    order = [name for name in _SAVED if name in series] + sorted(series - set(_SAVED))
    further = cycle(_SAVED.values())  # a page that the paper does not have
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    scale = marks.reach(frame, least=(-0.1, 1.2), margin=0.05)
    x = alt.X("median:Q", title="Saved by H3 0-RTT (multiples of the RTT)", scale=scale, axis=alt.Axis(tickCount=7))
    y = marks.rows("link_title", links, bold=True)
    shown = {name: _SAVED.get(name) or next(further) for name in order}
    look = marks.by("series", shown, "color", "shape", "offset", columns=2)
    who = ("link_title", "series", "source")
    tooltip = marks.tips(*who, value="median, RTT", digits=".3f", counted="pairs")
    base = alt.Chart(width=COLUMN_WIDTH - 76, height=44 * len(links))
    chart: AnyChart = alt.layer(
        *(marks.line_at(base, x=value, dashed=True) for value in (0, 1)),
        *marks.intervals(marks.of(base, "measured"), x, y, tooltip, look, size=48),
        marks.hollow(base, x, y, tooltip, look),
    )
    chart.data = with_titles(frame)
    return chart


_SAVED = {
    "response start": Look(INK, "circle", SOLID),
    "PLT, example.org": Look(GREEN, "square", SOLID),
    "PLT, wikipedia.org": Look(BLUE, "diamond", SOLID),
    "PLT, instagram.com": Look(PURPLE, "cross", SOLID),
}


_CONNECT = (
    "Connect is connectEnd - connectStart, as in the paper. For 0-RTT today's browser marks the end of the handshake "
    "there, long after the request has left: see the figure on early data."
)

_figure = partial(figure, notebook="handshakes")
FIGURES = (
    _figure(
        name="fig03-handshakes",
        title="Handshake durations over all links",
        paper_figure="Fig. 3",
        caption=f"CDF of handshake durations in multiples of the link's RTT, all links together. {_CONNECT}",
        note=f"Diamonds: values printed in {PAPER}. {OURS}",
        data=fig3_data,
        chart=partial(cdf.chart, panels=FIG3, height=190, legend_columns=2),
        table=cdf.table,
    ),
    _figure(
        name="fig04-handshakes-fiber-4g",
        title="Handshake durations on fiber and 4G",
        paper_figure="Fig. 4",
        caption=f"CDF of handshake durations in multiples of the link's RTT on (a) fiber and (b) 4G. {_CONNECT}",
        note=f"Diamonds: values printed in {PAPER}. {OURS}",
        data=fig4_data,
        chart=partial(cdf.chart, panels=FIG4, height=150, legend_columns=2),
        table=cdf.table,
    ),
    _figure(
        name="early-data",
        title="When the request leaves and the response starts",
        caption="Median times after the start of the navigation, in multiples of the link's RTT. With H3 0-RTT the "
        "request leaves at once and the response starts one round-trip earlier, while the end of the handshake hardly "
        "moves.",
        note="Marks: medians of all pages; lines: 5th to 95th percentile.",
        data=early_data_data,
        chart=early_data,
        table=early_data_table,
    ),
    _figure(
        name="early-data-saving",
        title="What H3 0-RTT saves within a round",
        caption="Difference between the H3 1-RTT and the H3 0-RTT load of the same round, in multiples of the link's "
        "RTT: start of the response (all pages) and PLT of each page.",
        note=f"Filled: medians, 95 % intervals. Hollow: differences of medians, {PAPER} Figs. 10, 11. Dashed: 0 and 1 "
        "RTT.",
        data=saving_data,
        chart=saving,
        table=beside_published,
    ),
)
