"""Figures: cost of a malformed HTTPS record, and of Encrypted Client Hello."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import row
from crosslayer.figures.style import (
    BLUE,
    CHAIN,
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
from crosslayer.studies.https_records.records import KINDS

_H2, _H3, _EARLY = "over HTTP/2", "over HTTP/3", "over HTTP/3, early data"
_OTHER, _NOT_AT_ALL = "over another protocol", "not at all"
_STYLES = {
    _H2: Style(GREY, "square", CHAIN),
    _H3: Style(BLUE, "circle", SOLID),
    _EARLY: EARLY_DATA,
    _OTHER: Style(RED, "diamond", LONG),
}
_PROTOCOLS = {"h2": _H2, "h3": _H3}
_ABOUT = {condition: kind.about for condition, kind in KINDS.items()}
_MEASURED, _COST = "measured", "cost"
_MOST_NAMES = 3
"""If more records than this have the same outcome, the verdict has only their number, not their names."""
_ECH_COSTS = {
    "ech": ("whole", "First visit"),
    "ech-0-rtt": ("whole-0-rtt", "Second visit with early data"),
    "ech-replaced": ("whole", "First visit after the server replaced its ECH key"),
    "ech-gone": ("whole", "First visit after the server disabled ECH"),
}
"""For each kind of record with ECH: the kind without ECH with which it is compared, and a description of the visit."""


def records_data(inputs: Inputs) -> pl.DataFrame:
    """Start of the response by kind of record and protocol of the document, in multiples of the RTT.

    The time includes the browser's lookup.

    Columns link, condition, about, series (protocol), source, n, loads, ech, median, low, high. Rows of source
    `measured` have the times of a series. `loads` counts all attempted loads of the kind, `n` the successful loads of
    the series, and `ech` those among them whose encrypted ClientHello the server decrypted. Rows of source `cost` have
    the median of the delays within rounds, with all links pooled. For a kind with ECH, the delay is its time minus the
    time with a valid record without ECH, in the same kind of visit. For a broken record, the delay is the time with
    this record minus the time without any record.
    """
    every = inputs.page_loads.filter(pl.col("condition").is_in(list(KINDS)))
    loads = every.filter(pl.col("error").is_null()).with_columns(
        series=pl.when(pl.col("early_data_accepted"))
        .then(pl.lit(_EARLY))
        .otherwise(pl.col("document_protocol").replace_strict(_PROTOCOLS, default=_OTHER))
    )
    times = metrics.in_rtts(loads, inputs.rtts, ["response_start_ms"])
    shown = metrics.medians(times, "response_start_rtt", ["link", "condition", "series"])
    counted = loads.group_by("link", "condition", "series").agg(ech=pl.col("ech_accepted").sum()).collect()
    tried = every.group_by("link", "condition").agg(loads=pl.len()).collect()
    parts = [
        tried.join(
            shown.join(counted, on=["link", "condition", "series"]), on=["link", "condition"], how="left"
        ).with_columns(source=pl.lit(_MEASURED))
    ]
    for condition, kind in KINDS.items():
        base = _ECH_COSTS[condition][0] if condition in _ECH_COSTS else "none"
        if not kind.broken and condition not in _ECH_COSTS:
            continue
        more = metrics.paired(loads, "response_start_ms", "condition", condition, base).rename(
            {"difference": "more_ms"}
        )
        more = metrics.in_rtts(more, inputs.rtts, ["more_ms"]).with_columns(condition=pl.lit(condition))
        cost = metrics.medians(more, "more_rtt", ["condition"])
        parts.append(cost.with_columns(source=pl.lit(_COST), link=pl.lit("all")))
    order = {condition: rank for rank, condition in enumerate(KINDS)}
    frame = pl.concat(parts, how="diagonal").with_columns(
        about=pl.col("condition").replace_strict(_ABOUT, return_dtype=pl.String)
    )
    return inputs.by_rtt(
        frame.sort("source", pl.col("condition").replace_strict(order, return_dtype=pl.Int64), "series")
    )


def records(frame: pl.DataFrame) -> AnyChart:
    """Chart with a row for each kind of record and a plot for each link."""
    shown = frame.filter(pl.col("source") == _MEASURED)
    if shown["median"].is_null().all():
        return marks.empty_plot("no page loads of this study", TEXT_WIDTH - 60)
    shown = with_titles(shown.filter(pl.col("median").is_not_null()))
    links = list(shown["link_title"].unique(maintain_order=True))
    known = {name: encodings for name, encodings in _STYLES.items() if name in set(shown["series"])}
    x = alt.X(
        "median:Q",
        title="Response starts (multiples of the RTT)",
        scale=marks.domain(shown, least=(1.8, 4.4), margin=0.2),
        axis=alt.Axis(tickCount=6),
    )
    encodings = marks.encode_series("series", known, "color", "shape", columns=len(known))
    tooltip = marks.tooltip("link_title", "about", "series", value="median, RTT", digits=".3f", counted="loads")
    base = alt.Chart(width=(TEXT_WIDTH - 230) // len(links), height=alt.Step(15))
    layers = marks.intervals(base, x, marks.rows("about", list(_ABOUT.values())), tooltip, encodings)
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=14)
    chart.data = shown
    return chart


def records_verdict(frame: pl.DataFrame) -> str:
    """Verdict: cost of malformed records and of ECH."""
    shown = frame.filter(pl.col("source") == _MEASURED)
    broken = [condition for condition, kind in KINDS.items() if kind.broken and condition in set(shown["condition"])]
    if not broken:
        return "Not answered: this dataset has no loads with malformed records."
    came = {condition: sorted(set(shown.filter(condition=condition)["series"].drop_nulls())) for condition in broken}
    over = {condition: " or ".join(series) or _NOT_AT_ALL for condition, series in came.items()}
    outcomes = []
    for how in sorted(set(over.values()), key=lambda how: (how == _NOT_AT_ALL, how)):
        names = [_ABOUT[condition] for condition in broken if over[condition] == how]
        listed = f" ({'; '.join(names)})" if len(names) <= _MOST_NAMES else ""
        outcomes.append(f"{how} in {len(names)} case{'' if len(names) == 1 else 's'}{listed}")
    verdict = (
        f"In {len(broken)} cases, the HTTPS record is malformed or wrong, or its lookup fails (SERVFAIL, no answer). "
        f"The page loads {', '.join(outcomes)}."
    )
    none = shown.filter(condition="none").select("link", none="median")
    later = (
        shown.filter(pl.col("condition").is_in(broken))
        .join(none, on="link")
        .with_columns(later=pl.col("median") - pl.col("none"))
        .drop_nulls("later")
        .sort("later")
    )
    if later.height:
        most = later.row(-1, named=True)
        verdict += (
            f" If the page loads in these cases, its response starts at most {round(most['later'], 2) + 0.0:.2f} RTT "
            "later than for a name without an HTTPS record. The largest delay is on "
            f"{link_title(most['link'])} ({most['about']})."
        )
    ech_costs = []
    for condition, (_base, where) in _ECH_COSTS.items():
        cost, loads = row(frame, source=_COST, condition=condition), shown.filter(condition=condition)
        if cost is not None:
            came_over = " and ".join(loads["series"].drop_nulls().unique(maintain_order=True))
            ech_costs.append(f"{where}: {round(cost['median'], 2) + 0.0:.2f} RTT ({came_over})")
        elif loads.height:
            ech_costs.append(f"{where}: no page")
    if ech_costs:
        verdict += (
            " To compute a delay by Encrypted Client Hello (ECH), we compare two visits of the same kind (first or "
            "second). In visit A, the HTTPS record has an ECH key; in visit B, the same record has no ECH key. The "
            "delay is the time until the response starts in A, minus the same time in B. The medians of these delays "
            f"over all links follow. {'. '.join(ech_costs)}."
        )
    return verdict


FIGURES = (
    Figure(
        name="https-records",
        title="A page whose HTTPS record is valid, faulty, or has an ECH key",
        notebook="question_https_records",
        caption="Time from the start of the navigation until the response starts, in multiples of the link's "
        "RTT. The browser resolves address and HTTPS record over DoUDP. Only the HTTPS record "
        "announces HTTP/3; the server sends no Alt-Svc.",
        note="Bars: 95 % intervals; no mark: the page did not load. The browser reports the protocol of the document. "
        "The server log shows which loads used early data, and in which loads the server decrypted an encrypted "
        "ClientHello.",
        data=records_data,
        chart=records,
        table=("source", "link", "condition", "about", "series", "loads", "n", "ech", "median", "low", "high"),
        width=TEXT_WIDTH,
        verdict=records_verdict,
    ),
)
