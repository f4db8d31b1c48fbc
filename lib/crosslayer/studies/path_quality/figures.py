"""Figures: time that 0-RTT saves, by RTT, jitter and queue; effects of packet loss.

The effects of packet loss are the cost of head-of-line blocking and the time that coalescing saves.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach, row, with_interval
from crosslayer.figures.style import (
    BLUE,
    GREEN,
    RED,
    SHORT,
    SOLID,
    TEXT_WIDTH,
    TRANSPORTS,
    AnyChart,
    Style,
)
from crosslayer.links import sweep
from crosslayer.studies.path_quality import loses
from crosslayer.studies.path_quality.visits import PAIRS

LEVELS = {"median": 0.5, "P95": 0.95, "P99": 0.99}
_FEWEST = {"median": 1, "P95": 20, "P99": 100}
"""Minimum number of observations for each quantile."""
_LATE_RTT = 1.5
"""Time in RTTs above which an answer counts as delayed by a lost packet: its own, or that of another query."""
_LATE = "later than 1.5 RTT (%)"
_SAVERS = {"DoQ": ("DoQ", "DoQ 0-RTT"), "HTTP/3": ("DoH3", "DoH3 0-RTT")}
_SAVER_STYLES = {"DoQ": TRANSPORTS["DoQ"], "HTTP/3": Style(GREEN, "cross", TRANSPORTS["DoH3"].dash)}
_SHARED = ("DoUDP", "DoT", "DoH", "DoQ", "DoH3")
_IN_LINE = {"DoT": "DoQ", "DoH": "DoH3"}
"""Transports that deliver all answers in order (TCP), each with the one that has independent streams (QUIC)."""
_FIRST = "first visit"
_VISIT_STYLES = {_FIRST: Style(BLUE, "circle", SOLID), "returning": Style(RED, "diamond", SHORT)}
_KINDS = ("rtt", "jitter", "queue", "loss")
_CLEAR = 0.05
"""Minimum difference that the verdict counts as faster or slower, RTT."""


def _written(link: str) -> str:
    """Varied parameter of a link with its value, as a row of a figure shows it, e.g. `RTT 20 ms`."""
    varied = sweep(link)
    if varied is None:
        return link
    _, kind, value = varied
    return {
        "rtt": f"RTT {value} ms",
        "jitter": f"jitter {value} ms",
        "queue": f"loaded, {value.replace('bdp', ' BDP')}",
        "loss": f"{value} % loss",
    }[kind]


def _row_order(link: str) -> tuple[int, float, str]:
    """Sort key of a link: its varied parameter, then the value of this parameter."""
    varied = sweep(link)
    if varied is None:
        return len(_KINDS), 0.0, link
    _, kind, value = varied
    number = value.removesuffix("bdp")
    return _KINDS.index(kind), float(number) if number.replace(".", "").isdigit() else 1e9, value


def _finished(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows with enough observations for their quantile, in the order of the figure, with `condition` (`RTT 20 ms`)."""
    frame = pl.concat(parts, how="diagonal")
    fewest = pl.col("measure").replace_strict(_FEWEST, default=1, return_dtype=pl.Int64)
    links = sorted(frame["link"].unique(), key=_row_order)
    measures = [*LEVELS, _LATE]
    return (
        frame.filter(pl.col("n") >= fewest)
        .with_columns(condition=pl.col("link").replace_strict({link: _written(link) for link in links}))
        .sort(
            pl.col("measure").replace_strict({name: at for at, name in enumerate(measures)}, return_dtype=pl.Int64),
            pl.col("link").replace_strict({link: at for at, link in enumerate(links)}, return_dtype=pl.Int64),
            "series",
            maintain_order=True,
        )
    )


def early_data_data(inputs: Inputs) -> pl.DataFrame:
    """Time that early data saves in a lookup, on links with varied RTT, jitter or queue; in nominal RTTs.

    Columns link, condition, measure (`median`, `P95`, `P99`), series (`DoQ`, `HTTP/3`), n, rounds, median, low, high.
    """
    swept = [link for link in inputs.links if sweep(link) and loses(link) is None]
    kinds = {("main", "early-data"): " 0-RTT"}
    lookups = metrics.lookup_series(inputs.dns_exchanges, inputs.rtts, kinds).filter(pl.col("link").is_in(swept))
    return _finished(
        [
            metrics.quantile_differences(lookups, "total_rtt", "series", *pair, ["link"], level=level).with_columns(
                series=pl.lit(name), measure=pl.lit(measure)
            )
            for measure, level in LEVELS.items()
            for name, pair in _SAVERS.items()
        ]
    )


def shared_data(inputs: Inputs) -> pl.DataFrame:
    """Response times of queries that share a connection, by transport and loss.

    Columns link, condition, measure (`median`, `P95`, `P99` in RTT; `later than 1.5 RTT (%)`), series (transport),
    source, n, rounds, median, low, high. Rows of source `in line` have the cost of delivery in order: the time over DoT
    minus that over DoQ, or over DoH minus that over DoH3. The other rows have the source `measured`.
    """
    asked = metrics.in_rtts(metrics.paced(inputs.paced_queries), inputs.rtts, ["response_ms"]).with_columns(
        late=(pl.col("response_rtt") > _LATE_RTT).cast(pl.Float64) * 100
    )
    by = ["link", "protocol"]
    share = metrics.moments(asked, "late", by, "mean").rename({"value": "median"})
    parts = [share.with_columns(measure=pl.lit(_LATE), source=pl.lit("measured"))]
    for measure, level in LEVELS.items():
        quantiles = metrics.medians(asked, "response_rtt", by, level=level)
        parts.append(quantiles.with_columns(measure=pl.lit(measure), source=pl.lit("measured")))
        for slow, fast in _IN_LINE.items():
            quantiles = metrics.quantile_differences(
                asked, "response_rtt", "protocol", slow, fast, ["link"], level=level
            )
            parts.append(
                quantiles.with_columns(protocol=pl.lit(slow), measure=pl.lit(measure), source=pl.lit("in line"))
            )
    return _finished([part.rename({"protocol": "series"}) for part in parts])


def coalescing_data(inputs: Inputs) -> pl.DataFrame:
    """Time, in RTTs, that a page load including name resolution takes longer on two connections than on one.

    Columns link, condition, page, measure (`median`, `P95`, `P99`), series (`first visit`, `returning`), n, rounds,
    median, low, high.
    """
    modes = {mode.name: mode.columns for pair in PAIRS.values() for mode in pair}
    names = pl.LazyFrame([columns | {"mode": name} for name, columns in modes.items()])
    # If the first flight is lost, the server receives no early data and the row has an error. These rows count here,
    # since they show the cost of the loss.
    late = inputs.resolved_loads.filter(
        pl.col("error").is_not_null(), pl.col("session_resumed"), pl.col("load_complete_ms").is_not_null()
    )
    rows = pl.concat([metrics.resolved_loads(inputs.resolved_loads), late])
    loads = rows.filter(pl.col("link").is_in([link for link in inputs.links if sweep(link)])).join(
        names, on=names.collect_schema().names()[:-1]
    )
    loads = metrics.in_rtts(loads, inputs.rtts, ["load_complete_ms"])
    return _finished(
        [
            metrics.quantile_differences(
                loads, "load_complete_rtt", "mode", two.name, one.name, ["link", "page"], level=level
            ).with_columns(series=pl.lit(name), measure=pl.lit(measure))
            for measure, level in LEVELS.items()
            for name, (two, one) in PAIRS.items()
        ]
    )


def _dots(shown: pl.DataFrame, styles: dict[str, Style], title: str, columns: str, *, log: bool = False) -> AnyChart:
    """Chart of medians with intervals: a row for each condition, a plot for each value of the column `columns`."""
    conditions = list(shown["condition"].unique(maintain_order=True))
    order = list(shown[columns].unique(maintain_order=True))
    domain = marks.domain(shown, least=(0.9, 4.0) if log else (-0.2, 1.2), margin=0.1)["domain"]
    scale = alt.Scale(
        type="log" if log else "linear", domain=[max(0.9, domain[0]), domain[1]] if log else domain, nice=False
    )
    x, y = alt.X("median:Q", title=title, scale=scale), marks.rows("condition", conditions)
    encodings = marks.encode_series("series", styles, "color", "shape", "offset", columns=len(styles))
    tooltip = marks.tooltip("condition", "series", "measure", value="RTTs", digits=".2f", counted="observations")
    base = alt.Chart(width=(TEXT_WIDTH - 150) // max(len(order), 1), height=alt.Step(11))
    layers = [*([] if log else [marks.line_at(base, x=0)]), *marks.intervals(base, x, y, tooltip, encodings)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns(columns, order), spacing=12)
    chart.data = shown
    return chart


def early_data(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time that early data saves, with a row for each condition and a plot for each quantile."""
    if frame.is_empty():
        return marks.empty_plot("no lookups of this study", TEXT_WIDTH - 60)
    return _dots(frame, _SAVER_STYLES, "Full handshake minus 0-RTT (RTTs)", "measure")


def shared(frame: pl.DataFrame) -> AnyChart:
    """Chart of the response times of queries that share a connection."""
    shown = frame.filter(pl.col("source") == "measured", pl.col("measure") != _LATE)
    if shown.is_empty():
        return marks.empty_plot("no queries of this study", TEXT_WIDTH - 60)
    return _dots(shown, {name: TRANSPORTS[name] for name in _SHARED}, "Query to answer (RTTs)", "measure", log=True)


def coalescing(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time that one connection saves, with a plot for each page and quantile."""
    if frame.is_empty():
        return marks.empty_plot("no loads of this study", TEXT_WIDTH - 60)
    shown = frame.with_columns(plot=pl.concat_str("page", pl.lit(", "), "measure"))
    return _dots(shown, _VISIT_STYLES, "Two connections minus one (RTTs)", "plot")


def _table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of measure, source and page (if the frame has them), series, condition, n, median, low, high."""
    more = [name for name in ("source", "page") if name in frame.columns]
    return frame.select("measure", *more, "series", "condition", "n", "median", "low", "high")


def _quantile(measure: str) -> str:
    return {"median": "the median", "P95": "the 95th percentile", "P99": "the 99th percentile"}[measure]


def early_data_verdict(frame: pl.DataFrame) -> str:
    """Verdict: on which paths 0-RTT saves time."""
    known = frame.filter(pl.col("low").is_not_null())
    if known.is_empty():
        return "Not answered: this dataset lacks lookups with and without early data, or has too few rounds."
    sentences = []
    exceptions = known.filter(pl.col("low") <= 0).height
    for (series,), rows in known.group_by(["series"], maintain_order=True):
        parts = []
        for (measure,), some in rows.group_by(["measure"], maintain_order=True):
            not_saving = some.filter(pl.col("low") <= 0)["condition"].to_list()
            where = f" (interval not above 0: {', '.join(not_saving)})" if not_saving else ""
            parts.append(f"{reach(some['median'], 2)} RTT at {_quantile(str(measure))}{where}")
        sentences.append(f"{series}: {', '.join(parts)}.")
    return (
        "Time saved by early data (ranges: over the paths), in RTTs of the idle path. So a round-trip through a full "
        f"queue counts as more than one RTT. {' '.join(sentences)} "
        f"{'Apart from these exceptions' if exceptions else 'On every path'}, the whole 95 % interval of the saved "
        "time lies above 0."
    )


def shared_verdict(frame: pl.DataFrame) -> str:
    """Verdict: cost of head-of-line blocking."""
    sentences = []
    conditions = list(frame["condition"].unique(maintain_order=True)) if frame.height else []
    for condition in dict.fromkeys([*conditions[:1], *conditions[-1:]]):
        shares = {
            name: row(frame, measure=_LATE, source="measured", series=name, condition=condition)
            for pair in _IN_LINE.items()
            for name in pair
        }
        known = {name: f"{share['median']:.1f} %" for name, share in shares.items() if share}
        listed = ", ".join(f"{share} over {name}" for name, share in known.items())
        if len(known) > 1 and len(set(known.values())) == 1:
            listed = f"{next(iter(known.values()))} over each of {', '.join(known)}"
        sentences.append(f"at {condition}, {listed}")
    differences = (
        [
            f"{slow} minus {fast} {with_interval(difference, 'RTT', 2)}"
            for slow, fast in _IN_LINE.items()
            if (difference := row(frame, source="in line", series=slow, condition=conditions[-1], measure="P95"))
        ]
        if conditions
        else []
    )
    if not sentences or not differences:
        return "Not answered: this dataset lacks queries that share a connection."
    return (
        "Over TCP, an answer that has arrived waits for the retransmission of lost packets that precede it in the "
        f"byte stream (head-of-line blocking). Share of answers that take more than {_LATE_RTT:g} RTT: "
        f"{'; '.join(sentences)}. Difference of the 95th percentile of the time from query to answer at "
        f"{conditions[-1]} [95 % interval]: {', '.join(differences)}."
    )


def coalescing_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time that coalescing saves when packets are lost."""
    known = frame.filter(pl.col("low").is_not_null()) if "low" in frame.columns else frame
    if known.is_empty():
        return "Not answered: this dataset lacks loads on one connection and on two, or has too few rounds."
    sentences = []
    for (series, page), rows in known.group_by(["series", "page"], maintain_order=True):
        parts = [
            f"{reach(some['median'], 2)} RTT at {_quantile(str(measure))}"
            for (measure,), some in rows.group_by(["measure"], maintain_order=True)
        ]
        visit = "First visit" if series == _FIRST else "Returning visit"
        sentences.append(f"{visit} of {page}: {', '.join(parts)}.")
    better = known.filter(pl.col("low") > _CLEAR).height
    worse = [values["condition"] for values in known.iter_rows(named=True) if values["high"] < -_CLEAR]
    slower = f"in {len(worse)} of {known.height} cases, at {', '.join(dict.fromkeys(worse))}" if worse else "in no case"
    neither = known.height - better - len(worse)
    undecided = (
        f" In {neither} of {known.height} cases, the interval overlaps the range from \N{MINUS SIGN}{_CLEAR:g} to "
        f"{_CLEAR:g} RTT, so one connection counts as neither faster nor slower."
        if neither
        else ""
    )
    return (
        "Time saved by one connection for name and page, instead of two connections. Ranges: over the loss rates. "
        f"{' '.join(sentences)} Each combination of loss rate, visit, page and quantile is a case. One connection "
        f"counts as faster in {better} of {known.height} cases (whole 95 % interval above {_CLEAR:g} RTT). One "
        f"connection counts as slower {slower} (whole 95 % interval below \N{MINUS SIGN}{_CLEAR:g} RTT).{undecided}"
    )


FIGURES = (
    Figure(
        name="path-early-data",
        title="Time saved by early data, by RTT, jitter and queue of the path",
        notebook="question_path_quality",
        caption="Time saved by early data. Each row is one path: the link 4G, with one property set to the value "
        "shown. DoQ: a lookup over DoQ. HTTP/3: a lookup over DoH3, as an example of a small GET. The title of each "
        "plot names a quantile of the lookup time, e.g. P95 (95th percentile). Each mark is this quantile with a full "
        "handshake, minus the same quantile with early data. Loaded: a TCP download fills the queue.",
        note="RTT means the RTT of the idle path. Bars: 95 % intervals (bootstrap over rounds). Percentiles "
        "are drawn only for points with enough lookups: P95 with at least 20, P99 with at least 100.",
        data=early_data_data,
        chart=early_data,
        table=_table,
        width=TEXT_WIDTH,
        verdict=early_data_verdict,
    ),
    Figure(
        name="path-shared",
        title="Queries that share a connection when packets are lost",
        notebook="question_path_quality",
        caption="Time from query to answer on 4G. Rows: loss rate in each direction; each packet is lost independently "
        "of the others. The stub sends a hundred queries, one every 10 ms, over one connection. DoUDP uses no "
        "connection.",
        note="Bars: 95 % intervals (bootstrap over rounds). A DoUDP query without an answer is repeated after one "
        "second.",
        data=shared_data,
        chart=shared,
        table=_table,
        width=TEXT_WIDTH,
        verdict=shared_verdict,
    ),
    Figure(
        name="path-coalescing",
        title="Coalescing when packets are lost",
        notebook="question_path_quality",
        caption="Time until the last byte of the page arrives, name resolution included. The title of each plot names "
        "a page and a quantile of this time, e.g. P95 (95th percentile). Each mark is the quantile with two "
        "connections, minus the same quantile with one connection for name and page. Rows: loss rate in each "
        "direction; each packet is lost independently of the others. The name is resolved over DoH3, the page is "
        "loaded over HTTP/3.",
        note="Right of 0: one connection is faster. Bars: 95 % intervals (bootstrap over rounds).",
        data=coalescing_data,
        chart=coalescing,
        table=_table,
        width=TEXT_WIDTH,
        verdict=coalescing_verdict,
    ),
)
