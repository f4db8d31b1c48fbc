"""Figures: how the time that a certificate costs depends on the certificate's size.

They also show how much of this time a visit saves if it uses one connection instead of two.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import (
    COLUMN_WIDTH,
    INK,
    MUTED,
    TEXT_PX,
    TEXT_WIDTH,
    TRANSPORTS,
    AnyChart,
    link_title,
    with_titles,
)
from crosslayer.studies.certificates.metrics import BROUGHT, SMALLEST, by_size, steps, visits

_ENCRYPTED = ("DoT", "DoH", "DoH3", "DoQ")
_BROUGHT = dict(zip(BROUGHT, ("first visit", "with a token", "with a ticket"), strict=True))
_LIMITS = {"DoQ": "3 x received", "DoT": "10 segments"}
"""Label of the limit that causes the step. DoQ stands for all transports over QUIC, DoT for those over TCP."""
_CONNECTIONS = {"separate": "two connections", "shared": "one connection"}
_VISIT_BROUGHT = {
    "neither": "first visit",
    "token": "with a token",
    "ticket": "with a ticket",
    "ticket and token": "with both",
}
_VISIT_STYLES = {"two connections": TRANSPORTS["DoQ"], "one connection": TRANSPORTS["DoH3"]}
_LARGEST_KB = 23
_HEIGHT = 104
_TODAY, _POST_QUANTUM = 1248, 14724


def sizes_data(inputs: Inputs) -> pl.DataFrame:
    """Duration of an exchange by the size of the certificate, multiples of the RTT.

    Columns link, brought (what the client brings), protocol, source, kb (size of the TLS Certificate message, kB), n,
    rounds, median, low, high and label. In rows of source `expected`, kb is the size from which another round-trip is
    expected. Rows of source `cost` have the duration with ML-DSA-44 minus the duration with today's certificate in the
    same round. For clients with a ticket, today's certificate is not measured. There, the duration with the smallest
    certificate is subtracted instead.
    """
    rows = by_size(inputs.dns_exchanges, inputs.rtts)
    by = ["link", "brought", "protocol"]
    ours = metrics.medians(rows, "total_rtt", [*by, "size"]).with_columns(source=pl.lit("measured"))
    step_sizes = metrics.medians(steps(inputs.dns_exchanges, inputs.link_checks), "expected", ["link", "protocol"])
    expected = (
        step_sizes.filter(pl.col("protocol").is_in(list(_LIMITS)))
        .select("link", "protocol", size=pl.col("median"), brought=pl.lit(BROUGHT[0]), source=pl.lit("expected"))
        .with_columns(label=pl.col("protocol").replace(_LIMITS))
    )
    named = rows.with_columns(size=pl.col("size").cast(pl.String))
    cost = [
        metrics.medians(
            metrics.in_rtts(
                metrics.paired(
                    named.filter(protocol=protocol, brought=brought),
                    "total_ms",
                    "size",
                    str(_POST_QUANTUM),
                    # Resumed sessions have no certificate and no condition with today's size: use the smallest size.
                    str(SMALLEST if brought == "ticket" else _TODAY),
                ).rename({"difference": "cost_ms"}),
                inputs.rtts,
                ["cost_ms"],
            ),
            "cost_rtt",
            ["link"],
        ).with_columns(protocol=pl.lit(protocol), brought=pl.lit(brought), source=pl.lit("cost"))
        for protocol in _ENCRYPTED
        for brought in BROUGHT
    ]
    frame = pl.concat([ours, expected, *cost], how="diagonal_relaxed").with_columns(kb=pl.col("size") / 1000)
    order = {protocol: rank for rank, protocol in enumerate(_ENCRYPTED)}
    ranked = pl.col("protocol").replace_strict(order, return_dtype=pl.Int64)
    return inputs.by_rtt(frame.with_columns(rank=ranked), "source", "brought", "rank", "size").drop("rank", "size")


def sizes(frame: pl.DataFrame) -> AnyChart:
    """Chart of the exchanges by certificate size: one row per link, one column per state of the client."""
    shown = frame.filter(pl.col("source") != "cost").with_columns(pl.col("brought").replace(_BROUGHT))
    ours = shown.filter(source="measured")
    if ours.is_empty():
        return marks.empty_plot("no DNS exchanges of this study", TEXT_WIDTH - 60)
    links = [link_title(link) for link in ours["link"].unique(maintain_order=True)]
    x = alt.X(
        "kb:Q",
        title="TLS Certificate message (kB)",
        scale=alt.Scale(domain=[0, _LARGEST_KB], nice=False),
        axis=alt.Axis(values=[0, 5, 10, 15, 20], format="d"),
    )
    reach = marks.domain(ours, least=(1.8, 4.2), margin=0.15)
    y = alt.Y("median:Q", title="Exchange (RTT)", scale=reach, axis=alt.Axis(tickCount=4, format="d"))
    encodings = marks.encode_series("protocol", marks.styles(_ENCRYPTED), "color", "shape")
    size = alt.Tooltip("kb:Q", format=".3f", title="certificate, kB")
    tooltip = marks.tooltip(
        "link_title", "brought", "protocol", value="exchange, RTT", digits=".3f", counted="exchanges", more=[size]
    )
    base = alt.Chart(width=(TEXT_WIDTH - 130) // 3, height=_HEIGHT)
    expected, measured = marks.rows_from(base, "expected"), marks.rows_from(base, "measured")
    layers = [
        expected.mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=x),
        expected.mark_text(align="left", dx=3, fontSize=TEXT_PX - 1, color=INK).encode(
            x=x, y=alt.value(_HEIGHT - 8), text="label:N"
        ),
        marks.trend(measured, x, y, {"color": encodings["color"]}),
        *marks.intervals(measured, x, y, tooltip, encodings, upright=True, size=26),
    ]
    chart: AnyChart = marks.multiples(
        layers,
        column=marks.facet_columns("brought", [*_BROUGHT.values()]),
        row=marks.facet_rows("link_title", links),
        spacing=14,
    )
    chart.data = with_titles(shown)
    return chart


def sizes_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Durations and costs: source, link, brought, protocol, kb, n, median, low, high; multiples of the RTT."""
    return frame.filter(pl.col("source") != "expected").select(
        "source", "link", "brought", "protocol", "kb", "n", "median", "low", "high"
    )


def sizes_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time that a large certificate adds to an exchange."""
    kinds = (("DoQ", "neither"), ("DoT", "neither"), ("DoQ", "token"), ("DoQ", "ticket"))
    costs = [frame.filter(source="cost", protocol=protocol, brought=brought)["median"] for protocol, brought in kinds]
    if any(cost.is_empty() for cost in costs):
        return "Not answered: this dataset lacks exchanges with today's certificates or with ML-DSA-44."
    doq, dot, token, ticket = (f"{reach(cost, 2)} RTT" for cost in costs)
    return (
        "Two TLS Certificate messages are compared: 1,248 bytes (usual today) and 14,724 bytes (ML-DSA-44). On a first "
        f"visit, the larger message makes an exchange longer by {doq} over DoQ and by {dot} over DoT. Over DoQ with a "
        f"token, the increase is {token}; with a ticket, {ticket}. Ranges: over the links."
    )


def steps_data(inputs: Inputs) -> pl.DataFrame:
    """Measures of the steps. A step is a certificate size that adds a round-trip to an exchange.

    Columns link, protocol, measure, source, n, rounds, median, low, high. There are four measures. `place` is the
    position in kB, measured and expected. `height` is the column `height_rtt` of `steps`, and `from the first datagram
    on` is its column `wait_rtt`, both in multiples of the RTT. `distance` is the column `distance` of `steps`.
    """
    searched = steps(inputs.dns_exchanges, inputs.link_checks).with_columns(
        place=(pl.col("below") + pl.col("above")) / 2000, limit=pl.col("expected") / 1000
    )
    columns = {
        "place": ("place", "measured"),
        "limit": ("place", "expected"),
        "height_rtt": ("height", "measured"),
        "wait_rtt": ("from the first datagram on", "measured"),
        "distance": ("distance", "measured"),
    }
    parts = [
        metrics.medians(searched, column, ["link", "protocol"]).with_columns(
            measure=pl.lit(measure), source=pl.lit(source)
        )
        for column, (measure, source) in columns.items()
    ]
    return inputs.by_rtt(pl.concat(parts), "measure", "source", "protocol")


def steps_chart(frame: pl.DataFrame) -> AnyChart:
    """Chart of the measured and the expected position of each step."""
    shown = frame.filter(measure="place")
    if shown.is_empty():
        return marks.empty_plot("no search of this study found a step", COLUMN_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    x = alt.X(
        "median:Q",
        title="TLS Certificate message (kB)",
        scale=alt.Scale(domain=[0, 16], nice=False),
        axis=alt.Axis(values=[0, 4, 8, 12, 16], format="d"),
    )
    y = marks.rows("protocol", _ENCRYPTED)
    tooltip = marks.tooltip("link_title", "protocol", "source", value="kB", digits=".3f", counted="searches")
    encodings = marks.encode_series("protocol", marks.styles(_ENCRYPTED), "color", "shape", legend=False)
    base = alt.Chart(width=COLUMN_WIDTH - 110, height=70)
    layers = [
        marks.ticks(marks.rows_from(base, "expected"), x, y, tooltip, color=INK),
        *marks.intervals(marks.rows_from(base, "measured"), x, y, tooltip, encodings),
    ]
    chart: AnyChart = marks.multiples(layers, row=marks.facet_rows("link_title", links), spacing=8)
    chart.data = with_titles(shown)
    return chart


def visits_data(inputs: Inputs) -> pl.DataFrame:
    """Time until a visit's document is complete, by the size of the certificate, multiples of the RTT.

    Columns link, brought, connections, source, kb, n, rounds, median, low, high. Rows of source `cost` are of first
    visits: the time with a certificate of 12 kB minus the time with today's certificate in the same round.
    """
    rows = visits(inputs.resolved_loads, inputs.rtts).with_columns(pl.col("connections").replace(_CONNECTIONS))
    by = ["link", "brought", "connections"]
    ours = metrics.medians(rows, "document_rtt", [*by, "size"]).with_columns(source=pl.lit("measured"))
    named = rows.with_columns(size=pl.col("size").cast(pl.String))
    costs = [
        metrics.medians(
            metrics.in_rtts(
                metrics.paired(
                    named.filter(connections=connections, brought="neither"),
                    "document_ms",
                    "size",
                    "12000",
                    str(_TODAY),
                ).rename({"difference": "cost_ms"}),
                inputs.rtts,
                ["cost_ms"],
            ),
            "cost_rtt",
            ["link"],
        ).with_columns(connections=pl.lit(connections), brought=pl.lit("neither"), source=pl.lit("cost"))
        for connections in _CONNECTIONS.values()
    ]
    frame = pl.concat([ours, *costs], how="diagonal_relaxed").with_columns(kb=pl.col("size") / 1000)
    return inputs.by_rtt(frame, "source", "brought", "connections", "size").drop("size")


def visits_chart(frame: pl.DataFrame) -> AnyChart:
    """Chart of the visits by certificate size: one row per link, one column per state of the client."""
    shown = frame.filter(source="measured").with_columns(pl.col("brought").replace(_VISIT_BROUGHT))
    if shown.is_empty():
        return marks.empty_plot("no visits of this study", TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    x = alt.X(
        "kb:Q",
        title="TLS Certificate message (kB)",
        scale=alt.Scale(domain=[0, _LARGEST_KB], nice=False),
        axis=alt.Axis(values=[0, 5, 10, 15, 20], format="d"),
    )
    reach = marks.domain(shown, least=(1.8, 6.4), margin=0.2)
    y = alt.Y("median:Q", title="Document (RTT)", scale=reach, axis=alt.Axis(tickCount=5, format="d"))
    encodings = marks.encode_series("connections", _VISIT_STYLES, "color", "shape")
    size = alt.Tooltip("kb:Q", format=".3f", title="certificate, kB")
    tooltip = marks.tooltip(
        "link_title", "brought", "connections", value="document, RTT", digits=".3f", counted="visits", more=[size]
    )
    base = alt.Chart(width=(TEXT_WIDTH - 150) // 4, height=_HEIGHT)
    layers = [
        marks.trend(base, x, y, {"color": encodings["color"]}),
        *marks.intervals(base, x, y, tooltip, encodings, upright=True, size=26),
    ]
    chart: AnyChart = marks.multiples(
        layers,
        column=marks.facet_columns("brought", [*_VISIT_BROUGHT.values()]),
        row=marks.facet_rows("link_title", links),
        spacing=14,
    )
    chart.data = with_titles(shown)
    return chart


def visits_verdict(frame: pl.DataFrame) -> str:
    """Verdict: delay of a first visit by a large certificate, on two connections and on one."""
    two, one = (frame.filter(source="cost", connections=name)["median"] for name in _CONNECTIONS.values())
    if two.is_empty() or one.is_empty():
        return "Not answered: this dataset lacks first visits with certificates of 12 kB or of today."
    return (
        "Compared with a TLS Certificate message of 1,248 bytes (usual today), one of 12 kB delays the document of a "
        f"first visit. Delay: {reach(two, 2)} RTT on two connections, {reach(one, 2)} RTT on one. Ranges: over the "
        "links."
    )


FIGURES = (
    Figure(
        name="certificate-sizes",
        title="A DNS exchange and the size of the server's certificate",
        notebook="question_certificates",
        caption="Median time of a DNS exchange on a new connection in multiples of the link's RTT, against the size of "
        "the server's TLS Certificate message. Columns: first visit, client with an address-validation token, client "
        "with a ticket. A client with a ticket resumes a session and receives no certificate.",
        note="Vertical dashed lines: certificate size at which the server's first flight reaches its limit. The limit "
        "is three times the received bytes (QUIC, RFC 9000) or ten segments (TCP, RFC 6928). The curves of DoT and "
        "DoH coincide; the curves of DoQ and DoH3 coincide too. Bars: 95 % intervals.",
        data=sizes_data,
        chart=sizes,
        table=sizes_table,
        width=TEXT_WIDTH,
        verdict=sizes_verdict,
    ),
    Figure(
        name="certificate-steps",
        title="Where a certificate adds a round-trip",
        notebook="question_certificates",
        caption="Smallest TLS Certificate message that adds a round-trip to the DNS exchange of a first visit. A "
        "bisection between 736 and 22,000 bytes determines this size.",
        note="Vertical ticks: certificate size at which the server's first flight reaches its limit, three times the "
        "received bytes (QUIC) or ten segments (TCP). Bars: 95 % intervals.",
        data=steps_data,
        chart=steps_chart,
        table=("measure", "source", "link", "protocol", "n", "median", "low", "high"),
    ),
    Figure(
        name="certificate-one-connection",
        title="A visit on two connections or on one, and the size of the certificate",
        notebook="question_certificates",
        caption="Median time until the page's document is complete, name resolution included, in multiples of the "
        "link's RTT, against the size of the TLS Certificate message. Lookup and page use two connections (DoQ and "
        "HTTP/3) or share one (HTTP/3). Columns: first visit, client with an address-validation token, with a ticket, "
        "with both. A client with a ticket sends its query as early data. On two connections, it also sends the page's "
        "request as early data.",
        note="Bars: 95 % intervals. The server log confirms ticket, token and number of connections.",
        data=visits_data,
        chart=visits_chart,
        table=("source", "link", "brought", "connections", "kb", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
        verdict=visits_verdict,
    ),
)
