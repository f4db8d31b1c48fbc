"""A comparison as tables, and its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from crosslayer.figures import Figure, marks
from crosslayer.figures.style import TEXT_WIDTH, TRANSPORTS, AnyChart
from crosslayer.resolvers.analysis import TargetResult, measure_name
from crosslayer.resolvers.plan import STUDY, ComparePlan, TargetVisit, idle_key
from crosslayer.vocabulary import Protocol

_VISITS = {
    "vantage": pl.String,
    "round": pl.Int64, "resolver": pl.String, "operator": pl.String, "address": pl.String, "transport": pl.String,
    "started_s": pl.Float64, "first_ms": pl.Float64, "handshake_ms": pl.Float64, "next_ms": pl.Float64,
    "miss_ms": pl.Float64, "resumed_ms": pl.Float64, "early_ms": pl.Float64, "rtt_ms": pl.Float64, "site": pl.String,
    "error": pl.String,
    "next_error": pl.String, "miss_error": pl.String, "resumed_error": pl.String,
    "early_error": pl.String,
}  # fmt: skip
_RESULTS = {
    "resolver": pl.String, "operator": pl.String, "address": pl.String, "transport": pl.String, "measure": pl.String,
    "n": pl.Int64, "median": pl.Float64, "low": pl.Float64, "high": pl.Float64, "group": pl.Int64,
    "flags": pl.String, "source": pl.String,
}  # fmt: skip
MEASURES = ("first_ms", "next_ms")
"""Keys of the times in the chart, one panel each."""
_SHOWN = tuple(map(measure_name, MEASURES))
_MARGIN_PX, _ROW_PX = 150, 18
_MOST_NAMED = 5
_MOST_SHOWN = 30
"""Maximum number of rows in the chart."""


def visits_frame(plan: ComparePlan, visits: Sequence[TargetVisit]) -> pl.DataFrame:
    """A row for each visit: its times and errors, and the resolver, operator, address and transport of its target.

    Each idle time of the plan has a column, such as `idle_20s_ms`.
    """
    idle = [idle_key(idle_s) for idle_s in plan.idle_s]
    rows = []
    for visit in visits:
        target = plan.targets[visit.target]
        own = {name: getattr(visit, name) for name in _VISITS if hasattr(visit, name)}
        own |= {name: visit.time_ms(name) for name in idle}
        rows.append(
            own
            | {
                "resolver": target.title,
                "operator": target.operator,
                "address": target.address,
                "transport": str(target.protocol),
            }
        )
    return pl.DataFrame(rows, schema=_VISITS | dict.fromkeys(idle, pl.Float64))


def results_frame(lines: Sequence[TargetResult]) -> pl.DataFrame:
    """A row for each target and each of its times: median and interval, ms, and the flags of the target."""
    rows: list[dict[str, Any]] = []
    for line in lines:
        target = line.target
        for key, value in line.times.items():
            rows.append(
                {
                    "resolver": target.name,
                    "operator": target.operator,
                    "address": target.address,
                    "transport": str(target.protocol),
                    "measure": measure_name(key),
                    "n": value.rounds,
                    "median": value.median,
                    "low": value.low,
                    "high": value.high,
                    "group": line.group,
                    "flags": ", ".join(line.flags),
                    "source": "measured",
                }
            )
    return pl.DataFrame(rows, schema=_RESULTS)


def figure_rows(lines: Sequence[TargetResult]) -> pl.DataFrame:
    """A row for each target and each time in the chart."""
    frame = results_frame(lines).filter(pl.col("measure").is_in(_SHOWN))
    several = pl.col("address").n_unique().over("resolver") > 1
    label = pl.when(several).then(pl.format("{} {}", "resolver", "address")).otherwise(pl.col("resolver"))
    return frame.with_columns(label=label)


def fastest(frame: pl.DataFrame) -> str:
    """Sentence with the targets whose first query is fastest, and with the fastest encrypted transport.

    Only ranked targets count (`TargetResult.group`). The sentence is empty if none is ranked, e.g. with fewer than six
    rounds.
    """
    first = frame.filter(measure=_SHOWN[0]).drop_nulls("group").sort("median", "label", "transport")
    if first.is_empty():
        return ""
    best = first.filter(pl.col("group") == pl.col("group").min())
    listed = ", ".join(_target(row) for row in best.head(_MOST_NAMED).iter_rows(named=True))
    listed += f" and {best.height - _MOST_NAMED} more" if best.height > _MOST_NAMED else ""
    others = " None of the others is clearly slower than the first of them." if best.height > 1 else ""
    text = f"Fastest first query: {listed}.{others}"
    encrypted = first.filter(~pl.col("transport").is_in([Protocol.DOUDP, Protocol.DOTCP]))
    if encrypted.is_empty() or not encrypted.join(best, on=["label", "transport"], how="semi").is_empty():
        return text
    return f"{text} Smallest median over an encrypted transport: {_target(encrypted.row(0, named=True))}."


def _target(row: Mapping[str, Any]) -> str:
    return f"{row['label']} over {row['transport']} ({row['median']:.1f}\N{NO-BREAK SPACE}ms)"


def _chart(frame: pl.DataFrame) -> AnyChart:
    """Chart with a row for each resolver, fastest first.

    A resolver with several addresses has a row for each address. Each time has a panel, and each transport a colour and
    a shape.
    """
    if frame.is_empty():
        return marks.empty_plot("no resolver answered", TEXT_WIDTH - 60, 80)
    first = frame.group_by("label").agg(pl.col("median").filter(pl.col("measure") == _SHOWN[0]).min())
    order = first.sort("median", "label")["label"].to_list()[:_MOST_SHOWN]
    frame = frame.filter(pl.col("label").is_in(order))
    styles = {name: encodings for name, encodings in TRANSPORTS.items() if name in set(frame["transport"])}
    panels = []
    for number, measure in enumerate(_SHOWN):
        base = alt.Chart(width=(TEXT_WIDTH - _MARGIN_PX) // 2, height=max(60, _ROW_PX * len(styles) * len(order) // 2))
        x = alt.X("median:Q", title=f"{measure} (ms)", axis=alt.Axis(tickCount=5), scale=alt.Scale(zero=True))
        y = marks.rows("label", order)
        if number:
            y["axis"] = None
        tooltip = marks.tooltip("label", "transport", value="ms", counted="rounds", more=[alt.Tooltip("flags:N")])
        encodings = marks.encode_series("transport", styles, "color", "shape", "offset", legend=number == 0)
        layers = marks.intervals(base, x, y, tooltip, encodings)
        panels.append(alt.layer(*layers).transform_filter(alt.datum.measure == measure))
    plot: AnyChart = alt.hconcat(*panels, spacing=14)
    plot.data = frame
    return plot


FIGURE = Figure(
    name="compare",
    title="First and next query to each resolver",
    notebook=STUDY,
    caption="Times of two queries for a name in the resolver's cache: the first query on a new connection, and the "
    "next query on the same connection.",
    note="Marks: medians; bars: 95 % intervals (bootstrap over vantage points and rounds). With more than 30 rows, "
    "only the fastest are drawn.",
    data=figure_rows,
    chart=_chart,
    verdict=fastest,
    table=lambda frame: frame.select(
        "resolver", "address", "transport", "measure", "n", "median", "low", "high", "group"
    ),
    width=TEXT_WIDTH,
)
"""The figure of a comparison."""
