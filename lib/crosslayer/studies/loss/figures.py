"""Figures: time that 0-RTT saves when packets are lost, and time of lookups over DoQ compared with DoUDP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import (
    COLUMN_WIDTH,
    EARLY_DATA,
    GREEN,
    PURPLE,
    SHORT,
    TEXT_WIDTH,
    TRANSPORTS,
    AnyChart,
    Style,
)
from crosslayer.studies.loss import KEPT, lossy

_LEVELS = {"median": 0.5, "P95": 0.95, "P99": 0.99}
_OF_P99 = 100
"""Minimum number of observations for a 99th percentile."""
_SPREAD = 0.06
_NEW = ("DoUDP", "DoT", "DoH", "DoQ")
_EARLY, _KEPT, _EARLY_H3 = "DoQ 0-RTT", "DoQ, kept", "DoH3 0-RTT"
_STYLES = {
    **{name: TRANSPORTS[name] for name in _NEW},
    _EARLY: EARLY_DATA,
    _KEPT: Style(PURPLE, "square", SHORT),
}
_SAVERS = {"DoQ": ("DoQ", _EARLY), "HTTP/3": ("DoH3", _EARLY_H3)}
_SAVED_STYLES = {"DoQ": TRANSPORTS["DoQ"], "HTTP/3": Style(GREEN, "cross", TRANSPORTS["DoH3"].dash)}
_KINDS = {("main", "early-data"): " 0-RTT", (KEPT, "none"): ", kept"}
_AGAINST_UDP = (_KEPT, _EARLY, "DoQ")


def _lookups(inputs: Inputs) -> pl.LazyFrame:
    """Lookups on links whose loss is varied, with `loss_percent`."""
    losses = {link: known[1] for link in inputs.links if (known := lossy(link))}
    return (
        metrics.lookup_series(inputs.dns_exchanges, inputs.rtts, _KINDS)
        .filter(pl.col("link").is_in(list(losses)))
        .with_columns(loss_percent=pl.col("link").replace_strict(losses, default=None, return_dtype=pl.Float64))
    )


def loss_data(inputs: Inputs) -> pl.DataFrame:
    """Quantiles of lookup times by transport and loss, and differences of quantiles; multiples of the RTT.

    Columns loss_percent, measure (`median`, `P95`, `P99`), series, source, n, rounds, median, low, high. The column
    `median` has the quantile that `measure` names. Rows of source `measured` have lookup times. Rows of source
    `full minus 0-RTT` have the time that early data saves. Rows of source `DoUDP minus DoQ` have the time that DoQ
    saves compared with DoUDP.
    """
    lookups = _lookups(inputs)
    parts = []
    for measure, level in _LEVELS.items():
        quantiles = metrics.medians(lookups, "total_rtt", ["loss_percent", "series"], level=level)
        of_level = [quantiles.with_columns(source=pl.lit("measured"))]
        pairs = [("full minus 0-RTT", name, *pair) for name, pair in _SAVERS.items()]
        pairs += [("DoUDP minus DoQ", name, "DoUDP", name) for name in _AGAINST_UDP]
        for source, name, slow, fast in pairs:
            spared = metrics.quantile_differences(
                lookups, "total_rtt", "series", slow, fast, ["loss_percent"], level=level
            )
            of_level.append(spared.with_columns(series=pl.lit(name), source=pl.lit(source)))
        parts += [part.with_columns(measure=pl.lit(measure)) for part in of_level]
    frame = pl.concat(parts, how="diagonal").filter((pl.col("measure") != "P99") | (pl.col("n") >= _OF_P99))
    ranks = {name: at for at, name in enumerate(_LEVELS)}
    return frame.sort(
        pl.col("measure").replace_strict(ranks, return_dtype=pl.Int64), "source", "series", "loss_percent"
    )


def _plot(frame: pl.DataFrame, styles: dict[str, Style], y_title: str, value: str, scale: alt.Scale) -> AnyChart:
    """Chart of series against the loss, with a plot for each quantile. Marks are shifted, so bars do not overlap."""
    shifts = {name: (at - (len(styles) - 1) / 2) * _SPREAD for at, name in enumerate(styles)}
    shown = frame.with_columns(
        x=pl.col("loss_percent") + pl.col("series").replace_strict(shifts, return_dtype=pl.Float64)
    )
    measures = [name for name in _LEVELS if name in set(shown["measure"])]
    right = float(shown["loss_percent"].max() or 0) + 0.4  # type: ignore[arg-type]
    x = alt.X(
        "x:Q",
        title="Packets lost in each direction (%)",
        scale=alt.Scale(domain=[-0.4, right], nice=False),
        axis=alt.Axis(values=sorted(shown["loss_percent"].unique()), grid=False, format="~g"),
    )
    y = alt.Y("median:Q", title=y_title, scale=scale)
    encodings = marks.encode_series("series", styles, "color", "shape", columns=len(styles))
    tooltip = marks.tooltip("series", "loss_percent", "measure", value=value, counted="lookups")
    base = alt.Chart(width=(TEXT_WIDTH - 130) // max(len(measures), 1), height=210)
    colour = {"color": encodings["color"]}
    layers = [
        marks.trend(base, x, y, colour, strokeWidth=1),
        *marks.intervals(base, x, y, tooltip, encodings, upright=True),
    ]
    if scale["type"] != "log":
        layers.insert(0, marks.line_at(base, y=0, dashed=True))
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("measure", measures), spacing=14)
    chart.data = shown
    return chart


def lookups(frame: pl.DataFrame) -> AnyChart:
    """Chart of the lookup time against the loss, with a plot for each quantile."""
    shown = frame.filter(pl.col("source") == "measured", pl.col("series").is_in(list(_STYLES)))
    if shown.is_empty():
        return marks.empty_plot("no lookups of this study", COLUMN_WIDTH - 60)
    top = float(shown.select(pl.max_horizontal("high", "median").max()).item())
    scale = alt.Scale(type="log", domain=[0.9, max(4.0, top * 1.15)], nice=False)
    return _plot(shown, _STYLES, "Lookup (multiples of the RTT)", "RTTs", scale)


def saved(frame: pl.DataFrame) -> AnyChart:
    """Chart with the loss on the x axis and the time that early data saves on the y axis; a plot for each quantile."""
    shown = frame.filter(pl.col("source") == "full minus 0-RTT")
    if shown.is_empty():
        return marks.empty_plot("no lookups of this study", COLUMN_WIDTH - 60)
    return _plot(
        shown,
        _SAVED_STYLES,
        "Full handshake minus 0-RTT (RTTs)",
        "saved, RTTs",
        alt.Scale(domain=marks.domain(shown, least=(-0.5, 2.0), margin=0.2)["domain"], type="linear", nice=False),
    )


_LOSS_TABLE = ("measure", "source", "series", "loss_percent", "n", "median", "low", "high")


def _from(frame: pl.DataFrame, *, source: str, series: str, measure: str) -> list[tuple[float, dict[str, float]]]:
    """Pairs of a loss (percent) and its row, for one source, series and measure; in ascending order of loss."""
    some = frame.filter(source=source, series=series, measure=measure).sort("loss_percent")
    return [(values["loss_percent"], values) for values in some.iter_rows(named=True)]


def doq_verdict(frame: pl.DataFrame) -> str:
    """Verdict: DoQ compared with DoUDP, by loss."""
    sentences = []
    for series, name in _CASES.items():
        parts = [
            _compared(_written(measure), rows)
            for measure in ("median", "P99")
            if (rows := _from(frame, source="DoUDP minus DoQ", series=series, measure=measure))
        ]
        if parts:
            sentences.append(f"{name}: {'. '.join([parts[0], *(f'A{part[1:]}' for part in parts[1:])])}")
    if not sentences or frame["low"].drop_nulls().is_empty():
        return "Not answered: this dataset lacks one of the kinds of lookup, or has too few rounds."
    return (
        "We compare the time of a lookup over DoQ with the time over DoUDP at the same loss rate. The times count as "
        f"equal if the 95 % interval of their difference lies wholly within ±{_CLEAR:g} RTT. The time over DoQ counts "
        "as shorter or longer if this interval lies wholly outside, and as not clearly different if it lies partly "
        f"within. {'. '.join(sentences)}. "
        "Where the time over DoQ is shorter, the reason is that DoQ repeats lost packets earlier: a lost DoQ packet is "
        "repeated after a probe timeout, a lost DoUDP query only after one second."
    )


_CASES = {
    _KEPT: "DoQ on a kept connection",
    "DoQ": "DoQ on a new connection without early data",
    _EARLY: "DoQ on a new connection with early data",
}
_CLEAR = 0.05
"""Minimum difference that the verdict calls shorter or longer, RTT."""


def _compared(quantile: str, rows: Sequence[tuple[float, Mapping[str, float]]]) -> str:
    """DoQ compared with DoUDP by loss, e.g. `at 0 % loss, the median is equal; at 1 % loss, it is 8.3 RTT shorter`."""
    outcomes: dict[str, list[tuple[float, float]]] = {}
    for loss, values in rows:
        low, high = values["low"], values["high"]
        if low is None:
            outcome = "not known"
        elif low > _CLEAR:
            outcome = "shorter"
        elif high < -_CLEAR:
            outcome = "longer"
        elif low >= -_CLEAR and high <= _CLEAR:
            outcome = "equal"
        else:
            outcome = "not clearly different"
        outcomes.setdefault(outcome, []).append((loss, abs(values["median"])))
    parts: list[str] = []
    for outcome, some in outcomes.items():
        losses = _listed([loss for loss, _ in some])
        by = f"{reach(pl.Series([value for _, value in some]), 1)} RTT " if outcome in ("shorter", "longer") else ""
        subject = "it" if parts else f"the {quantile}"
        parts.append(f"at {losses} % loss, {subject} is {by}{outcome}")
    return "; ".join(parts)


def _listed(losses: Sequence[float]) -> str:
    """Losses as a list, e.g. `0, 1 and 2`."""
    *first, last = (f"{loss:g}" for loss in losses)
    return f"{', '.join(first)} and {last}" if first else last


def _written(measure: str) -> str:
    return {"median": "median", "P95": "95th percentile", "P99": "99th percentile"}[measure]


def saved_verdict(frame: pl.DataFrame) -> str:
    """Verdict: loss at which 0-RTT saves time."""
    sentences = []
    for series in _SAVERS:
        parts = []
        for measure in _LEVELS:
            rows = _from(frame, source="full minus 0-RTT", series=series, measure=measure)
            saving = [(loss, values) for loss, values in rows if values["low"] is not None and values["low"] > 0]
            if saving:
                by_value: dict[str, list[float]] = {}
                for loss, values in saving:
                    by_value.setdefault(f"{values['median']:.1f} RTT shorter", []).append(loss)
                where = ", and ".join(f"{shorter} at {_listed(losses)} %" for shorter, losses in by_value.items())
                parts.append(f"the {_written(measure)} is {where}")
            elif rows:
                parts.append(f"the {_written(measure)} is shorter at no loss rate")
        if parts:
            sentences.append(f"{series}: {'; '.join(parts)}")
    if not sentences or frame["low"].drop_nulls().is_empty():
        return "Not answered: this dataset lacks lookups with and without early data, or has too few rounds."
    return (
        "Each value is the time of a lookup with a full handshake, minus the time with early data at the same loss "
        "rate. The lookup with early data counts as shorter only if the whole 95 % interval of this difference is "
        f"above 0. {'. '.join(sentences)}. If the first flight is lost, the early data in it is lost, too."
    )


FIGURES = (
    Figure(
        name="loss-lookups",
        title="A lookup when packets are lost",
        notebook="question_loss",
        caption="Duration of one lookup. DoT, DoH and DoQ: new connection with a full handshake. DoQ 0-RTT: new "
        "connection with early data. DoQ, kept: connection that is already open. Horizontal axis: loss rate in each "
        "direction; each packet is lost independently of the others.",
        note="Bars: 95 % intervals (bootstrap over rounds). The 99th percentile (P99) is drawn only for points with at "
        "least 100 lookups.",
        data=loss_data,
        chart=lookups,
        table=_LOSS_TABLE,
        width=TEXT_WIDTH,
        verdict=doq_verdict,
    ),
    Figure(
        name="loss-early-data",
        title="What early data saves when packets are lost",
        notebook="question_loss",
        caption="Time saved by early data, against the loss rate in each direction. DoQ: a lookup over DoQ. HTTP/3: a "
        "lookup over DoH3, as an example of a small GET. Each value is a quantile of the time with a full handshake, "
        "minus the same quantile of the time with early data.",
        note="Bars: 95 % intervals (bootstrap over rounds). The 99th percentile (P99) is drawn only for points with at "
        "least 100 lookups.",
        data=loss_data,
        chart=saved,
        table=_LOSS_TABLE,
        width=TEXT_WIDTH,
        verdict=saved_verdict,
    ),
)
