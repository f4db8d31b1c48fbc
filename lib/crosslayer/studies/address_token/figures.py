"""What is the token worth that proves a returning visitor's address?"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import holds, row, with_interval
from crosslayer.figures.style import (
    CHAIN,
    COLUMN_WIDTH,
    EARLY_DATA,
    GREY,
    LONG,
    RED,
    TEXT_WIDTH,
    AnyChart,
    Look,
    link_title,
    with_titles,
)

_FULL, _WITH, _WITHOUT = "H3 1-RTT", "H3 0-RTT with token", "H3 0-RTT without token"
_LOOKS = {_FULL: Look(GREY, "square", CHAIN), _WITH: EARLY_DATA, _WITHOUT: Look(RED, "triangle-down", LONG)}
_TIMES = {"response_end_ms": "document complete", "plt_ms": "PLT"}


def token_data(inputs: Inputs) -> pl.DataFrame:
    """When the document is complete, and PLT, by kind of load; multiples of the RTT.

    Columns link, page, measure, series, source (measured), n, rounds, median, low, high. Rows of source `worth` have
    what the token spares within a round, all links of a page together.
    """
    kind = pl.when(pl.col("h3") == "1-rtt").then(pl.lit(_FULL))
    loads = pl.concat(
        metrics.page_loads(inputs.page_loads, variant=variant).with_columns(series=kind.otherwise(pl.lit(name)))
        for variant, name in (("main", _WITH), ("no-token", _WITHOUT))
    )
    parts = []
    for column, measure in _TIMES.items():
        times = metrics.in_rtts(loads, inputs.rtts, [column])
        by = ["link", "page", "series"]
        shown = metrics.medians(times, column.replace("_ms", "_rtt"), by).with_columns(source=pl.lit("measured"))
        spared = metrics.paired(loads, column, "series", _WITHOUT, _WITH)
        worth = metrics.medians(
            metrics.in_rtts(spared.rename({"difference": "spared_ms"}), inputs.rtts, ["spared_ms"]),
            "spared_rtt",
            ["page"],
        )
        parts += [
            part.with_columns(measure=pl.lit(measure)) for part in (shown, worth.with_columns(source=pl.lit("worth")))
        ]
    return inputs.by_rtt(pl.concat(parts, how="diagonal"), "page")


def token(frame: pl.DataFrame) -> AnyChart:
    """When the document is complete, page by page and link by link."""
    shown = frame.filter(pl.col("source") == "measured", pl.col("measure") == _TIMES["response_end_ms"])
    if shown.is_empty():
        return marks.empty_plot("no page loads of this study", COLUMN_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    x = alt.X(
        "median:Q",
        title="Document complete (multiples of the RTT)",
        scale=marks.reach(shown, least=(0.8, 2.4), margin=0.1),
        axis=alt.Axis(tickCount=5),
    )
    look = marks.by("series", _LOOKS, "color", "shape")
    tooltip = marks.tips("page", "link_title", "series", value="median, RTT", digits=".3f", counted="loads")
    base = alt.Chart(width=(TEXT_WIDTH - 140) // 3, height=150)
    layers = marks.intervals(base, x, marks.rows("link_title", links), tooltip, look)
    chart: AnyChart = marks.multiples(layers, column=marks.across("page", sorted(shown["page"].unique())), spacing=14)
    chart.data = with_titles(shown)
    return chart


def token_table(frame: pl.DataFrame) -> pl.DataFrame:
    """measure, source, page, link, series, n, median, low, high; multiples of the RTT."""
    return frame.select("measure", "source", "page", "link", "series", "n", "median", "low", "high")


def token_verdict(frame: pl.DataFrame) -> str:
    """What is the token worth that proves a returning visitor's address?"""
    pages = sorted(frame["page"].drop_nulls().unique())
    found = {page: row(frame, source="worth", measure=_TIMES["response_end_ms"], page=page) for page in pages}
    worth = {page: spared for page, spared in found.items() if spared}
    if not worth:
        return "Not answered: this dataset lacks one of the kinds of load."
    said = ", ".join(f"{with_interval(spared, 'RTT', 2)} on {page}" for page, spared in worth.items())
    whole = [page for page, spared in worth.items() if holds(spared, 1.0, 0.15)]
    why = (
        f" A whole round-trip on {' and '.join(whole)}: the document is more than three times what the server had "
        "received, and before the client's address is proved it may send no more (RFC 9000, section 8.1)."
        if whole
        else ""
    )
    return f"Until the document is complete: {said}, all links together.{why}"


FIGURES = (
    Figure(
        name="token-worth",
        title="A returning visit with early data, with and without an address-validation token",
        notebook="question_token",
        caption="Time from the navigation's start until the document is complete, in multiples of the link's RTT: full "
        "handshake, early data with the token that proves the client's address, and early data without it.",
        note="Bars: 95 % intervals. That a load had the token, or none, is the server's word.",
        data=token_data,
        chart=token,
        table=token_table,
        width=TEXT_WIDTH,
        verdict=token_verdict,
    ),
)
