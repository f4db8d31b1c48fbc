"""Figure of a campaign's hosts: PLT of each host compared with that of all hosts, and A/A self-check of each host."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import BLUE, COLUMN_WIDTH, AnyChart

_AGAINST_ALL, _AA = "PLT minus that of all hosts (%)", "A/A: load minus its repetition (%)"


def data(inputs: Inputs) -> pl.DataFrame:
    """Two differences in PLT for each host, percent: this host minus all hosts, and each load minus its repetition.

    Columns panel (the comparison), host, n, rounds, median, low, high, source.
    """
    repeated = metrics.repetition_differences(inputs.page_loads)
    own = metrics.medians(repeated, "percent", ["host"]).with_columns(pl.col("host").cast(pl.String))
    parts = ((_AGAINST_ALL, metrics.spread(inputs.page_loads)), (_AA, own))
    return pl.concat(
        frame.with_columns(panel=pl.lit(panel), source=pl.lit("measured")).sort("host") for panel, frame in parts
    )


def chart(frame: pl.DataFrame) -> AnyChart:
    """Chart with a row for each host and a plot for each of the two comparisons."""
    hosts = sorted(set(frame["host"]), key=lambda host: (len(host), host))  # host-10 after host-9
    if not hosts:
        return marks.empty_plot("this campaign has no page loads", COLUMN_WIDTH - 60, 80)
    scale = marks.domain(frame, least=(-1.0, 1.0), margin=0.1)
    panels = []
    for panel in (_AGAINST_ALL, _AA):
        base = alt.Chart(width=(COLUMN_WIDTH - 110) // 2, height=max(60, 22 * len(hosts)))
        x = alt.X("median:Q", title=panel, scale=scale, axis=alt.Axis(tickCount=5))
        y = marks.rows("host", hosts)
        if panel == _AA:
            y["axis"] = None
        tooltip = marks.tooltip("host", value=panel, digits="+.2f", counted="observations")
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
    caption="PLT of each host minus that of all hosts in the same condition. A/A self-check of each host: a load "
    "minus its repetition in the same round, in percent of the median PLT of the cell's loads of this kind.",
    note="Dots: medians; bars: 95 % intervals (bootstrap over rounds).",
    data=data,
    chart=chart,
    table=lambda frame: frame.select("panel", "host", "n", "rounds", "median", "low", "high"),
)
"""Figure for every campaign that several machines measured, whatever its study."""
