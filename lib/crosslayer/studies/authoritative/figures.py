"""Figures: Tables 1 and 2 and Fig. 3 of Batenburg (Twente 2022), and experiments that it calls future work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.style import (
    BLUE,
    EARLY_DATA,
    INK,
    LONG,
    MUTED,
    RED,
    SOLID,
    TEXT_WIDTH,
    TRANSPORTS,
    AnyChart,
    Style,
    link_title,
    with_titles,
)
from crosslayer.vocabulary import Role

_PAPER_LINKS = ("twente-local", "twente-eu", "twente-us", "twente-au")
"""Links of the paper. The titles of their profiles are the paper's names."""
_VARIED = ("twente-us", "twente-us-jitter", "twente-us-loss")
_CONNECTIONS = {"kept": "kept", "new": "closed after every query", "0-rtt": "closed, 0-RTT"}
_LEAST_MS, _SHARE = 0.5, 0.02
"""Allowed deviation of a mean response time from RTT plus processing: 2 % of the RTT or 0.5 ms, the larger of both."""
_RTT = pl.col("nominal_rtt_ms")

# --- Tables 1 and 2 --------------------------------------------------------------------------------------------------


def with_published(inputs: Inputs, statistic: str, table: str) -> pl.DataFrame:
    """Mean (ms) or variance (ms²) of the response time on kept connections, measured and published.

    The response time is measured between the proxies, and the time that BIND needs is subtracted.

    Columns link, protocol, source (`measured`, `published`), nominal_rtt_ms, n, rounds, value, low, high.
    """
    kept = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(_PAPER_LINKS))
    ours = metrics.moments(kept, "between_ms", ["link", "protocol"], statistic).with_columns(source=pl.lit("measured"))
    links = {link_title(link): link for link in _PAPER_LINKS}
    scope = pl.col("scope").str.split("; ")
    printed = inputs.published.claims.filter(paper="BATENBURG22", section_or_figure=table).select(
        link=scope.list.get(1).replace_strict(links, return_dtype=pl.String),
        protocol=scope.list.get(0),
        source=pl.lit("published"),
        value=pl.col("value").cast(pl.Float64),
    )
    rtts = _rtts(inputs)
    return _sorted(pl.concat([ours, printed], how="diagonal").join(rtts, on="link"), _PAPER_LINKS)


def means_data(inputs: Inputs) -> pl.DataFrame:
    """Means as in `with_published`, and the same means minus the RTT of the link.

    The columns `beyond`, `beyond_low` and `beyond_high` are `value`, `low` and `high` minus the RTT, ms.
    """
    ends = {"beyond": "value", "beyond_low": "low", "beyond_high": "high"}
    rows = with_published(inputs, "mean", "Table 1")
    return rows.with_columns(**{name: pl.col(of) - _RTT for name, of in ends.items()})


def with_published_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Measured and published values side by side: link, protocol, n, ours, low, high, published."""
    key = ["link", "protocol"]
    printed = frame.filter(source="published").select(*key, published="value")
    ours = frame.filter(source="measured").select(*key, "n", ours="value", low="low", high="high")
    return ours.join(printed, on=key, how="left", maintain_order="left")


# --- Fig. 3 ----------------------------------------------------------------------------------------------------------

_BIN_MS, _FIRST_MS, _LAST_MS = 0.2, -0.4, 6.0


def histograms_data(inputs: Inputs) -> pl.DataFrame:
    """Histograms of the response time minus the link's RTT.

    Columns link, protocol, n, from_ms, to_ms (limits of the bin), percent (of the responses), source. The first bin
    includes all shorter times, the last bin all longer times.
    """
    kept = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(_PAPER_LINKS))
    beyond = (pl.col("between_ms") - _RTT).clip(_FIRST_MS, _LAST_MS - _BIN_MS / 2)
    number = ((beyond - _FIRST_MS) / _BIN_MS).floor().cast(pl.Int64)
    key = ["link", "protocol"]
    counted = (
        kept.join(_rtts(inputs).lazy(), on="link")
        .group_by(*key, number.alias("number"))
        .agg(count=pl.len())
        .with_columns(n=pl.col("count").sum().over(key))
        .collect()
    )
    # Empty bins have rows, too, so that the histogram falls to zero there.
    bins = pl.DataFrame({"number": range(round((_LAST_MS - _FIRST_MS) / _BIN_MS))}, schema={"number": pl.Int64})
    every = counted.select(*key, "n").unique().join(bins, how="cross")
    rows = every.join(counted.select(*key, "number", "count"), on=[*key, "number"], how="left").select(
        *key,
        "n",
        from_ms=(_FIRST_MS + pl.col("number") * _BIN_MS).round(2),
        to_ms=(_FIRST_MS + (pl.col("number") + 1) * _BIN_MS).round(2),
        percent=100 * pl.col("count").fill_null(0) / pl.col("n"),
        source=pl.lit("measured"),
    )
    return _sorted(rows, _PAPER_LINKS, "from_ms")


def histograms(frame: pl.DataFrame) -> AnyChart:
    """Fig. 3: one histogram for each transport and location."""
    if frame.is_empty():
        return _nothing()
    x = alt.X("from_ms:Q", title="Beyond the RTT (ms)", scale=alt.Scale(domain=[-0.5, _LAST_MS], nice=False))
    y = alt.Y("percent:Q", title=None, axis=alt.Axis(tickCount=2, grid=False, labelExpr=_NO_ZERO))
    bounds = [alt.Tooltip("from_ms:Q", title="from, ms"), alt.Tooltip("to_ms:Q", title="to, ms")]
    tooltip = marks.tooltip(
        "link_title", "protocol", value="share, %", of="percent:Q", digits=".1f", more=[*bounds, _RESPONSES]
    )
    encodings = marks.encode_series("protocol", TRANSPORTS, "color", legend=False)
    bars = marks.histogram(alt.Chart(width=136, height=42), x, "to_ms", y, tooltip, encodings)
    row = marks.facet_rows(
        "protocol", [*TRANSPORTS], labelAngle=0, labelAlign="left", labelPadding=4, title="Share of responses (%)"
    )
    chart: AnyChart = marks.multiples(
        [bars], row=row, column=marks.facet_columns("link_title", _shown(frame)), spacing=7
    )
    chart.data = with_titles(frame)
    return chart


# --- check of the procedure ------------------------------------------------------------------------------------------


def pace_data(inputs: Inputs) -> pl.DataFrame:
    """Mean response time on kept connections, less the RTT and the processing time, ms.

    The processing time is the mean response time on the link without delay.

    Columns link, protocol, source, nominal_rtt_ms, tolerance_ms, n, rounds, value, low, high, send_delay_ms (median),
    new_connections (number of queries that needed a new connection), failed (number of failed queries).
    """
    key = ["link", "protocol"]
    of_paper = pl.col("link").is_in(_PAPER_LINKS)
    every = inputs.paced_queries.filter(of_paper, connection_mode="kept", role=Role.MEASURED)
    generator = every.group_by(key).agg(
        send_delay_ms=pl.col("send_delay_ms").median(),
        new_connections=pl.col("new_connection").sum(),
        failed=pl.col("error").is_not_null().sum(),
    )
    kept = metrics.paced(inputs.paced_queries).filter(of_paper)
    means = metrics.moments(kept, "net_ms", key, "mean")
    processing = means.filter(link="twente-local").select("protocol", processing="value")
    rows = means.join(processing, on="protocol").join(_rtts(inputs), on="link").join(generator.collect(), on=key)
    beyond = {name: pl.col(name) - _RTT - pl.col("processing") for name in ("value", "low", "high")}
    tolerance = pl.max_horizontal(pl.lit(_LEAST_MS), _SHARE * _RTT)
    rows = rows.filter(_RTT > 0).with_columns(**beyond, tolerance_ms=tolerance, source=pl.lit("measured"))
    return _sorted(rows.drop("processing"), _PAPER_LINKS)


def pace_verdict(frame: pl.DataFrame) -> str:
    """Verdict: whether a response on a kept connection takes one RTT plus processing, and queries leave on time."""
    if frame.is_empty():
        return "Not answered: this dataset has no link with a delay, or none without."
    worst = frame.sort((pl.col("value").abs() / pl.col("tolerance_ms")), descending=True).row(0, named=True)
    inside = frame.filter(pl.col("value").abs() <= pl.col("tolerance_ms")).height
    late = max(frame["send_delay_ms"].to_list())
    new, failed = frame["new_connections"].sum(), frame["failed"].sum()
    answered = f"{failed} got no answer" if failed else "every query got an answer"
    reconnected = f"{new or 'no'} {'queries' if new > 1 else 'query'}"
    return (
        f"{inside} of {frame.height} means (one per link and transport) equal RTT plus processing, within a tolerance "
        f"of 2 % of the RTT or {_LEAST_MS} ms, whichever is larger. Relative to its tolerance, the mean of "
        f"{worst['protocol']} on the link {link_title(worst['link'])} deviates most from RTT plus processing: by "
        f"{round(worst['value'], 2) + 0.0:+.2f} ms, with a tolerance of {worst['tolerance_ms']:.2f} ms. On each link "
        f"and transport, the median delay between a query's scheduled time and its departure is at most {late:.2f} ms. "
        f"After each round's warm-up, {reconnected} had to open a new connection, and {answered}."
    )


# --- future work of the paper ----------------------------------------------------------------------------------------


def connections_data(inputs: Inputs) -> pl.DataFrame:
    """Mean response time on kept connections, on new connections and with 0-RTT, in multiples of the link's RTT.

    Columns link, protocol, connection, source, nominal_rtt_ms, n, rounds, value, low, high.
    """
    parts = []
    for connection, name in _CONNECTIONS.items():
        rows = metrics.paced(inputs.paced_queries, connection).filter(pl.col("link").is_in(_PAPER_LINKS))
        of_one = metrics.moments(rows, "net_ms", ["link", "protocol"], "mean")
        parts.append(of_one.with_columns(connection=pl.lit(name), source=pl.lit("measured")))
    means = pl.concat(parts).join(_rtts(inputs), on="link").filter(_RTT > 0)
    return _sorted(means.with_columns(pl.col("value", "low", "high") / _RTT), _PAPER_LINKS, "connection")


def disturbed_data(inputs: Inputs) -> pl.DataFrame:
    """Response time minus the RTT, ms, on three variants of the US link: unchanged, with jitter, with loss.

    Columns link, protocol, source, nominal_rtt_ms, n, rounds, value (mean), low, high, p99, variance (ms²), failed.
    """
    key = ["link", "protocol"]
    rows = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(_VARIED))
    beyond = rows.join(_rtts(inputs).lazy(), on="link").with_columns(beyond=pl.col("net_ms") - _RTT)
    further = beyond.group_by(key).agg(p99=pl.col("beyond").quantile(0.99, "linear"), variance=pl.col("beyond").var())
    meant = inputs.paced_queries.filter(connection_mode="kept", role=Role.MEASURED)
    failed = meant.group_by(key).agg(failed=pl.col("error").is_not_null().sum())
    means = metrics.moments(beyond, "beyond", key, "mean").with_columns(source=pl.lit("measured"))
    means = means.join(further.collect(), on=key).join(failed.collect(), on=key).join(_rtts(inputs), on="link")
    return _sorted(means, _VARIED)


# --- common ----------------------------------------------------------------------------------------------------------


def _rtts(inputs: Inputs) -> pl.DataFrame:
    """Nominal RTT of each link, ms; 0 for the link without delay."""
    return inputs.link_checks.group_by("link").agg(_RTT.median()).collect()


def _sorted(frame: pl.DataFrame, links: Sequence[str], *further: str) -> pl.DataFrame:
    ranks = {name: rank for rank, name in enumerate((*links, *TRANSPORTS))}
    keys = [pl.col(name).replace_strict(ranks, return_dtype=pl.Int64) for name in ("link", "protocol")]
    return frame.sort(*keys, *further, maintain_order=True)


def _shown(frame: pl.DataFrame) -> list[str]:
    """Titles of a frame's links, in the order of its rows."""
    return [link_title(link) for link in frame["link"].unique(maintain_order=True)]


def _nothing() -> AnyChart:
    return marks.empty_plot("no paced queries of this study", TEXT_WIDTH - 60)


_NO_ZERO = "datum.value ? datum.label : ''"
"""Expression for axis labels without 0. A 0 would touch the top label of the panel below."""
_RESPONSES = alt.Tooltip("n:Q", title="responses")
_DECADES: dict[str, list[float]] = {"log": [0.01, 1, 100, 10_000, 1_000_000], "symlog": [0, 1, 10, 100, 1000]}
_KEPT = {
    "kept": Style(BLUE, "circle", SOLID),
    "closed after every query": Style(RED, "square", LONG),
    "closed, 0-RTT": EARLY_DATA,
}


def dots(
    frame: pl.DataFrame,
    *,
    title: str,
    columns: tuple[str, str, str] = ("value", "low", "high"),
    scale: Literal["linear", "log", "symlog"] = "linear",
    band: str = "",
    tick: str = "",
    width: int = 132,
) -> AnyChart:
    """Chart of estimates with intervals: one row per transport, one panel per link. Published values are hollow.

    `columns` are the estimate and the ends of its interval. `band` is the column of a tolerance around 0, drawn in
    grey. `tick` is the column of a further value, drawn as a tick.
    """
    value, *ends = columns
    if frame.filter(source="measured").is_empty():
        return _nothing()
    rows = frame.filter(pl.col(value).is_not_null())
    linear = scale == "linear"
    span = alt.Scale(zero=False, padding=8) if linear else alt.Scale(type=scale)
    axis = alt.Axis(tickCount=3) if linear else alt.Axis(values=_DECADES[scale], format="~r")
    x = alt.X(f"{value}:Q", title=title, scale=span, axis=axis)
    y = marks.rows("protocol", [*TRANSPORTS], grid=True)
    several = "connection" in rows.columns
    if several:  # equal values would overlap, so the series are drawn side by side
        encodings = marks.encode_series("connection", _KEPT, "color", "shape", "offset")
    else:
        encodings = marks.encode_series("protocol", TRANSPORTS, "color", "shape", legend=False)
    who = ("link_title", "protocol", "connection") if several else ("link_title", "protocol")
    interval = [alt.Tooltip(f"{name}:Q", format=".3f", title=end) for name, end in zip(ends, _ENDS, strict=True)]
    tooltip = marks.tooltip(*who, value=title, of=f"{value}:Q", digits=".3f", more=[*interval, _RESPONSES])
    base = alt.Chart(width=width, height=210 if several else 150)
    measured = marks.rows_from(base, "measured")
    layers = [
        *marks.intervals(measured, x, y, tooltip, encodings, ends=(ends[0], ends[1])),
        marks.published_points(base, x, y, tooltip[: len(who) + 1], {}, size=70, shape="diamond", color=INK),
    ]
    if tick:
        further = marks.tooltip(*who, value=f"{tick}, ms", of=f"{tick}:Q")
        layers.append(marks.ticks(measured, alt.X(f"{tick}:Q", scale=span), y, further, color=INK))
    if band:
        sides = base.transform_calculate(left=f"-datum.{band}").mark_bar(color=MUTED, opacity=0.18, height=25)
        layers.insert(0, sides.encode(alt.X("left:Q", scale=span), y, x2=f"{band}:Q"))
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", _shown(rows)), spacing=20)
    chart.data = with_titles(rows)
    return chart.resolve_scale(x="independent") if linear else chart


_ENDS = ("95 % from", "to")


FIGURES = (
    Figure(
        name="paced-link",
        title="Is a response one round-trip and processing?",
        notebook="authoritative",
        caption="Mean response time on kept (already open) connections, minus the link's RTT, minus the processing "
        "time. The processing time is the mean response time over the same transport on the link without delay. The "
        "figure shows the rest, which neither the round-trip nor processing explains.",
        note="Dots: means; bars: 95 % intervals (bootstrap over rounds). Grey: tolerance (2 % of the RTT, at least "
        "0.5 ms).",
        data=pace_data,
        chart=partial(dots, title="Mean minus RTT and processing (ms)", band="tolerance_ms"),
        table=(
            "link",
            "protocol",
            "n",
            "value",
            "low",
            "high",
            "tolerance_ms",
            "send_delay_ms",
            "new_connections",
            "failed",
        ),
        width=TEXT_WIDTH,
        verdict=pace_verdict,
    ),
    Figure(
        name="table1-means",
        title="Mean response on long-lived connections",
        paper_figure="Table 1",
        notebook="authoritative",
        caption="Mean response time on kept connections, measured between the DNS proxies at client and server. The "
        "processing time of BIND is subtracted, as in the paper. The chart shows measured and published means minus "
        "the nominal RTT of the link. The CSV file has the means without this subtraction. If the RTT of the paper's "
        "path was shorter than the nominal RTT, the published mean is drawn too far left.",
        note="Filled: our means, 95 % intervals. Diamonds: Batenburg 2022, Table 1.",
        data=means_data,
        chart=partial(dots, columns=("beyond", "beyond_low", "beyond_high"), title="Mean beyond the RTT (ms)"),
        table=with_published_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="table2-variances",
        title="Variance of the response on long-lived connections",
        paper_figure="Table 2",
        notebook="authoritative",
        caption="Variance of the response time on kept connections, measured between the DNS proxies at client and "
        "server, without the time that the authoritative server takes. Our emulated links have a constant delay, so "
        "only the measuring machine causes variance. In the paper, the path over the Internet also causes variance.",
        note="Filled: our variances. Bars: 95 % intervals of the logarithm of the variance; they are wide where a few "
        "late answers cause most of it. Diamonds: Batenburg 2022, Table 2.",
        data=partial(with_published, statistic="variance", table="Table 2"),
        chart=partial(dots, title="Variance (ms²)", scale="log"),
        table=with_published_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="fig3-histograms",
        title="Distribution of the response by location",
        paper_figure="Fig. 3",
        notebook="authoritative",
        caption="Histograms of the response time on kept connections, minus the link's RTT. The response time is "
        "measured between the DNS proxies at client and server. Columns: locations, as in Fig. 3 (a) to (d) of the "
        "paper. Rows: transports.",
        note="Bins of 0.2 ms. The first bin contains all shorter times, the last bin all longer ones.",
        data=histograms_data,
        chart=histograms,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="connection-per-query",
        title="Response on a kept connection, on a new one, and with 0-RTT",
        notebook="authoritative",
        caption="Mean response time in multiples of the link's RTT. Three cases: the connection is kept; each query "
        "has a new connection with a full handshake; each query is early data of a new connection.",
        note="Marks: means; bars: 95 % intervals. 0-RTT includes only queries that the server received as early data.",
        data=connections_data,
        chart=partial(dots, title="Mean response (multiples of the RTT)"),
        table=("link", "protocol", "connection", "n", "value", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="jitter-and-loss",
        title="Jitter and loss on the path to US East",
        notebook="authoritative",
        caption="Response time on kept connections minus the link's RTT. Three variants of the link to US East: "
        "unchanged, with a jitter of 2 ms (standard deviation, each direction), and with 1 % loss in each direction.",
        note="Dots: means, 95 % intervals. Ticks: 99th percentiles.",
        data=disturbed_data,
        chart=partial(dots, title="Response beyond the RTT (ms)", tick="p99", scale="symlog", width=176),
        table=("link", "protocol", "n", "value", "low", "high", "p99", "variance", "failed"),
        width=TEXT_WIDTH,
    ),
)
