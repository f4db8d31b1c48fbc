"""Figures: time of a DoQ query minus one RTT, compared with the time to transmit the query on a slow uplink."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import holds, row, with_interval
from crosslayer.figures.style import (
    COLUMN_WIDTH,
    GREEN,
    INK,
    LONG,
    PURPLE,
    RED,
    SHORT,
    TRANSPORTS,
    WIDE,
    AnyChart,
    Style,
    with_titles,
)
from crosslayer.studies.coalescing import TNSM24
from crosslayer.studies.serialisation.conditions import DOQ_SIZES

_PAPER = TNSM24.name
_IP_AND_ETHERNET_BYTES = 34
"""Bytes of a packet's IPv4 and Ethernet headers: netem counts them, the columns of sizes do not."""
_DOQ_QUERY_BYTES = 43
"""Byte overhead of a DoQ query: UDP 8, short header with connection ID 11, stream frame 6, length 2, AEAD tag 16."""
_ESTIMATE = {name: pl.Float64() for name in ("median", "low", "high")}

_PUBLISHED_DSL_QUERY_RTT = 1.37  # TNSM24 section IV-B, claim T100
_SENT = {name: sizes.series for name, sizes in DOQ_SIZES.items()}

_STYLES = {
    "DoUDP": TRANSPORTS["DoUDP"],
    "DoQ": TRANSPORTS["DoQ"],
    "DoQ, datagrams of 1400": Style(GREEN, "square", LONG),
    "DoQ, query padded to 512": Style(RED, "triangle-up", SHORT),
    "DoQ, query padded to 1024": Style(PURPLE, "triangle-down", WIDE),
}


def serialisation_data(inputs: Inputs) -> pl.DataFrame:
    """Time of a query minus one RTT, and the time to transmit the query and the bytes before it on the uplink.

    Columns link, series, source, x, n, rounds, median, low, high. `x` is the time to transmit, in ms. `median`, `low`
    and `high` are of the query time minus one RTT, in ms. In the rows of source `slope` and `intercept`, `median` is
    the slope or intercept of the line that is fitted to the medians of DoQ. The row of source `published` has the value
    of TNSM24.
    """
    rows = _serialised(inputs)
    by = ["link", "series"]
    positions = rows.group_by(by).agg(x=pl.col("serialisation_ms").median()).collect()
    ours = metrics.medians(rows, "excess_ms", by).join(positions, on=by).with_columns(source=pl.lit("measured"))
    ours = ours.sort("x", *by, descending=[True, False, False])
    doq = rows.filter(pl.col("series") != "DoUDP")
    parts = [ours]
    fitted = metrics.line(doq, "serialisation_ms", "excess_ms", by)
    for name, estimate in zip(("slope", "intercept"), fitted or (), strict=False):
        low, high = estimate.interval or (None, None)
        values = {"median": estimate.value, "low": low, "high": high, "n": estimate.n, "rounds": estimate.rounds}
        parts.append(pl.DataFrame([{"source": name, **values}], schema_overrides=_ESTIMATE))
    rtt = inputs.rtts.filter(link="dsl").collect()
    at = ours.filter(link="dsl", series="DoQ")
    if rtt.height and at.height:
        excess = (_PUBLISHED_DSL_QUERY_RTT - 1) * rtt["nominal_rtt_ms"][0]
        parts.append(
            pl.DataFrame({"link": "dsl", "series": "DoQ", "source": "published", "x": at["x"], "median": excess})
        )
    return pl.concat(parts, how="diagonal_relaxed")


def _serialised(inputs: Inputs) -> pl.LazyFrame:
    """Exchanges with the time to transmit the query and the bytes before it on the uplink.

    A query waits for the packets that the client sends before it. Over DoQ these are the client's second flight, which
    answers the server's hello and is padded to a full datagram (RFC 9000, section 14.1).
    """
    rates = inputs.link_checks.group_by("link").agg(up_mbit=pl.col("nominal_up_mbit").median())
    padding = pl.col("condition").replace_strict(
        {name: sizes.padding_bytes for name, sizes in DOQ_SIZES.items()}, return_dtype=pl.Int64
    )
    flights = pl.col("handshake_sent_packets") - 1
    before = pl.col("handshake_sent_bytes") / pl.col("handshake_sent_packets") * flights
    doq = before + flights * _IP_AND_ETHERNET_BYTES + padding + _DOQ_QUERY_BYTES + _IP_AND_ETHERNET_BYTES
    sent = pl.when(pl.col("protocol") == "DoQ").then(doq).otherwise(pl.col("query_sent_bytes") + _IP_AND_ETHERNET_BYTES)
    return (
        metrics.exchanges(inputs.dns_exchanges)
        .join(inputs.rtts, on="link")
        .join(rates, on="link")
        .with_columns(
            series=pl.when(pl.col("protocol") == "DoQ")
            .then(pl.col("condition").replace(_SENT))
            .otherwise(pl.col("protocol")),
            serialisation_ms=sent * 8 / pl.col("up_mbit") / 1e3,
            excess_ms=pl.col("query_ms") - pl.col("nominal_rtt_ms"),
        )
    )


def serialisation(frame: pl.DataFrame) -> AnyChart:
    """Chart of the query time beyond one RTT against the time to transmit the query on the uplink."""
    ours = frame.filter(pl.col("source") == "measured")
    if ours.is_empty():
        return marks.empty_plot("no DNS exchanges of this study", COLUMN_WIDTH - 60)
    top = max(float(v) for v in (ours["x"].max(), ours["median"].max(), ours["high"].max() or 0)) * 1.06  # type: ignore[arg-type]
    low = min(0.0, float(ours["median"].min()) * 1.1)  # type: ignore[arg-type]
    scale = alt.Scale(domain=[low, top], nice=False)
    x = alt.X("x:Q", title="Bytes sent up to the query at the uplink's rate (ms)", scale=scale)
    y = alt.Y("median:Q", title="Query beyond one RTT (ms)", scale=scale)
    encodings = marks.encode_series("series", _STYLES, "color", "shape", columns=2)
    position = alt.Tooltip("x:Q", format=".2f", title="serialisation, ms")
    tooltip = marks.tooltip(
        "link_title", "series", "source", value="beyond one RTT, ms", counted="exchanges", more=[position]
    )
    base = alt.Chart(width=COLUMN_WIDTH - 62, height=COLUMN_WIDTH - 62)
    chart: AnyChart = alt.layer(
        marks.diagonal(base, max(0.0, low), top),  # one ms of serialisation, one ms of delay
        *marks.intervals(marks.rows_from(base, "measured"), x, y, tooltip, encodings, upright=True),
        marks.published_points(base, x, y, tooltip, {}, size=120, color=INK, shape="circle"),
    )
    chart.data = with_titles(frame)
    return chart


def serialisation_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of link, series, serialisation_ms, n, median, low, high."""
    return frame.filter(pl.col("source") == "measured").select(
        "link", "series", pl.col("x").alias("serialisation_ms"), "n", "median", "low", "high"
    )


def serialisation_verdict(frame: pl.DataFrame) -> str:
    """Verdict: whether serialisation explains the query of 1.37 RTT."""
    slope, intercept = (row(frame, source=name) for name in ("slope", "intercept"))
    at, published = (row(frame, source=name, link="dsl", series="DoQ") for name in ("measured", "published"))
    if not (slope and intercept and at and published):
        return "Not answered: this dataset lacks DoQ exchanges on DSL or on a link with another uplink."
    explained = slope["median"] * at["x"]
    explains = "Serialisation explains" if holds(slope, 1.0, 0.15) else "Serialisation alone does not explain"
    return (
        f"{explains} the differences between the medians of the DoQ queries. Each ms of transmission on the uplink "
        f"delays the answer by {with_interval(slope, 'ms', 2)} (slope of a line fitted to the medians of the DoQ "
        f"queries). The line's intercept, {with_interval(intercept, 'ms', 1)}, does not depend on serialisation. On "
        f"DSL, our DoQ query takes {at['median']:.1f} ms beyond one RTT. Serialisation explains {explained:.1f} ms "
        f"(slope times transmission time). In {_PAPER}, the query takes 1.37 RTT, which is "
        f"{published['median']:.1f} ms beyond one RTT. If its datagrams had the size of ours, serialisation would "
        f"explain {100 * explained / published['median']:.0f} % of these {published['median']:.1f} ms."
    )


FIGURES = (
    Figure(
        name="dsl-serialisation",
        title="Time of a DoQ query beyond one RTT, by the bytes on the uplink",
        notebook="question_serialisation",
        caption="Vertical axis: median duration of a query minus the link's RTT. Horizontal axis: time that the uplink "
        "needs to transmit the query. Over DoQ, this time includes the transmission of the client's second handshake "
        "flight (padded), which is sent before the query. Links: DSL, and DSL with 2, 4 and 16 times its uplink rate.",
        note=f"Dashed: equal times on both axes. Hollow: {_PAPER}'s DoQ query on DSL, which takes 1.37 RTT. "
        "Its vertical position is therefore 0.37 RTT, in ms. Its horizontal position assumes datagrams of our size. "
        "Bars: 95 % intervals.",
        data=serialisation_data,
        chart=serialisation,
        table=serialisation_table,
        verdict=serialisation_verdict,
    ),
)
