"""What a page costs where the path blocks packets, by browser and fault."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import row, with_interval
from crosslayer.figures.style import BLUE, GREEN, GREY, LONG, RED, SHORT, SOLID, TEXT_WIDTH, AnyChart, Look, with_titles
from crosslayer.studies.fallback.cases import CASES

_VISITS = {
    "first": "First visit",
    "second": "Second visit, same path",
    "return": "Return after a visit on a good path",
}
_LABELS = {
    name: case.about + ("" if case.record != "none" else " (no record)" if case.visit == "first" else " (Alt-Svc)")
    for name, case in CASES.items()
}
_STYLES = {
    "chromium, 4g": Look(BLUE, "circle", SOLID),
    "chromium, fiber": Look(GREY, "square", SHORT),
    "firefox, 4g": Look(RED, "diamond", LONG),
    "firefox, fiber": Look(GREEN, "triangle-up", SHORT),
}
_BROWSERS = {"chromium": "Chromium", "firefox": "Firefox"}


def blocked_data(inputs: Inputs) -> pl.DataFrame:
    """Start of the response by browser, case and link; ms.

    Columns browser, link, condition, visit, about, loads, ended, n, median, low, high. `ended` of the `loads` tried
    have no response: they failed, or were ended.
    """
    cases = inputs.page_loads.filter(pl.col("condition").is_in(list(CASES)))
    keys = ["browser", "link", "condition"]
    good = cases.filter(pl.col("error").is_null())
    shown = metrics.medians(good, "response_start_ms", keys)
    tried = cases.group_by(keys).agg(loads=pl.len(), ended=pl.col("error").is_not_null().sum()).collect()
    frame = tried.join(shown, on=keys, how="left").with_columns(
        visit=pl.col("condition").replace_strict({name: case.visit for name, case in CASES.items()}),
        about=pl.col("condition").replace_strict(_LABELS),
    )
    order = {name: number for number, name in enumerate(CASES)}
    return inputs.by_rtt(frame.sort("browser", pl.col("condition").replace_strict(order, return_dtype=pl.Int64)))


def blocked(frame: pl.DataFrame) -> AnyChart:
    """A plot for each kind of visit, a row for each fault; a cross at the end where no page came."""
    if frame.is_empty():
        return marks.empty_plot("no page loads of this study", TEXT_WIDTH - 60)
    series = pl.format("{}, {}", pl.col("browser").replace(_BROWSERS), pl.col("link_title"))
    shown = with_titles(frame).with_columns(series=series)
    names = {
        f"{_BROWSERS[browser]}, {title}": _STYLES.get(f"{browser}, {link}", Look(GREY, "cross", SOLID))
        for browser, link, title in shown.select("browser", "link", "link_title").unique(maintain_order=True).rows()
    }
    look = marks.by("series", names, "color", "shape", "offset", columns=len(names))
    tooltip = marks.tips("series", "about", value="median, ms", digits=".1f", counted="loads")
    scale = alt.Scale(type="log", domain=[10, 200_000])
    axis = alt.Axis(values=[10, 100, 1000, 10_000, 100_000], format="~s")
    plots = []
    visits = [visit for visit in _VISITS if visit in set(shown["visit"])]
    for visit in visits:
        part = shown.filter(pl.col("visit") == visit)
        axis_title = "Response starts (ms, logarithmic)" if visit == visits[-1] else None
        x = alt.X("median:Q", title=axis_title, scale=scale, axis=axis)
        labels = list(dict.fromkeys(_LABELS[name] for name, case in CASES.items() if case.visit == visit))
        came = part.filter(pl.col("median").is_not_null())
        never = _without_page(part, len(names))
        y = marks.rows("about", labels)
        height = (12 + 7 * len(names)) * len(labels)
        base = alt.Chart(came, width=TEXT_WIDTH - 230, height=height, title=marks.heading(_VISITS[visit]))
        layers = [*marks.intervals(base, x, y, tooltip, look)]
        failed = alt.Chart(never).mark_text(align="center", fontSize=9, color=RED)
        layers.append(failed.encode(x=x, y=y, text="text:N"))
        plots.append(alt.layer(*layers))
    return alt.vconcat(*plots, spacing=12)


def _without_page(part: pl.DataFrame, series: int) -> pl.DataFrame:
    """A label for each fault with which no page came, at the end of the axis: about, median, text."""
    failed = part.filter(pl.col("median").is_null()).group_by("about", maintain_order=True).agg("series")
    every = pl.col("series").list.len() == series
    text = pl.when(every).then(pl.lit("no page")).otherwise(pl.format("no page: {}", pl.col("series").list.join("; ")))
    return failed.select("about", median=pl.lit(100_000.0), text=text)


def blocked_table(frame: pl.DataFrame) -> pl.DataFrame:
    """browser, link, condition, visit, about, loads, ended, n, median, low, high; ms."""
    return frame.select(
        "browser", "link", "condition", "visit", "about", "loads", "ended", "n", "median", "low", "high"
    )


def blocked_verdict(frame: pl.DataFrame) -> str:
    """What does a user pay, and when does a browser try something else?"""
    parts = []
    for browser, link in frame.select("browser", "link").unique(maintain_order=True).rows():
        cells = {
            condition: cell_row
            for condition in ("first", "first-udp-dropped", "first-udp-rejected", "return", "return-udp-dropped")
            if (cell_row := row(frame, browser=browser, link=link, condition=condition))
            and cell_row["median"] is not None
        }
        if len(cells) == 5:
            starts = {condition: with_interval(cell, "ms", 0) for condition, cell in cells.items()}
            parts.append(
                f"{_BROWSERS[browser]} on {link}: the response starts after {starts['first']} on a first visit, "
                f"{starts['first-udp-rejected']} where UDP 443 is rejected and {starts['first-udp-dropped']} where it "
                f"is dropped; on a return after {starts['return']}, and {starts['return-udp-dropped']} where it is "
                "dropped"
            )
    if not parts:
        return "Not answered: this dataset lacks first or returning visits."
    ended = frame.filter(pl.col("ended") > 0)
    missing = f" No page came in {ended['ended'].sum()} of {frame['loads'].sum()} loads." if ended.height else ""
    return "; ".join(parts) + "." + missing


FIGURES = (
    Figure(
        name="fallback-response",
        title="A page on a path that blocks QUIC, TCP or DNS",
        notebook="question_fallback",
        caption="Time from the start of the navigation until the response starts, by browser, link and fault "
        "of the path. The browser resolves the host itself over DoUDP. QUIC works to all other hosts.",
        note="Marks: medians; bars: 95 % intervals. No page: every load failed, or was ended after 110 s. "
        "Each fault was verified by probes before its load.",
        data=blocked_data,
        chart=blocked,
        table=blocked_table,
        width=TEXT_WIDTH,
        verdict=blocked_verdict,
    ),
)
