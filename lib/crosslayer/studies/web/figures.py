"""Figures of the study `web` (Kosek et al., IMC 2022, section 3.2): page loads whose names the browser resolves.

Loads are compared with DoUDP: with its median in the same cell, as in the paper, or with its load of the same round.
"""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, cdf, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import TEXT_WIDTH, AnyChart, link_title, with_titles
from crosslayer.studies.web.claims import LOSSY
from crosslayer.vocabulary import Protocol

BASELINE = "DoUDP"
PROTOCOLS = ("DoTCP", "DoT", "DoH", "DoH3", "DoQ")
ROUND_TRIPS = {str(protocol): protocol.transport.round_trips for protocol in Protocol}
"""Transports, each with the round-trips of a lookup on a new connection that resumes a session, without early data."""
AGREES_MS = 2.0
"""Maximum difference at which a lookup time in the browser agrees with that in the stub's log, ms."""

_ESTIMATE = ("n", "rounds", "median", "low", "high")


def _loads(inputs: Inputs, *, lossy: bool = False) -> pl.LazyFrame:
    """Successful coupled loads; `combination` is the transport of their lookups.

    A lost packet makes a load several times longer, over every transport. As in the claims, links with loss are
    therefore left out, unless `lossy` is true.
    """
    loads = metrics.page_loads(inputs.page_loads).filter(pl.col("coupling") == "coupled")
    chosen = pl.lit(True) if lossy else ~pl.col("link").is_in(LOSSY)
    return loads.filter(chosen).with_columns(combination="dns_protocol")


def _lookups(inputs: Inputs) -> pl.DataFrame:
    """Number of lookups of each page, fewest first; columns page, lookups."""
    counts = _loads(inputs).group_by("page").agg(lookups=pl.col("lookup_count").median().cast(pl.Int64))
    return counts.sort("lookups", "page").collect()


def _order(frame: pl.DataFrame, name: str) -> list[str]:
    return [str(value) for value in frame[name].unique(maintain_order=True)]


def _sorted(frame: pl.DataFrame, inputs: Inputs) -> pl.DataFrame:
    """Rows sorted by the link's RTT, then by number of lookups and page; otherwise their order stays."""
    return inputs.by_rtt(frame, *(name for name in ("lookups", "page") if name in frame.columns))


def _encodings(names: Iterable[str]) -> marks.Encodings:
    return marks.encode_series("series", marks.styles(names), "color", "shape")


def _titles(frame: pl.DataFrame) -> list[str]:
    return [link_title(link) for link in _order(frame, "link")]


# --- Fig. 3 ----------------------------------------------------------------------------------------------------------

_FIG3 = {
    "fcp_ms": cdf.Panel("(a) FCP", "FCP over the DoUDP median (%)", (BASELINE, *PROTOCOLS)),
    "plt_ms": cdf.Panel("(b) PLT", "PLT over the DoUDP median (%)", (BASELINE, *PROTOCOLS)),
}
_FIG3_PRINTED = (
    # claim, panel, series, x, cdf; from the text of IMC22 section 3.2
    ("I108", "(a) FCP", "DoQ", 10.0, 0.4),
    ("I109", "(a) FCP", "DoT", 20.0, 0.4),
    ("I109", "(a) FCP", "DoH", 20.0, 0.4),
    ("I110", "(a) FCP", "DoQ", 20.0, 0.8),
    ("I118", "(b) PLT", "DoQ", 15.0, 0.85),
    ("I119", "(b) PLT", "DoH", 15.0, 0.6),
)


def fig3_data(inputs: Inputs) -> pl.DataFrame:
    """CDFs of FCP and PLT: percent over the median of DoUDP in the same cell; columns `cdf.SCHEMA`."""
    parts = []
    for column, panel in _FIG3.items():
        loads = _loads(inputs).with_columns(plt_ms=column).filter(pl.col("plt_ms").is_not_null())
        increases = metrics.relative_increase(loads, baseline=BASELINE)
        named = increases.with_columns(panel=pl.lit(panel.name), series="combination")
        parts.append(cdf.measured(named, "increase_percent"))
    printed = pl.DataFrame(_FIG3_PRINTED, schema=["claim", "panel", "series", "x", "cdf"], orient="row")
    return pl.concat([*parts, cdf.published_points(printed)])


def fig3(frame: pl.DataFrame) -> AnyChart:
    """IMC22 Fig. 3: CDFs of FCP and PLT compared with DoUDP, all cells together."""
    return cdf.chart(frame, list(_FIG3.values()), legend_columns=3)


# --- Fig. 4 ----------------------------------------------------------------------------------------------------------


_OVER = "PLT over DoUDP (%)"
_WIDE_PAGES = 6
"""Maximum number of pages for which a plot is wide enough for the full title of its axis."""


def fig4_data(inputs: Inputs) -> pl.DataFrame:
    """Increase of the median PLT compared with DoUDP, in each cell.

    Columns link, page, lookups, series, source, n, rounds, median, low, high (%).
    """
    medians = metrics.relative_medians(_loads(inputs), baseline=BASELINE).filter(pl.col("combination") != BASELINE)
    rows = medians.join(_lookups(inputs), on="page").select(
        "link",
        "page",
        "lookups",
        "n",
        "rounds",
        "low",
        "high",
        series="combination",
        source=pl.lit("measured"),
        median="increase_percent",
    )
    return _sorted(rows, inputs)


def fig4(frame: pl.DataFrame) -> AnyChart:
    """IMC22 Fig. 4: a plot for each link and page; pages are in ascending order of their number of lookups."""
    if frame.is_empty():
        return marks.empty_plot("no loads with a DoUDP load of the same round", TEXT_WIDTH - 60)
    lines = pl.col("page").str.replace_all("-", "|")
    plural = pl.when(pl.col("lookups") == 1).then(pl.lit("lookup")).otherwise(pl.lit("lookups"))
    named = frame.with_columns(page_title=pl.format("{}|{} {}", lines, "lookups", plural))
    pages = _order(named, "page_title")
    base = alt.Chart(width=(TEXT_WIDTH - 70) // len(pages) - 8, height=15 * len(PROTOCOLS))
    scale = alt.Scale(nice=False, domain=_reach(frame))
    narrow = len(pages) > _WIDE_PAGES
    x = alt.X("median:Q", title="%" if narrow else _OVER, scale=scale, axis=alt.Axis(tickCount=3))
    who = ("link_title", "page", "lookups", "series")
    tooltip = marks.tooltip(*who, value="PLT over DoUDP, %", digits="+.2f", counted="loads")
    y = marks.rows("series", PROTOCOLS)
    layers = [
        marks.line_at(base, x=0),
        *marks.intervals(base, x, y, tooltip, _encodings(PROTOCOLS), size=36, clip=True),
    ]
    header = {"labelExpr": "split(datum.label, '|')", "labelFontSize": 8.5, "labelFontWeight": "normal"}
    chart: AnyChart = marks.multiples(
        layers,
        row=marks.facet_rows("link_title", _titles(frame)),
        column=marks.facet_columns("page_title", pages, **header),
        spacing=6,
    )
    chart.data = with_titles(named)
    return chart


def _reach(frame: pl.DataFrame) -> list[float]:
    """Ends of an axis: the smallest range with 0, all medians and all intervals, extended by a margin."""
    ends = frame.select(
        low=pl.min_horizontal("median", "low").min(), high=pl.max_horizontal("median", "high").max()
    ).row(0)
    low, high = min(0.0, float(ends[0])), max(0.0, float(ends[1]))
    margin = 0.04 * (high - low or 1.0)
    return [low - margin, high + margin]


# --- amortisation ----------------------------------------------------------------------------------------------------

_MEASURES = {"percent": _OVER, "round-trips": "PLT minus DoUDP (RTT)"}


def amortisation_data(inputs: Inputs) -> pl.DataFrame:
    """Increase of the PLT compared with DoUDP, by the number of lookups of the page, in two measures.

    Columns measure, link, page, series, source, x (lookups), n, rounds, median, low, high. Measure `percent`: increase
    in percent of DoUDP's median. Measure `round-trips`: median of the differences within rounds, in multiples of the
    RTT.
    """
    rows = fig4_data(inputs).with_columns(measure=pl.lit("percent"))
    plt_rtt = pl.col("plt_ms") / pl.col("nominal_rtt_ms")
    loads = _loads(inputs).join(inputs.rtts, on="link").with_columns(plt_rtt=plt_rtt)
    differences = [
        metrics.medians(
            metrics.paired(loads, "plt_rtt", "combination", protocol, BASELINE), "difference", metrics.CELL
        ).with_columns(series=pl.lit(protocol))
        for protocol in PROTOCOLS
    ]
    in_rtts = pl.concat(differences).join(_lookups(inputs), on="page")
    named = _sorted(in_rtts, inputs).with_columns(source=pl.lit("measured"), measure=pl.lit("round-trips"))
    columns = ["measure", "link", "page", "series", "source", pl.col("lookups").alias("x"), *_ESTIMATE]
    return pl.concat([rows.select(columns), named.select(columns)])


def amortisation(frame: pl.DataFrame) -> AnyChart:
    """Chart of the increase of the PLT compared with DoUDP, by number of lookups, with a plot for each link."""
    if frame.is_empty():
        return marks.empty_plot("no loads with a DoUDP load of the same round", TEXT_WIDTH - 60)
    encodings, links, most = _encodings(PROTOCOLS), _titles(frame), max(frame["x"].to_list())
    measures = {name: title for name, title in _MEASURES.items() if name in frame["measure"]}
    base = alt.Chart(width=(TEXT_WIDTH - 60) // len(links) - 12, height=150)
    lookups = alt.Axis(values=list(range(1, most + 1)), format="d", grid=False)
    plots = []
    for measure, title in measures.items():
        first, last = measure == next(iter(measures)), measure == list(measures)[-1]
        across = alt.Scale(domain=[0.5, most + 0.5], nice=False)
        x = alt.X("place:Q", title="Lookups of the page" if last else None, scale=across, axis=lookups)
        scale = alt.Scale(domain=_reach(frame.filter(measure=measure)), nice=False)
        y = alt.Y("median:Q", title=title, scale=scale)
        mean = alt.Y("mean(median):Q", title=title, scale=scale)
        tip = alt.Tooltip("x:Q", title="lookups")
        who = ("link_title", "page", "series")
        tooltip = marks.tooltip(*who, value=title, digits="+.2f", counted="loads", more=[tip])
        layers = [
            marks.line_at(base, y=0),
            marks.trend(base, x, mean, {"color": encodings["color"]}, strokeWidth=1.2, opacity=0.6),
            *marks.intervals(base, x, y, tooltip, encodings, upright=True, size=40, width=1.3),
        ]
        column = marks.facet_columns("link_title", links, labels=first)
        plots.append(marks.multiples(layers, column=column, spacing=12).transform_filter(alt.datum.measure == measure))
    chart: AnyChart = alt.vconcat(*plots, spacing=8)
    chart.data = with_titles(frame).with_columns(place=_shifted("x"))
    return chart


def _shifted(lookups: str) -> pl.Expr:
    """Number of lookups, shifted sideways by series so that marks do not overlap."""
    side = {protocol: 0.09 * (rank - (len(PROTOCOLS) - 1) / 2) for rank, protocol in enumerate(PROTOCOLS)}
    return pl.col(lookups) + pl.col("series").replace_strict(side, return_dtype=pl.Float64)


def amortisation_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of measure, link, lookups, page, series, n, median, low, high.

    `median`, `low` and `high` are in percent or in multiples of the RTT, as `measure` says.
    """
    return frame.select("measure", "link", pl.col("x").alias("lookups"), "page", "series", "n", "median", "low", "high")


def amortisation_verdict(frame: pl.DataFrame) -> str:
    """Verdict: increase of the PLT compared with DoUDP, for the pages with the fewest and with the most lookups."""
    shown = frame.filter(measure="percent") if frame.height else frame
    if shown.is_empty() or shown["x"].n_unique() < 2:
        return "Not answered: this dataset lacks DoUDP loads, or pages with different numbers of lookups."
    sentences = []
    for lookups in (int(end) for end in (shown["x"].min(), shown["x"].max())):  # type: ignore[arg-type]
        of_pages = shown.filter(pl.col("x") == lookups)
        increases = {
            protocol: of_pages.filter(series=protocol).group_by("link").agg(pl.col("median").median())["median"]
            for protocol in ("DoQ", "DoH")
        }
        listed = [f"{protocol} {reach(values, 1)} %" for protocol, values in increases.items() if values.len()]
        sentences.append(f"{lookups} {'lookup' if lookups == 1 else 'lookups'}: {', '.join(listed)}.")
    return (
        "Increase of the PLT compared with DoUDP, for pages with the fewest and the most lookups. "
        f"{' '.join(sentences)} "
        "For each transport, number of lookups and link, the value is the median over the pages with this number of "
        "lookups. Each range goes from the link with the lowest value to the link with the highest value. With DoQ and "
        "with DoH, only the first lookup waits for the handshake; later lookups use the open connection."
    )


# --- loss ------------------------------------------------------------------------------------------------------------


def faster_data(inputs: Inputs) -> pl.DataFrame:
    """Percentage of rounds in which the load over a transport was faster than the load over DoUDP.

    Columns link, page, lookups, series (transport), source, n (rounds with both loads), percent.
    """
    loads = _loads(inputs, lossy=True)
    rows = [
        metrics.paired(loads, "plt_ms", "combination", protocol, BASELINE)
        .group_by(metrics.CELL)
        .agg(n=pl.len(), percent=100 * (pl.col("difference") < 0).mean())
        .with_columns(series=pl.lit(protocol), source=pl.lit("measured"))
        for protocol in PROTOCOLS
    ]
    shares = pl.concat(rows).collect().join(_lookups(inputs), on="page")
    columns = ("link", "page", "lookups", "series", "source", "n", "percent")
    return _sorted(shares, inputs).select(columns)


def faster(frame: pl.DataFrame) -> AnyChart:
    """Chart of the percentages of `faster_data` against the number of lookups, with a plot for each link."""
    if frame.is_empty():
        return marks.empty_plot("no loads with a DoUDP load of the same round", TEXT_WIDTH - 60)
    links, most = _titles(frame), max(frame["lookups"].to_list())
    base = alt.Chart(width=(TEXT_WIDTH - 60) // len(links) - 12, height=150)
    lookups = alt.Axis(values=list(range(1, most + 1)), format="d", grid=False)
    x = alt.X("place:Q", title="Lookups", scale=alt.Scale(domain=[0.5, most + 0.5], nice=False), axis=lookups)
    title, scale = "Rounds faster than over DoUDP (%)", alt.Scale(domain=[-4, 104], nice=False)
    y, mean = (alt.Y(value, title=title, scale=scale) for value in ("percent:Q", "mean(percent):Q"))
    encodings = _encodings(PROTOCOLS)
    who = ("link_title", "page", "series")
    tooltip = marks.tooltip(*who, value="rounds, %", of="percent:Q", digits=".0f", counted="rounds")
    layers = [
        marks.line_at(base, y=50),
        marks.trend(base, x, mean, {"color": encodings["color"]}, strokeWidth=1.2, opacity=0.6),
        base.mark_point(size=40, filled=True, opacity=0.9).encode(x, y, **encodings, tooltip=tooltip),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=12)
    chart.data = with_titles(frame).with_columns(place=_shifted("lookups"))
    return chart


# --- the first lookup ------------------------------------------------------------------------------------------------


def first_lookup_data(inputs: Inputs) -> pl.DataFrame:
    """Time of the lookup of the page's own host, connection setup included, by link and transport.

    Columns link, series, source, n, rounds, median, low, high (multiples of the RTT, from the stub's log), expected
    (round-trips), differs_ms (median of the lookup time in the browser minus that in the stub's log), agrees_percent
    (percentage of loads in which the two times differ by at most `AGREES_MS`).
    """
    browser = pl.col("domain_lookup_end_ms") - pl.col("domain_lookup_start_ms")
    loads = (
        _loads(inputs)
        .join(inputs.rtts, on="link")
        .with_columns(
            series="combination",
            lookup_rtt=pl.col("stub_lookup_ms") / pl.col("nominal_rtt_ms"),
            differs=browser - pl.col("stub_lookup_ms"),
        )
    )
    by = ["link", "series"]
    agreement = loads.group_by(by).agg(
        differs_ms=pl.col("differs").median(), agrees_percent=100 * (pl.col("differs").abs() <= AGREES_MS).mean()
    )
    medians = metrics.medians(loads, "lookup_rtt", by).join(agreement.collect(), on=by)
    order = {name: rank for rank, name in enumerate((BASELINE, *PROTOCOLS))}
    rows = medians.with_columns(
        source=pl.lit("measured"), expected=pl.col("series").replace_strict(ROUND_TRIPS, return_dtype=pl.Int64)
    ).sort(pl.col("series").replace_strict(order, return_dtype=pl.Int64))
    columns = ("link", "series", "source", *_ESTIMATE, "expected", "differs_ms", "agrees_percent")
    return _sorted(rows, inputs).select(columns)


def first_lookup(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time of the first lookup in multiples of the RTT, with a plot for each link."""
    if frame.is_empty():
        return marks.empty_plot("no loads on a link whose RTT is known", TEXT_WIDTH - 60)
    order, links = (BASELINE, *PROTOCOLS), _titles(frame)
    base = alt.Chart(width=(TEXT_WIDTH - 80) // len(links) - 12, height=17 * len(order))
    top = max(3.6, float(frame.select(pl.max_horizontal("median", "high").max()).item()) * 1.03)
    scale = alt.Scale(domain=[0, top], nice=False)
    x = alt.X("median:Q", title="First lookup (RTT)", scale=scale, axis=alt.Axis(values=[0, 1, 2, 3, 4]))
    y = marks.rows("series", order)
    expected = alt.Tooltip("expected:Q", title="round-trips expected")
    tooltip = marks.tooltip("link_title", "series", value="first lookup, RTT", counted="loads", more=[expected])
    layers = [
        marks.ticks(base, alt.X("expected:Q", scale=scale), y, tooltip),
        *marks.intervals(base, x, y, tooltip, _encodings(order), size=40),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=12)
    chart.data = with_titles(frame)
    return chart


FIGURES = (
    Figure(
        name="fig3-fcp-and-plt",
        title="FCP and PLT over DoUDP",
        paper_figure="Fig. 3",
        notebook="web_performance",
        caption="CDF of First Contentful Paint (FCP) and PLT, relative to their median over DoUDP on the same page and "
        "link. Curves: transport of the browser's own lookups. All pages and all links without loss are pooled. The "
        "curve of DoUDP shows how much loads differ although they use the same transport.",
        note="Diamonds: values printed in IMC22 (Kosek et al.). Dots and bars at CDF 0.5: our medians, 95 % intervals.",
        data=fig3_data,
        chart=fig3,
        table=cdf.table,
    ),
    Figure(
        name="fig4-links-and-pages",
        title="PLT over DoUDP by link and page",
        paper_figure="Fig. 4",
        notebook="web_performance",
        caption="Median PLT relative to the median PLT with DoUDP. Rows: links without loss. Columns: pages, ordered "
        "by number of lookups. In Fig. 4 of the paper, the same grid has vantage points in place of links.",
        note="Marks: medians; bars: 95 % intervals (bootstrap over rounds). Vertical line: DoUDP.",
        data=fig4_data,
        chart=fig4,
        table=("link", "page", "lookups", "series", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="amortisation",
        title="Cost of a transport, by the number of lookups",
        notebook="web_performance",
        caption="For each transport except DoUDP: PLT minus the PLT with DoUDP, against the number of lookups of the "
        "page, on links without loss. Two units: percent of the median PLT with DoUDP (top), and multiples of the "
        "link's RTT (bottom).",
        note="Marks: medians of each page, shifted sideways to avoid overlaps; bars: 95 % intervals; lines: mean of "
        "the medians of all pages with the same number of lookups.",
        data=amortisation_data,
        chart=amortisation,
        table=amortisation_table,
        width=TEXT_WIDTH,
        verdict=amortisation_verdict,
    ),
    Figure(
        name="faster-than-doudp",
        title="How often a transport is faster than DoUDP",
        notebook="web_performance",
        caption="Percentage of rounds in which the page loaded faster than over DoUDP, against the page's number of "
        "lookups, on links with and without loss.",
        note="Each mark is one page; lines: mean of the pages with the same number of lookups. A page has few rounds, "
        "so there are no intervals. At 50 %, a transport is faster than DoUDP as often as it is slower.",
        data=faster_data,
        chart=faster,
        table=("link", "page", "lookups", "series", "n", "percent"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="first-lookup",
        title="The first lookup of a load",
        notebook="web_performance",
        caption="Time to look up the page's own host, on links without loss. This time is from the stub's log and "
        "includes the setup of the stub's first connection. The CSV file compares it with the lookup time that the "
        "browser reports.",
        note="Marks: medians; bars: 95 % intervals. Vertical ticks: round-trips of a resumed session without early "
        "data.",
        data=first_lookup_data,
        chart=first_lookup,
        table=("link", "series", "n", "median", "low", "high", "expected", "differs_ms", "agrees_percent"),
        width=TEXT_WIDTH,
    ),
)
