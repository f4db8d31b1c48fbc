"""The `authoritative` study (Batenburg, Twente 2022): Tables 1 and 2, Fig. 3, and what the paper left for later."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs
from crosslayer.figures.cdf import empty_plot
from crosslayer.figures.style import INK, MUTED, TEXT_WIDTH, AnyChart, faceted

PLACES = {"twente-local": "Local", "twente-eu": "EU", "twente-us": "US", "twente-au": "AU"}
"""Links of the paper, and what it calls them."""
_VARIED = {"twente-us": "US", "twente-us-jitter": "US, jitter", "twente-us-loss": "US, loss"}
_PROTOCOLS = ("DoUDP", "DoTCP", "DoT", "DoH", "DoH3", "DoQ")
_CONNECTIONS = {"kept": "kept", "new": "closed after every query", "0-rtt": "closed, 0-RTT"}
_LEAST_MS, _SHARE = 0.5, 0.02
"""A mean on a kept connection is RTT and processing within 2 % of the RTT, and 0.5 ms at the least."""
_RTT = pl.col("nominal_rtt_ms")

# --- Tables 1 and 2 --------------------------------------------------------------------------------------------------


def means_data(inputs: Inputs) -> pl.DataFrame:
    """Mean response times on kept connections without BIND's time, ms.

    Columns link, protocol, source (`measured`, `published`), nominal_rtt_ms, n, rounds, value, low, high; `beyond`,
    `beyond_low` and `beyond_high` are the same minus the RTT.
    """
    frame = _beside_published(inputs, "mean", "Table 1")
    ends = {"beyond": "value", "beyond_low": "low", "beyond_high": "high"}
    return frame.with_columns(**{name: pl.col(of) - _RTT for name, of in ends.items()})


def variances_data(inputs: Inputs) -> pl.DataFrame:
    """Variances of response times on kept connections, ms²; columns as of the means, without those beyond the RTT."""
    return _beside_published(inputs, "variance", "Table 2")


def _beside_published(inputs: Inputs, statistic: str, table: str) -> pl.DataFrame:
    kept = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(list(PLACES)))
    ours = metrics.moments(kept, "net_ms", ["link", "protocol"], statistic).with_columns(source=pl.lit("measured"))
    links = {title: link for link, title in PLACES.items()}
    scope = pl.col("scope").str.split("; ")
    printed = inputs.published.claims.filter(paper="BATENBURG22", section_or_figure=table).select(
        link=scope.list.get(1).replace_strict(links, return_dtype=pl.String),
        protocol=scope.list.get(0),
        source=pl.lit("published"),
        value=pl.col("value").cast(pl.Float64),
    )
    rtts = _rtts(inputs)
    return _sorted(pl.concat([ours, printed], how="diagonal").join(rtts, on="link"), PLACES)


def means(frame: pl.DataFrame) -> AnyChart:
    """Table 1 as a picture: what a response takes beyond the link's RTT."""
    return _dots(frame, ("beyond", "beyond_low", "beyond_high"), "Mean beyond the RTT (ms)", PLACES)


def variances(frame: pl.DataFrame) -> AnyChart:
    """Table 2 as a picture."""
    return _dots(frame, ("value", "low", "high"), "Variance (ms²)", PLACES, scale="log")


def beside_published_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, protocol, n, ours with its interval, published."""
    key = ["link", "protocol"]
    printed = frame.filter(source="published").select(*key, published="value")
    ours = frame.filter(source="measured").select(*key, "n", ours="value", low="low", high="high")
    return ours.join(printed, on=key, how="left", maintain_order="left")


# --- Fig. 3 ----------------------------------------------------------------------------------------------------------

_BIN_MS, _FIRST_MS, _LAST_MS = 0.2, -0.4, 6.0


def histograms_data(inputs: Inputs) -> pl.DataFrame:
    """Share of responses by time beyond the RTT, percent.

    Columns link, protocol, from_ms, to_ms (a bin; the last one has all that is longer), percent, source, n.
    """
    kept = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(list(PLACES)))
    beyond = (pl.col("net_ms") - _RTT).clip(_FIRST_MS, _LAST_MS - _BIN_MS / 2)
    number = ((beyond - _FIRST_MS) / _BIN_MS).floor().cast(pl.Int64)
    key = ["link", "protocol"]
    found = (
        kept.join(_rtts(inputs).lazy(), on="link")
        .group_by(*key, number.alias("number"))
        .agg(count=pl.len())
        .with_columns(n=pl.col("count").sum().over(key))
        .collect()
    )
    # Bins without a response too, so that a step falls to zero there.
    bins = pl.DataFrame({"number": range(round((_LAST_MS - _FIRST_MS) / _BIN_MS))}, schema={"number": pl.Int64})
    every = found.select(*key, "n").unique().join(bins, how="cross")
    rows = every.join(found.select(*key, "number", "count"), on=[*key, "number"], how="left").select(
        *key,
        "n",
        from_ms=(_FIRST_MS + pl.col("number") * _BIN_MS).round(2),
        to_ms=(_FIRST_MS + (pl.col("number") + 1) * _BIN_MS).round(2),
        percent=100 * pl.col("count").fill_null(0) / pl.col("n"),
        source=pl.lit("measured"),
    )
    return _sorted(rows, PLACES, "from_ms")


def histograms(frame: pl.DataFrame) -> AnyChart:
    """Fig. 3: one histogram for each transport and location."""
    if frame.is_empty():
        return _nothing()
    x = alt.X("from_ms:Q", title="Beyond the RTT (ms)", scale=alt.Scale(domain=[-0.5, _LAST_MS], nice=False))
    y = alt.Y("percent:Q", title=None, axis=alt.Axis(tickCount=2, grid=False, labelExpr=_NO_ZERO))
    bars = (
        alt.Chart(width=136, height=42)
        .mark_bar(color="#0072b2", binSpacing=0)
        .encode(
            x,
            y,
            x2="to_ms:Q",
            y2=alt.datum(0),
            tooltip=["place:N", "protocol:N", "from_ms:Q", "to_ms:Q", alt.Tooltip("percent:Q", format=".1f")],
        )
    )
    shown = [name for name in PLACES.values() if name in set(_placed(frame, PLACES)["place"])]
    header = alt.Header(labelAngle=0, labelAlign="left", labelPadding=4)
    chart: AnyChart = faceted(
        bars,
        row=alt.Row("protocol:N", sort=list(_PROTOCOLS), title="Share of responses (%)", header=header),
        column=alt.Column("place:N", sort=shown, title=None),
        spacing=7,
    )
    chart.data = _placed(frame, PLACES)
    return chart


# --- is it right? ----------------------------------------------------------------------------------------------------


def pace_data(inputs: Inputs) -> pl.DataFrame:
    """Mean responses on kept connections minus RTT and processing, ms, where processing is the mean without a link.

    Columns link, protocol, source, nominal_rtt_ms, tolerance_ms, n, rounds, value, low, high, late_ms (median lateness
    of the generator), new_connections (queries that paid for one) and failed.
    """
    key = ["link", "protocol"]
    places = pl.col("link").is_in(list(PLACES))
    every = inputs.paced_queries.filter(places, pl.col("connection") == "kept", ~pl.col("warming").fill_null(False))
    told = every.group_by(key).agg(
        late_ms=pl.col("late_ms").median(),
        new_connections=pl.col("new_connection").sum(),
        failed=pl.col("error").is_not_null().sum(),
    )
    kept = metrics.paced(inputs.paced_queries).filter(places)
    found = metrics.moments(kept, "net_ms", key, "mean")
    processing = found.filter(link="twente-local").select("protocol", processing="value")
    rows = found.join(processing, on="protocol").join(_rtts(inputs), on="link").join(told.collect(), on=key)
    beyond = {name: pl.col(name) - _RTT - pl.col("processing") for name in ("value", "low", "high")}
    tolerance = pl.max_horizontal(pl.lit(_LEAST_MS), _SHARE * _RTT)
    rows = rows.filter(_RTT > 0).with_columns(**beyond, tolerance_ms=tolerance, source=pl.lit("measured"))
    return _sorted(rows.drop("processing"), PLACES)


def pace(frame: pl.DataFrame) -> AnyChart:
    """How far means are from RTT and processing, with what is tolerated."""
    return _dots(frame, ("value", "low", "high"), "Mean minus RTT and processing (ms)", PLACES, band="tolerance_ms")


def pace_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, protocol, n, deviation with its interval, tolerance, lateness, new connections, failures."""
    return frame.select(
        "link", "protocol", "n", "value", "low", "high", "tolerance_ms", "late_ms", "new_connections", "failed"
    )


def pace_verdict(frame: pl.DataFrame) -> str:
    """Does a response on a kept connection take one round-trip and processing, at a pace that is kept?"""
    if frame.is_empty():
        return "Not answered: this dataset has no link with a delay, or none without."
    worst = frame.sort((pl.col("value").abs() / pl.col("tolerance_ms")), descending=True).row(0, named=True)
    inside = frame.filter(pl.col("value").abs() <= pl.col("tolerance_ms")).height
    late = max(frame["late_ms"].to_list())
    new, failed = frame["new_connections"].sum(), frame["failed"].sum()
    return (
        f"{inside} of {frame.height} means are RTT and processing within 2 % or {_LEAST_MS} ms; the furthest is "
        f"{worst['protocol']} on {PLACES[worst['link']]} with {worst['value']:+.2f} of {worst['tolerance_ms']:.2f} ms. "
        f"Queries left {late:.2f} ms late at most, by the medians of the transports. After each round's warm-up, {new} "
        f"queries on kept connections had to pay for a new one, and {failed} got no answer."
    )


# --- what the paper left for later -----------------------------------------------------------------------------------


def connections_data(inputs: Inputs) -> pl.DataFrame:
    """Mean responses on kept connections, on new ones and with 0-RTT, in multiples of the link's RTT.

    Columns link, protocol, connection, source, nominal_rtt_ms, n, rounds, value, low, high.
    """
    parts = []
    for connection, name in _CONNECTIONS.items():
        rows = metrics.paced(inputs.paced_queries, connection).filter(pl.col("link").is_in(list(PLACES)))
        of_one = metrics.moments(rows, "net_ms", ["link", "protocol"], "mean")
        parts.append(of_one.with_columns(connection=pl.lit(name), source=pl.lit("measured")))
    found = pl.concat(parts).join(_rtts(inputs), on="link").filter(_RTT > 0)
    return _sorted(found.with_columns(pl.col("value", "low", "high") / _RTT), PLACES, "connection")


def connections(frame: pl.DataFrame) -> AnyChart:
    """What a connection for each query costs, and what 0-RTT gives back."""
    return _dots(frame, ("value", "low", "high"), "Mean response (multiples of the RTT)", PLACES, series="connection")


def connections_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, protocol, connection, n, mean with its interval; multiples of the RTT."""
    return frame.select("link", "protocol", "connection", "n", "value", "low", "high")


def disturbed_data(inputs: Inputs) -> pl.DataFrame:
    """Response times beyond the RTT on the US link as it is, with jitter and with loss, ms.

    Columns link, protocol, source, nominal_rtt_ms, n, rounds, value (mean), low, high, p99, variance, failed.
    """
    key = ["link", "protocol"]
    rows = metrics.paced(inputs.paced_queries).filter(pl.col("link").is_in(list(_VARIED)))
    beyond = rows.join(_rtts(inputs).lazy(), on="link").with_columns(beyond=pl.col("net_ms") - _RTT)
    further = beyond.group_by(key).agg(p99=pl.col("beyond").quantile(0.99, "linear"), variance=pl.col("beyond").var())
    meant = inputs.paced_queries.filter(pl.col("connection") == "kept", ~pl.col("warming").fill_null(False))
    failed = meant.group_by(key).agg(failed=pl.col("error").is_not_null().sum())
    found = metrics.moments(beyond, "beyond", key, "mean").with_columns(source=pl.lit("measured"))
    found = found.join(further.collect(), on=key).join(failed.collect(), on=key).join(_rtts(inputs), on="link")
    return _sorted(found, _VARIED)


def disturbed(frame: pl.DataFrame) -> AnyChart:
    """What jitter and loss do to each transport."""
    columns = ("value", "low", "high")
    return _dots(frame, columns, "Response beyond the RTT (ms)", _VARIED, tick="p99", scale="symlog", width=176)


def disturbed_table(frame: pl.DataFrame) -> pl.DataFrame:
    """link, protocol, n, mean beyond the RTT with its interval, 99th percentile, variance, failures."""
    return frame.select("link", "protocol", "n", "value", "low", "high", "p99", "variance", "failed")


# --- common ----------------------------------------------------------------------------------------------------------


def _rtts(inputs: Inputs) -> pl.DataFrame:
    """Nominal RTT of each link, 0 for the one without delay."""
    return inputs.link_checks.group_by("link").agg(_RTT.median()).collect()


def _sorted(frame: pl.DataFrame, places: dict[str, str], *further: str) -> pl.DataFrame:
    ranks = {name: rank for rank, name in enumerate((*places, *_PROTOCOLS))}
    keys = [pl.col(name).replace_strict(ranks, return_dtype=pl.Int64) for name in ("link", "protocol")]
    return frame.sort(*keys, *further, maintain_order=True)


def _placed(frame: pl.DataFrame, places: dict[str, str]) -> pl.DataFrame:
    return frame.with_columns(place=pl.col("link").replace(places))


def _nothing() -> AnyChart:
    return empty_plot("no paced queries of this study", TEXT_WIDTH - 60, 120)


_NO_ZERO = "datum.value ? datum.label : ''"
"""Labels of an axis without that of 0, which would touch the highest of the panel below."""
_DECADES: dict[str, list[float]] = {"log": [0.01, 0.1, 1, 10, 100, 1000], "symlog": [0, 1, 10, 100, 1000]}
_SERIES = {
    "measured": ("#0072b2", "circle"),
    "kept": ("#0072b2", "circle"),
    "closed after every query": ("#d55e00", "square"),
    "closed, 0-RTT": ("#009e73", "triangle-up"),
}


def _dots(
    frame: pl.DataFrame,
    columns: tuple[str, str, str],
    title: str,
    places: dict[str, str],
    *,
    scale: str = "linear",
    band: str = "",
    tick: str = "",
    series: str = "source",
    width: int = 132,
) -> AnyChart:
    """Estimates with intervals by transport, a panel for each link; published values are hollow."""
    value, low, high = columns
    ours = frame.filter(source="measured")
    if ours.is_empty():
        return _nothing()
    rows = _placed(frame, places).filter(pl.col(value).is_not_null())
    shown = [name for name in places.values() if name in set(rows["place"])]
    linear = scale == "linear"
    across = alt.Scale(zero=False, padding=8) if linear else alt.Scale(type=scale)  # type: ignore[arg-type]
    axis = alt.Axis(tickCount=3) if linear else alt.Axis(values=_DECADES[scale], format="~r")
    x = alt.X(f"{value}:Q", title=title, scale=across, axis=axis)
    y = alt.Y("protocol:N", title=None, sort=list(_PROTOCOLS), axis=alt.Axis(domain=False, ticks=False, grid=True))
    names = [name for name in _SERIES if name in set(rows[series])]
    legend = alt.Legend(title=None, orient="top", symbolSize=60, labelLimit=0) if len(names) > 1 else None
    color = alt.Color(
        f"{series}:N", scale=alt.Scale(domain=names, range=[_SERIES[name][0] for name in names]), legend=legend
    )
    shape = alt.Shape(
        f"{series}:N", scale=alt.Scale(domain=names, range=[_SERIES[name][1] for name in names]), legend=legend
    )
    numbers = [alt.Tooltip(f"{name}:Q", format=".3f") for name in columns]
    tooltip = ["place:N", "protocol:N", f"{series}:N", *numbers, "n:Q"]
    # Values of several series may be equal: they stand beside each other.
    offset = alt.YOffset(f"{series}:N", sort=names, scale=alt.Scale(paddingOuter=0.6))
    beside: dict[str, Any] = {"yOffset": offset} if len(names) > 1 else {}
    base = alt.Chart(width=width, height=150 if len(names) == 1 else 210)
    points = base.transform_filter(alt.datum.source == "measured")
    layers = [
        points.transform_filter(alt.datum[low] != None)  # noqa: E711 - a Vega expression
        .mark_rule(strokeWidth=1.6)
        .encode(alt.X(f"{low}:Q", scale=across), y, alt.X2(f"{high}:Q"), color, **beside),
        points.mark_point(filled=True, size=46, opacity=1).encode(x, y, color, shape, tooltip=tooltip, **beside),
    ]
    if "published" in set(rows["source"]):
        layers.append(
            base.transform_filter(alt.datum.source == "published")
            .mark_point(filled=False, shape="diamond", size=70, strokeWidth=1.3, color=INK)
            .encode(x, y, tooltip=["place:N", "protocol:N", numbers[0]])
        )
    if tick:
        layers.append(
            points.mark_tick(thickness=2, size=11, color=INK).encode(
                alt.X(f"{tick}:Q", scale=across), y, tooltip=["place:N", "protocol:N", alt.Tooltip(f"{tick}:Q")]
            )
        )
    if band:
        sides = base.transform_calculate(left=f"-datum.{band}")
        layers.insert(
            0,
            sides.mark_bar(color=MUTED, opacity=0.18, height=25).encode(
                alt.X("left:Q", scale=across), y, x2=f"{band}:Q"
            ),
        )
    chart: AnyChart = faceted(alt.layer(*layers), column=alt.Column("place:N", sort=shown, title=None), spacing=20)
    chart.data = rows
    return chart.resolve_scale(x="independent") if linear else chart


FIGURES = (
    Figure(
        name="paced-link",
        title="Is a response one round-trip and processing?",
        notebook="authoritative",
        caption=(
            "Mean response on kept connections, minus the link's RTT, minus the mean of the same transport without a "
            "link: what neither the round-trip nor processing explains."
        ),
        note="Dots: means; bars: 95 % intervals (rounds resampled). Grey: tolerance, 2 % of the RTT or 0.5 ms.",
        data=pace_data,
        chart=pace,
        table=pace_table,
        width=TEXT_WIDTH,
        verdict=pace_verdict,
    ),
    Figure(
        name="table1-means",
        title="Mean response on long-lived connections",
        paper_figure="Table 1",
        notebook="authoritative",
        caption=(
            "Mean response on kept connections, BIND's own time taken out, minus the link's nominal RTT. The paper's "
            "RTTs are typical values of real paths, which is why its means may lie below them."
        ),
        note="Filled: our means, 95 % intervals. Diamonds: Batenburg 2022, Table 1.",
        data=means_data,
        chart=means,
        table=beside_published_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="table2-variances",
        title="Variance of the response on long-lived connections",
        paper_figure="Table 2",
        notebook="authoritative",
        caption=(
            "Variance of the response on kept connections. Ours is what the machine does; the paper's is also what "
            "the Internet did."
        ),
        note="Filled: our variances, 95 % intervals. Diamonds: Batenburg 2022, Table 2.",
        data=variances_data,
        chart=variances,
        table=beside_published_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="fig3-histograms",
        title="Distribution of the response by location",
        paper_figure="Fig. 3",
        notebook="authoritative",
        caption=(
            "Histograms of the response on kept connections minus the link's RTT, a column for each location as in "
            "the paper's Fig. 3 (a) to (d), a row for each transport."
        ),
        note="Bins of 0.2 ms; the first has all that is shorter, the last all that is longer.",
        data=histograms_data,
        chart=histograms,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="connection-per-query",
        title="A connection kept, one for each query, and 0-RTT",
        notebook="authoritative",
        caption=(
            "Mean response in multiples of the link's RTT, where the connection is kept, where it is closed after "
            "every query, and where the next query leaves as early data of a resumed session."
        ),
        note="Marks: means; bars: 95 % intervals. 0-RTT counts only where the server saw early data.",
        data=connections_data,
        chart=connections,
        table=connections_table,
        width=TEXT_WIDTH,
    ),
    Figure(
        name="jitter-and-loss",
        title="Jitter and loss on the path to US East",
        notebook="authoritative",
        caption=(
            "Response on kept connections minus the link's RTT, on the US link as it is, with a jitter of 2 ms "
            "(standard deviation, each direction) and with a loss of 1 % in each direction."
        ),
        note="Dots: means, 95 % intervals. Ticks: 99th percentiles.",
        data=disturbed_data,
        chart=disturbed,
        table=disturbed_table,
        width=TEXT_WIDTH,
    ),
)
