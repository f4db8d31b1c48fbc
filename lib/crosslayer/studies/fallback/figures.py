"""Figures: start of the response and timers on a path that blocks packets, by client and fault."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import BLUE, GREEN, INK, PURPLE, RED, SOLID, TEXT_WIDTH, AnyChart, Style, with_titles
from crosslayer.studies.fallback.cases import CASES, SECTIONS
from crosslayer.studies.fallback.timers import TIMERS, delays

CLIENTS = {
    "chromium": "Chromium",
    "firefox": "Firefox",
    "firefox-happy-eyeballs": "Firefox with Happy Eyeballs v3",
    "curl": "curl",
}
_STYLES = {
    "Chromium": Style(GREEN, "cross", SOLID),
    "Firefox": Style(BLUE, "square", SOLID),
    "Firefox with Happy Eyeballs v3": Style(PURPLE, "diamond", SOLID),
    "curl": Style(RED, "triangle-up", SOLID),
}
_DELAYS = (
    ("Rejected packets (ICMP), first visit", "first", "first-udp-rejected"),
    ("Dropped packets, first visit", "first", "first-udp-dropped"),
    ("Dropped packets, returning visit with early data", "return", "return-udp-dropped"),
)
"""Faults in the verdict: title, condition without the fault, condition with the fault."""
_NAMED_TIMERS = ("QUIC, then TCP", "QUIC with early data, then TCP", "TCP over IPv6, then over IPv4")
"""Timers in the verdict. The table has all timers."""
_ROW_PX = 9
"""Height of one client within a row of a chart, pixels."""
_NO_PAGE_MS = 200_000.0
"""Position of the text `no page` on the time axis, ms."""
_AXIS = "Response starts (ms, logarithmic)"


def blocked_data(inputs: Inputs) -> pl.DataFrame:
    """Start of the response by browser, case and link; ms.

    Columns browser, link, condition, section, about, loads, ended, n, median, low, high. `loads` is the number of
    loads; `ended` is the number of those that failed or were stopped.
    """
    cases = inputs.page_loads.filter(pl.col("condition").is_in(list(CASES)))
    keys = ["browser", "link", "condition"]
    good = cases.filter(pl.col("error").is_null())
    shown = metrics.medians(good, "response_start_ms", keys)
    tried = cases.group_by(keys).agg(loads=pl.len(), ended=pl.col("error").is_not_null().sum()).collect()
    frame = tried.join(shown, on=keys, how="left").with_columns(
        section=pl.col("condition").replace_strict({name: case.section for name, case in CASES.items()}),
        about=pl.col("condition").replace_strict({name: case.label for name, case in CASES.items()}),
    )
    order = {name: number for number, name in enumerate(CASES)}
    return inputs.by_rtt(frame.sort("browser", pl.col("condition").replace_strict(order, return_dtype=pl.Int64)))


def _clients(frame: pl.DataFrame) -> tuple[pl.DataFrame, marks.Encodings]:
    """Rows with titles and an additional column `client`, and the encodings that distinguish clients in a chart."""
    shown = with_titles(frame).with_columns(client=pl.col("browser").replace(CLIENTS))
    present = {name: style for name, style in _STYLES.items() if name in set(shown["client"])}
    encodings = marks.encode_series("client", present, "color", "shape", columns=len(present))
    return shown, encodings | marks.encode_series("client", present, "offset", legend=False)


def blocked(frame: pl.DataFrame) -> AnyChart:
    """Chart: one row of plots per kind of visit, one plot per link. At the right, `no page` marks failed loads."""
    if frame.is_empty():
        return marks.empty_plot("no page loads of this study", TEXT_WIDTH - 60)
    shown, encodings = _clients(frame)
    links = shown["link_title"].unique(maintain_order=True).to_list()
    tooltip = marks.tooltip("client", "link_title", "about", value="median, ms", digits=".1f", counted="loads")
    scale = alt.Scale(type="log", domain=[10, 200_000])
    axis = alt.Axis(values=[10, 100, 1000, 10_000, 100_000], format="~s")
    plots = []
    sections = [section for section in SECTIONS if section in set(shown["section"])]
    for section in sections:
        part = shown.filter(pl.col("section") == section)
        x = alt.X("median:Q", title=_AXIS if section == sections[-1] else None, scale=scale, axis=axis)
        labels = list(dict.fromkeys(case.label for case in CASES.values() if case.section == section))
        labels = [label for label in labels if label in set(part["about"])]
        row = []
        for number, link in enumerate(links):
            own = part.filter(pl.col("link_title") == link)
            y = marks.rows("about", labels, labels=number == 0)
            came = own.filter(pl.col("median").is_not_null())
            heading = f"{SECTIONS[section]}: {link}" if number == 0 else str(link)
            base = alt.Chart(came, width=_column_px(links, 250), height=_height(part, labels))
            failed = alt.Chart(_without_page(own)).mark_text(align="right", fontSize=9, color=INK)
            layers = [*marks.intervals(base, x, y, tooltip, encodings), failed.encode(x=x, y=y, text="text:N")]
            row.append(alt.layer(*layers).properties(title=marks.heading(heading)))
        plots.append(alt.hconcat(*row, spacing=10))
    return alt.vconcat(*plots, spacing=12)


def _column_px(links: list[str], labels_px: int) -> float:
    return (TEXT_WIDTH - labels_px) / len(links)


def _height(frame: pl.DataFrame, labels: list[str]) -> int:
    return (4 + _ROW_PX * frame["client"].n_unique()) * len(labels)


def _without_page(part: pl.DataFrame) -> pl.DataFrame:
    """Labels for the faults with which a client got no page. Columns about, median (position, ms), text."""
    clients = part.group_by("about", maintain_order=True).agg(
        all=pl.col("client").n_unique(), failed=pl.col("client").filter(pl.col("median").is_null()).unique()
    )
    every, some = (
        pl.col("failed").list.len() == pl.col("all"),
        pl.format("no page: {}", pl.col("failed").list.join(", ")),
    )
    text = pl.when(every).then(pl.lit("no page")).otherwise(some).alias("text")
    return clients.filter(pl.col("failed").list.len() > 0).select("about", text, median=pl.lit(_NO_PAGE_MS))


def blocked_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of `blocked_data`: browser, link, condition, section, about, loads, ended, n, median, low, high; ms."""
    return frame.select(
        "browser", "link", "condition", "section", "about", "loads", "ended", "n", "median", "low", "high"
    )


def blocked_verdict(frame: pl.DataFrame) -> str:
    """Verdict: delay of the response on a path that blocks UDP port 443."""
    medians = frame.drop_nulls("median").select("browser", "link", "condition", "median")
    sentences = []
    for title, base, condition in _DELAYS:
        without, with_fault = (medians.filter(condition=name) for name in (base, condition))
        both = with_fault.join(without, on=["browser", "link"], suffix="_without", maintain_order="left")
        later = both.with_columns(later=pl.col("median") - pl.col("median_without"))
        parts = [
            f"{CLIENTS[str(browser)]} {reach(rows['later'], 0)} ms"
            for (browser,), rows in later.group_by(["browser"], maintain_order=True)
        ]
        if parts:
            sentences.append(f"{title}: {', '.join(parts)}.")
    if len(sentences) < len(_DELAYS):
        return "Not answered: this dataset lacks first or returning visits."
    tried, ended = frame["loads"].sum(), frame["ended"].sum()
    were = "was" if ended == 1 else "were"
    missing = f" Of the {tried} loads in the figure, {ended} failed or {were} stopped after 110 s." if ended else ""
    return (
        "A path that blocks UDP port 443 delays the start of the response, compared with the path without this fault "
        f"(differences of medians; ranges: over the links). {' '.join(sentences)}{missing}"
    )


def timers_data(inputs: Inputs) -> pl.DataFrame:
    """Timers of each client, ms. Columns browser, about, link, n, median, low, high (extremes of all rounds)."""
    keys = ["series", "link"]
    value = pl.col("value")
    rounds = delays(inputs.attempts).group_by(keys)
    frame = rounds.agg(n=pl.len(), median=value.median(), low=value.min(), high=value.max()).collect()
    names = {
        "browser": {name: timer.client for name, timer in TIMERS.items()},
        "about": {name: timer.title for name, timer in TIMERS.items()},
    }
    order = {name: number for number, name in enumerate(TIMERS)}
    frame = frame.with_columns(pl.col("series").replace_strict(of).alias(column) for column, of in names.items())
    return inputs.by_rtt(frame.sort(pl.col("series").replace_strict(order, return_dtype=pl.Int64)))


def timers(frame: pl.DataFrame) -> AnyChart:
    """Chart with one row per timer. A bar reaches from the smallest to the largest value."""
    if frame.is_empty():
        return marks.empty_plot("no attempts of this study", TEXT_WIDTH - 60)
    shown, encodings = _clients(frame)
    links = shown["link_title"].unique(maintain_order=True).to_list()
    labels = list(dict.fromkeys(timer.title for timer in TIMERS.values() if timer.title in set(shown["about"])))
    tooltip = marks.tooltip("client", "link_title", "about", value="median, ms", digits=".1f")
    tooltip += [
        alt.Tooltip("low:Q", format=".1f", title="least"),
        alt.Tooltip("high:Q", format=".1f", title="greatest"),
        alt.Tooltip("n:Q", title="rounds"),
    ]
    axis = alt.Axis(values=[0, 50, 250, 1000, 5000, 30_000], format=",d")
    scale = alt.Scale(type="symlog", constant=50, domain=[-6, 40_000])
    plots = []
    for number, link in enumerate(links):
        own = shown.filter(pl.col("link_title") == link)
        x = alt.X("median:Q", title="Wait (ms)", scale=scale, axis=axis)
        base = alt.Chart(own, width=_column_px(links, 290), height=_height(shown, labels), title=marks.heading(link))
        y = marks.rows("about", labels, labels=number == 0)
        plots.append(alt.layer(*marks.intervals(base, x, y, tooltip, encodings)))
    return alt.hconcat(*plots, spacing=10)


def timers_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of `timers_data`: browser, about, link, n, median, low, high; ms."""
    return frame.select("browser", "about", "link", "n", "median", "low", "high")


def timers_verdict(frame: pl.DataFrame) -> str:
    """Verdict: smallest and largest wait of each client, for the timers in `_NAMED_TIMERS`."""
    sentences = []
    for about in _NAMED_TIMERS:
        waits = frame.filter(pl.col("about") == about).group_by("browser", maintain_order=True)
        listed = [
            f"{CLIENTS[str(client)]} {reach(pl.concat([rows['low'], rows['high']]), 0)} ms" for (client,), rows in waits
        ]
        if listed:
            sentences.append(f"{about}: {', '.join(listed)}.")
    return (
        "Wait from the first packet of one attempt to the first packet of the next (lowest to highest of all rounds "
        f"and links). {' '.join(sentences)}"
        if sentences
        else "Not answered: this dataset lacks attempts."
    )


FIGURES = (
    Figure(
        name="fallback-response",
        title="A page on a path that blocks QUIC, TCP or DNS",
        notebook="question_fallback",
        caption="Time from the start of the navigation (browsers) or of the request (curl) until the response starts, "
        "for each client, link and fault of the path. Each client resolves the page's host itself over DoUDP. Each "
        "fault is on one path: that to the page's host or that to the resolver. All other hosts stay reachable, also "
        "over QUIC. curl is called with --http3 if the page's host has an HTTPS record, otherwise without this option.",
        note="Marks: medians; bars: 95 % intervals. No page: with this client, link and fault, every load failed or "
        "was stopped after 110 s. Before each load, probes verified the fault.",
        data=blocked_data,
        chart=blocked,
        table=blocked_table,
        width=TEXT_WIDTH,
        verdict=blocked_verdict,
    ),
    Figure(
        name="fallback-timers",
        title="How long a client waits before it tries something else",
        notebook="question_fallback",
        caption="Time between the two packets that each row names, e.g. the first QUIC packet and the TCP SYN. In the "
        "rows with a late DNS answer, the resolver sends this answer 600 ms late. If a wait in these rows "
        "is 600 ms, the answer ended it, not a timer of the client.",
        note="Marks: medians; bars: lowest to highest of all rounds.",
        data=timers_data,
        chart=timers,
        table=timers_table,
        width=TEXT_WIDTH,
        verdict=timers_verdict,
    ),
)
