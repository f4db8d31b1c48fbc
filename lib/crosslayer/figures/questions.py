"""What the papers leave open, measured: serialisation on a slow uplink, early data, the post-quantum key share.

Each has rows (`*_data`), a chart and a verdict in a sentence that is computed from the rows.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures.cdf import nothing
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import COLUMN_WIDTH, INK, LINKS, MUTED, PAPER, AnyChart, faceted, link_title

_IP_AND_ETHERNET_BYTES = 34
"""Headers that netem counts and the columns of sizes do not: IPv4 and Ethernet."""
_DOQ_QUERY_BYTES = 43
"""Around a DoQ query: UDP 8, short header 11 with its connection ID, stream frame 6, length 2, AEAD tag 16."""
_ESTIMATE = {name: pl.Float64() for name in ("median", "low", "high")}

# --- serialisation ---------------------------------------------------------------------------------------------------

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
        metrics.exchanges(inputs.dns_exchanges, study="serialisation")
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
        return nothing("no DNS exchanges of this study", COLUMN_WIDTH - 60, 120)
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
    chart.data = frame.with_columns(link_title=pl.col("link").replace(LINKS))
    return chart


def serialisation_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, series, serialisation_ms, n, median, low, high."""
    return frame.filter(pl.col("source") == "measured").select(
        "link", "series", pl.col("x").alias("serialisation_ms"), "n", "median", "low", "high"
    )


def serialisation_verdict(frame: pl.DataFrame) -> str:
    """Does serialisation explain the query of 1.37 RTT?"""
    slope, intercept = (_row(frame, source=name) for name in ("slope", "intercept"))
    at, published = (_row(frame, source=name, link="dsl", series="DoQ") for name in ("measured", "published"))
    if not (slope and intercept and at and published):
        return "Not answered: this dataset lacks DoQ exchanges on DSL or on a link with another uplink."
    explained = slope["median"] * at["x"]
    answer = "Yes" if _holds(slope, 1.0, 0.15) else "Not by bytes alone"
    return (
        f"{answer}. Each ms that the bytes before and in the query occupy the uplink delays the answer by "
        f"{_with_interval(slope, 'ms', 2)}, over four uplinks and four sizes; {_with_interval(intercept, 'ms', 1)} are "
        f"left where nothing is serialised. On DSL that makes {explained:.1f} ms of the {at['median']:.1f} ms that our "
        f"query takes beyond one RTT, and {100 * explained / published['median']:.0f} % of the "
        f"{published['median']:.1f} ms of {PAPER} (1.37 RTT), were its datagrams of the same size."
    )


# --- early data ------------------------------------------------------------------------------------------------------

_KINDS = {"main": "H3 0-RTT", "late": "H3 0-RTT answered late", "resumed": "resumed, no early data"}
_MEASURES = {"response_start_ms": "start of the response", "plt_ms": "PLT"}


def early_data_data(inputs: Inputs) -> pl.DataFrame:
    """What each kind of load saves over a full handshake in the same round, ms.

    Columns link, measure, series, source, x (RTT, ms), n, rounds, median, low, high; rows of source `slope` have the
    saving per ms of RTT.
    """
    loads = _loads(inputs, "early-data").with_columns(
        series=pl.when(pl.col("h3") == "1-rtt", pl.col("variant") == "main")
        .then(pl.lit("full"))
        .otherwise(pl.col("variant").replace(_KINDS))
    )
    parts = []
    for column, measure in _MEASURES.items():
        for series in _KINDS.values():
            saved = metrics.paired(loads, column, "series", "full", series).join(inputs.rtts, on="link")
            named = {"measure": pl.lit(measure), "series": pl.lit(series)}
            places = saved.group_by("link").agg(x=pl.col("nominal_rtt_ms").first()).collect()
            ours = metrics.medians(saved, "difference", ["link"]).join(places, on="link").sort("link")
            parts.append(ours.with_columns(**named, source=pl.lit("measured")))
            if found := metrics.line(saved, "nominal_rtt_ms", "difference", ["link"]):
                low, high = found[0].interval or (None, None)
                values = {"median": found[0].value, "low": low, "high": high, "n": found[0].n}
                slope = pl.DataFrame([values | {"rounds": found[0].rounds}], schema_overrides=_ESTIMATE)
                parts.append(slope.with_columns(**named, source=pl.lit("slope")))
    parts.append(_published_savings(inputs))
    return pl.concat(parts, how="diagonal_relaxed")


def _published_savings(inputs: Inputs) -> pl.DataFrame:
    """Differences of the medians of Figs. 10 and 11, ms, with their slope over the RTT."""
    plt = inputs.published.absolute_plt
    one, zero = (
        plt.filter(series=f"DoQ + H3 {kind}").select("link", "page", pl.col("p50").alias(kind))
        for kind in ("1-RTT", "0-RTT")
    )
    rows = one.join(zero, on=["link", "page"]).join(inputs.rtts.collect(), on="link")
    named = {"measure": pl.lit("PLT"), "series": pl.format("{} as published", "page"), "source": pl.lit("published")}
    return rows.select("link", **named, x="nominal_rtt_ms", median=pl.col("1-RTT") - pl.col("0-RTT"))


def early_data(frame: pl.DataFrame) -> AnyChart:
    """What a load saves over one with a full handshake, against the RTT of the link."""
    ours = frame.filter(pl.col("source") == "measured")
    if ours.is_empty():
        return nothing("no pairs of page loads of this study", COLUMN_WIDTH - 60, 120)
    order = [*_KINDS.values(), "wikipedia.org as published", "instagram.com as published"]
    colors = ["#009e73", "#d55e00", "#4d4d4d", "#0072b2", "#b0578d"]
    shapes = ["circle", "triangle-up", "square", "diamond", "cross"]
    shown = frame.filter(pl.col("source") != "slope")
    right = float(shown["x"].max()) * 1.08  # type: ignore[arg-type]
    ends = shown.select(pl.min_horizontal("low", "median").min(), pl.max_horizontal("high", "median").max()).row(0)
    x = alt.X("x:Q", title="RTT of the link (ms)", scale=alt.Scale(domain=[0, right], nice=False))
    scale = alt.Scale(domain=[min(-5.0, ends[0] - 3), max(right, ends[1] + 3)], nice=False)
    y = alt.Y("median:Q", title="Saved over a full handshake (ms)", scale=scale)
    legend = alt.Legend(title=None, orient="top", columns=2, symbolSize=60, labelLimit=0)
    color = alt.Color("series:N", scale=alt.Scale(domain=order, range=colors), legend=legend)
    shape = alt.Shape("series:N", scale=alt.Scale(domain=order, range=shapes), legend=legend)
    tooltip = [
        alt.Tooltip("link_title:N", title="link"),
        alt.Tooltip("series:N"),
        alt.Tooltip("measure:N"),
        alt.Tooltip("median:Q", format=".1f", title="saved, ms"),
        alt.Tooltip("low:Q", format=".1f", title="95 % from"),
        alt.Tooltip("high:Q", format=".1f", title="to"),
        alt.Tooltip("n:Q", title="pairs"),
    ]
    base = alt.Chart(width=288, height=230)
    one_rtt = (
        base.transform_sample(1)
        .mark_rule(color=MUTED, strokeDash=[4, 3])
        .encode(x=alt.datum(0), y=alt.datum(0), x2=alt.datum(right), y2=alt.datum(right))
    )
    points = base.transform_filter(alt.datum.source == "measured")
    layers = alt.layer(
        one_rtt,
        points.transform_filter(alt.datum.low != None)  # noqa: E711 - a Vega expression
        .mark_rule(strokeWidth=1.4)
        .encode(x, alt.Y("low:Q", scale=scale), color=color, y2="high:Q"),
        points.mark_point(filled=True, size=46, opacity=1).encode(x, y, color, shape, tooltip=tooltip),
        base.transform_filter(alt.datum.source == "published")
        .mark_point(filled=False, size=70, strokeWidth=1.3, opacity=1)
        .encode(x, y, color, shape, tooltip=tooltip[:4]),
    )
    column = alt.Column("measure:N", sort=list(_MEASURES.values()), title=None)
    chart: AnyChart = faceted(layers, column=column, spacing=14)
    chart.data = shown.with_columns(link_title=pl.col("link").replace(LINKS))
    return chart


def early_data_table(frame: pl.DataFrame) -> pl.DataFrame:
    """measure, series, source, link, n, median, low, high; ms, and ms per ms in the rows of slopes."""
    order = pl.col("source").replace_strict({"measured": 0, "published": 1, "slope": 2}, return_dtype=pl.Int64)
    return frame.sort(
        "measure", "series", order, "x", descending=[True, False, False, False], maintain_order=True
    ).select("measure", "series", "source", "link", "n", "median", "low", "high")


def early_data_verdict(frame: pl.DataFrame) -> str:
    """Why does 0-RTT save a whole round-trip here and a fraction of one in the paper?"""
    slopes = {
        series: _row(frame, source="slope", measure="start of the response", series=series)
        for series in _KINDS.values()
    }
    early, late, resumed = (slopes[name] for name in _KINDS.values())
    if not (early and late and resumed):
        return "Not answered: this dataset lacks one of the kinds of load, or has one link only."
    published = frame.filter(pl.col("source") == "published")["median"].drop_nulls().to_list()
    printed = f"{min(published):.0f} to {max(published):.0f} ms" if published else "a fraction of a round-trip"
    return (
        "Because the request travels with the first flight and is answered at once. For each ms of RTT the response "
        f"then starts {_with_interval(early, 'ms', 2)} earlier than after a full handshake. Answered after the "
        f"handshake, early data saves {_with_interval(late, 'ms', 2)} per ms of RTT, and a resumed session without "
        f"early data {_with_interval(resumed, 'ms', 2)}: what those two save is processing, which does not grow with "
        f"the RTT. Nor does what {PAPER} printed for PLT ({printed}, on links of 15 and 92 ms): its 0-RTT loads behave "
        "like sessions that were resumed and whose request was not answered before the handshake ended."
    )


# --- key share -------------------------------------------------------------------------------------------------------

_PHASES = {"handshake_ms": "handshake", "total_ms": "whole exchange"}


def key_share_data(inputs: Inputs) -> pl.DataFrame:
    """What the post-quantum key share costs within a round: X25519MLKEM768 minus X25519, ms.

    Columns link, protocol (`DoQ`, `DoT`), measure, source, n, rounds, median, low, high; rows of source `expected` have
    what the further bytes, counted from the packets, take at the link's rates.
    """
    exchanges = metrics.exchanges(inputs.dns_exchanges, study="key-share")
    parts = []
    for protocol in ("DoQ", "DoT"):
        of_protocol = exchanges.filter(pl.col("protocol") == protocol)
        named = {"protocol": pl.lit(protocol)}
        for column, measure in _PHASES.items():
            cost = metrics.paired(of_protocol, column, "variant", "x25519mlkem768", "x25519")
            ours = metrics.medians(cost, "difference", ["link"]).sort("link")
            parts.append(ours.with_columns(**named, measure=pl.lit(measure), source=pl.lit("measured")))
        parts.append(_expected_cost(of_protocol, inputs).with_columns(**named, source=pl.lit("expected")))
    return _by_rtt(pl.concat(parts, how="diagonal_relaxed"), inputs)


def _expected_cost(exchanges: pl.LazyFrame, inputs: Inputs) -> pl.DataFrame:
    """Time that the further bytes and headers of an exchange occupy the link, up and down, ms by link and measure.

    Of the whole exchange: a client's second flight leaves about when its handshake ends, and may count to either phase.
    """
    rates = inputs.link_checks.group_by("link").agg(
        up=pl.col("nominal_up_mbit").median(), down=pl.col("nominal_down_mbit").median()
    )
    wire = {
        way: pl.col(f"handshake_{way}_bytes")
        + pl.col(f"query_{way}_bytes")
        + _IP_AND_ETHERNET_BYTES * (pl.col(f"handshake_{way}_packets") + pl.col(f"query_{way}_packets"))
        for way in ("sent", "received")
    }
    sizes = exchanges.group_by("link", "variant").agg(**{way: size.median() for way, size in wire.items()})
    large, small = (sizes.filter(pl.col("variant") == name) for name in ("x25519mlkem768", "x25519"))
    further = {way: (pl.col(way) - pl.col(f"{way}_small")) * 8 / 1e3 for way in ("sent", "received")}
    alone = further["sent"] / pl.col("up") + further["received"] / pl.col("down")
    costs = large.join(small, on="link", suffix="_small").join(rates, on="link").select("link", median=alone)
    found = costs.sort("link").collect()
    return pl.concat(found.with_columns(measure=pl.lit(measure)) for measure in _PHASES.values())


def key_share(frame: pl.DataFrame) -> AnyChart:
    """Cost of the post-quantum key share, link by link."""
    ours = frame.filter(pl.col("source") == "measured")
    if ours.is_empty():
        return nothing("no pairs of exchanges of this study", COLUMN_WIDTH - 60, 120)
    links = [link_title(link) for link in ours["link"].unique(maintain_order=True)]
    order = ["DoQ", "DoT"]
    ends = frame.select(pl.min_horizontal("low", "median").min(), pl.max_horizontal("high", "median").max()).row(0)
    scale = alt.Scale(domain=[min(-2.0, ends[0] - 0.5), max(2.0, ends[1] + 0.5)], nice=False)
    x = alt.X("median:Q", title="X25519MLKEM768 minus X25519 (ms)", scale=scale, axis=alt.Axis(tickCount=6))
    y = alt.Y("link_title:N", title=None, sort=links, axis=alt.Axis(domain=False, ticks=False))
    offset = alt.YOffset("protocol:N", sort=order, scale=alt.Scale(paddingOuter=0.8))
    legend = alt.Legend(title=None, orient="top", direction="horizontal", symbolSize=60)
    color = alt.Color("protocol:N", scale=alt.Scale(domain=order, range=["#0072b2", "#d55e00"]), legend=legend)
    shape = alt.Shape("protocol:N", scale=alt.Scale(domain=order, range=["circle", "square"]), legend=legend)
    tooltip = [
        alt.Tooltip("link_title:N", title="link"),
        alt.Tooltip("protocol:N"),
        alt.Tooltip("measure:N"),
        alt.Tooltip("median:Q", format=".2f", title="cost, ms"),
        alt.Tooltip("low:Q", format=".2f", title="95 % from"),
        alt.Tooltip("high:Q", format=".2f", title="to"),
        alt.Tooltip("n:Q", title="pairs"),
    ]
    base = alt.Chart(width=262, height=36 * len(links))
    points = base.transform_filter(alt.datum.source == "measured")
    layers = alt.layer(
        base.transform_sample(1).mark_rule(color=MUTED, strokeDash=[4, 3]).encode(x=alt.datum(0)),
        base.transform_filter(alt.datum.source == "expected")
        .mark_tick(thickness=2, size=11, color=INK)
        .encode(
            x, y, yOffset=offset, tooltip=[*tooltip[:2], alt.Tooltip("median:Q", format=".2f", title="its bytes, ms")]
        ),
        points.transform_filter(alt.datum.low != None)  # noqa: E711 - a Vega expression
        .mark_rule(strokeWidth=1.6)
        .encode(alt.X("low:Q", scale=scale), y, alt.X2("high:Q"), color, yOffset=offset),
        points.mark_point(filled=True, size=46, opacity=1).encode(x, y, color, shape, yOffset=offset, tooltip=tooltip),
    )
    chart: AnyChart = faceted(
        layers, column=alt.Column("measure:N", sort=list(_PHASES.values()), title=None), spacing=12
    )
    chart.data = frame.with_columns(link_title=pl.col("link").replace(LINKS))
    return chart


def key_share_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, protocol, measure, n, median, low, high and what the further bytes take; ms."""
    key = ["link", "protocol", "measure"]
    expected = frame.filter(pl.col("source") == "expected").select(*key, bytes_alone="median")
    ours = frame.filter(pl.col("source") == "measured").select(*key, "n", "median", "low", "high")
    return ours.join(expected, on=key, how="left", maintain_order="left")


def key_share_verdict(frame: pl.DataFrame) -> str:
    """What does the post-quantum key share cost on each link?"""
    said = []
    for link in frame["link"].unique(maintain_order=True):
        of_link = {
            protocol: _row(frame, source="measured", link=link, protocol=protocol, measure="handshake")
            for protocol in ("DoQ", "DoT")
        }
        alone = _row(frame, source="expected", link=link, protocol="DoQ", measure="handshake")
        doq, dot = of_link.values()
        if doq and dot and alone:
            said.append(
                f"{link_title(link)}: {_with_interval(doq, 'ms', 1)} over DoQ, {_with_interval(dot, 'ms', 1)} over "
                f"DoT, of which the bytes are {alone['median']:.1f} ms"
            )
    if not said:
        return "Not answered: this dataset has no pairs of exchanges with and without the post-quantum key share."
    return f"The handshake takes longer by these times. {'; '.join(said)}."


def _by_rtt(frame: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    """Rows in the order of their link's RTT."""
    ranks = {link: rank for rank, link in enumerate(inputs.links)}
    return frame.sort(
        pl.col("link").replace_strict(ranks, return_dtype=pl.Int64, default=len(ranks)), maintain_order=True
    )


def _loads(inputs: Inputs, study: str) -> pl.LazyFrame:
    variants = ("main", "late", "resumed")
    return pl.concat(metrics.page_loads(inputs.page_loads, study=study, variant=name) for name in variants)


def _row(frame: pl.DataFrame, **values: str) -> dict[str, float] | None:
    known = {name: value for name, value in values.items() if name in frame.columns}
    found = frame.filter(**known) if len(known) == len(values) else frame.clear()
    return found.row(0, named=True) if found.height else None


def _with_interval(row: dict[str, float], unit: str, digits: int) -> str:
    interval = "" if row["low"] is None else f" [{row['low']:.{digits}f}, {row['high']:.{digits}f}]"
    return f"{row['median']:.{digits}f}{interval} {unit}"


def _holds(row: dict[str, float], value: float, tolerance: float) -> bool:
    """The interval, or the estimate where there is none, lies within a tolerance of a value."""
    low, high = (row["median"] if row[end] is None else row[end] for end in ("low", "high"))
    return value - tolerance <= low and high <= value + tolerance
