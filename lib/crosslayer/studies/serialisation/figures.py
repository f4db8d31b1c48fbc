"""Does serialisation on a slow uplink explain what a DoQ query takes beyond one RTT?"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs
from crosslayer.figures.cdf import empty_plot
from crosslayer.figures.sentences import holds, row, with_interval
from crosslayer.figures.style import COLUMN_WIDTH, INK, MUTED, AnyChart, with_titles
from crosslayer.studies.coalescing.figures.common import PAPER

_IP_AND_ETHERNET_BYTES = 34
"""Headers that netem counts and the columns of sizes do not: IPv4 and Ethernet."""
_DOQ_QUERY_BYTES = 43
"""Around a DoQ query: UDP 8, short header 11 with its connection ID, stream frame 6, length 2, AEAD tag 16."""
_ESTIMATE = {name: pl.Float64() for name in ("median", "low", "high")}

_PUBLISHED_DSL_QUERY_RTT = 1.37  # TNSM24 section IV-B, claim T100
_SENT = {
    "main": "DoQ",
    "datagram-1400-padding-128": "DoQ, datagrams of 1400",
    "datagram-1200-padding-512": "DoQ, query padded to 512",
    "datagram-1200-padding-1024": "DoQ, query padded to 1024",
}


def serialisation_data(inputs: Inputs) -> pl.DataFrame:
    """What a query takes beyond one RTT, and how long the bytes before and in it occupy the uplink.

    Columns link, series, source, x (serialisation, ms), n, rounds, median, low, high (excess over the RTT, ms); a row
    of source `slope` and one of source `intercept` have the line through the medians of DoQ.
    """
    rows = _serialised(inputs)
    by = ["link", "series"]
    places = rows.group_by(by).agg(x=pl.col("serialisation_ms").median()).collect()
    ours = metrics.medians(rows, "excess_ms", by).join(places, on=by).with_columns(source=pl.lit("measured"))
    ours = ours.sort("x", *by, descending=[True, False, False])
    doq = rows.filter(pl.col("series") != "DoUDP")
    parts = [ours]
    found = metrics.line(doq, "serialisation_ms", "excess_ms", by)
    for name, estimate in zip(("slope", "intercept"), found or (), strict=False):
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
    """Exchanges with the time that what the client sends up to its query needs on the uplink.

    A query waits for what left before it: over DoQ the second flight, which answers the server's hello and is padded to
    a full datagram (RFC 9000, section 14.1).
    """
    rates = inputs.link_checks.group_by("link").agg(up_mbit=pl.col("nominal_up_mbit").median())
    padding = pl.col("variant").str.extract(r"padding-(\d+)").cast(pl.Int64).fill_null(128)
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
            .then(pl.col("variant").replace(_SENT))
            .otherwise(pl.col("protocol")),
            serialisation_ms=sent * 8 / pl.col("up_mbit") / 1e3,
            excess_ms=pl.col("query_ms") - pl.col("nominal_rtt_ms"),
        )
    )


def serialisation(frame: pl.DataFrame) -> AnyChart:
    """Excess of the query over one RTT against the time its bytes occupy the uplink."""
    ours = frame.filter(pl.col("source") == "measured")
    if ours.is_empty():
        return empty_plot("no DNS exchanges of this study", COLUMN_WIDTH - 60, 120)
    order = ["DoUDP", *_SENT.values()]
    colors = ["#4d4d4d", "#0072b2", "#009e73", "#d55e00", "#b0578d"]
    shapes = ["diamond", "circle", "square", "triangle-up", "triangle-down"]
    top = max(float(v) for v in (ours["x"].max(), ours["median"].max(), ours["high"].max() or 0)) * 1.06  # type: ignore[arg-type]
    low = min(0.0, float(ours["median"].min()) * 1.1)  # type: ignore[arg-type]
    scale = alt.Scale(domain=[low, top], nice=False)
    x = alt.X("x:Q", title="Bytes sent up to the query at the uplink's rate (ms)", scale=scale)
    y = alt.Y("median:Q", title="Query beyond one RTT (ms)", scale=scale)
    legend = alt.Legend(title=None, orient="top", columns=2, symbolSize=60, labelLimit=0)
    color = alt.Color("series:N", scale=alt.Scale(domain=order, range=colors), legend=legend)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=order, range=shapes), legend=legend)
    tooltip = [
        alt.Tooltip("link_title:N", title="link"),
        alt.Tooltip("series:N"),
        alt.Tooltip("source:N"),
        alt.Tooltip("x:Q", format=".2f", title="serialisation, ms"),
        alt.Tooltip("median:Q", format=".2f", title="beyond one RTT, ms"),
        alt.Tooltip("low:Q", format=".2f", title="95 % from"),
        alt.Tooltip("high:Q", format=".2f", title="to"),
        alt.Tooltip("n:Q", title="exchanges"),
    ]
    base = alt.Chart(width=COLUMN_WIDTH - 62, height=COLUMN_WIDTH - 62)
    # The diagonal, in full: one ms of serialisation, one ms of delay.
    diagonal = (
        base.transform_sample(1)
        .mark_rule(color=MUTED, strokeDash=[4, 3])
        .encode(x=alt.datum(max(0.0, low)), y=alt.datum(max(0.0, low)), x2=alt.datum(top), y2=alt.datum(top))
    )
    points = base.transform_filter(alt.datum.source == "measured")
    chart: AnyChart = alt.layer(
        diagonal,
        points.transform_filter(alt.datum.low != None)  # noqa: E711 - a Vega expression
        .mark_rule(strokeWidth=1.4)
        .encode(x, alt.Y("low:Q", scale=scale), color=color, y2="high:Q"),
        points.mark_point(filled=True, size=46, opacity=1).encode(x, y, color, shape, tooltip=tooltip),
        base.transform_filter(alt.datum.source == "published")
        .mark_point(filled=False, size=120, strokeWidth=1.4, color=INK, shape="circle", opacity=1)
        .encode(x, y, tooltip=tooltip[:5]),
    )
    chart.data = with_titles(frame)
    return chart


def serialisation_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, series, serialisation_ms, n, median, low, high."""
    return frame.filter(pl.col("source") == "measured").select(
        "link", "series", pl.col("x").alias("serialisation_ms"), "n", "median", "low", "high"
    )


def serialisation_verdict(frame: pl.DataFrame) -> str:
    """Does serialisation explain the query of 1.37 RTT?"""
    slope, intercept = (row(frame, source=name) for name in ("slope", "intercept"))
    at, published = (row(frame, source=name, link="dsl", series="DoQ") for name in ("measured", "published"))
    if not (slope and intercept and at and published):
        return "Not answered: this dataset lacks DoQ exchanges on DSL or on a link with another uplink."
    explained = slope["median"] * at["x"]
    answer = "Yes" if holds(slope, 1.0, 0.15) else "Not by bytes alone"
    return (
        f"{answer}. Each ms that the bytes before and in the query occupy the uplink delays the answer by "
        f"{with_interval(slope, 'ms', 2)}, over four uplinks and four sizes; {with_interval(intercept, 'ms', 1)} are "
        f"left where nothing is serialised. On DSL that makes {explained:.1f} ms of the {at['median']:.1f} ms that our "
        f"query takes beyond one RTT, and {100 * explained / published['median']:.0f} % of the "
        f"{published['median']:.1f} ms of {PAPER} (1.37 RTT), were its datagrams of the same size."
    )


FIGURES = (
    Figure(
        name="dsl-serialisation",
        title="A DoQ query beyond one RTT, and the bytes on the uplink",
        notebook="question_serialisation",
        caption=(
            "Median time a query takes beyond the link's RTT against the time that the bytes sent up to it (the "
            "padded second flight of the handshake, and the query) occupy the uplink, on DSL with its own uplink and "
            "with 2, 4 and 16 times its rate."
        ),
        note=(
            f"Dashed: one ms of bytes, one ms of delay. Hollow: {PAPER}'s 1.37 RTT on DSL, were its datagrams of our "
            "size. Bars: 95 % intervals."
        ),
        data=serialisation_data,
        chart=serialisation,
        table=serialisation_table,
        verdict=serialisation_verdict,
    ),
)
