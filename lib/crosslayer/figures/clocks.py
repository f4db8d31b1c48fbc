"""Figures that compare a study's campaign in real time with its campaign in virtual time.

They compare page loads, DNS exchanges, and queries that are sent at a steady pace. A duration in virtual time contains
only network and timers; in real time it also contains computing (docs/reference/clocks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import altair as alt
import polars as pl

from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import (
    BROWN,
    CHAIN,
    EARLY_DATA,
    GREY,
    INK,
    LONG,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    SOLID,
    TEXT_WIDTH,
    TRANSPORTS,
    WIDE,
    WITHOUT_TOKEN,
    AnyChart,
    Style,
    link_title,
)
from crosslayer.metrics import clocks
from crosslayer.metrics.clocks import ComparedCondition, Step
from crosslayer.metrics.links import without_loss
from crosslayer.vocabulary import Connection, Resumption

NOTEBOOK = "clocks"
"""Notebook that explains these figures."""

_STYLES = {
    **TRANSPORTS,
    "H3 1-RTT": Style(GREY, "square", CHAIN),
    "H3 0-RTT": EARLY_DATA,
    "H3 0-RTT without token": WITHOUT_TOKEN,
}
_FURTHER = (
    Style(RED, "triangle-down", LONG),
    Style(PURPLE, "cross", WIDE),
    Style(BROWN, "diamond", SOLID),
    Style(SKY, "square", SOLID),
    Style(ORANGE, "circle", LONG),
)
_EMPTY = {"kind": "full handshake", "condition": "usual"}
"""Text that titles of panels show for a condition whose field `kind` or `condition` is empty."""
_TITLES = {
    "refused": "ticket refused",
    Connection.KEPT.value: "kept connection",
    Connection.NEW.value: "new connection",
    Connection.ZERO_RTT.value: "0-RTT",
    Resumption.EARLY_DATA.value: "early data",
}
"""Titles of conditions, resumptions and connections that several studies have."""
_COLUMNS = 2
_MEASURES = (clocks.PLT, clocks.START, clocks.EXCHANGE, clocks.PACED)
_DURATIONS = {clocks.PACED: "response time of queries sent at a fixed interval"}
"""Names of durations in the verdict, if they differ from those in panels."""


@dataclass(frozen=True, slots=True)
class BothClocks:
    """Tables of a study's campaign in real time (`wall`) and of its campaign in virtual time."""

    wall: Inputs
    virtual: Inputs


def both_clocks_data(of: BothClocks, titles: Mapping[str, str] = _TITLES) -> pl.DataFrame:
    """Duration of each condition in real and in virtual time, ms.

    `titles` has the titles that panels and series show in place of values of `kind` and `condition`. Columns panel,
    link, page, series, condition, and those of `metrics.clocks.compared`.
    """
    wall, virtual, known = _both(of)
    shown = [condition for condition in known if condition.measure != clocks.START]
    varying = _varying(shown)
    parts = []
    for condition in shown:
        series, rest = _described(condition, varying, titles)
        title = (
            pl.col("page")
            if condition.measure == clocks.PLT
            else pl.lit(", ".join(filter(None, (condition.measure, rest))))
        )
        rows = clocks.compared(clocks.values(wall, condition), clocks.values(virtual, condition))
        labels = {"panel": title, "series": pl.lit(series), "condition": pl.lit(condition.name)}
        parts.append(rows.with_columns(**labels))
    return _ordered(of, parts)


def differences_data(of: BothClocks, titles: Mapping[str, str] = _TITLES) -> pl.DataFrame:
    """Difference between two conditions within a round, in real and in virtual time, ms.

    `titles` has the titles that panels and series show in place of values of `kind` and `condition`. Columns panel,
    link, page, series, condition, reference (the subtracted condition), those of `metrics.clocks.compared`, and
    `agrees`. The column `agrees` says whether the 95 % interval of real minus virtual time overlaps the range
    ± `clocks.RESOLUTION_MS`. The columns before_ms, cpu_ms and packets have possible reasons for a disagreement
    (`metrics.clocks.reasons`).
    """
    wall, virtual, known = _both(of)
    varying = _varying(known)
    parts = []
    for step in clocks.steps(known):
        rows = clocks.compared(clocks.differences(wall, step), clocks.differences(virtual, step))
        panel, series = _step_described(step, varying, titles)
        labels = {"panel": panel, "series": series, "condition": step.condition.name, "reference": step.reference.name}
        rows = rows.with_columns(**{name: pl.lit(word) for name, word in labels.items()})
        rows = rows.join(clocks.reasons(wall, virtual, step), on=["link", "page"], how="left", maintain_order="left")
        parts.append(rows)
    within = pl.col("low") <= clocks.RESOLUTION_MS, pl.col("high") >= -clocks.RESOLUTION_MS
    return _ordered(of, parts).with_columns(agrees=within[0] & within[1])


def _both(of: BothClocks) -> tuple[pl.DataFrame, pl.DataFrame, list[ComparedCondition]]:
    """Durations in real time, durations in virtual time, and the conditions measured on every link of both campaigns.

    Links with random loss are excluded: the campaigns lose different packets there. Conditions of the quantities in
    `clocks.EXPLAINS` are left out.
    """
    rows = [
        clocks.durations(*(without_loss(table, one.link_checks) for table in tables))
        for one in (of.wall, of.virtual)
        for tables in [(one.dns_exchanges, one.page_loads, one.paced_queries)]
    ]
    wall, virtual = rows
    everywhere = [
        {condition for condition in clocks.conditions(frame) if _links(frame, condition) == _links(frame)}
        for frame in rows
    ]
    known = [condition for condition in clocks.conditions(wall) if all(condition in some for some in everywhere)]
    return wall, virtual, [condition for condition in known if condition.measure not in clocks.EXPLAINS]


def _links(frame: pl.DataFrame, condition: ComparedCondition | None = None) -> set[str]:
    return set((frame if condition is None else clocks.values(frame, condition))["link"])


def _varying(known: list[ComparedCondition]) -> list[str]:
    """Names of the fields in which the conditions differ."""
    labels = ("transport", "h3", "kind", "condition")
    return [word for word in labels if len({(one.measure, getattr(one, word)) for one in known}) > _measures(known)]


def _measures(known: list[ComparedCondition]) -> int:
    return len({one.measure for one in known})


def _described(condition: ComparedCondition, varying: list[str], titles: Mapping[str, str]) -> tuple[str, str]:
    """Title of a condition's series, and a text with the titles of those fields in `varying` that this title lacks."""
    titled = _titled(condition, titles)
    if "transport" in varying and condition.transport:
        return condition.transport, titled.named(*(word for word in varying if word != "transport"))
    return titled.named(*varying) or titled.name, ""


def _step_described(step: Step, varying: list[str], titles: Mapping[str, str]) -> tuple[str, str]:
    """Titles of the panel and the series of a step from one condition to another."""
    series, _ = _described(step.condition, varying, titles)
    sides = [_titled(side, titles) for side in (step.condition, step.reference)]
    others = sides[0].named(*(word for word in varying if word not in ("transport", step.word)))
    one, other = (getattr(side, step.word) or _EMPTY.get(step.word, "") for side in sides)
    sentence = f"minus {other}" if step.word == "transport" else f"{one} minus {other}"
    return f"{step.condition.measure}{f', {others}' if others else ''}: {sentence}", series


def _titled(condition: ComparedCondition, titles: Mapping[str, str]) -> ComparedCondition:
    """Copy of the condition with titles in place of the values of `kind` and `condition`."""
    kind, name = (titles.get(value, value) for value in (condition.kind, condition.condition))
    return replace(condition, kind=kind, condition=name)


def _ordered(of: BothClocks, parts: list[pl.DataFrame]) -> pl.DataFrame:
    if not parts:
        return pl.DataFrame(schema={"panel": pl.String()})
    rows = pl.concat(parts, how="diagonal")
    rtts = of.wall.rtts.collect()
    panels = rows.select("panel").unique(maintain_order=True).with_row_index("place")
    ordered = rows.join(panels, on="panel").join(rtts, on="link", how="left")
    shorter = pl.col("link").str.len_chars()  # of equal RTT: dsl-uplink-x4 before dsl-uplink-x16
    return ordered.sort("place", "page", "nominal_rtt_ms", shorter, "link", maintain_order=True).select(rows.columns)


def both_clocks(frame: pl.DataFrame) -> AnyChart:
    """Chart of bars: the duration in virtual time, and what real time adds to it, with an interval."""
    if frame.is_empty():
        return marks.empty_plot("no condition was measured in both real and virtual time", TEXT_WIDTH - 60, 80)
    rows = frame.with_columns(
        row=pl.col("link").map_elements(link_title, return_dtype=pl.String),
        adds_from=pl.col("virtual") + pl.col("low"),
        adds_to=pl.col("virtual") + pl.col("high"),
    )
    series, encodings = _encodings(frame, "color", "offset")
    encodings["color"]["legend"]["symbolOpacity"] = 1
    tooltip = [
        *(alt.Tooltip(f"{name}:N") for name in ("link", "page", "condition")),
        *_clock_tips(),
        alt.Tooltip("apart:Q", format=".1f", title="real minus virtual, ms"),
        *_interval_tips(),
    ]

    def plot(base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
        x = alt.X("virtual:Q", title="ms", axis=alt.Axis(tickCount=5))
        bar = {"y": y, **encodings, "tooltip": tooltip}
        return [
            base.mark_bar().encode(x=x, x2=alt.datum(0), **bar),
            base.mark_bar(opacity=0.35).encode(x=alt.X("virtual:Q"), x2="wall:Q", **bar),
            base.transform_filter("datum.low != null")
            .mark_rule(color=INK, strokeWidth=1)
            .encode(x=alt.X("adds_from:Q"), x2="adds_to:Q", y=y, yOffset=encodings["yOffset"], tooltip=tooltip),
        ]

    return _panels(rows, plot, label_px=78, row_px=9 if len(series) > 2 else 11)


def differences(frame: pl.DataFrame) -> AnyChart:
    """Chart of differences: dots with intervals for real time, ticks for virtual time.

    A dot is hollow if the two times do not agree.
    """
    if frame.is_empty():
        return marks.empty_plot("no two conditions were measured in both real and virtual time", TEXT_WIDTH - 60, 80)
    title = pl.col("link").map_elements(link_title, return_dtype=pl.String)
    row = pl.when(pl.col("page") == "").then(title).otherwise(pl.format("{}, {}", "page", title))
    rows = frame.with_columns(row=row)
    series, encodings = _encodings(frame, "color", "shape", "offset")
    tooltip = [
        *(alt.Tooltip(f"{name}:N") for name in ("link", "page", "condition", "reference")),
        *_clock_tips(),
        alt.Tooltip("apart:Q", format=".1f", title="real minus virtual, ms"),
        *_interval_tips(),
        alt.Tooltip("agrees:N", title="equal within the interval"),
    ]
    x = alt.X("wall:Q", title="ms", axis=alt.Axis(tickCount=5, labelSeparation=4), scale=alt.Scale(padding=6))

    def plot(base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
        bars, dots = marks.intervals(base, x, y, tooltip, encodings, ends=("wall_low", "wall_high"))
        at = alt.X("virtual:Q")
        return [
            marks.line_at(base, x=0),
            bars,
            dots.transform_filter("datum.agrees !== false"),  # null: too few rounds
            base.transform_filter("datum.agrees === false")
            .mark_point(filled=False, fill="white", size=46, strokeWidth=1.6, opacity=1)
            .encode(x=x, y=y, **encodings, tooltip=tooltip),
            marks.ticks(base, at, y, tooltip, {"yOffset": encodings["yOffset"]}, color=INK),
        ]

    return _panels(rows, plot, label_px=128, row_px=11 if len(series) > 2 else 13)


def _encodings(frame: pl.DataFrame, *channels: Any) -> tuple[list[str], marks.Encodings]:
    """Names of the series in the order of the legend, and the encodings that distinguish them."""
    rows = set(frame["series"])
    taken = {(style.color, style.shape) for name, style in _STYLES.items() if name in rows}
    free = [style for style in _FURTHER if (style.color, style.shape) not in taken]
    further = dict(zip(sorted(rows - set(_STYLES)), cycle(free), strict=False))
    styles = {name: style for name, style in (_STYLES | further).items() if name in rows}
    return list(styles), marks.encode_series("series", styles, *channels, columns=len(styles))


def _clock_tips() -> list[alt.Tooltip]:
    names = {"virtual": "virtual time, ms", "wall": "real time, ms"}
    return [alt.Tooltip(f"{name}:Q", format=".1f", title=title) for name, title in names.items()]


def _interval_tips() -> list[alt.Tooltip]:
    ends = {"low": "95 % from", "high": "to"}
    return [alt.Tooltip(f"{name}:Q", format=".1f", title=title) for name, title in ends.items()] + [
        alt.Tooltip("n:Q", title="observations")
    ]


def _panels(
    rows: pl.DataFrame, plot: Callable[[alt.Chart, alt.Y], list[alt.Chart]], *, label_px: int, row_px: int
) -> AnyChart:
    """Chart with a plot for each panel. Each plot has its own rows and series; all have one legend."""
    panels = rows.partition_by("panel", maintain_order=True)
    heights = [of_panel["row"].n_unique() * (row_px * of_panel["series"].n_unique() + 6) for of_panel in panels]
    width = TEXT_WIDTH // _COLUMNS - label_px - 16
    plots = []
    for number, of_panel in enumerate(panels):
        panel, line = of_panel["panel"][0], number - number % _COLUMNS
        height = max(heights[line : line + _COLUMNS])  # plots of one line are equally high
        base = alt.Chart(width=width, height=height).transform_filter(alt.datum.panel == panel)
        y = marks.rows("row", of_panel["row"].unique(maintain_order=True).to_list())
        plots.append(alt.layer(*plot(base, y)).properties(title=marks.heading(panel)))
    lines = [
        alt.hconcat(*plots[at : at + _COLUMNS], spacing=12).resolve_scale(yOffset="independent")
        for at in range(0, len(plots), _COLUMNS)
    ]
    chart: AnyChart = alt.vconcat(*lines, spacing=10).resolve_scale(yOffset="independent")
    chart.data = rows
    return chart


def both_clocks_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of durations, ms, with the share of real time that network and timers take.

    Columns link, page, condition, n, virtual, computing (real minus virtual time), low, high, network_percent.
    """
    share = pl.col("virtual") / pl.col("wall") * 100
    names = ("link", "page", "condition", "n", "virtual")
    return frame.select(*names, computing="apart", low="low", high="high", network_percent=share)


def differences_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of the differences between two conditions on which real and virtual time disagree (`agrees` is false), ms.

    Columns panel, link, page, condition, virtual, wall, apart (real minus virtual), low, high, and possible reasons.
    """
    reasons = [name for name in ("before_ms", "cpu_ms", "packets") if name in frame.columns]
    apart = frame.filter(~pl.col("agrees")) if frame.height else frame.with_columns(agrees=pl.lit(True))
    names = ("panel", "link", "page", "condition", "virtual", "wall", "apart", "low", "high")
    return apart.select(name for name in (*names, *reasons) if name in apart.columns)


def differences_verdict(frame: pl.DataFrame) -> str:
    """Verdict: how many differences agree in real and in virtual time, and the deviations of the others."""
    known = frame.drop_nulls("low") if "low" in frame.columns else frame
    if known.is_empty():
        return "Not answered: the two campaigns have no two conditions in common, or too few rounds."
    agree = int(known["agrees"].sum())
    limit = f"{clocks.RESOLUTION_MS:g}"
    sentence = (
        f"Real and virtual time agree on {agree} of {known.height} differences. The deviation is the difference in "
        "real time minus the difference in virtual time. Real and virtual time agree on a difference if the 95 % "
        f"interval of its deviation overlaps the range from -{limit} to {limit} ms. By chance alone, at most about "
        "one difference in twenty would count as a disagreement."
    )
    apart = known.filter(~pl.col("agrees"))
    by_measure = []
    for measure in _MEASURES:
        of_measure = pl.col("panel").str.starts_with(measure)
        if (rows := apart.filter(of_measure)).height:
            total = known.filter(of_measure).height
            name = _DURATIONS.get(measure, measure)
            if total == 1:
                counted = f"Real and virtual time disagree on the only difference of the {name}"
            elif total == known.height:
                counted = (
                    f"All {total} differences are differences of the {name}. Real and virtual time disagree on "
                    f"{rows.height} of them"
                )
            else:
                counted = f"Of the {total} differences of the {name}, real and virtual time disagree on {rows.height}"
            deviations = "a deviation" if rows.height == 1 else "deviations"
            by_measure.append(f" {counted}, with {deviations} of {reach(rows['apart'], 1)} ms.")
    return sentence + "".join(by_measure)


def figures(study: str, titles: Mapping[str, str]) -> tuple[Figure, ...]:
    """Two figures that compare a study's campaigns in real and in virtual time; their `data` takes a `BothClocks`.

    `titles` has the titles of the study's conditions (`Study.condition_titles`).
    """
    all_titles = {**_TITLES, **titles}
    return (
        Figure(
            name=f"{study}-both-clocks",
            title=f"Network time and computing time: {study}",
            notebook=NOTEBOOK,
            caption="Median duration of the exchanges, queries or page loads of each condition, once in virtual time "
            "and once in real time. In virtual time, the clock stands still while a program computes. So real minus "
            "virtual time is the time that computing adds.",
            note="Full: virtual time. Pale: real minus virtual time. Lines: 95 % intervals of this difference; the "
            "rounds of each campaign are resampled separately.",
            data=partial(both_clocks_data, titles=all_titles),
            chart=both_clocks,
            table=both_clocks_table,
            width=TEXT_WIDTH,
        ),
        Figure(
            name=f"{study}-clock-differences",
            title=f"Differences between conditions in real and virtual time: {study}",
            notebook=NOTEBOOK,
            caption="Each value is a duration in one condition, minus the same duration in another condition of the "
            "same round. The title of each plot begins with its duration: DNS exchange, paced query, response start or "
            "PLT. Paced query means the response time of queries sent at a fixed interval. Response start means the "
            "time until a page's response starts. One campaign measured these differences in real time, another in "
            "virtual time. There is one difference for each link, page, kind of duration and pair of conditions. If "
            "computing adds the same time to both conditions, real and virtual time give the same difference.",
            note="Dots: medians in real time; bars: their 95 % intervals. Vertical ticks: medians in virtual time. "
            "Deviation: the difference in real time minus the difference in virtual time. Hollow dots: the 95 % "
            "interval of the deviation lies wholly above 0.1 ms or wholly below -0.1 ms. 0.1 ms is the resolution of a "
            "browser's clock.",
            data=partial(differences_data, titles=all_titles),
            chart=differences,
            table=differences_table,
            verdict=differences_verdict,
            width=TEXT_WIDTH,
        ),
    )
