"""Checks of the testbed: the link compared with Table II, the A/A self-check, and failures."""

from __future__ import annotations

from functools import partial

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs, marks
from crosslayer.figures.self_check import SELF_CHECK, TOLERATED, self_check_data
from crosslayer.figures.style import (
    BLUE,
    COLUMN_WIDTH,
    INK,
    TEXT_PX,
    TEXT_WIDTH,
    AnyChart,
    link_title,
    with_titles,
)
from crosslayer.studies.coalescing.figures.common import figure, lacks, links_in, observations
from crosslayer.studies.coalescing.metrics import MAIN

RTT_TOLERANCE_PERCENT = 1.0
RTT_TOLERANCE_MS = 0.15
"""The idle RTT may deviate from the profile's RTT by this much, ms, or by `RTT_TOLERANCE_PERCENT` if that is more."""
RATE_TOLERANCE_PERCENT = 3.0

_TEXT_COLUMN = 98
_TABLE_WIDTH = (TEXT_WIDTH - 80 - 3 * _TEXT_COLUMN) // 3
_PRINTED = {"RTT": "rtt_ms", "down": "down_mbit", "up": "up_mbit"}
_TITLES = {"RTT": "Idle RTT", "down": "Rate, downlink", "up": "Rate, uplink"}


def table2_data(inputs: Inputs) -> pl.DataFrame:
    """Nominal and measured RTT and rates of each link.

    Columns link, quantity, unit, printed (Table II), nominal, median, low, high (lowest and highest value of all
    checks), checks (number of checks), failed (number of failed checks), deviation_percent, low_percent, high_percent
    (median, low and high relative to nominal), tolerance_percent.
    """

    def of_link(one: Inputs) -> pl.DataFrame:
        # Filter before the aggregation: polars 1.40 moves a later filter to a point without its columns.
        return metrics.link_table(one.link_checks.filter(pl.col("link").is_in(one.links))).collect(engine="streaming")

    # One link at a time, so that any number of checks fits in memory.
    table = pl.concat(map(of_link, inputs.of_links or [inputs]))
    printed = inputs.published.links.unpivot(list(_PRINTED.values()), index="link", value_name="printed").with_columns(
        quantity=pl.col("variable").replace({column: name for name, column in _PRINTED.items()})
    )
    tolerance = (
        pl.when(pl.col("quantity") == "RTT")
        .then(pl.max_horizontal(pl.lit(RTT_TOLERANCE_PERCENT), 100 * RTT_TOLERANCE_MS / pl.col("nominal")))
        .otherwise(RATE_TOLERANCE_PERCENT)
    )
    deviations = {"deviation_percent": "median", "low_percent": "low", "high_percent": "high"}
    return table.join(
        printed.select("link", "quantity", "printed"), on=["link", "quantity"], how="left", maintain_order="left"
    ).select(
        "link",
        "quantity",
        "unit",
        "printed",
        "nominal",
        "median",
        "low",
        "high",
        "checks",
        "failed",
        *((100 * (pl.col(value) / pl.col("nominal") - 1)).alias(name) for name, value in deviations.items()),
        tolerance.alias("tolerance_percent"),
    )


def _four_digits(name: str) -> pl.Expr:
    return pl.col(name).map_elements(lambda value: f"{value:.4g}", return_dtype=pl.String)


def table2(frame: pl.DataFrame) -> AnyChart:
    """Chart for TNSM24 Table II: deviation of the measured RTT and rates of each link from its profile."""
    if frame.is_empty():
        return marks.empty_plot("no link was checked", TEXT_WIDTH - 60, 80)
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    texts = (_four_digits(name) for name in ("median", "nominal"))
    rows = with_titles(frame).with_columns(
        text=pl.when(pl.col("median").is_null())
        .then(pl.lit("not measured"))
        .otherwise(pl.format("{} of {} {}", *texts, "unit")),
        low_tolerance=-pl.col("tolerance_percent"),
    )
    encodings = {"color": alt.value(BLUE)}
    tooltip = [
        alt.Tooltip("link_title:N", title="link"),
        alt.Tooltip("printed:Q", title="Table II"),
        alt.Tooltip("nominal:Q", format=".4f", title="profile"),
        alt.Tooltip("median:Q", format=".4f"),
        alt.Tooltip("low:Q", format=".4f", title="lowest check"),
        alt.Tooltip("high:Q", format=".4f", title="highest check"),
        alt.Tooltip("unit:N"),
        alt.Tooltip("checks:Q"),
        alt.Tooltip("failed:Q", title="failed checks"),
    ]
    plots = []
    for quantity, title in _TITLES.items():
        of_quantity = rows.filter(pl.col("quantity") == quantity)
        ends = of_quantity.select("low_percent", "high_percent", "tolerance_percent").unpivot()["value"].drop_nulls()
        reach = 1.15 * max([1.0, *ends.abs()])
        scale = alt.Scale(domain=[-reach, reach], nice=False)
        x = alt.X("deviation_percent:Q", title="Deviation (%)", scale=scale, axis=alt.Axis(tickCount=5))
        y = marks.rows("link_title", links, bold=True)
        if quantity != "RTT":
            y["axis"] = None
        base = alt.Chart(width=_TABLE_WIDTH, height=26 * len(links))
        tolerated = base.mark_bar(color=TOLERATED, height=alt.RelativeBandSize(0.82))
        labels = base.mark_text(fontSize=8, color=INK, align="left")
        layers = [
            tolerated.encode(alt.X("low_tolerance:Q", scale=scale), y, alt.X2("tolerance_percent:Q")),
            marks.line_at(base, x=0),
            *marks.intervals(base, x, y, tooltip, encodings, ends=("low_percent", "high_percent"), width=1.8),
            labels.encode(y=y, text="text:N", x=alt.value(_TABLE_WIDTH + 6)),
        ]
        plot = alt.layer(*layers).transform_filter(alt.datum.quantity == quantity)
        plots.append(plot.properties(title=marks.heading(title)))
    chart = alt.hconcat(*plots, spacing=12)
    chart.data = rows
    return chart


CONDITIONS = ("DoUDP", "DoQ", "DoH", "TCP RTT", "H3 1-RTT", "H3 0-RTT")


def failures_data(inputs: Inputs) -> pl.DataFrame:
    """Numbers of attempted and failed observations.

    Columns condition, link, attempted, failed, reason (the most frequent one).
    """
    return inputs.failures


def failures(frame: pl.DataFrame) -> AnyChart:
    """Heat map of the failed observations by condition and link."""
    conditions = [*CONDITIONS, *sorted(set(frame["condition"]) - set(CONDITIONS))]
    links = [link_title(link) for link in links_in(frame)]
    rows = with_titles(frame).with_columns(
        percent=100 * pl.col("failed") / pl.col("attempted"),
        text=pl.format("{} of {}", "failed", "attempted"),
    )
    base = alt.Chart(width=COLUMN_WIDTH - 74, height=26 * len(conditions)).encode(
        marks.columns("link_title", links, orient="top"), marks.rows("condition", conditions)
    )
    more = [alt.Tooltip("attempted:Q"), alt.Tooltip("reason:N", title="most frequent reason")]
    tooltip = marks.tooltip("condition", "link_title", value="failed", of="failed:Q", digits="d", more=more)
    scale = alt.Scale(domain=[0, 10], range=["#f0f0f0", "#b2182b"], clamp=True)
    number = marks.CellText("text:N", marks.light_where("datum.percent > 6"), size=TEXT_PX - 1)
    chart: AnyChart = marks.heatmap(base, alt.Color("percent:Q", scale=scale, legend=None), tooltip, number)
    chart.data = rows
    return chart


def failures_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Conditions and links with failures. Columns condition, link, attempted, failed, reason."""
    return frame.filter(pl.col("failed") > 0)


_figure = partial(figure, notebook="link_check")
FIGURES = (
    _figure(
        name="table2-link-check",
        title="Idle RTT and rates of the emulated links",
        paper_figure="Table II",
        caption="Deviation of the measured idle RTT (UDP echo) and of the measured rates of each link from the link's "
        "profile. Numbers at the right: median of all checks of the campaign, and value of the profile. Table II of "
        "the paper prints the values of the profiles, rounded.",
        note="Dots: median of all checks; bars: lowest and highest check. Grey: tolerance (RTT 1 %, at least 0.15 ms; "
        "rates 3 %).",
        data=table2_data,
        chart=table2,
        table=(
            "link",
            "quantity",
            "unit",
            "printed",
            "nominal",
            "median",
            "low",
            "high",
            "checks",
            "deviation_percent",
        ),
        width=TEXT_WIDTH,
    ),
    SELF_CHECK(
        notebook="link_check", lacks=lacks, data=partial(self_check_data, observations=observations, named=MAIN)
    ),
    _figure(
        name="failures",
        title="Failed observations",
        caption="Number of failed and of attempted observations, by condition and link. The dataset has a row with the "
        "error for each failed observation. The PLT of a combination (exchange plus load) is computed only from rounds "
        "in which both succeeded.",
        data=failures_data,
        chart=failures,
        table=failures_table,
    ),
)
