"""How every figure looks: names, one palette, sizes of a paper's column, and the frame around a chart."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

import altair as alt
import polars as pl
from altair.utils.schemapi import UndefinedType

from crosslayer.links import Profile, load_profiles

# Okabe and Ito's colours: told apart with every kind of colour blindness, not too light for white paper. In grey the
# dash tells them apart; the published curves are the thin dotted ones.
_GREY, _BLUE, _GREEN, _RED, _PURPLE, _BROWN = "#4d4d4d", "#0072b2", "#009e73", "#d55e00", "#b0578d", "#8a6d00"
_SOLID, _LONG, _SHORT, _CHAIN = [1, 0], [7, 2], [3, 1.5], [7, 2, 2, 2]
SERIES: dict[str, tuple[str, Sequence[float]]] = {
    "DoUDP": (_GREY, _CHAIN),
    "DoQ": (_BLUE, _SOLID),
    "DoH": (_RED, _LONG),
    "DoH3": (_GREEN, _LONG),
    "DoT": (_BROWN, _CHAIN),
    "DoTCP": (_PURPLE, _SHORT),
    "DoUDP + H3 1-RTT": (_GREY, _CHAIN),
    "DoQ + H3 0-RTT": (_GREEN, _SOLID),
    "DoQ + H3 1-RTT": (_BLUE, _LONG),
    "DoH + H3 1-RTT": (_RED, _SHORT),
    "DoQ handshake": (_BLUE, _LONG),
    "H3 1-RTT connect": (_RED, _SHORT),
    "H3 0-RTT connect": (_GREEN, _SOLID),
    "TCP RTT": (_PURPLE, _CHAIN),
    "DoUDP lookup": (_GREY, _LONG),
    "DoQ query": (_BLUE, _SOLID),
}
"""Colour and dash of each series."""

PUBLISHED_DASH = [1, 2]

COLUMN_WIDTH = 336
"""Width of a column of a two-column paper, px at 96 dpi: what a figure may take in all."""
TEXT_WIDTH = 690
"""Width of both columns."""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
INK, MUTED, RULE = "#1a1a1a", "#5a5a5a", "#dcdcdc"
TITLE_PX, TEXT_PX, NOTE_PX = 11.5, 10, 9

AnyChart = alt.LayerChart | alt.Chart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart


@cache
def _profiles() -> dict[str, Profile]:
    return load_profiles()


def link_title(link: str) -> str:
    """How a link is written in a figure: the title of its profile, or its name where no profile is known."""
    profile = _profiles().get(link)
    return profile.title if profile else link


def with_titles(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a column `link_title`."""
    titles = {link: link_title(link) for link in frame["link"].unique() if link is not None}
    return frame.with_columns(link_title=pl.col("link").replace(titles))


def series_color(order: Sequence[str], *, columns: int | None = None) -> alt.Color:
    """Colour by series, with the legend above the plot."""
    return alt.Color(
        "series:N",
        scale=alt.Scale(domain=list(order), range=[SERIES[name][0] for name in order]),
        legend=legend(columns),
    )


def series_dash(order: Sequence[str], *, columns: int | None = None) -> alt.StrokeDash:
    """Dash by series; shares the colour's legend."""
    return alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=list(order), range=[list(SERIES[name][1]) for name in order]),
        legend=legend(columns),
    )


def legend(columns: int | None = None) -> alt.Legend:
    """A legend above the plot, without a title."""
    options: dict[str, Any] = {} if columns is None else {"columns": columns}
    return alt.Legend(
        title=None,
        orient="top",
        direction="horizontal",
        symbolType="stroke",
        symbolSize=260,
        symbolStrokeWidth=2,
        labelLimit=0,
        columnPadding=10,
        rowPadding=1,
        **options,
    )


def framed(chart: AnyChart, title: str, notes: Sequence[str], width: int) -> alt.VConcatChart:
    """Put the title above a chart and the notes below it, wrapped to the figure's width.

    Parameters
    ----------
    chart
        The plot, with its rows as the data of its outermost level (where setting them copies nothing).
    title
        One line where it fits.
    notes
        Sentences: what the marks are, what is missing, provenance.
    width
        `COLUMN_WIDTH` or `TEXT_WIDTH`.
    """
    rows, chart.data = chart.data, alt.Undefined
    # A concatenation has one title, so the notes are the title of a second one around the first.
    plot = alt.vconcat(chart, resolve=_OWN_LEGENDS)
    plot.title = alt.TitleParams(_wrapped([title], width, TITLE_PX), fontSize=TITLE_PX, color=INK, offset=8)
    figure = alt.vconcat(plot, resolve=_OWN_LEGENDS, padding=6, config=_CONFIG)
    figure.title = alt.TitleParams(
        _wrapped([" ".join(note for note in notes if note)], width, NOTE_PX),
        orient="bottom",
        fontSize=NOTE_PX,
        fontWeight="normal",
        color=MUTED,
        lineHeight=NOTE_PX + 2.5,
        offset=8,
    )
    figure.data = rows
    return figure


_OWN_LEGENDS = alt.Resolve(
    scale=alt.ScaleResolveMap(color="independent", shape="independent", strokeDash="independent")
)
"""Keeps a plot's legend with it, below the title."""

_CONFIG = alt.Config(
    font=FONT,
    background="white",
    title=alt.TitleConfig(anchor="start", frame="bounds"),
    view=alt.ViewConfig(stroke=None),
    axis=alt.AxisConfig(
        labelFontSize=TEXT_PX,
        titleFontSize=TEXT_PX,
        titleFontWeight="normal",
        labelColor=INK,
        titleColor=INK,
        gridColor=RULE,
        gridWidth=0.6,
        domainColor=MUTED,
        tickColor=MUTED,
        tickSize=4,
    ),
    legend=alt.LegendConfig(labelFontSize=TEXT_PX, labelColor=INK, offset=6),
    header=alt.HeaderConfig(labelFontSize=TEXT_PX, labelColor=INK, labelFontWeight="bold", labelPadding=4),
)


def _wrapped(paragraphs: Sequence[str], width: int, font_px: float) -> list[str]:
    letters = int(width / (font_px * 0.5))
    return [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, letters)]


def faceted(
    layers: AnyChart,
    *,
    spacing: int,
    row: alt.Row | UndefinedType = alt.Undefined,
    column: alt.Column | UndefinedType = alt.Undefined,
) -> alt.FacetChart:
    """Small multiples by row or column; their rows are set on the outermost chart."""
    return alt.FacetChart(spec=layers, facet=alt.FacetMapping(row=row, column=column), spacing=spacing)


def marker(base: alt.Chart, value: float, **options: Any) -> alt.Chart:
    """An upright line at a value of x, drawn once and not for every row."""
    line: alt.Chart = base.transform_sample(1).mark_rule(color=MUTED, strokeWidth=1, **options)
    return line.encode(x=alt.datum(value))
