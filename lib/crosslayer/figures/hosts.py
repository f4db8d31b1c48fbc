"""The hosts of a campaign beside each other: what each measured against all, and its own A/A self-check."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import BLUE, COLUMN_WIDTH, AnyChart

_AGAINST_ALL, _AA = "PLT against all hosts (%)", "A/A: first alias minus second (%)"


def data(inputs: Inputs) -> pl.DataFrame:
    """Columns panel, host, n, rounds, median, low, high (percent), source."""
    rows = inputs.page_loads.filter(pl.col("error").is_null())
    level = rows.group_by(metrics.CELL).agg(pl.col("plt_ms").median().alias("level_ms"))
    pairs = metrics.paired(rows, "plt_ms", "variant", "aa-1", "aa-2").join(level, on=list(metrics.CELL))
    own = metrics.medians(
        pairs.with_columns(percent=100 * pl.col("difference") / pl.col("level_ms")), "percent", ["host"]
    ).with_columns(pl.col("host").cast(pl.String))
    parts = ((_AGAINST_ALL, metrics.spread(inputs.page_loads)), (_AA, own))
    return pl.concat(
        frame.with_columns(panel=pl.lit(panel), source=pl.lit("measured")).sort("host") for panel, frame in parts
    )


def chart(frame: pl.DataFrame) -> AnyChart:
    """A row for each host, a column for what it is held against."""
    hosts = sorted(set(frame["host"]), key=lambda host: (len(host), host))  # host-10 after host-9
    if not hosts:
        return marks.empty_plot("this campaign has no page loads", COLUMN_WIDTH - 60, 80)
    scale = marks.reach(frame, least=(-1.0, 1.0), margin=0.1)
    panels = []
    for panel in (_AGAINST_ALL, _AA):
        base = alt.Chart(width=(COLUMN_WIDTH - 110) // 2, height=max(60, 22 * len(hosts)))
        x = alt.X("median:Q", title=panel, scale=scale, axis=alt.Axis(tickCount=5))
        y = marks.rows("host", hosts)
        if panel == _AA:
            y["axis"] = None
        tooltip = marks.tips("host", value=panel, digits="+.2f", counted="observations")
        layers = [
            marks.line_at(base, x=0),
            *marks.intervals(base, x, y, tooltip, {"color": alt.value(BLUE)}, size=60, width=2.2),
        ]
        panels.append(alt.layer(*layers).transform_filter(alt.datum.panel == panel))
    plot: AnyChart = alt.hconcat(*panels, spacing=14)
    plot.data = frame
    return plot


HOSTS = Figure(
    name="hosts",
    title="The hosts of this campaign",
    notebook="cluster",
    caption="How far the page loads of each host are from those of all hosts in the same condition, and the A/A "
    "self-check of each host by itself: two alias hosts of a page, loaded alike in the same round.",
    note="Dots: medians; bars: 95 % intervals, rounds resampled.",
    data=data,
    chart=chart,
    table=lambda frame: frame.select("panel", "host", "n", "rounds", "median", "low", "high"),
)
"""Of a campaign that several machines measured; it belongs to no study."""
