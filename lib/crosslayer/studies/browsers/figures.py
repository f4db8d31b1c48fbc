"""Figures: time that early data saves in Firefox and in Chromium, and PLT in both."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.comparison import DIFFERENCE, POOLED, Comparison
from crosslayer.figures.sentences import reach, row, with_interval
from crosslayer.figures.style import (
    BLUE,
    COLUMN_WIDTH,
    COMBINATIONS,
    EARLY_DATA,
    GREY,
    LONG,
    RED,
    SOLID,
    TEXT_WIDTH,
    AnyChart,
    Style,
    link_title,
    with_titles,
)
from crosslayer.vocabulary import BROWSERS, Browser

_BROWSERS = {name: BROWSERS[name].title for name in (Browser.CHROMIUM, Browser.FIREFOX)}
_HANDSHAKES = {"1-rtt": "H3 1-RTT", "0-rtt": "H3 0-RTT"}
_KINDS_OF_HANDSHAKE = {"H3 1-RTT": "a full handshake", "H3 0-RTT": "early data"}
_STYLES = {
    "Chromium, H3 1-RTT": Style(GREY, "square", SOLID),
    "Chromium, H3 0-RTT": EARLY_DATA,
    "Firefox, H3 1-RTT": Style(RED, "diamond", LONG),
    "Firefox, H3 0-RTT": Style(BLUE, "circle", SOLID),
}
_SAVES = "{}: 1-RTT minus 0-RTT"
_LATER = "{}: Firefox minus Chromium"
_PLT, _START = "PLT", "start of the response"


_EXCHANGES = {("DoUDP", "none"): "DoUDP", ("DoQ", "none"): "DoQ", ("DoQ", "early-data"): "DoQ 0-RTT"}
_BASELINE = "DoUDP + H3 1-RTT"
_VISITS = {
    "DoQ + H3 1-RTT": COMBINATIONS["DoQ + H3 1-RTT"],
    "DoUDP + H3 0-RTT": Style(RED, "diamond", LONG),
    "DoQ 0-RTT + H3 0-RTT": EARLY_DATA,
}
"""Combinations in the figure: first visit over DoQ, returning visit over DoUDP, returning visit over DoQ 0-RTT."""


def _observations(inputs: Inputs) -> pl.LazyFrame:
    named = pl.format("{}, {}", pl.col("browser").replace(_BROWSERS), pl.col("h3").replace(_HANDSHAKES))
    return metrics.page_loads(inputs.page_loads).with_columns(series=named)


_DIFFERENCES = {
    **{_SAVES.format(name): (f"{name}, H3 1-RTT", f"{name}, H3 0-RTT") for name in _BROWSERS.values()},
    **{_LATER.format(name): (f"Firefox, {name}", f"Chromium, {name}") for name in _HANDSHAKES.values()},
}


def browsers_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time that early data saves in each browser, and difference of the PLT between the browsers."""

    def together(series: str, measure: str) -> str | None:
        saved = row(frame, source=POOLED, series=series, measure=measure)
        return with_interval(saved, "RTT", 2) if saved else None

    def saves(measure: str) -> list[str]:
        values = {name: together(_SAVES.format(name), measure) for name in _BROWSERS.values()}
        return [f"{value} in {name}" for name, value in values.items() if value]

    differences = frame.filter(source=DIFFERENCE)
    start, whole = saves(_START), saves(_PLT)
    later = [
        f"{reach(delays, 2)} RTT with {handshake}"
        for name, handshake in _KINDS_OF_HANDSHAKE.items()
        if (delays := differences.filter(series=_LATER.format(name), measure=_PLT)["median"]).len()
    ]
    if min(len(start), len(whole)) < len(_BROWSERS) or not later:
        return "Not answered: this dataset lacks one of the kinds of load."
    return (
        "Early data compared with a full handshake (medians over all links and pages): the response starts earlier "
        f"by {' and '.join(start)}, and the PLT is shorter by {' and '.join(whole)}. Firefox's PLT minus Chromium's: "
        f"{', '.join(later)} (ranges: over links and pages)."
    )


def visits_data(inputs: Inputs) -> pl.DataFrame:
    """PLT of each combination in `_VISITS`, compared with the baseline (DoUDP + H3 1-RTT) in the same browser.

    Columns link, page, browser, combination, n, rounds, increase_percent, low, high. The last three are percentages of
    the baseline's median in the same browser and cell. The PLT of a combination is a DNS exchange plus a page load of
    the same round.
    """
    exchanges = pl.concat(
        metrics.exchanges(inputs.dns_exchanges, resumption=resumption)
        .filter(pl.col("protocol") == protocol)
        .select(*metrics.ROUND, exchange=pl.lit(name), exchange_ms="total_ms")
        for (protocol, resumption), name in _EXCHANGES.items()
    )
    loads = metrics.page_loads(inputs.page_loads).with_columns(load=pl.col("h3").replace(_HANDSHAKES))
    parts = []
    for word, name in _BROWSERS.items():
        sums = exchanges.join(loads.filter(pl.col("browser") == word), on=metrics.ROUND).with_columns(
            combination=pl.format("{} + {}", "exchange", "load"), plt_ms=pl.col("exchange_ms") + pl.col("plt_ms")
        )
        increases = metrics.relative_medians(sums, baseline=_BASELINE).filter(
            pl.col("combination").is_in(list(_VISITS))
        )
        parts.append(increases.with_columns(browser=pl.lit(name)))
    return inputs.by_rtt(pl.concat(parts, how="diagonal"), "page", "browser")


def visits(frame: pl.DataFrame) -> AnyChart:
    """Chart of the increases: one row per link and browser, one column per page."""
    if frame.is_empty():
        return marks.empty_plot("no rounds with both lookups and loads", COLUMN_WIDTH - 60)
    shown = with_titles(frame).with_columns(row=pl.format("{}, {}", "link_title", "browser"))
    pages = sorted(shown["page"].unique())
    rows = list(shown["row"].unique(maintain_order=True))
    x = alt.X("increase_percent:Q", title="PLT over DoUDP + H3 1-RTT (%)", axis=alt.Axis(tickCount=5))
    encodings = marks.encode_series("combination", _VISITS, "color", "shape", "offset", columns=2)
    column, word = "increase_percent:Q", "PLT over the baseline, %"
    tooltip = marks.tooltip("page", "row", "combination", value=word, of=column, digits="+.1f", counted="rounds")
    base = alt.Chart(width=(TEXT_WIDTH - 190) // len(pages), height=30 * len(rows))
    layers = [marks.line_at(base, x=0), *marks.intervals(base, x, marks.rows("row", rows), tooltip, encodings)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("page", pages), spacing=14)
    chart.data = shown
    return chart


def visits_verdict(frame: pl.DataFrame) -> str:
    """Verdict: PLT of DoQ 0-RTT + H3 0-RTT, compared with the baseline; range over links, pages and browsers."""
    combination = list(_VISITS)[-1]
    cells = []
    for values in frame.filter(combination=combination).iter_rows(named=True):
        where = f"({values['page']} on {link_title(values['link'])} in {values['browser']})"
        interval = "" if values["low"] is None else f" [{values['low']:+.1f}, {values['high']:+.1f}]"
        cells.append((values["increase_percent"], f"{values['increase_percent']:+.1f} %{interval} {where}"))
    if not cells:
        return "Not answered: this dataset lacks the lookups or one of the kinds of load."
    first, last = min(cells), max(cells)
    if first == last:
        return f"Compared with {_BASELINE}, {combination} changes the PLT by {first[1]}."
    return (
        f"Compared with {_BASELINE}, {combination} changes the PLT by {first[1]} to {last[1]}. This is the range over "
        f"{len(cells)} cases (page, link, browser)."
    )


FIGURES = (
    Comparison(
        observations=_observations,
        measures={_PLT: "plt_ms", _START: "response_start_ms"},
        differences=_DIFFERENCES,
        pooled=[],
        styles=_STYLES,
        axis="PLT (multiples of the RTT)",
        least=(1.0, 3.0),
        empty="no page loads of this study",
    ).figure(
        name="browsers-compared",
        title="Firefox and Chromium, with full handshakes and with early data",
        notebook="question_browsers",
        caption="PLT in multiples of the link's RTT. Four cases, measured in every round: Chromium and Firefox, each "
        "with a full handshake and with early data.",
        note="Marks: medians; bars: 95 % intervals. The server log confirms early data.",
        verdict=browsers_verdict,
    ),
    Figure(
        name="browsers-visits",
        title="How much DoQ and early data change the PLT in each browser",
        notebook="question_browsers",
        caption="PLT of three kinds of visit minus the PLT of the baseline (DoUDP + H3 1-RTT in the same browser), in "
        "percent of the baseline. The PLT of a visit is the time of a lookup plus the time of a page load. In this "
        "page load, the browser sends no DNS queries. Lookup and page load are measured one after the other in the "
        "same round. DoQ + H3 1-RTT is a first visit. DoUDP + H3 0-RTT and DoQ 0-RTT + H3 0-RTT are returning visits.",
        note="Marks: differences of medians, percent; bars: 95 % intervals. The bootstrap resamples whole "
        "rounds, so both medians of a difference come from the same rounds.",
        data=visits_data,
        chart=visits,
        table=("page", "link", "browser", "combination", "n", "increase_percent", "low", "high"),
        width=TEXT_WIDTH,
        verdict=visits_verdict,
    ),
)
