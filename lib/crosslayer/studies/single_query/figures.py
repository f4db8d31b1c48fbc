"""Figures of IMC22, section 3.1 (Table 1 and Fig. 2), and further figures of single queries, e.g. on DoH3 and Retry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.single_queries import (
    ALL,
    TIMES,
    heatmaps,
    ordered_times,
    printed_handshakes,
    table1,
    table1_table,
    times_table,
    whole_table1,
)
from crosslayer.figures.style import COLUMN_WIDTH, TEXT_WIDTH, TRANSPORTS, AnyChart
from crosslayer.studies.single_query.metrics import FURTHER_SERIES, single_queries
from crosslayer.vocabulary import DURATIONS_BY_PART, PAPER_SERIES, SIZES_BY_PART

# Table 1


def table1_data(inputs: Inputs) -> pl.DataFrame:
    """Median IP payload of every part of an exchange, bytes; the columns are those of `whole_table1`."""
    rows = single_queries(inputs.dns_exchanges).filter(pl.col("series").is_in([*PAPER_SERIES, FURTHER_SERIES[0]]))
    ours = [
        metrics.medians(rows, column, ["series"]).with_columns(part=pl.lit(part))
        for part, column in SIZES_BY_PART.items()
    ]
    return whole_table1(pl.concat(ours), inputs.published)


# Fig. 2


def fig2_data(inputs: Inputs) -> pl.DataFrame:
    """Median handshake and resolve time of the paper's transports, for each vantage point and for all together.

    Columns vantage_point (its name, or one of `ALL` and `PRINTED`), series (transport), measure
    (`handshake`, `resolve`), source, n, rounds, median, low, high; ms.
    """
    rows = [_times(inputs, PAPER_SERIES), printed_handshakes(inputs.published)]
    return ordered_times(pl.concat(rows, how="diagonal_relaxed"), PAPER_SERIES)


_FURTHER = ("DoQ", *FURTHER_SERIES)


def further_data(inputs: Inputs) -> pl.DataFrame:
    """Median handshake and resolve time of `FURTHER_SERIES`, and of DoQ for comparison; columns as in `fig2_data`."""
    return ordered_times(_times(inputs, _FURTHER), _FURTHER)


def _times(inputs: Inputs, series: Sequence[str]) -> pl.DataFrame:
    rows = single_queries(inputs.dns_exchanges).filter(pl.col("series").is_in(series))
    parts = []
    for measure in TIMES:
        wanted = rows.filter(pl.col("series") != "DoUDP") if measure == "handshake" else rows
        named = {"measure": pl.lit(measure), "source": pl.lit("measured")}
        column = DURATIONS_BY_PART[measure]
        each = metrics.medians(wanted, column, ["vantage", "series"]).rename({"vantage": "vantage_point"})
        every = metrics.medians(wanted, column, ["series"]).with_columns(vantage_point=pl.lit(ALL))
        parts += [each.with_columns(**named), every.with_columns(**named)]
    return pl.concat(parts, how="diagonal_relaxed")


# Handshakes in round-trips

Kind = tuple[str, str, str]
"""Protocol, resumption and condition of an exchange."""

_HANDSHAKES: Mapping[str, tuple[Kind, int]] = {
    "DoQ 0-RTT": (("DoQ", "early-data", "early-data"), 0),
    "DoH3 0-RTT": (("DoH3", "early-data", "early-data"), 0),
    "DoTCP": (("DoTCP", "none", "main"), 1),
    "DoQ, resumed": (("DoQ", "ticket", "main"), 1),
    "DoH3, resumed": (("DoH3", "ticket", "main"), 1),
    "DoT, resumed": (("DoT", "ticket", "main"), 2),
    "DoH, resumed": (("DoH", "ticket", "main"), 2),
    "DoT, full": (("DoT", "none", "main"), 2),
    "DoH, full": (("DoH", "none", "main"), 2),
    "DoT, TLS 1.2, resumed": (("DoT", "ticket", "tls-1.2"), 2),
    "DoH, TLS 1.2, resumed": (("DoH", "ticket", "tls-1.2"), 2),
    "DoT, TLS 1.2, full": (("DoT", "none", "tls-1.2"), 3),
    "DoH, TLS 1.2, full": (("DoH", "none", "tls-1.2"), 3),
}
_LIMITS: Mapping[str, tuple[Kind, int]] = {
    "Small certificate": (("DoQ", "none", "main"), 1),
    "Large certificate": (("DoQ", "none", "large-certificate"), 2),
    "Large certificate, resumed": (("DoQ", "ticket", "large-certificate"), 1),
    "Retry": (("DoQ", "none", "retry"), 2),
    "Retry, resumed with a token": (("DoQ", "ticket", "retry"), 1),
}


def handshake_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers of `round_trips` as a table.

    Columns label, n, expected, median, low, high (multiples of the RTT), beyond_ms, sent_bytes, received_bytes,
    received_packets.
    """
    return frame.drop("source", "rounds", "protocol")


def round_trips(inputs: Inputs, kinds: Mapping[str, tuple[Kind, int]]) -> pl.DataFrame:
    """Median handshake time of each kind of exchange in `kinds`.

    Columns label, protocol, source, n, rounds, expected (round-trips), median, low, high (multiples of the link's RTT),
    beyond_ms, sent_bytes, received_bytes, received_packets. `beyond_ms` is the median of a difference: handshake time
    minus the time of the expected round-trips. The last three columns are medians of what the client sent and received
    in the handshake.
    """
    rows = metrics.in_rtts(single_queries(inputs.dns_exchanges), inputs.rtts, ["handshake_ms"])
    parts = []
    for label, ((protocol, resumption, condition), expected) in kinds.items():
        wanted = rows.filter(
            pl.col("protocol") == protocol, pl.col("resumption") == resumption, pl.col("condition") == condition
        )
        medians = metrics.medians(wanted, "handshake_rtt", [])
        further = wanted.select(
            beyond_ms=(pl.col("handshake_ms") - expected * pl.col("nominal_rtt_ms")).median(),
            sent_bytes=pl.col("handshake_sent_bytes").median(),
            received_bytes=pl.col("handshake_received_bytes").median(),
            received_packets=pl.col("handshake_received_packets").median(),
        ).collect()
        named = {"label": pl.lit(label), "protocol": pl.lit(protocol), "source": pl.lit("measured")}
        parts.append(medians.join(further, how="cross").with_columns(**named, expected=pl.lit(expected)))
    columns = ["label", "protocol", "source", "n", "rounds", "expected", "median", "low", "high"]
    return pl.concat(parts).select(*columns, "beyond_ms", "sent_bytes", "received_bytes", "received_packets")


def round_trip_marks(frame: pl.DataFrame) -> AnyChart:
    if frame.is_empty():
        return marks.empty_plot("no single queries", COLUMN_WIDTH - 60)
    top = float(frame.select(pl.max_horizontal("median", "high").max()).item())
    scale = alt.Scale(domain=[-0.1, max(top, 3.0) + 0.15], nice=False)
    axis = alt.Axis(values=[0, 1, 2, 3], format="d")
    x = alt.X("median:Q", title="Handshake (multiples of the RTT)", scale=scale, axis=axis)
    y = marks.rows("label", frame["label"].to_list())
    encodings = marks.encode_series("protocol", TRANSPORTS, "color", "shape", legend=False)
    more = [
        alt.Tooltip("expected:Q", title="RTTs expected"),
        alt.Tooltip("beyond_ms:Q", format="+.1f", title="beyond the round-trips, ms"),
        alt.Tooltip("received_bytes:Q", format=".0f", title="received, bytes"),
    ]
    tooltip = marks.tooltip("label", value="RTT", counted="exchanges", more=more)
    base = alt.Chart(width=COLUMN_WIDTH - 165, height=17 * frame.height)
    chart: AnyChart = alt.layer(
        marks.ticks(base, alt.X("expected:Q"), y, tooltip), *marks.intervals(base, x, y, tooltip, encodings)
    )
    chart.data = frame
    return chart


FIGURES = (
    Figure(
        name="imc22-table1",
        title="Bytes of a single query",
        paper_figure="IMC22 Table 1",
        notebook="single_query",
        caption="Median IP payload of each part of an exchange on a new connection, counted from the packets. "
        "Over encrypted transports, this connection resumes a TLS session.",
        note="Bold: measured; below: published (medians over 275 or 276 resolvers). The total is the sum of the "
        "medians.",
        data=table1_data,
        chart=table1,
        table=table1_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="imc22-fig2",
        title="Handshake and resolve time by vantage point",
        paper_figure="IMC22 Fig. 2",
        notebook="single_query",
        caption="Median handshake and resolve time (query to answer) from each vantage point, over all resolvers. The "
        "paper does not publish the RTT of each vantage point, so we model these RTTs. The model keeps what the paper "
        "publishes: the median DoTCP handshake over all vantage points, and the order of the vantage points.",
        note="Numbers: medians, ms. Published: median handshakes over all vantage points, from the text of the paper.",
        data=fig2_data,
        chart=partial(heatmaps, series=PAPER_SERIES),
        table=times_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="further-transports",
        title="Handshake and resolve time of DoH3, and of transports with early data",
        notebook="single_query",
        caption="Median handshake and resolve time (query to answer) of DoH3, and of transports with early data "
        "(0-RTT). The paper measured neither DoH3 nor early data, which no public resolver accepted at that time. With "
        "early data, the query does not wait for the handshake.",
        note="Numbers: medians, ms. DoQ and DoH3 resume a session, as in the paper.",
        data=further_data,
        chart=partial(heatmaps, series=_FURTHER),
        table=times_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="handshake-round-trips",
        title="Handshakes in round-trips",
        notebook="single_query",
        caption="Median handshake in multiples of the link's RTT. TLS 1.2 and full handshakes were measured "
        "from the first vantage point only.",
        note="Marks: medians; bars: 95 % intervals. Vertical ticks: the round-trips that the protocols need.",
        data=partial(round_trips, kinds=_HANDSHAKES),
        chart=round_trip_marks,
        table=handshake_table,
    ),
    Figure(
        name="amplification-limit",
        title="One more round-trip: the amplification limit and Retry",
        notebook="single_query",
        caption="Median DoQ handshake in multiples of the link's RTT. Until the client's address is validated, a "
        "server may send at most three times the bytes it has received. A certificate above this limit takes one more "
        "round-trip. A Retry sends the client a token, which also takes one more round-trip. A client that resumes a "
        "session needs no certificate, and its earlier token validates its address.",
        note="Marks: medians; bars: 95 % intervals. Vertical ticks: the expected round-trips.",
        data=partial(round_trips, kinds=_LIMITS),
        chart=round_trip_marks,
        table=handshake_table,
    ),
)
