"""Figures: differences between QUIC implementations at the server."""

from __future__ import annotations

from functools import partial

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.style import (
    BLUE,
    LONG,
    PURPLE,
    RED,
    SHORT,
    SOLID,
    TEXT_WIDTH,
    AnyChart,
    Style,
    link_title,
    page_title,
    with_titles,
)
from crosslayer.studies.server_stacks.conditions import (
    ANSWER,
    DOCUMENT,
    EXCHANGES,
    FIRST_BYTE,
    LOADS,
    NAME,
    VISITS,
    ServerVisit,
)
from crosslayer.studies.server_stacks.metrics import costs, differences, times, visits
from crosslayer.studies.server_stacks.stacks import FIRST, SECOND, STACKS, WIDE
from crosslayer.vocabulary import Http3, Protocol

_LIMIT_RTT = 0.02
_NOTHING = "no visits with two servers in this dataset"
_UNTIL = {NAME: "name is resolved", FIRST_BYTE: "first byte arrives"}
_MEASURES = {NAME: Style(BLUE, "circle", SOLID), FIRST_BYTE: Style(RED, "diamond", LONG)}
_STACKS = {
    FIRST: Style(BLUE, "circle", SOLID),
    SECOND: Style(RED, "diamond", LONG),
    WIDE: Style(PURPLE, "square", SHORT),
}
_ORDER = [*EXCHANGES, *LOADS, *VISITS]


def _times(inputs: Inputs) -> pl.LazyFrame:
    return times(inputs.resolved_loads, inputs.dns_exchanges, inputs.page_loads)


def differences_data(inputs: Inputs) -> pl.DataFrame:
    """Time with each of the two aioquic servers minus that with quic-go in the same round, in multiples of the RTT.

    Columns what (the condition), measure (name, first byte, document), stack, link, page, n, rounds, median, low, high.
    """
    later = differences(_times(inputs), inputs.rtts)
    medians = metrics.medians(later, "difference_rtt", ["what", "measure", "stack", "link", "page"])
    rank = {what: position for position, what in enumerate(_ORDER)}
    order = pl.col("what").replace_strict(rank, return_dtype=pl.Int64)
    return inputs.by_rtt(medians.sort(order, "measure", "stack", "page"))


def _by_condition(
    shown: pl.DataFrame, field: str, styles: dict[str, Style], title: str, *, least: tuple[float, float], margin: float
) -> AnyChart:
    """Chart of differences: a row for each condition, a plot for each link, a series for each value of `field`."""
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    present = set(shown["what"])
    x = alt.X(
        "median:Q", title=title, axis=alt.Axis(tickCount=4), scale=marks.domain(shown, least=least, margin=margin)
    )
    y = marks.rows("what", [what for what in _ORDER if what in present])
    encodings = marks.encode_series(field, styles, "color", "shape", "offset")
    tooltip = marks.tooltip(
        "what", "page", "link_title", "measure", "stack", value="median, RTT", digits="+.4f", counted="rounds"
    )
    base = alt.Chart(width=(TEXT_WIDTH - 290) // max(len(links), 2), height=alt.Step(6))
    lines = [marks.line_at(base, x=0)]
    if field == "measure":
        lines += [marks.line_at(base, dashed=True, x=side * _LIMIT_RTT) for side in (-1, 1)]
    layers = [*lines, *marks.intervals(base, x, y, tooltip, encodings, size=34)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=10)
    chart.data = with_titles(shown)
    return chart


def first_byte(frame: pl.DataFrame) -> AnyChart:
    """Chart of the times until name and first byte with aioquic, minus those with quic-go."""
    shown = frame.filter(pl.col("measure") != DOCUMENT, stack=SECOND)
    return _by_condition(
        shown, "measure", _MEASURES, "Later than with quic-go (RTT)", least=(-0.03, 0.03), margin=0.002
    )


def document(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time until the document is complete with each aioquic server, minus that with quic-go."""
    shown = frame.filter(pl.col("stack") != FIRST, measure=DOCUMENT)
    styles = {stack: _STACKS[stack] for stack in (SECOND, WIDE)}
    return _by_condition(
        shown, "stack", styles, "Document later than from quic-go (RTT)", least=(-0.2, 1.3), margin=0.1
    )


def differences_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of measure, what, stack, link, page, n, median, low, high; multiples of the RTT."""
    return frame.select("measure", "what", "stack", "link", "page", "n", "median", "low", "high")


def _range(values: pl.Series, digits: int) -> str:
    """Smallest and largest value with signs; one number if both are equal after rounding."""
    ends = (float(values.sort()[end]) for end in (0, -1))
    signed = (f"{round(end, digits) + 0.0:+.{digits}f}".replace("-", "\N{MINUS SIGN}") for end in ends)
    return " to ".join(dict.fromkeys(signed))


def first_byte_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time until name and first byte with aioquic, minus that with quic-go."""
    sentences = []
    for measure in (NAME, FIRST_BYTE):
        of_measure = frame.filter(measure=measure, stack=SECOND)
        if of_measure.is_empty():
            return "Not answered: this dataset has one server."
        sentences.append(f"{_range(of_measure['median'], 3)} RTT until the {_UNTIL[measure]}")
    return (
        f"Time with aioquic minus time with quic-go (ranges: over conditions, links and pages): {', '.join(sentences)}."
    )


def document_verdict(frame: pl.DataFrame) -> str:
    """Verdict: how much later the document is complete with each aioquic server than with quic-go."""
    sentences = []
    for stack in (SECOND, WIDE):
        of_stack = frame.filter(measure=DOCUMENT, stack=stack)
        if of_stack.is_empty():
            return "Not answered: this dataset has one server."
        parts = []
        for page, of_page in of_stack.sort("page").group_by("page", maintain_order=True):
            parts.append(f"{_range(of_page['median'], 2)} RTT on {page_title(str(page[0]))}")
        sentences.append(f"Server {stack}: {', '.join(parts)}.")
    return (
        "Time until the document is complete, minus the time with quic-go. Each range goes from the smallest to the "
        f"largest median over kinds of visit and links. {' '.join(sentences)}"
    )


_FOLLOWED = ServerVisit(Protocol.DOUDP, h3=Http3.ZERO_RTT).name
"""Visit whose datagrams the figure shows. With 0-RTT, no handshake precedes the document."""


def arrivals_data(inputs: Inputs) -> pl.DataFrame:
    """Arrival times of the largest document's datagrams with each server, in the first round only.

    A row has one datagram of the visit `_FOLLOWED`. Columns stack, link, page, rtt (time of arrival, multiples of the
    RTT), kb (UDP payload that the page's connection has received until this time).
    """
    columns = ["stack", "link", "page", "round", "arrived_ms", "arrived_bytes", "received_bytes", "nominal_rtt_ms"]
    rows = visits(inputs.resolved_loads).filter(what=_FOLLOWED).join(inputs.rtts, on="link").select(columns).collect()
    largest = pl.col("arrived_bytes").list.max()
    shown = rows.drop_nulls().filter(largest == largest.max(), pl.col("round") == pl.col("round").min())
    arrivals = shown.explode("arrived_ms", "arrived_bytes", "received_bytes")
    arrivals = arrivals.sort(pl.col("stack") == SECOND, "stack", "page", "arrived_ms")  # SECOND is drawn last
    return inputs.by_rtt(
        arrivals.select(
            "stack",
            "link",
            "page",
            rtt=pl.col("arrived_ms") / pl.col("nominal_rtt_ms"),
            kb=pl.col("received_bytes") / 1000,
        )
    )


def arrivals(frame: pl.DataFrame) -> AnyChart:
    """Chart of received bytes over time, with a plot for each link and a series for each server."""
    if frame.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    x = alt.X("rtt:Q", title="After the first packet (RTT)", scale=alt.Scale(zero=False, nice=False, padding=10))
    y = alt.Y("kb:Q", title="Received (kB)")
    encodings = marks.encode_series("stack", _STACKS, "color", "shape")
    tooltip = [alt.Tooltip(f"{name}:{kind}") for name, kind in (("stack", "N"), ("rtt", "Q"), ("kb", "Q"))]
    base = alt.Chart(width=(TEXT_WIDTH - 110) // max(len(links), 2), height=200)
    points = base.mark_point(filled=True, size=34, opacity=1).encode(x=x, y=y, **encodings, tooltip=tooltip)
    chart: AnyChart = marks.multiples([points], column=marks.facet_columns("link_title", links), spacing=14)
    chart.data = with_titles(frame)
    return chart


def arrivals_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table with a row for each datagram: stack, link, page, rtt, kb."""
    return frame.select("stack", "link", "page", "rtt", "kb")


def arrivals_verdict(frame: pl.DataFrame) -> str:
    """Verdict: how much data arrives from each server before the first gap of more than half a round-trip."""
    sent: dict[str, list[str]] = {}
    for (stack, link), of_one in frame.group_by("stack", "link", maintain_order=True):
        times = of_one["rtt"]
        silent = of_one.filter((times.shift(-1) - times).fill_null(0.0) > 0.5)
        waits = not silent.is_empty()
        kb = f"{(silent if waits else of_one.tail(1))['kb'][0]:.1f} kB"
        sends = f"{kb}, then waits for acknowledgements" if waits else f"all data ({kb}) without a wait"
        sent.setdefault(f"{stack} sends {sends}", []).append(link_title(str(link)))
    if not sent:
        return "Not answered: this dataset has one server."
    sentences = (f"{sentence} (on {', '.join(links)})." for sentence, links in sent.items())
    return " ".join(sentences)


def answer_data(inputs: Inputs) -> pl.DataFrame:
    """Comparisons of `ANSWER` with each server: time until a visit's document is complete, minus that of another visit.

    Columns what (the comparison), stack, link, page, n, rounds, median, low, high, percent. `median`, `low` and `high`
    are of the difference, in multiples of the RTT. `percent` is the median difference in percent of the median time of
    the other visit.
    """
    of_all, parts = _times(inputs), []
    keys = ["stack", "link", "page"]
    for comparison in ANSWER:
        rows = metrics.in_rtts(costs(of_all, comparison), inputs.rtts, ["difference_ms"])
        shares = rows.group_by(keys).agg(percent=pl.col("difference_percent").median()).collect()
        medians = metrics.medians(rows, "difference_rtt", keys).join(shares, on=keys, how="left")
        parts.append(medians.with_columns(what=pl.lit(comparison.name)))
    return inputs.by_rtt(pl.concat(parts, how="diagonal"))


def answer(frame: pl.DataFrame) -> AnyChart:
    """Chart with a row for each comparison, a column for each link, and a mark for each server and page."""
    if frame.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in frame["link"].unique(maintain_order=True)]
    x = alt.X("median:Q", title="Document later by (RTT)", scale=marks.domain(frame, least=(-1.2, 1.2), margin=0.1))
    y = marks.rows("what", [comparison.name for comparison in ANSWER])
    encodings = marks.encode_series("stack", _STACKS, "color", "shape", "offset")
    tooltip = marks.tooltip("what", "stack", "page", "link_title", value="median, RTT", digits="+.3f", counted="rounds")
    base = alt.Chart(width=(TEXT_WIDTH - 290) // max(len(links), 2), height=alt.Step(8))
    layers = [marks.line_at(base, x=0), *marks.intervals(base, x, y, tooltip, encodings, size=34)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=10)
    chart.data = with_titles(frame)
    return chart


def answer_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of what, stack, link, page, n, median, low, high (multiples of the RTT), percent."""
    return frame.select("what", "stack", "link", "page", "n", "median", "low", "high", "percent")


def answer_verdict(frame: pl.DataFrame) -> str:
    """Verdict: whether the comparisons of `ANSWER` depend on the server."""
    links = frame["link"].unique(maintain_order=True).to_list() if "link" in frame.columns else []
    sentences = []
    for comparison in (ANSWER[0], ANSWER[3], ANSWER[-1]):
        of_link = frame.filter(what=comparison.name, link=links[-1]) if links else frame
        values = {stack: of_link.filter(stack=stack)["median"] for stack in (FIRST, SECOND)} if links else {}
        if values and not any(medians.is_empty() for medians in values.values()):
            parts = [f"{_range(medians, 2)} RTT with {stack}" for stack, medians in values.items()]
            name = comparison.name.replace(": ", ", time with ").replace(" over ", " minus time with ")
            name = name.replace("returning,", "returning visit,").replace("connection", "connection for name and page")
            name = name.replace("with no token", "without a token")
            sentences.append(f"{name[0].upper()}{name[1:]}: {', '.join(parts)}.")
    if not sentences:
        return "Not answered: this dataset has one server."
    return (
        f"Differences of the time until the document is complete, on {link_title(links[-1])} (ranges: over the pages). "
        f"{' '.join(sentences)}"
    )


_figure = partial(Figure, notebook="question_server_stacks", width=TEXT_WIDTH)
_DOTS = "Dots: medians of the differences within rounds, one dot for each page; bars: 95 % intervals."

FIGURES = (
    _figure(
        name="server-first-byte",
        title="Time of name and first byte: server with aioquic minus server with quic-go",
        caption="Time with aioquic at the server minus time with quic-go in the same round. Name: time until "
        "crosslayer's client has resolved the name, either in a DNS exchange without a page load or in a visit "
        "(exchange and page load). First byte, in Chromium: time until the document's first byte arrives. First byte, "
        "in a visit of crosslayer's client: time until the document's response header arrives.",
        note=f"{_DOTS} Dashed: ±{_LIMIT_RTT:g} RTT; times within these limits count as equal.",
        data=differences_data,
        chart=first_byte,
        table=differences_table,
        verdict=first_byte_verdict,
    ),
    _figure(
        name="server-document",
        title="Time of the document: server with aioquic minus server with quic-go",
        caption="Time until the document's last byte with each of two servers that use aioquic, minus the time with "
        "quic-go in the same round. Initial congestion window: 32 datagrams in quic-go, 10 in the first aioquic server "
        "(the default of aioquic), 32 in the second. The two aioquic servers differ in nothing else.",
        note=f"{_DOTS} (copy): our own page with the structure and sizes of the named site.",
        data=differences_data,
        chart=document,
        table=differences_table,
        verdict=document_verdict,
    ),
    _figure(
        name="server-arrivals",
        title="Datagrams of a document from each server",
        caption="Sum of the UDP payload that the client has received on the page's connection, at the arrival of each "
        "datagram. For each link and server, the figure shows one page load of the first round: the returning visit to "
        "the page with the largest document. The page's name is resolved over DoUDP. The sum counts all streams: after "
        "its wait, aioquic sends the rest of the document and another resource alternately, so its sum is larger.",
        note="By default, the initial congestion window of aioquic is 10 datagrams of 1,200 bytes (12 kB). After these "
        "bytes, aioquic waits for acknowledgements. A second aioquic server has the larger initial window of quic-go.",
        data=arrivals_data,
        chart=arrivals,
        table=arrivals_table,
        verdict=arrivals_verdict,
    ),
    _figure(
        name="server-answer",
        title="Effect of DoQ, of one connection and of the token, with each server",
        caption="Each row compares two visits of the same round, A and B. The row's label names A before the "
        "word 'over', and B after it. The row shows the time until the document is complete in visit A, minus this "
        "time in visit B. "
        f"Servers: {STACKS[0]}, {STACKS[1]}, and {STACKS[1]} with the initial congestion window of {STACKS[0]}.",
        note=_DOTS,
        data=answer_data,
        chart=answer,
        table=answer_table,
        verdict=answer_verdict,
    ),
)
