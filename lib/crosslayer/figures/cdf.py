"""CDF figures: makes their rows from observations and published values, and draws their plots.

The column `kind` says what a row is: a point of a curve (`curve`), a median with its interval (`median`), or a single
published value (`point`). The column `source` is `measured` or `published`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import marks
from crosslayer.figures.style import COLUMN_WIDTH, PUBLISHED_DASH
from crosslayer.metrics.resampling import Reals

SCHEMA = {
    "panel": pl.String,
    "series": pl.String,
    "source": pl.String,
    "kind": pl.String,
    "x": pl.Float64,
    "cdf": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}

TOP = 0.99
"""The x axis ends at this quantile of the slowest curve."""

_AXES_WIDTH = 48
_LEVELS = {"min": 0.0, "max": 1.0} | {f"p{q}": q / 100 for q in range(1, 100)}


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot of a CDF figure."""

    name: str
    """Value of the column `panel`; the title of the plot if the figure has several plots."""
    x_title: str
    """Title of the x axis: quantity and unit."""
    series: tuple[str, ...]


class CurveGroup(NamedTuple):
    """Observations of one series in one panel."""

    panel: str
    series: str
    values: Reals
    rounds: metrics.Rounds


def measured(observations: metrics.Frames, value: str, *, points: int = metrics.MAX_POINTS) -> pl.DataFrame:
    """Rows of measured curves and medians, for each panel and series.

    Parameters
    ----------
    observations
        Rows with campaign, round, host, panel, series and the column that `value` names.
    value
        Name of the column to draw.
    points
        Maximum number of points per curve.
    """
    gathered_rows = metrics.gathered(observations, ["panel", "series"], [value, *metrics.CLUSTER])
    groups = (
        CurveGroup(panel, series, rows[value].to_numpy(), metrics.rounds_of(rows))
        for (panel, series), rows in gathered_rows
    )
    return measured_groups(groups, points=points)


def measured_groups(groups: Iterable[CurveGroup], *, points: int = metrics.MAX_POINTS) -> pl.DataFrame:
    """Rows of measured curves and medians of groups, with at most `points` points per curve."""
    parts = [pl.DataFrame(schema=SCHEMA)]
    for panel, series, values, rounds in groups:
        x, cdf = metrics.curve(values, points)
        n, _, median, low, high = metrics.median(values, rounds)
        # A CDF starts at 0: one more point per curve, below its smallest observation.
        curve = pl.DataFrame({"x": [x[0], *x], "cdf": [0.0, *cdf]}).with_columns(kind=pl.lit("curve"))
        middle = pl.DataFrame({"kind": "median", "x": median, "cdf": 0.5, "low": low, "high": high})
        of_group = {"panel": pl.lit(panel), "series": pl.lit(series), "n": pl.lit(n)}
        parts.append(_tidy("measured", *(frame.with_columns(**of_group) for frame in (curve, middle))))
    return pl.concat(parts).sort("panel", "series", "kind", "cdf", maintain_order=True)


def published_curves(curves: pl.DataFrame) -> pl.DataFrame:
    """Rows of published curves; `curves` has the columns panel, series, x and cdf."""
    return _tidy("published", curves.with_columns(kind=pl.lit("curve")))


def published_quantiles(quantiles: pl.DataFrame) -> pl.DataFrame:
    """Rows of published curves from quantiles.

    `quantiles` has the columns panel and series, and one column for each known quantile: min, p1 to p99, or max.
    """
    known = [name for name in _LEVELS if name in quantiles.columns]
    long = (
        quantiles.unpivot(known, index=["panel", "series"], variable_name="level", value_name="x")
        .drop_nulls("x")
        .with_columns(pl.col("level").replace_strict(_LEVELS, return_dtype=pl.Float64).alias("cdf"))
        .sort("panel", "series", "cdf")
    )
    return published_curves(long)


def published_points(points: pl.DataFrame) -> pl.DataFrame:
    """Rows of single published values; `points` has the columns panel, series, x and cdf."""
    return _tidy("published", points.with_columns(kind=pl.lit("point")))


def _tidy(source: str, *frames: pl.DataFrame) -> pl.DataFrame:
    parts = [
        frame.with_columns(
            source=pl.lit(source),
            **{name: pl.lit(None, kind) for name, kind in SCHEMA.items() if name not in (*frame.columns, "source")},
        ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
        for frame in frames
    ]
    return pl.concat(parts)


def chart(
    frame: pl.DataFrame,
    panels: Sequence[Panel],
    *,
    height: int = 170,
    legend_columns: int | None = None,
    whole: bool = False,
    published_steps: bool = False,
) -> alt.VConcatChart:
    """Chart of panels one below the other, with one legend, as wide as a column of a paper.

    Parameters
    ----------
    frame
        Rows with the columns of `SCHEMA`.
    panels
        Panels to draw, from top to bottom.
    height
        Height of one panel, px.
    whole
        Whether to show whole curves; otherwise the x axis ends at the quantile `TOP`.
    published_steps
        Whether to draw published curves as steps, as is right for curves of few observations.
    """
    order = panels[0].series
    titles = [panel.x_title for panel in panels]
    plots = []
    for number, panel in enumerate(panels):
        rows = frame.filter(pl.col("panel") == panel.name)
        x_title = panel.x_title if panel.x_title not in titles[number + 1 :] or len(set(titles)) > 1 else None
        width = COLUMN_WIDTH - _AXES_WIDTH
        if rows.is_empty():
            plot = marks.empty_plot("not measured", width, height)
        else:
            plot = alt.layer(
                *layers(
                    order,
                    x_title=x_title,
                    width=width,
                    height=height,
                    domain=x_domain(rows, top=1.0 if whole else TOP),
                    legend_columns=legend_columns,
                    published_steps=published_steps,
                )
            ).transform_filter(alt.datum.panel == panel.name)
        plots.append(plot.properties(title=marks.heading(panel.name if len(panels) > 1 else "")))
    chart = alt.vconcat(*plots, spacing=12)
    chart.data = frame
    return chart


def layers(
    order: Sequence[str],
    *,
    x_title: str | None,
    width: int,
    height: int,
    domain: tuple[float, float],
    legend_columns: int | None = None,
    published_steps: bool = False,
) -> list[alt.Chart]:
    """Layers of one plot, from bottom to top.

    These are: published curves, measured curves, medians with their intervals, published values.
    """
    axis = alt.Axis(tickCount=max(3, width // 50), labelFlush=True, grid=True)
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(domain=list(domain), nice=False, zero=False), axis=axis)
    quarters = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~f")
    y = alt.Y("cdf:Q", title="CDF", scale=alt.Scale(domain=[0, 1]), axis=quarters)
    encodings = marks.encode_series("series", marks.styles(order), "color", "dash", columns=legend_columns)
    color = {"color": encodings["color"]}
    share = alt.Tooltip("cdf:Q", title="CDF", format=".1%")
    point = marks.tooltip("series", "source", value="x", of="x:Q", digits=".4~g", more=[share])
    median = marks.tooltip("series", "source", value="median", of="x:Q", digits=".4~g", counted="observations")
    base = alt.Chart(width=width, height=height)
    curves = base.transform_filter(alt.datum.kind == "curve")
    printed = {"strokeDash": PUBLISHED_DASH, "interpolate": "step-after" if published_steps else "linear"}
    return [
        marks.trend(marks.rows_from(curves, "published"), x, y, color, strokeWidth=1.1, clip=True, **printed).encode(
            detail="series:N", tooltip=point
        ),
        marks.trend(
            marks.rows_from(curves, "measured"), x, y, encodings, strokeWidth=1.8, clip=True, interpolate="step-after"
        ).encode(tooltip=[*point, median[-1]]),
        *marks.intervals(base.transform_filter(alt.datum.kind == "median"), x, y, median, color, size=26, clip=True),
        marks.published_points(
            base.transform_filter(alt.datum.kind == "point"), x, y, point, color, shape="diamond", size=42
        ),
    ]


def x_domain(frame: pl.DataFrame, top: float = TOP) -> tuple[float, float]:
    """Range of the x axis, with a margin.

    The range begins at the smallest value. To find its end, the quantile `top` of each curve is computed; the range
    ends at the largest of these quantiles. A quantile is the smallest observation x for which at least the share `top`
    of the observations is not above x. With 0.99, a curve of fewer than 100 observations is therefore shown completely.
    Medians and single published values are always in the range.
    """
    curve = frame.filter(pl.col("kind") == "curve")
    tops = (
        curve.filter(pl.col("cdf") >= pl.min_horizontal(top, pl.col("cdf").max().over("panel", "series", "source")))
        .group_by("panel", "series", "source")
        .agg(pl.col("x").min())["x"]
    )
    values = [float(x) for x in (*tops, *frame.filter(pl.col("kind") != "curve")["x"])]
    low, high = min([*values, *(float(x) for x in curve["x"])]), max(values)
    margin = 0.02 * (high - low or abs(high) or 1.0)
    return low - margin, high + margin


def tail_note(frame: pl.DataFrame) -> str:
    """Sentence which says that the plots leave out the tail of a curve; empty if they show all curves completely."""
    cut = any(
        group.filter(pl.col("kind") == "curve", pl.col("x") > x_domain(group)[1]).height
        for _, group in frame.group_by("page" if "page" in frame.columns else "panel")
    )
    return "Axes end at the 99th percentile of the slowest curve." if cut else ""


def table(frame: pl.DataFrame) -> pl.DataFrame:
    """Medians of a CDF figure, with the published medians.

    Returns
    -------
    polars.DataFrame
        panel, series, n, median, low, high (95 % interval), published (null without a published median). Values have
        the unit of the figure. Rows are in the order of the panels.
    """
    key = ["panel", "series"]
    medians = frame.filter(pl.col("kind") == "median")
    printed = frame.filter(pl.col("source") == "published", pl.col("kind") == "point", pl.col("cdf") == 0.5)
    curve = frame.filter(pl.col("source") == "published", pl.col("kind") == "curve").sort("cdf")
    # The published curve is a polyline: its median is on the line between the vertices around 0.5.
    below, above = (
        curve.filter(side).group_by(key).agg(pl.col("x", "cdf").get(side_offset))
        for side, side_offset in ((pl.col("cdf") <= 0.5, -1), (pl.col("cdf") > 0.5, 0))
    )
    share = (0.5 - pl.col("cdf")) / (pl.col("cdf_above") - pl.col("cdf"))
    lines = below.join(above, on=key, suffix="_above").select(
        *key, published=pl.col("x") + share * (pl.col("x_above") - pl.col("x"))
    )
    published = pl.concat([printed.select(*key, published="x"), lines]).unique(key, keep="first", maintain_order=True)
    return (
        medians.join(published, on=key, how="left", maintain_order="left")
        .select(*key, "n", "x", "low", "high", "published")
        .rename({"x": "median"})
    )
