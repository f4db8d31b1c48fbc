"""IMC22 section 3.1: single queries by transport and vantage point (Table 1, Fig. 2), and what the paper left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.style import COLUMN_WIDTH, INK, RULE, TEXT_PX, TEXT_WIDTH, TRANSPORTS, AnyChart
from crosslayer.studies.single_query.metrics import FURTHER_SERIES, single_queries
from crosslayer.vocabulary import PAPER_SERIES, SIZES_BY_PART, VANTAGE_POINTS

ALL, PRINTED = "All, measured", "All, published"

_TIMES = {"handshake": "handshake_ms", "resolve": "query_ms"}


# Table 1


def table1_data(inputs: Inputs) -> pl.DataFrame:
    """Median IP payload of every part of an exchange, bytes.

    Columns series, part, source (`measured`, `published`), n, rounds, median, low, high: the 95 % interval of ours, and
    in rows of source `published` the 10th and 90th percentile over the paper's resolvers. `total` is the sum of the
    four medians, as in the paper.
    """
    rows = single_queries(inputs.dns_exchanges).filter(pl.col("series").is_in([*PAPER_SERIES, FURTHER_SERIES[0]]))
    ours = [
        metrics.medians(rows, column, ["series"]).with_columns(part=pl.lit(part), source=pl.lit("measured"))
        for part, column in SIZES_BY_PART.items()
    ]
    printed = inputs.published.sizes.filter(pl.col("part").is_in(SIZES_BY_PART)).select(
        "series", "part", source=pl.lit("published"), median="table1", low="p10", high="p90"
    )
    frame = pl.concat([*ours, printed], how="diagonal_relaxed")
    total = frame.group_by("series", "source").agg(pl.col("median").sum(), pl.col("n").min(), part=pl.lit("total"))
    frame = pl.concat([frame, total], how="diagonal_relaxed")
    order = [*PAPER_SERIES, FURTHER_SERIES[0]]
    return frame.select("series", "part", "source", "n", "rounds", "median", "low", "high").sort(
        _rank("series", order), _rank("part", ["total", *SIZES_BY_PART]), "source"
    )


def table1(frame: pl.DataFrame) -> AnyChart:
    """IMC22 Table 1: our bytes, the published ones below them, shaded by how far they are apart."""
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    if ours.is_empty():
        return marks.empty_plot("no single queries", TEXT_WIDTH - 60)
    rows = ours.join(printed.select("series", "part", published="median"), on=["series", "part"], how="left")
    rows = rows.with_columns(
        percent=((pl.col("median") / pl.col("published") - 1) * 100).fill_nan(0.0),
        ours=pl.col("median").round(0).cast(pl.Int64).cast(pl.String),
        theirs=pl.format("({})", pl.col("published").cast(pl.Int64)).fill_null("not published"),
    )
    order = [name for name in (*PAPER_SERIES, FURTHER_SERIES[0]) if name in set(rows["series"])]
    short = "replace(replace(datum.label, 'client to resolver', 'sent'), 'resolver to client', 'received')"
    base = alt.Chart(width=TEXT_WIDTH - 90, height=38 * len(order)).encode(
        marks.columns("part", ["total", *SIZES_BY_PART], orient="top", labelExpr=short),
        marks.rows("series", order, bold=True),
    )
    scale = alt.Scale(domain=[-50, 0, 50], range=["#b2abd2", "#ffffff", "#fdb863"], interpolate="rgb", clamp=True)
    legend = alt.Legend(title="measured against published (%)", orient="bottom", gradientLength=180)
    shade = alt.Color("percent:Q", scale=scale, legend=legend)
    more = [alt.Tooltip("published:Q", format=".0f", title="published, bytes"), _EXCHANGES]
    tooltip = marks.tooltip("series", "part", value="measured, bytes", digits=".0f", more=more)
    chart: AnyChart = marks.heatmap(
        base,
        alt.condition("isValid(datum.percent)", shade, alt.value("white")),
        tooltip,
        marks.CellText("ours:N", alt.value(INK), dy=-6, size=TEXT_PX + 1, weight="bold"),
        marks.CellText("theirs:N", alt.value(INK), dy=8, size=TEXT_PX - 1),
        stroke=RULE,
    )
    chart.data = rows
    return chart


_EXCHANGES = alt.Tooltip("n:Q", title="exchanges")


def table1_table(frame: pl.DataFrame) -> pl.DataFrame:
    """series, part, n, median, low, high, published with the 10th and 90th percentile over its resolvers; bytes."""
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    published = printed.select("series", "part", published="median", published_p10="low", published_p90="high")
    return ours.join(published, on=["series", "part"], how="left", maintain_order="left").drop("source", "rounds")


# Fig. 2


def fig2_data(inputs: Inputs) -> pl.DataFrame:
    """Median handshake and resolve time of the paper's transports.

    Columns place (name of the vantage point, or one of `ALL` and `PRINTED`), series, measure (`handshake`, `resolve`),
    source, n, rounds, median, low, high; ms.
    """
    printed = inputs.published.claims.filter(
        pl.col("paper") == "IMC22", pl.col("quantity") == "handshake time", pl.col("statistic") == "median"
    ).select(
        place=pl.lit(PRINTED),
        series=pl.col("scope").str.split(";").list.first(),
        measure=pl.lit("handshake"),
        source=pl.lit("published"),
        median=pl.col("value").cast(pl.Float64),
    )
    return _ordered(pl.concat([_times(inputs, PAPER_SERIES), printed], how="diagonal_relaxed"), PAPER_SERIES)


_FURTHER = ("DoQ", *FURTHER_SERIES)


def further_data(inputs: Inputs) -> pl.DataFrame:
    """Rows of DoH3, of queries as early data, and of DoQ for comparison; columns of `fig2_data`."""
    return _ordered(_times(inputs, _FURTHER), _FURTHER)


def times_table(frame: pl.DataFrame) -> pl.DataFrame:
    """place, series, measure, n, median, low, high; ms. Published values are rows of their own."""
    return frame.drop("source", "rounds")


def _times(inputs: Inputs, series: Sequence[str]) -> pl.DataFrame:
    rows = single_queries(inputs.dns_exchanges).filter(pl.col("series").is_in(series))
    parts = []
    for measure, column in _TIMES.items():
        wanted = rows.filter(pl.col("series") != "DoUDP") if measure == "handshake" else rows
        named = {"measure": pl.lit(measure), "source": pl.lit("measured")}
        each = metrics.medians(wanted, column, ["vantage", "series"]).rename({"vantage": "place"})
        every = metrics.medians(wanted, column, ["series"]).with_columns(place=pl.lit(ALL))
        parts += [each.with_columns(**named), every.with_columns(**named)]
    return pl.concat(parts, how="diagonal_relaxed").with_columns(pl.col("place").replace(VANTAGE_POINTS))


def _ordered(frame: pl.DataFrame, series: Sequence[str]) -> pl.DataFrame:
    columns = ["place", "series", "measure", "source", "n", "rounds", "median", "low", "high"]
    return frame.select(columns).sort(
        _rank("measure", list(_TIMES)), _rank("place", _row_names(frame)), _rank("series", series)
    )


def _row_names(frame: pl.DataFrame) -> list[str]:
    known = [*VANTAGE_POINTS.values(), ALL, PRINTED]
    others = [name for name in frame["place"].unique(maintain_order=True) if name not in known]
    return [name for name in (*VANTAGE_POINTS.values(), *others, ALL, PRINTED) if name in set(frame["place"])]


def _heatmaps(frame: pl.DataFrame, series: Sequence[str]) -> AnyChart:
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no single queries", TEXT_WIDTH - 60)
    row_names, top = _row_names(frame), float(frame["median"].max())  # type: ignore[arg-type]
    shade = alt.Color("median:Q", scale=alt.Scale(domain=[0, top], scheme="blues"), legend=None)
    number = marks.CellText(alt.Text("median:Q", format=".0f"), marks.light_where(alt.datum.median > 0.58 * top))
    tooltip = marks.tooltip("place", "series", "source", value="median, ms", digits=".1f", counted="exchanges")
    plots = []
    for measure in _TIMES:
        shown = [name for name in series if name in set(frame.filter(pl.col("measure") == measure)["series"])]
        across = marks.columns("series", shown, orient="top")
        down = marks.rows("place", row_names, bold=True, labels=measure == "handshake")
        base = alt.Chart(width=(TEXT_WIDTH - 135) // 2, height=24 * len(row_names)).encode(across, down)
        base = base.transform_filter(alt.datum.measure == measure)
        title = f"{measure.capitalize()} time (ms)"
        plots.append(marks.heatmap(base, shade, tooltip, number).properties(title=title))
    chart: AnyChart = alt.hconcat(*plots, spacing=8)
    chart.data = frame
    return chart


# Handshakes in round-trips

Kind = tuple[str, str, str]
"""protocol, resumption and condition of an exchange."""

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
    """label, n, expected (RTT), median, low, high (RTT), beyond_ms, sent and received bytes and received packets."""
    return frame.drop("source", "rounds", "protocol")


def round_trips(inputs: Inputs, kinds: Mapping[str, tuple[Kind, int]]) -> pl.DataFrame:
    """Medians of the kinds of handshakes there are.

    Columns label, protocol, source, n, rounds, expected, median, low, high (multiples of the link's RTT), beyond_ms
    (median of what the handshake took beyond the expected round-trips), sent_bytes, received_bytes, received_packets
    (medians).
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


def _rank(column: str, order: Sequence[str]) -> pl.Expr:
    ranks = {name: rank for rank, name in enumerate(order)}
    return pl.col(column).replace_strict(ranks, return_dtype=pl.Int64, default=len(ranks))


FIGURES = (
    Figure(
        name="imc22-table1",
        title="Bytes of a single query",
        paper_figure="IMC22 Table 1",
        notebook="single_query",
        caption="Median IP payload of each part of an exchange on a new connection, counted from the packets; "
        "encrypted transports resume a session.",
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
        caption="Median handshake and resolve time of a single query from each vantage point, over all "
        "resolvers. The RTTs are a model with the paper's overall median and the paper's order of "
        "vantage points. The paper does not publish numbers of single vantage points.",
        note="Numbers: medians, ms. Published: the medians over all vantage points that the text gives for handshakes.",
        data=fig2_data,
        chart=partial(_heatmaps, series=PAPER_SERIES),
        table=times_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="further-transports",
        title="Handshake and resolve time with DoH3 and early data",
        notebook="single_query",
        caption="Median handshake and resolve time of transports that the paper could not measure: DoH3, and "
        "queries sent as early data (0-RTT), which no public resolver accepted then. Early data needs "
        "no handshake before the query.",
        note="Numbers: medians, ms. DoQ and DoH3 resume a session, as in the paper.",
        data=further_data,
        chart=partial(_heatmaps, series=_FURTHER),
        table=times_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="handshake-round-trips",
        title="Handshakes in round-trips",
        notebook="single_query",
        caption="Median handshake in multiples of the link's RTT. TLS 1.2 and full handshakes were measured "
        "from the first vantage point only.",
        note="Marks: medians; bars: 95 % intervals. Upright ticks: the round-trips the protocols need.",
        data=partial(round_trips, kinds=_HANDSHAKES),
        chart=round_trip_marks,
        table=handshake_table,
    ),
    Figure(
        name="amplification-limit",
        title="One more round-trip: the amplification limit and Retry",
        notebook="single_query",
        caption="Median DoQ handshake. Before it has validated the client's address, a server may send three "
        "times the bytes that it received. A larger certificate waits for one more round-trip; so does "
        "a client that the server asks for a token by Retry. A resumed session sends no certificate, "
        "and the token of an earlier connection validates the address.",
        note="Marks: medians; bars: 95 % intervals. Upright ticks: the round-trips expected.",
        data=partial(round_trips, kinds=_LIMITS),
        chart=round_trip_marks,
        table=handshake_table,
    ),
)
