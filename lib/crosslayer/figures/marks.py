"""Marks and axes of all figures: dots with intervals, heat maps, trends, histograms, reference lines.

A figure chooses what its axes and tooltips contain. This module defines how marks, legends and tooltips look. CDF
curves are in `crosslayer.figures.cdf`, because their rows have another form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import altair as alt
import polars as pl
from altair.utils.schemapi import UndefinedType

from crosslayer.figures.style import INK, MUTED, STYLES, TEXT_PX, AnyChart, Style

Encodings = dict[str, Any]
"""Channels by name, e.g. `color` and `shape`, as `alt.Chart.encode` takes them."""

_TITLES = {"link_title": "link", "h3": "condition"}
_OURS_ONLY = ("low:Q", "high:Q", "n:Q")
"""Fields of tooltips that measured values have and published values lack."""

# Encodings of series


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Style of each series in `names`."""
    return {name: STYLES[name] for name in names}


def encode_series(
    field: str,
    styles: Mapping[str, Style],
    *channels: Literal["color", "shape", "dash", "offset"],
    columns: int | None = None,
    legend: bool = True,
) -> Encodings:
    """Encodings by which series are distinguished, with one legend above the plot.

    Parameters
    ----------
    field
        Column with the names of the series.
    styles
        Style of each series, in the order of the legend.
    channels
        Channels in which the series differ; `offset` separates their dots within a row.
    columns
        Number of columns of the legend.
    """
    order = list(styles)
    shown = _legend("dash" in channels, columns) if legend else None
    made: Encodings = {}
    for channel in channels:
        if channel == "offset":
            made["yOffset"] = alt.YOffset(f"{field}:N", sort=order, scale=alt.Scale(paddingOuter=0.6))
            continue
        scale = alt.Scale(domain=order, range=[getattr(style, channel) for style in styles.values()])
        name, kind = {
            "color": ("color", alt.Color),
            "shape": ("shape", alt.Shape),
            "dash": ("strokeDash", alt.StrokeDash),
        }[channel]
        made[name] = kind(f"{field}:N", scale=scale, legend=shown)
    return made


def _legend(lines: bool, columns: int | None) -> alt.Legend:
    symbol: dict[str, Any] = {"symbolSize": 60}
    if lines:
        symbol = {"symbolType": "stroke", "symbolSize": 260, "symbolStrokeWidth": 2}
    if columns is not None:
        symbol["columns"] = columns
    return alt.Legend(
        title=None, orient="top", direction="horizontal", labelLimit=0, columnPadding=10, rowPadding=1, **symbol
    )


def tooltip(
    *who: str, value: str, of: str = "median:Q", digits: str = ".2f", counted: str = "", more: Sequence[Any] = ()
) -> list[alt.Tooltip]:
    """Tooltip of a mark: its name and value, then interval and number of observations if it has them.

    Parameters
    ----------
    who
        Columns that name a mark.
    value, of, digits
        Title, column and format of the value.
    counted
        Name of the observations that `n` counts; empty if the mark has neither interval nor count.
    more
        Further tooltips.
    """
    shown = [
        *(alt.Tooltip(f"{name}:N", title=_TITLES.get(name, name.replace("_", " "))) for name in who),
        alt.Tooltip(of, format=digits, title=value),
    ]
    if counted:
        shown += [
            alt.Tooltip("low:Q", format=digits, title="95 % from"),
            alt.Tooltip("high:Q", format=digits, title="to"),
            alt.Tooltip("n:Q", title=counted),
        ]
    return [*shown, *more]


# Axes


def rows(field: str, order: Sequence[str], *, bold: bool = False, **axis: Any) -> alt.Y:
    """Y axis with a row for each name in `order`, without an axis line."""
    return alt.Y(
        f"{field}:N",
        title=None,
        scale=alt.Scale(domain=list(order)),
        axis=alt.Axis(
            domain=False, ticks=False, labelLimit=0, labelFontWeight="bold" if bold else alt.Undefined, **axis
        ),
    )


def columns(field: str, order: Sequence[str], **axis: Any) -> alt.X:
    """X axis with a column for each name in `order`, without an axis line."""
    shown = alt.Axis(labelAngle=0, ticks=False, domain=False, labelLimit=0, **axis)
    return alt.X(f"{field}:N", title=None, scale=alt.Scale(domain=list(order)), axis=shown)


def domain(frame: pl.DataFrame, *, least: tuple[float, float], margin: float) -> alt.Scale:
    """Scale that covers the range `least`, and all medians and intervals with a margin at both ends."""
    ends = frame.select(pl.min_horizontal("low", "median").min(), pl.max_horizontal("high", "median").max()).row(0)
    return alt.Scale(domain=[min(least[0], ends[0] - margin), max(least[1], ends[1] + margin)], nice=False)


# Marks


def rows_from(base: alt.Chart, source: str) -> alt.Chart:
    """Chart with only the rows of one source, e.g. `measured`, `published` or `expected`."""
    chart: alt.Chart = base.transform_filter(alt.datum.source == source)
    return chart


def intervals(
    base: alt.Chart,
    x: alt.X,
    y: alt.Y | alt.Value,
    tooltip: Sequence[Any],
    encodings: Encodings,
    *,
    upright: bool = False,
    ends: tuple[str, str] = ("low", "high"),
    size: int = 46,
    width: float = 1.6,
    clip: bool = False,
    **style: Any,
) -> list[alt.Chart]:
    """Dots, each with a bar from the lower to the upper end of its interval; returns bars and dots.

    Parameters
    ----------
    base
        Chart with the rows; a row without an interval has no bar.
    x, y
        Position of the dots; intervals are along x, or along y if `upright`.
    tooltip, encodings
        Results of `tooltip` and `encode_series`.
    ends
        Columns with the lower and the upper end of the interval.
    size, width
        Size of the dots, px², and width of the bars, px.
    clip
        Whether to cut marks off at the frame of the plot.
    style
        Style of dots and bars, e.g. a colour if `encodings` has none.
    """
    low, high = ends
    along, across, fixed = ("y", "x", x) if upright else ("x", "y", y)
    start = (y if upright else x).copy()
    start["shorthand"] = f"{low}:Q"
    bar = base.transform_filter(f"datum.{low} != null").mark_rule(strokeWidth=width, clip=clip, **style)
    dot = base.mark_point(filled=True, size=size, opacity=1, clip=clip, **style)
    shapeless = {name: channel for name, channel in encodings.items() if name != "shape"}
    span = {along: start, f"{along}2": f"{high}:Q", across: fixed}
    return [bar.encode(**span, **shapeless, tooltip=tooltip), dot.encode(x=x, y=y, **encodings, tooltip=tooltip)]


def published_points(
    base: alt.Chart, x: alt.X, y: alt.Y, tooltip: Sequence[Any], encodings: Encodings, *, size: int = 58, **style: Any
) -> alt.Chart:
    """Hollow marks for published values; their tooltips have neither interval nor count."""
    shown = [tip for tip in tooltip if tip["shorthand"] not in _OURS_ONLY]
    point: alt.Chart = rows_from(base, "published").mark_point(
        filled=False, size=size, strokeWidth=1.2, opacity=1, **style
    )
    return point.encode(x=x, y=y, **encodings, tooltip=shown)


def ticks(
    base: alt.Chart,
    x: alt.X,
    y: alt.Y,
    tooltip: Sequence[Any],
    encodings: Encodings | None = None,
    *,
    color: str = MUTED,
) -> alt.Chart:
    """Vertical ticks, e.g. at expected values or quantiles."""
    tick: alt.Chart = base.mark_tick(thickness=2, size=12, color=color)
    return tick.encode(x=x, y=y, **(encodings or {}), tooltip=tooltip)


def trend(base: alt.Chart, x: alt.X, y: alt.Y, encodings: Encodings, **style: Any) -> alt.Chart:
    """A line through the values of each series."""
    line: alt.Chart = base.mark_line(**({"strokeWidth": 1.6} | style))
    return line.encode(x=x, y=y, **encodings)


def histogram(base: alt.Chart, x: alt.X, end: str, y: alt.Y, tooltip: Sequence[Any], encodings: Encodings) -> alt.Chart:
    """Bars of a histogram: each extends from `x` to the column `end`, and from 0 to `y`."""
    bars: alt.Chart = base.mark_bar(binSpacing=0)
    return bars.encode(x=x, x2=f"{end}:Q", y=y, y2=alt.datum(0), **encodings, tooltip=tooltip)


class CellText(NamedTuple):
    """A text that `heatmap` writes in each cell: its content, colour (`ink`), vertical offset, size and weight."""

    text: str | alt.Text
    ink: Any
    dy: float = 0
    size: float = TEXT_PX
    weight: Literal["normal", "bold"] = "normal"


def heatmap(base: alt.Chart, shade: Any, tooltip: Sequence[Any], *texts: CellText, stroke: str = "white") -> AnyChart:
    """Heat map: shaded cells with `texts`; the axes of `base` come from `columns` and `rows`."""
    written = [
        base.mark_text(fontSize=text.size, dy=text.dy, fontWeight=text.weight).encode(text=text.text, color=text.ink)
        for text in texts
    ]
    cells = base.mark_rect(stroke=stroke, strokeWidth=1).encode(color=shade, tooltip=tooltip)
    chart: AnyChart = alt.layer(cells, *written)
    return chart


def light_where(dark: Any) -> Any:
    """Colour of letters: white where the condition `dark` holds, else `INK`."""
    return alt.condition(dark, alt.value("white"), alt.value(INK))


# Reference lines


def line_at(base: alt.Chart, *, dashed: bool = False, **position: float) -> alt.Chart:
    """One line across the plot, however many rows of data `base` has. `line_at(base, x=0)` is vertical."""
    dash = [4, 3] if dashed else alt.Undefined
    line: alt.Chart = base.transform_sample(1).mark_rule(color=MUTED, strokeWidth=1, strokeDash=dash)
    return line.encode(**{name: alt.datum(value) for name, value in position.items()})


def diagonal(base: alt.Chart, low: float, high: float) -> alt.Chart:
    """A dashed line where x and y are equal."""
    return line_at(base, dashed=True, x=low, y=low, x2=high, y2=high)


# Plots


def multiples(
    layers: Sequence[alt.Chart] | AnyChart,
    *,
    spacing: int,
    row: alt.Row | UndefinedType = alt.Undefined,
    column: alt.Column | UndefinedType = alt.Undefined,
) -> alt.FacetChart:
    """Small multiples: a plot for each value of `row` and `column`. The caller sets the data on the outermost chart."""
    plot = alt.layer(*layers) if isinstance(layers, Sequence) else layers
    return alt.FacetChart(spec=plot, facet=alt.FacetMapping(row=row, column=column), spacing=spacing)


def facet_columns(field: str, order: Sequence[str], **header: Any) -> alt.Column:
    """Columns of plots, one for each name in `order`."""
    return alt.Column(f"{field}:N", sort=list(order), title=None, header=alt.Header(**header))


def facet_rows(field: str, order: Sequence[str], *, title: str | None = None, **header: Any) -> alt.Row:
    """Rows of plots, one for each name in `order`."""
    return alt.Row(f"{field}:N", sort=list(order), title=title, header=alt.Header(**header))


def heading(text: str, *, bold: bool = True, frame: Literal["group", "bounds"] = "group") -> alt.TitleParams:
    """Title of one plot in a figure with several plots."""
    encodings: dict[str, Any] = (
        {"fontWeight": "bold", "color": INK} if bold else {"fontWeight": "normal", "color": MUTED}
    )
    return alt.TitleParams(text, anchor="start", frame=frame, fontSize=TEXT_PX, offset=4, **encodings)


def empty_plot(text: str, width: int, height: int = 120) -> AnyChart:
    """Plot without marks; a text in it says why."""
    blank = alt.Chart(pl.DataFrame({"text": [text]}), width=width, height=height)
    label: AnyChart = blank.mark_text(fontSize=TEXT_PX, color=MUTED, fontStyle="italic").encode(
        text="text:N", x=alt.value(width / 2), y=alt.value(height / 2)
    )
    return label
