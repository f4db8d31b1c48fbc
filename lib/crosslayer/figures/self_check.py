"""The figure of the A/A self-check: loads of the same kind in one round should not differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import BLUE, COLUMN_WIDTH, RED, AnyChart

TOLERATED = "#e6e6e6"
_KEY = ("series", *metrics.CELL)
_KS_LEVEL = 0.05


def _loads(inputs: Inputs) -> metrics.Cells:
    """Loads that the self-check compares, read link by link, so that campaigns of any size fit in memory."""
    others = inputs.page_loads.filter(~pl.col("link").is_in(inputs.links))
    loads = [*(one.page_loads for one in inputs.of_links), others]
    return metrics.Cells(map(metrics.loads_by_kind, loads))


def self_check_data(
    inputs: Inputs,
    *,
    observations: Callable[[Inputs], metrics.Cells] = _loads,
    named: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Differences in PLT between the two loads of each pair that should have equal PLTs.

    They are in percent of the cell's PLT: 100 % is the median of the mean PLTs of all pairs.

    Columns kind, series, link, page, source, x (the difference), low, high (90 % interval), n, equal, p, ks, ks_p
    (`metrics.equivalence`). A row of kind `pair` has the difference between two loads of one round. A row of kind
    `cell` has the median of a cell. A row of kind `pooled` has the median over all cells of a series.

    `observations` returns the page loads of a study. `named` has the names of those series that are not named as by
    `metrics.loads_by_kind` (see `metrics.self_checked`).
    """
    loads = observations(inputs)
    pairs = metrics.self_checked(loads, named)
    together = metrics.pooled_pairs(pairs)
    schema = {"series": pl.String(), "x": pl.Float64(), "n": pl.Int64(), "kind": pl.String()}
    parts = [pl.DataFrame(schema=schema)]
    for (series,), of_series in together.items():
        x, _ = metrics.curve(of_series.first - of_series.second)
        parts.append(pl.DataFrame([(series, at, len(of_series.first), "pair") for at in x], schema, orient="row"))
    of_kinds = {
        "pooled": metrics.equivalence(loads, together, _KEY[:1]),
        "cell": metrics.equivalence(loads, pairs, _KEY),
    }
    parts += (rows.rename({"median": "x"}).with_columns(kind=pl.lit(kind)) for kind, rows in of_kinds.items())
    frame = pl.concat(parts, how="diagonal").with_columns(source=pl.lit("measured"))
    order = pl.col("series").replace_strict({name: at for at, name in enumerate(metrics.SELF_CHECKS)}, default=None)
    return inputs.by_rtt(frame, "page").sort(order, maintain_order=True)


def self_check(frame: pl.DataFrame) -> AnyChart:
    """Chart with a row for each series: a tick for each round, and the median with its 90 % interval."""
    width = COLUMN_WIDTH - 118
    if frame.is_empty():
        return marks.empty_plot("this campaign has no self-check", width, 80)
    series = list(frame["series"].unique(maintain_order=True))
    margin = metrics.EQUAL_PERCENT
    reach = max(1.5 * margin, float(frame.filter(pl.col("kind") == "pair")["x"].abs().quantile(0.95) or 0.0))
    scale = alt.Scale(domain=[-reach, reach], nice=False)
    x = alt.X("x:Q", title="PLT difference (%)", scale=scale, axis=alt.Axis(tickCount=7))
    y = marks.rows("series", series, labelExpr="split(datum.label, ': ')")
    tooltip = marks.tooltip("kind", "series", value="difference, %", of="x:Q", digits="+.2f", counted="pairs")
    base = alt.Chart(width=width, height=44 * len(series))
    median = base.transform_filter(alt.datum.kind == "pooled")
    pairs = base.transform_filter(alt.datum.kind == "pair").mark_tick(clip=True, color=BLUE, opacity=0.45, height=14)
    chart: AnyChart = alt.layer(
        base.transform_sample(1)
        .mark_rect(color=TOLERATED)
        .encode(alt.X(datum=-margin, scale=scale), alt.X2(datum=margin)),
        marks.line_at(base, x=0),
        pairs.encode(x, y, tooltip=tooltip),
        *marks.intervals(median, x, y, tooltip, {"color": alt.value(RED)}, size=56, width=2.2, clip=True),
    )
    chart.data = frame.filter(pl.col("kind") != "cell")
    return chart


def self_check_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of medians: one row for each cell, and pooled rows over all cells, in which link and page are empty.

    Columns series, link, page, n, median, low, high (percent), equal, p, ks, ks_p.
    """
    medians = frame.filter(pl.col("kind") != "pair")
    return medians.select(*_KEY, "n", pl.col("x").alias("median"), "low", "high", "equal", "p", "ks", "ks_p")


def self_check_verdict(frame: pl.DataFrame) -> str:
    """Verdict: results of the A/A self-check and of the negative control."""
    pooled = frame.filter(pl.col("kind") == "pooled")
    if pooled.is_empty():
        return "Not answered: this campaign has no self-check."
    shown = pooled.with_columns(
        name=pl.col("series")
        .str.replace("A/A: (.+)", "$1 and its repetition")
        .str.replace(" - ", " and ", literal=True)
    )
    known = shown.filter(pl.col("low").is_not_null())
    margin = f"±{metrics.EQUAL_PERCENT:g} %"
    interval = "90 % interval of the median PLT difference"
    differ, test = pl.col("ks_p") < _KS_LEVEL, "(Kolmogorov-Smirnov test, 5 %)"
    parts = {
        f"count as equal (the {interval} lies within {margin})": known.filter(pl.col("equal")),
        f"do not count as equal (the {interval} does not lie within {margin})": known.filter(~pl.col("equal")),
        f"count as equal by their median difference, but have different PLT distributions {test}": (
            known.filter(pl.col("equal"), differ)
        ),
        f"have different PLT distributions {test}": known.filter(~pl.col("equal"), differ),
        "have too few rounds for an interval": shown.filter(pl.col("low").is_null()),
    }
    return " ".join(
        f"The two loads of {'this pair' if len(names) == 1 else 'each of these pairs'} {what}: {'; '.join(names)}."
        for what, rows in parts.items()
        if len(names := rows["name"].to_list())
    )


SELF_CHECK = partial(
    Figure,
    name="aa-self-check",
    title="Self-check (A/A) and negative control",
    caption="PLT differences between two loads of a round. A/A: PLT of a load minus that of its repetition. Negative "
    "control: PLT of a load whose ticket the server refuses, minus that of the H3 1-RTT load. Both loads of a pair "
    "make the same kind of handshake. A difference that chance does not explain is therefore an error of the "
    "measurement.",
    note="Each tick is one round. Orange: median difference and its 90 % interval. Two loads count as equal if this "
    "whole interval lies within the grey band, -3 % to +3 % of the PLT (two one-sided tests at 5 %).",
    data=self_check_data,
    chart=self_check,
    table=self_check_table,
    verdict=self_check_verdict,
)
"""Makes the figure of a study's self-check; takes the study's `notebook`."""
