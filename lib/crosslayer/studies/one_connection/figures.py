"""Figures: time saved by resolving a name and loading its page on one connection."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import (
    BLUE,
    CHAIN,
    GREY,
    LONG,
    RED,
    SHORT,
    SOLID,
    TEXT_WIDTH,
    TRANSPORTS,
    AnyChart,
    Style,
    link_title,
    page_styles,
    with_titles,
)
from crosslayer.studies.one_connection.metrics import (
    BACK,
    DOCUMENT,
    FIRST,
    FIRST_BYTE,
    NAME,
    TIMES,
    WORTH,
    loads,
)
from crosslayer.studies.one_connection.modes import (
    AT_ONCE,
    AT_ONCE_NO_TOKEN,
    FIRST_VISIT,
    MODES,
    NO_TOKEN,
    RETURNING,
    Mode,
    shared,
)
from crosslayer.vocabulary import Http3, Protocol, Resumption

_STYLES = {NAME: Style(BLUE, "circle", SOLID), FIRST_BYTE: Style(RED, "diamond", LONG)}
_NOTHING = "no resolved loads in this dataset"
_GAP_RTT = 0.5
"""Minimum gap in the arrival of a document that we attribute to a waiting server, not to the link; RTT."""


def ladder_data(inputs: Inputs) -> pl.DataFrame:
    """Times until the events of a load, by mode, link and page; multiples of the RTT.

    Columns mode, link, page, measure (name, first byte, document, page), round_trips (theoretical; null except for
    name and first byte), n, rounds, median, low, high.
    """
    times = metrics.in_rtts(loads(inputs.resolved_loads), inputs.rtts, list(TIMES.values()))
    order = {name: position for position, name in enumerate(MODES)}
    parts = []
    for measure, column in TIMES.items():
        medians = metrics.medians(times, column.replace("_ms", "_rtt"), ["link", "page", "mode"])
        least = {name: _round_trips(mode, measure) for name, mode in MODES.items()}
        trips = pl.col("mode").replace_strict(least, return_dtype=pl.Int64, default=None)
        parts.append(medians.with_columns(measure=pl.lit(measure), round_trips=trips))
    rank = pl.col("mode").replace_strict(order, return_dtype=pl.Int64)
    return inputs.by_rtt(pl.concat(parts).sort("page", rank, maintain_order=True))


def _round_trips(mode: Mode, measure: str) -> int | None:
    return {NAME: mode.name_round_trips, FIRST_BYTE: mode.page_round_trips}.get(measure)


def ladder(frame: pl.DataFrame) -> AnyChart:
    """Chart of the times until name and first byte by mode, with a plot for each link and a mark for each page."""
    shown = frame.filter(pl.col("measure").is_in([NAME, FIRST_BYTE]))
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    scale = marks.domain(shown, least=(0.7, 4.3), margin=0.3)
    axis = alt.Axis(values=[1, 2, 3, 4, 5], labelOverlap=False)
    x = alt.X("median:Q", title="Multiples of the RTT", scale=scale, axis=axis)
    y = marks.rows("mode", [name for name in MODES if name in set(shown["mode"])])
    encodings = marks.encode_series("measure", _STYLES, "color", "shape")
    tooltip = marks.tooltip("page", "link_title", "mode", "measure", value="median, RTT", digits=".3f", counted="loads")
    base = alt.Chart(width=(TEXT_WIDTH - 330) // max(len(links), 3), height=alt.Step(13))
    least = x.copy()
    least["shorthand"] = "round_trips:Q"
    expected = marks.ticks(base, least, y, tooltip)
    layers = [expected, *marks.intervals(base, x, y, tooltip, encodings, size=34)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=10)
    chart.data = with_titles(shown)
    return chart


def worth_data(inputs: Inputs) -> pl.DataFrame:
    """Time that each entry of `WORTH` saves until the document is complete, within a round; multiples of the RTT.

    Columns visit, what (the entry), link, page (null: all pages together), n, rounds, median, low, high.
    """
    of_study = loads(inputs.resolved_loads)
    parts = []
    for worth in WORTH:
        spared = metrics.paired(of_study, TIMES[DOCUMENT], "mode", worth.without.name, worth.with_it.name)
        spared = metrics.in_rtts(spared.rename({"difference": "spared_ms"}), inputs.rtts, ["spared_ms"])
        named = {"visit": pl.lit(worth.visit), "what": pl.lit(worth.what)}
        medians = [metrics.medians(spared, "spared_rtt", by) for by in (["link", "page"], ["link"])]
        parts += [part.with_columns(**named) for part in medians]
    return inputs.by_rtt(pl.concat(parts, how="diagonal"))


def worth(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time saved by each entry of `WORTH`, with a plot for each link and a mark for each page."""
    shown = frame.filter(pl.col("page").is_not_null())
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    shown = shown.with_columns(label=pl.format("{}: {}", "visit", "what"))
    y = marks.rows("label", [f"{worth.visit}: {worth.what}" for worth in WORTH])
    x = alt.X("median:Q", title="Earlier by (RTT)", scale=marks.domain(shown, least=(-0.2, 1.2), margin=0.1))
    pages = sorted(shown["page"].unique())
    encodings = marks.encode_series("page", page_styles(pages), "color", "shape", "offset")
    tooltip = marks.tooltip("page", "link_title", "label", value="median, RTT", digits=".3f", counted="rounds")
    base = alt.Chart(width=(TEXT_WIDTH - 260) // max(len(links), 3), height=alt.Step(8))
    layers = [marks.line_at(base, x=0), *marks.intervals(base, x, y, tooltip, encodings, size=34)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=10)
    chart.data = with_titles(shown)
    return chart


def worth_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time saved by resolving a name and loading its page on one connection."""
    links = frame["link"].unique(maintain_order=True).to_list() if "link" in frame.columns else []
    of_all = frame.filter(pl.col("page").is_null()) if links else frame
    sentences = []
    for visit, what, sentence in (
        (
            FIRST,
            "over DoUDP, then H3",
            "First visit: {} than with a lookup over DoUDP and an H3 page load with a full handshake.",
        ),
        (
            BACK,
            "over DoUDP, then H3 1-RTT",
            "Returning visit: {} than with a lookup over DoUDP and an H3 page load with a full handshake.",
        ),
        (
            BACK,
            "over DoUDP, then H3 0-RTT",
            "Returning visit: {} than with a lookup over DoUDP and an H3 page load that has early data and a token.",
        ),
        (
            BACK,
            "asking for the page at once",
            (
                "Returning visit, query and page request sent together: {} than if the page is requested after the "
                "DNS answer."
            ),
        ),
        (
            BACK,
            "not waiting for SETTINGS",
            "Returning visit, client does not wait for the server's SETTINGS before its query: {} than with this wait.",
        ),
    ):
        values = of_all.filter(visit=visit, what=what)["median"] if links else pl.Series(dtype=pl.Float64)
        if values.len():
            sentences.append(sentence.format(_earlier(values)))
    if not sentences:
        return "Not answered: this dataset lacks one of the modes."
    return (
        "How much earlier or later the document is complete in a visit with one encrypted connection for name and page "
        f"(medians over the pages; ranges: over the links). {' '.join(sentences)}"
    )


def _earlier(values: pl.Series) -> str:
    """Differences in RTT as a range, with `earlier` or `later` for their sign."""
    if values.max() <= 0:  # type: ignore[operator]
        return f"{reach(-values, 2)} RTT later"
    return f"{reach(values, 2)} RTT earlier"


_STEPS: dict[str, Style] = {
    Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT, condition=NO_TOKEN).name: Style(GREY, "square", CHAIN),
    Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT).name: Style(GREY, "diamond", SOLID),
    FIRST_VISIT.name: TRANSPORTS["DoH3"],
    RETURNING.name: Style(BLUE, "circle", SOLID),
    shared(Resumption.EARLY_DATA, AT_ONCE).name: Style(RED, "cross", SOLID),
    shared(Resumption.EARLY_DATA, AT_ONCE_NO_TOKEN).name: Style(RED, "triangle-down", SHORT),
}


def size_data(inputs: Inputs) -> pl.DataFrame:
    """Time until a document is complete, by its size.

    A document of n bytes counts as complete when the first n bytes of the longest document have arrived. Columns mode,
    link, source, kb (size), median (time, multiples of the RTT), n, received, allowed.

    Rows of source `size` have the time for each whole kB. A row of source `step` has the state just before a pause of
    more than half an RTT in the arrival of the document. Until then, `kb` of the document and `received` bytes of UDP
    payload have arrived on the connection. `allowed` is three times the bytes of the client's first flight.
    """
    of_study = loads(inputs.resolved_loads).filter(pl.col("mode").is_in(list(_STEPS)))
    columns = ["mode", "link", "page", "arrived_ms", "arrived_bytes", "received_bytes", "first_flight_bytes"]
    arrivals = of_study.join(inputs.rtts, on="link").select(*columns, "nominal_rtt_ms").collect().drop_nulls()
    schema = {"mode": pl.String, "link": pl.String, "source": pl.String, "kb": pl.Float64, "median": pl.Float64}
    schema |= {"n": pl.Int64, "received": pl.Float64, "allowed": pl.Float64}
    if arrivals.is_empty():
        return pl.DataFrame(schema=schema)
    sizes = arrivals["arrived_bytes"].list.max()
    arrivals = arrivals.filter(sizes == sizes.max())
    rows = []
    for (mode, link), of_mode in arrivals.sort("mode", "link").group_by("mode", "link", maintain_order=True):
        curves = [_curve(load) for load in of_mode.iter_rows(named=True)]
        kbs = np.arange(1, curves[0][1][-1] // 1000 + 1)
        at = np.median([when[np.searchsorted(count, kbs * 1000)] for when, count in curves], axis=0)
        named = {"mode": mode, "link": link, "n": len(curves)}
        rows += [named | {"source": "size", "kb": kb, "median": when} for kb, when in zip(kbs, at, strict=True)]
        rows += [named | {"source": "step"} | step for step in _steps(of_mode)]
    return inputs.by_rtt(pl.DataFrame(rows, schema=schema))


def _curve(load: dict[str, object]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(load["arrived_ms"]) / load["nominal_rtt_ms"], np.asarray(load["arrived_bytes"])


def _steps(of_mode: pl.DataFrame) -> list[dict[str, float]]:
    """Rows of source `step` for a mode: one for each gap that occurs in all loads, with medians over the loads."""
    of_loads = []
    for load in of_mode.iter_rows(named=True):
        when, count = _curve(load)
        before = np.flatnonzero(np.diff(when) > _GAP_RTT)
        received = np.asarray(load["received_bytes"])
        allowed = 3.0 * load["first_flight_bytes"]
        of_loads.append([(when[n], count[n] / 1000, received[n], allowed) for n in before])
    common = min(map(len, of_loads))
    steps = [np.median([steps[number] for steps in of_loads], axis=0) for number in range(common)]
    return [dict(zip(("median", "kb", "received", "allowed"), map(float, step), strict=True)) for step in steps]


def size(frame: pl.DataFrame) -> AnyChart:
    """Chart of the time until a document is complete against its size in kB, with a plot for each link."""
    shown = frame.filter(pl.col("source") == "size")
    if shown.is_empty():
        return marks.empty_plot(_NOTHING, TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    x = alt.X("kb:Q", title="Size of the document (kB)", scale=alt.Scale(nice=False, domain=[0, 100]))
    y = alt.Y("median:Q", title="Document complete (multiples of the RTT)", scale=alt.Scale(zero=False))
    encodings = marks.encode_series("mode", _STEPS, "color", "dash", columns=2)
    base = alt.Chart(width=(TEXT_WIDTH - 80) // max(len(links), 3), height=230)
    tooltip = [
        alt.Tooltip("mode:N"),
        alt.Tooltip("kb:Q", title="kB"),
        alt.Tooltip("median:Q", title="RTT", format=".3f"),
    ]
    layers = [marks.trend(base, x, y, encodings, interpolate="step-before").encode(tooltip=tooltip)]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("link_title", links), spacing=14)
    chart.data = with_titles(shown)
    return chart


def size_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of the rows of source `step`: mode, link, n, kb, median (RTT), received and allowed (bytes)."""
    return frame.filter(pl.col("source") == "step").select("mode", "link", "n", "kb", "median", "received", "allowed")


FIGURES = (
    Figure(
        name="ladder",
        title="Round-trips until the name is resolved and the page starts",
        notebook="question_one_connection",
        caption="Time until the name is resolved, and time until the first byte of the document arrives, in multiples "
        "of the link's RTT. Rows: ways to resolve the name and load its page.",
        note="Vertical ticks: round-trips that the protocols need. Each mark is one page; bars: 95 % intervals. The "
        "server log confirms each condition.",
        data=ladder_data,
        chart=ladder,
        table=("link", "page", "mode", "measure", "round_trips", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
    ),
    Figure(
        name="one-connection-worth",
        title="What one connection for name and page saves, by cause",
        notebook="question_one_connection",
        caption="Each row compares two visits, A and B: how much earlier the document is complete in A than in B, in "
        "multiples of the link's RTT (negative: later). In rows with 'over', A uses a single connection for DoH3 and "
        "page. B uses the lookup that the row names, and a separate connection for the page. Each other row names the "
        "only difference between A and B: a property that A has and B lacks. At once: the client sends query and page "
        "request together. Token: the client has an address-validation token.",
        note="Differences within a round; bars: 95 % intervals.",
        data=worth_data,
        chart=worth,
        table=("visit", "what", "link", "page", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
        verdict=worth_verdict,
    ),
    Figure(
        name="document-size",
        title="Time until a document is complete, by its size",
        notebook="question_one_connection",
        caption="Time until the first n kB (horizontal axis) of the longest document have arrived, in multiples of the "
        "link's RTT. At this time, a document of n kB would be complete.",
        note="Without a token, a server sends at most three times the bytes it has received, then waits (RFC 9000, "
        "section 8.1). Later steps are due to the server's congestion window.",
        data=size_data,
        chart=size,
        table=size_table,
        width=TEXT_WIDTH,
    ),
)
