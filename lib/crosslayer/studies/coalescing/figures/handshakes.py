"""TNSM24 section IV-A: duration of handshakes (Figs. 3 and 4), and the effect of early data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import cycle, product

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
    Style,
    link_title,
    with_titles,
)
from crosslayer.studies.coalescing.figures.common import (
    OURS,
    PAPER,
    figure,
    in_rtts,
    measured,
    observations,
    pooled,
    rtts_ms,
    with_published,
)

SERIES = ("H3 0-RTT connect", "H3 1-RTT connect", "DoQ handshake", "TCP RTT")
_TITLE = "Handshake duration (multiples of the RTT)"

FIG3 = (cdf.Panel("all links", _TITLE, SERIES),)
FIG4 = (cdf.Panel("(a) Fiber", _TITLE, SERIES), cdf.Panel("(b) 4G", _TITLE, SERIES))
_FIG4_LINKS = {"(a) Fiber": "fiber", "(b) 4G": "4g"}


_HANDSHAKES = {name: name for name in SERIES}


def fig3_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 3: CDF of handshake durations on all links together, and published values."""
    [panel] = FIG3
    points = inputs.published.points.filter(figure="Fig. 3").with_columns(panel=pl.lit(panel.name))
    handshakes = in_rtts(inputs, panel.name, inputs.links, _HANDSHAKES)
    return pl.concat([cdf.measured_groups(handshakes), cdf.published_points(points)])


def fig4_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 4: CDF of handshake durations on fiber and on 4G, and published values."""
    handshakes = (group for panel, link in _FIG4_LINKS.items() for group in in_rtts(inputs, panel, [link], _HANDSHAKES))
    panels = {link: panel for panel, link in _FIG4_LINKS.items()}
    points = inputs.published.points.filter(pl.col("figure").is_in(["Fig. 4(a)", "Fig. 4(b)"]))
    return pl.concat(
        [
            cdf.measured_groups(handshakes),
            cdf.published_points(points.with_columns(panel=pl.col("link").replace(panels))),
        ]
    )


_EVENTS = {"request sent": "request start", "handshake done": "handshake done", "response starts": "response start"}


_BAR = "M-0.14,-1H0.14V1H-0.14Z"
"""SVG path of a symbol: a thin upright bar."""

_EVENT_STYLES = {
    "request sent": Style(GREEN, "triangle-right", SOLID),
    "handshake done": Style(INK, _BAR, SOLID),
    "response starts": Style(RED, "circle", SOLID),
}


def early_data_data(inputs: Inputs) -> pl.DataFrame:
    """Median times of three events: the browser sends the request, the handshake ends, the response starts.

    Columns link, h3, event, source, n, rounds, median, low, high (95 % interval), p5, p95; multiples of the RTT.
    """
    rows, spread = [], []
    for link, h3, event in product(inputs.links, ("0-RTT", "1-RTT"), sorted(_EVENTS)):
        for group in in_rtts(inputs, link, [link], {event: f"H3 {h3} {_EVENTS[event]}"}):
            rows.append((link, h3, event, *metrics.median(group.values, group.rounds)))
            sample = group.rounds.sample(group.values)
            spread.append([sample.quantile(q) for q in (0.05, 0.95)])
    ends = pl.DataFrame(spread, dict.fromkeys(("p5", "p95"), pl.Float64()), orient="row")
    return measured(["link", "h3", "event"], rows).hstack(ends)


def early_data(frame: pl.DataFrame) -> AnyChart:
    """Chart of the times of request, handshake and response by link; with early data, the request is sent first."""
    if frame.is_empty():
        return marks.empty_plot("no page loads", COLUMN_WIDTH - 60, 80)
    high = max(2.2, float(frame["median"].max()) * 1.04)  # type: ignore[arg-type]
    scale = alt.Scale(domain=[0, high], nice=False)
    axis = alt.Axis(values=[0, 0.5, 1, 1.5, 2, 2.5, 3], format="~f")
    x = alt.X("median:Q", title="Time after navigation start (multiples of the RTT)", scale=scale, axis=axis)
    conditions = ["1-RTT", "0-RTT"]
    y = alt.Y("h3:N", title=None, sort=conditions, scale=alt.Scale(domain=conditions), axis=alt.Axis(domain=False))
    more = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("p5", "p95")]
    tooltip = marks.tooltip("link_title", "h3", "event", value="median, RTT", digits=".3f", counted="loads", more=more)
    encodings = marks.encode_series("event", _EVENT_STYLES, "color", "shape")
    base = alt.Chart(width=COLUMN_WIDTH - 112, height=34)
    layers = marks.intervals(base, x, y, tooltip, encodings, ends=("p5", "p95"), size=64, width=1, clip=True)
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    row = marks.facet_rows("link_title", links, labelAngle=0, labelAlign="left", labelAnchor="middle", labelPadding=2)
    chart: AnyChart = marks.multiples(layers, row=row, spacing=6)
    chart.data = with_titles(frame)
    return chart


def saving_data(inputs: Inputs) -> pl.DataFrame:
    """Time that early data saves within a round: H3 1-RTT minus H3 0-RTT.

    Columns link, series (`response start`, `PLT, PAGE`), source, n, rounds, median, low, high; multiples of the RTT.
    """
    observed = observations(inputs)

    def savings(time: str, link: str, pages: Iterable[str]) -> Iterator[metrics.Numbers]:
        terms = {f"H3 1-RTT {time}": 1.0, f"H3 0-RTT {time}": -1.0}
        for page in pages:
            if all((name, link, page) in observed.cells for name in terms):
                saved, rounds = observed.total(terms, link, page)
                yield metrics.Numbers(saved / rtts_ms(inputs)[link], rounds)

    wanted = [("response start", "response start", link, inputs.pages) for link in inputs.links]
    wanted += [(f"PLT, {page}", "PLT", link, (page,)) for link in inputs.links for page in inputs.pages]
    rows = [
        (link, series, *metrics.median(*of_series))
        for series, time, link, pages in wanted
        if (of_series := pooled(inputs, list(savings(time, link, pages))))
    ]
    ours = measured(["link", "series"], rows)
    printed = inputs.published_saving.select(
        "link",
        series=pl.format("PLT, {}", "page"),
        source=pl.lit("published"),
        median=pl.col("saving_ms") / pl.col("nominal_rtt_ms"),
    )
    return inputs.by_rtt(pl.concat([ours, printed], how="diagonal").filter(pl.col("link").is_in(inputs.links)))


def saving(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time that H3 0-RTT saves compared with H3 1-RTT, in multiples of the RTT."""
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no pairs of H3 1-RTT and 0-RTT loads", COLUMN_WIDTH - 60, 80)
    series = {"response start", *frame["series"]}
    order = [name for name in _SAVED if name in series] + sorted(series - set(_SAVED))
    further = cycle(_SAVED.values())  # for pages that the paper does not have
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    scale = marks.domain(frame, least=(-0.1, 1.2), margin=0.05)
    x = alt.X("median:Q", title="Saved by H3 0-RTT (multiples of the RTT)", scale=scale, axis=alt.Axis(tickCount=7))
    y = marks.rows("link_title", links, bold=True)
    shown = {name: _SAVED.get(name) or next(further) for name in order}
    encodings = marks.encode_series("series", shown, "color", "shape", "offset", columns=2)
    who = ("link_title", "series", "source")
    tooltip = marks.tooltip(*who, value="median, RTT", digits=".3f", counted="pairs")
    base = alt.Chart(width=COLUMN_WIDTH - 76, height=44 * len(links))
    chart: AnyChart = alt.layer(
        *(marks.line_at(base, x=value, dashed=True) for value in (0, 1)),
        *marks.intervals(marks.rows_from(base, "measured"), x, y, tooltip, encodings, size=48),
        marks.published_points(base, x, y, tooltip, encodings),
    )
    chart.data = with_titles(frame)
    return chart


_SAVED = {
    "response start": Style(INK, "circle", SOLID),
    "PLT, example.org": Style(GREEN, "square", SOLID),
    "PLT, wikipedia.org": Style(BLUE, "diamond", SOLID),
    "PLT, instagram.com": Style(PURPLE, "cross", SOLID),
}


_CONNECT = (
    "A handshake's duration is connectEnd minus connectStart (Resource Timing), as in the paper. With 0-RTT, Chromium "
    'sends the request long before the handshake ends (connectEnd), as the figure "Times of request, handshake and '
    'response" shows.'
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
        title="Times of request, handshake and response",
        caption="Median times of three events after the start of the navigation, in multiples of the link's RTT. With "
        "H3 0-RTT, the browser sends the request at once, and the response starts one round-trip earlier than with H3 "
        "1-RTT. The handshake ends at almost the same time in both cases.",
        note="Marks: medians over all pages; lines: 5th to 95th percentile.",
        data=early_data_data,
        chart=early_data,
        table=("link", "h3", "event", "n", "median", "low", "high"),
    ),
    _figure(
        name="early-data-saving",
        title="Time saved by H3 0-RTT within a round",
        caption="Time with an H3 1-RTT load minus time with an H3 0-RTT load of the same round, in multiples of the "
        "link's RTT. Two times are compared: start of the response (all pages pooled), and PLT (each page "
        "separately).",
        note=f"Filled: medians, 95 % intervals. Hollow: differences between medians in {PAPER} Figs. 10 and 11. "
        "Dashed: 0 and 1 RTT.",
        data=saving_data,
        chart=saving,
        table=with_published,
    ),
)
