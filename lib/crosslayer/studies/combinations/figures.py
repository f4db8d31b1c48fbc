"""Figures: cost of encrypted DNS for a page, compared with plain DNS in the same state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import NamedTuple

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.self_check import SELF_CHECK
from crosslayer.figures.sentences import reach, row
from crosslayer.figures.style import (
    BLUE,
    CHAIN,
    EARLY_DATA,
    GREY,
    PURPLE,
    RED,
    SHORT,
    STYLES,
    TEXT_PX,
    TEXT_WIDTH,
    WIDE,
    AnyChart,
    Style,
    link_title,
    page_styles,
    with_titles,
)
from crosslayer.studies.combinations.metrics import (
    BEST,
    EXCHANGES,
    FULL,
    LOADS,
    WITH,
    WITHOUT,
    combination,
    combined,
    costs,
)
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.vocabulary import Protocol

BASELINE = combination("DoUDP", FULL)
_SUM = (
    "As in TNSM24, PLT here means the time of a DNS exchange plus the time of a page load. In this page load, the "
    "browser resolves no names. Exchange and page load are measured one after the other in the same round."
)
_NOTHING = "no rounds with both an exchange and a load"
_CLEAR = 0.05
"""A PLT counts as longer if it is longer by more than this, multiples of the RTT."""


class Pair(NamedTuple):
    """A combination, and the baseline with which it is compared."""

    combination: str
    baseline: str


def _rows(inputs: Inputs) -> pl.LazyFrame:
    return combined(inputs.dns_exchanges, inputs.page_loads)


def _costs(inputs: Inputs, pairs: Mapping[str, Pair]) -> pl.DataFrame:
    """PLT difference of each pair within a round, in percent of its baseline's median in the cell.

    Columns series, link, page, source, n, rounds, median, low, high. Rows of source `pooled` contain all links of a
    page; their link is null.
    """
    rows = _rows(inputs)
    parts = []
    for series, pair in pairs.items():
        differences = costs(rows, *pair)
        for by, source in ((metrics.CELL, "measured"), (("page",), "pooled")):
            medians = metrics.medians(differences, "difference_percent", by)
            parts.append(medians.with_columns(series=pl.lit(series), source=pl.lit(source)))
    return inputs.by_rtt(pl.concat(parts, how="diagonal"), "page")


_TABLE = ("source", "page", "link", "series", "n", "median", "low", "high")


def _by_link(frame: pl.DataFrame, *, styles: Mapping[str, Style], title: str) -> AnyChart:
    """Chart of `_costs`, dots with intervals: one row per link, one column per page."""
    shown = frame.filter(pl.col("source") == "measured")
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    pages = sorted(shown["page"].unique())
    x = alt.X("median:Q", title=title, axis=alt.Axis(tickCount=4))
    encodings = marks.encode_series("series", styles, "color", "shape", "offset", columns=2)
    tooltip = marks.tooltip("page", "link_title", "series", value="median, %", digits="+.2f", counted="rounds")
    base = alt.Chart(width=(TEXT_WIDTH - 120) // len(pages), height=16 * len(styles) * len(links))
    layers = [
        marks.line_at(base, x=0),
        *marks.intervals(base, x, marks.rows("link_title", links, bold=True), tooltip, encodings),
    ]
    column = marks.facet_columns("page", pages, labelPadding=2)
    chart: AnyChart = marks.multiples(layers, column=column, spacing=14).resolve_scale(x="independent")
    chart.data = with_titles(shown)
    return chart


def _over_cells(frame: pl.DataFrame, series: str) -> str:
    """Range of a series over links and pages, as text; empty if there are no values."""
    medians = frame.filter(source="measured", series=series)["median"]
    return "" if medians.is_empty() else f"{reach(medians, 1)} %"


# All states of DNS and HTTP/3


def factorial_data(inputs: Inputs) -> pl.DataFrame:
    """PLT of every combination minus that of DoUDP + H3 1-RTT in the same round, multiples of the RTT.

    Columns page, exchange, load, source, n, rounds, median, low, high. All links of a page are pooled.
    """
    rows = _rows(inputs)
    parts = []
    for exchange, load in product(EXCHANGES, LOADS):
        differences = costs(rows, combination(exchange, load), BASELINE)
        multiples = metrics.in_rtts(differences, inputs.rtts, ["difference_ms"])
        medians = metrics.medians(multiples, "difference_rtt", ["page"])
        parts.append(medians.with_columns(exchange=pl.lit(exchange), load=pl.lit(load), source=pl.lit("measured")))
    return pl.concat(parts).sort("page", maintain_order=True)


def factorial(frame: pl.DataFrame) -> AnyChart:
    """Heat map for each page: twelve states of DNS by three states of the page."""
    if frame.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    pages = sorted(frame["page"].unique())
    reach = max(1.0, *(abs(value) for value in frame["median"]))
    shade = alt.Color(
        "median:Q", scale=alt.Scale(domain=[-reach, 0, reach], range=["#1b7837", "#f7f7f7", "#762a83"]), legend=None
    )
    short = {FULL: "1-RTT", WITHOUT: "0-RTT, no token", WITH: "0-RTT, token"}
    rows = frame.with_columns(
        load_title=pl.col("load").replace(short),
        number=pl.col("median").map_elements(_signed, return_dtype=pl.String),
        interval=pl.when(pl.col("low").is_not_null())
        .then(
            pl.format(
                "{} – {}",
                *(pl.col(end).map_elements(_signed, return_dtype=pl.String) for end in ("low", "high")),
            )
        )
        .otherwise(pl.lit("")),
    )
    ink = marks.light_where(f"abs(datum.median) > {0.62 * reach}")
    x = marks.columns("load_title", [short[load] for load in LOADS], labelExpr="split(datum.label, ', ')")
    base = alt.Chart(width=(TEXT_WIDTH - 110) // len(pages), height=24 * len(EXCHANGES)).encode(
        x, marks.rows("exchange", EXCHANGES)
    )
    tooltip = marks.tooltip("page", "exchange", "load", value="over the baseline, RTT", digits="+.3f", counted="rounds")
    cells = marks.heatmap(
        base,
        shade,
        tooltip,
        marks.CellText("number:N", ink, dy=-4, size=TEXT_PX - 1),
        marks.CellText("interval:N", ink, dy=6, size=6.5),
    )
    chart: AnyChart = marks.multiples(cells, column=marks.facet_columns("page", pages, labelPadding=2), spacing=10)
    chart.data = rows
    return chart


def _signed(value: float) -> str:
    rounded = round(value, 2) + 0.0
    return "0.00" if rounded == 0 else f"{rounded:+.2f}".replace("-", "−")


def factorial_verdict(frame: pl.DataFrame) -> str:
    """Verdict: which combinations are slower than plain DNS with a full HTTP/3 handshake."""
    plain, best = (row_of(frame, exchange, load) for exchange, load in (("DoUDP", WITH), ("DoQ 0-RTT", WITH)))
    if plain is None or best is None:
        return "Not answered: this dataset lacks exchanges or loads."
    slower = [
        exchange
        for exchange in EXCHANGES
        if all(of["low"] is not None and of["low"] > _CLEAR for of in _of(frame, exchange, WITH))
    ]
    which = (
        f" With {', '.join(slower)}, the PLT of these loads is longer than the baseline's on every page (the whole "
        f"interval of the difference is above {_CLEAR:g} RTT)."
        if slower
        else ""
    )
    return (
        "The following values are for page loads with early data and token (right column of each page). With DoUDP, "
        "the PLT of these loads minus the PLT of the baseline (DoUDP + H3 1-RTT) is "
        f"{_across(frame, 'DoUDP', WITH)} RTT. With DoQ 0-RTT, this difference is {_across(frame, 'DoQ 0-RTT', WITH)} "
        "RTT. For each page, we take the median over all links. Each range goes from the page with the smallest "
        f"median to the page with the largest.{which}"
    )


def _of(frame: pl.DataFrame, exchange: str, load: str) -> list[dict[str, float]]:
    return list(frame.filter(exchange=exchange, load=load).iter_rows(named=True))


def row_of(frame: pl.DataFrame, exchange: str, load: str) -> dict[str, float] | None:
    return row(frame, exchange=exchange, load=load)


def _across(frame: pl.DataFrame, exchange: str, load: str) -> str:
    return reach(frame.filter(exchange=exchange, load=load)["median"], 2)


# What the paper compared


AS_COMPARED = {
    "DoH + H3 1-RTT": Pair(combination("DoH", FULL), BASELINE),
    "DoQ + H3 1-RTT": Pair(combination("DoQ", FULL), BASELINE),
    "DoQ + H3 0-RTT without token": Pair(combination("DoQ", WITHOUT), BASELINE),
    "DoQ + H3 0-RTT with token": Pair(combination("DoQ", WITH), BASELINE),
    "DoUDP + H3 0-RTT with token": Pair(combination("DoUDP", WITH), BASELINE),
}
_COMPARED_STYLES = {
    "DoH + H3 1-RTT": STYLES["DoH"],
    "DoQ + H3 1-RTT": STYLES["DoQ"],
    "DoQ + H3 0-RTT without token": Style(PURPLE, "cross", WIDE),
    "DoQ + H3 0-RTT with token": EARLY_DATA,
    "DoUDP + H3 0-RTT with token": Style(GREY, "diamond", CHAIN),
}


def as_compared_verdict(frame: pl.DataFrame) -> str:
    """Verdict: PLT of DoQ and of DoUDP, each with a web ticket and token, compared with DoUDP without them."""
    emulated, plain = (
        _over_cells(frame, name) for name in ("DoQ + H3 0-RTT with token", "DoUDP + H3 0-RTT with token")
    )
    if not (emulated and plain):
        return "Not answered: this dataset lacks exchanges or loads."
    return (
        "The values are the PLT minus the PLT of DoUDP + H3 1-RTT, in percent of the latter (medians; ranges: over "
        f"links and pages). The value of DoQ + H3 0-RTT with token is {emulated}. In place of one connection "
        "for both DNS and page (coalescing), the paper measured DoQ + H3 0-RTT with token, which has two connections. "
        f"The value of the control (DoUDP + H3 0-RTT with token) is {plain}."
    )


# Like with like


LIKE_WITH_LIKE = {
    "DoQ with a web ticket, DoUDP without": Pair(combination("DoQ", WITH), BASELINE),
    "neither: H3 1-RTT": Pair(combination("DoQ", FULL), BASELINE),
    "both: H3 0-RTT without token": Pair(combination("DoQ", WITHOUT), combination("DoUDP", WITHOUT)),
    "both: H3 0-RTT with token": Pair(combination("DoQ", WITH), combination("DoUDP", WITH)),
}
_LIKE_STYLES = {
    "DoQ with a web ticket, DoUDP without": Style(RED, "triangle-down", SHORT),
    "neither: H3 1-RTT": STYLES["DoQ"],
    "both: H3 0-RTT without token": Style(PURPLE, "cross", WIDE),
    "both: H3 0-RTT with token": EARLY_DATA,
}


def like_with_like_verdict(frame: pl.DataFrame) -> str:
    """Verdict: PLT with DoQ minus PLT with DoUDP, in two cases.

    Either both page loads have a web ticket and a token, or only the page load with DoQ has them.
    """
    unfair, fair = (
        _over_cells(frame, name) for name in ("DoQ with a web ticket, DoUDP without", "both: H3 0-RTT with token")
    )
    if not (unfair and fair):
        return "Not answered: this dataset lacks exchanges or loads."
    return (
        "The values are the PLT with DoQ minus the PLT with DoUDP, in percent of the latter (medians; ranges: over "
        f"links and pages). If the page loads of both visits have a web ticket and a token: {fair}. If, as in TNSM24, "
        f"only the page load of the visit with DoQ has a web ticket and a token: {unfair}."
    )


# First and returning visit


_ENCRYPTED = tuple(protocol for protocol in SIX_TRANSPORTS if protocol is not Protocol.DOUDP)
_RETURNING = "returning visit"
VISITS: dict[str, dict[Protocol, Pair]] = {
    "first visit": {protocol: Pair(combination(protocol, FULL), combination("DoUDP", FULL)) for protocol in _ENCRYPTED},
    _RETURNING: {
        protocol: Pair(combination(BEST[protocol], WITH), combination("DoUDP", WITH)) for protocol in _ENCRYPTED
    },
}


def visits_data(inputs: Inputs) -> pl.DataFrame:
    """PLT with each transport minus that with plain DNS in the same state, in percent of plain DNS's median PLT.

    Columns as in `_costs`, and `visit`. The series is the transport.
    """
    parts = [
        _costs(inputs, {str(protocol): pair for protocol, pair in pairs.items()}).with_columns(visit=pl.lit(visit))
        for visit, pairs in VISITS.items()
    ]
    return pl.concat(parts)


def visits(frame: pl.DataFrame) -> AnyChart:
    """Chart of the costs: one row per transport, one column per kind of visit. All links of a page are pooled."""
    shown = frame.filter(source="pooled")
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    pages = sorted(shown["page"].unique())
    x = alt.X("median:Q", title="Over plain DNS in the same state (% of its PLT)", axis=alt.Axis(tickCount=6))
    encodings = marks.encode_series("page", page_styles(pages), "color", "shape", "offset")
    tooltip = marks.tooltip("visit", "series", "page", value="median, %", digits="+.2f", counted="rounds")
    base = alt.Chart(width=(TEXT_WIDTH - 90) // 2, height=38 * len(_ENCRYPTED))
    layers = [
        marks.line_at(base, x=0),
        *marks.intervals(base, x, marks.rows("series", list(_ENCRYPTED), bold=True), tooltip, encodings),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("visit", list(VISITS)), spacing=14)
    chart.data = shown
    return chart


def visits_verdict(frame: pl.DataFrame) -> str:
    """Verdict: cost of encrypted DNS on a first visit and on a returning visit."""
    sentences = []
    for visit in VISITS:
        of_visit = frame.filter(visit=visit)
        parts = []
        for protocol in (Protocol.DOQ, Protocol.DOH):
            added = of_visit.filter(source="measured", series=str(protocol))["median"]
            if added.is_empty():
                return "Not answered: this dataset lacks exchanges or loads."
            parts.append(f"{reach(added, 1)} % with {BEST[protocol] if visit == _RETURNING else protocol}")
        sentences.append(f"{visit.capitalize()}: {', '.join(parts)}.")
    return (
        f"Increase of the PLT over the same kind of visit with plain DNS. {' '.join(sentences)} These ranges are over "
        "the medians of all pairs of link and page. They can be wider than the range of the dots in the figure, since "
        "each dot pools the links of one page."
    )


# One exchange, two implementations


_PHASES = {"handshake_ms": "handshake", "total_ms": "whole exchange"}
_OURS, _AS_BROWSER = "aioquic with P-256", "quic-go with X25519MLKEM768"
_CLIENTS = {_OURS: "main", _AS_BROWSER: "quic-go-x25519mlkem768"}
"""Variants of the DoQ client by name, each with its value of the column `condition`.

Each variant is compared with quic-go and key share X25519.
"""
_CLIENT_STYLES = {_OURS: Style(BLUE, "circle", WIDE), _AS_BROWSER: Style(RED, "square", SHORT)}


def implementations_data(inputs: Inputs) -> pl.DataFrame:
    """DoQ exchange of each variant in `_CLIENTS` minus that of quic-go with X25519 in the same round, ms.

    Columns link, client, measure, source, n, rounds, median, low, high. Rows of source `pooled` contain all links.
    All exchanges have full handshakes.
    """
    exchanges = metrics.exchanges(inputs.dns_exchanges).filter(pl.col("protocol") == Protocol.DOQ.value)
    parts = []
    for (client, condition), (column, measure) in product(_CLIENTS.items(), _PHASES.items()):
        differences = metrics.paired(exchanges, column, "condition", condition, "quic-go")
        named = {"client": pl.lit(client), "measure": pl.lit(measure)}
        for by, source in ((["link"], "measured"), ([], "pooled")):
            parts.append(metrics.medians(differences, "difference", by).with_columns(**named, source=pl.lit(source)))
    return inputs.by_rtt(pl.concat(parts, how="diagonal"))


def implementations(frame: pl.DataFrame) -> AnyChart:
    """Chart of the differences: one row per link, one column for the handshake and one for the whole exchange."""
    shown = frame.filter(pl.col("source") == "measured")
    if shown.is_empty():
        return marks.empty_plot("no rounds with both implementations", TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    x = alt.X(
        "median:Q", title="Minus quic-go with X25519 (ms)", scale=marks.domain(shown, least=(-0.5, 0.5), margin=0.1)
    )
    encodings = marks.encode_series("client", _CLIENT_STYLES, "color", "shape", "offset")
    tooltip = marks.tooltip("link_title", "client", "measure", value="difference, ms", digits="+.3f", counted="pairs")
    base = alt.Chart(width=(TEXT_WIDTH - 100) // 2, height=26 * len(links))
    layers = [
        marks.line_at(base, x=0),
        *marks.intervals(base, x, marks.rows("link_title", links), tooltip, encodings),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("measure", [*_PHASES.values()]), spacing=14)
    chart.data = with_titles(shown)
    return chart


def implementations_verdict(frame: pl.DataFrame) -> str:
    """Verdict: additional time of a DoQ exchange with another client or key share."""
    sentences = []
    for client in _CLIENTS:
        of_client = frame.filter(source="measured", client=client)
        handshakes, exchanges = (of_client.filter(measure=measure)["median"] for measure in _PHASES.values())
        if exchanges.len():
            sentences.append(f"{client}: {reach(exchanges, 2)} ms (handshake alone: {reach(handshakes, 2)} ms)")
    if not sentences:
        return "Not answered: this dataset has one implementation only."
    return (
        "Time of a DoQ exchange minus the time with quic-go and X25519 (medians; ranges: over the links). "
        f"{'. '.join(sentences)}."
    )


_NOTE = f"Dots: medians of the differences within rounds; bars: 95 % intervals. {_SUM}"
_figure = partial(Figure, notebook="question_combinations", width=TEXT_WIDTH)


def _pairs(pairs: Mapping[str, Pair]) -> Callable[[Inputs], pl.DataFrame]:
    return partial(_costs, pairs=pairs)


FIGURES = (
    _figure(
        name="factorial",
        title="All combinations of DNS and HTTP/3 states",
        caption="PLT of each combination minus that of DoUDP + H3 1-RTT in the same round, in multiples of the link's "
        "RTT. Rows: DNS exchange with a full handshake (DoUDP: none), a resumed session or early data. Columns: page "
        "load with a full handshake, with early data, or with early data and the address-validation token.",
        note=f"Numbers: medians over all links; in small print: 95 % intervals. {_SUM}",
        data=factorial_data,
        chart=factorial,
        table=("page", "exchange", "load", "n", "median", "low", "high"),
        verdict=factorial_verdict,
    ),
    _figure(
        name="as-compared",
        title="The combinations of the paper, and a control",
        caption="PLT of each combination minus the PLT of DoUDP + H3 1-RTT, which is the baseline in the paper "
        "TNSM24. In TNSM24, no visit with plain DNS has a session ticket of the web server (web ticket). The last "
        "series is a control: plain DNS with a web ticket and an address-validation token.",
        note=_NOTE,
        data=_pairs(AS_COMPARED),
        chart=partial(_by_link, styles=_COMPARED_STYLES, title="Over DoUDP + H3 1-RTT (% of its PLT)"),
        table=_TABLE,
        verdict=as_compared_verdict,
    ),
    _figure(
        name="like-with-like",
        title="DoQ over DoUDP, both with the same ticket and token",
        caption="PLT with DoQ (full handshake) minus PLT with DoUDP in the same round. A visit is a DNS exchange and a "
        "page load. In the first series, as in TNSM24, only the visit with DoQ has a web ticket (a session ticket of "
        "the web server) and an address-validation token for its page load. In the other series, both visits have the "
        "same: no web ticket, a web ticket, or a web ticket and a token.",
        note=_NOTE,
        data=_pairs(LIKE_WITH_LIKE),
        chart=partial(_by_link, styles=_LIKE_STYLES, title="DoQ over DoUDP (% of its PLT)"),
        table=_TABLE,
        verdict=like_with_like_verdict,
    ),
    _figure(
        name="visits",
        title="First visit and returning visit",
        caption="PLT with encrypted DNS minus the PLT of the same kind of visit with plain DNS, in percent of the "
        "latter. First visit: full handshakes with resolver and web server. Returning visit: the page load has early "
        "data and a token; the DNS exchange has early data (DoQ, DoH3) or a resumed session (DoT, DoH).",
        note=f"{_NOTE} Each dot is the median over the rounds of one page on all emulated links together.",
        data=visits_data,
        chart=visits,
        counted="pooled",
        table=("visit", "source", "page", "link", "series", "n", "median", "low", "high"),
        verdict=visits_verdict,
    ),
    _figure(
        name="implementations",
        title="A DoQ exchange with other clients and key shares",
        caption="Time of a DoQ exchange with a full handshake in each of two variants, minus the reference's time in "
        "the same round. Reference: quic-go (Go) with key share X25519. First variant: aioquic (Python) with key share "
        "P-256. Second variant: quic-go with X25519MLKEM768, the key share of browsers. With this key share, the "
        "ClientHello needs two Initials. Apart from the reference and the second variant, every DoQ exchange of this "
        "study uses aioquic with P-256.",
        note="Dots: medians of the differences within rounds; bars: 95 % intervals. In virtual time, the clock stands "
        "still while a program computes, so only packets and timers cause differences.",
        data=implementations_data,
        chart=implementations,
        table=("client", "measure", "source", "link", "n", "median", "low", "high"),
        verdict=implementations_verdict,
    ),
    SELF_CHECK(notebook="question_combinations", name="self-check"),
)
