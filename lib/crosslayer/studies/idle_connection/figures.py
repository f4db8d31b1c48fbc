"""Figures: time from the first query after an idle time to its answer."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import (
    BLUE,
    BROWN,
    CHAIN,
    GREEN,
    LONG,
    PURPLE,
    RED,
    SHORT,
    SOLID,
    TEXT_WIDTH,
    WIDE,
    AnyChart,
    Style,
    link_title,
)
from crosslayer.vocabulary import ClientKind, PathEvent, Protocol

_STYLES = {
    "stub": Style(BLUE, "circle", SOLID),
    "stub without path probe": Style(RED, "diamond", SHORT),
    "dnsproxy": Style(BROWN, "square", CHAIN),
    "crosslayer's client": Style(PURPLE, "triangle-up", LONG),
    "Chromium": Style(GREEN, "cross", WIDE),
}
_NAMES = dict(zip(map(str, ClientKind), _STYLES, strict=True))
_PATH_EVENTS = {
    PathEvent.NONE: "no event",
    PathEvent.NAT_EXPIRED: "NAT mapping expired",
    PathEvent.CLIENT_MIGRATED: "client moved",
    PathEvent.SERVER_RESTARTED: "server restarted",
}
_BEYOND = "answer minus wait (RTT)"
_ANSWER = "answer (ms)"
_UNANSWERED = "without an answer (%)"
_P99 = 0.99
_OF_P99 = 100
"""Minimum number of observations for a 99th percentile."""
_LIMIT_RTT = 1.5
"""Expected maximum time, in RTTs, from the end of the stub's wait to the answer if the query is sent as early data."""
_STALL_MS = 1000.0
"""Minimum answer time that the verdict reports as late, ms."""
_WHERE = {
    _PATH_EVENTS[PathEvent.NAT_EXPIRED]: "the NAT mapping expired",
    _PATH_EVENTS[PathEvent.CLIENT_MIGRATED]: "the client moved",
    _PATH_EVENTS[PathEvent.SERVER_RESTARTED]: "the server restarted (a restarted server refuses early data)",
}


def _written(idle_s: float) -> str:
    return f"{idle_s:g} s" if idle_s < 60 else f"{idle_s / 60:g} min"


def idle_data(inputs: Inputs) -> pl.DataFrame:
    """Time from the first query after an idle time to its answer.

    Columns link, measure, protocol, client, path_event, idle_s, idle, n, rounds, median, low, high.

    Measures: `answer (ms)`; `without an answer (%)`, only if above 0; `answer minus wait (RTT)`. The third measure is a
    99th percentile over all links and idle times, in multiples of each link's nominal RTT. It is a percentile of the
    time from the end of the stub's wait for a packet on the old connection to the answer. At the end of this wait, the
    stub also sends the query over a new connection.
    """
    every = inputs.idle_recoveries.with_columns(
        client=pl.col("client").replace_strict(_NAMES, return_dtype=pl.String),
        path_event=pl.col("path_event").replace_strict(
            {str(k): v for k, v in _PATH_EVENTS.items()}, return_dtype=pl.String
        ),
    )
    by = ["link", "protocol", "client", "path_event", "idle_s"]
    named = every.filter(pl.col("error").is_null())
    answers = metrics.medians(named, "answer_ms", by).with_columns(measure=pl.lit(_ANSWER))
    failed = every.with_columns(failed=pl.col("error").is_not_null().cast(pl.Float64) * 100)
    unanswered = metrics.moments(failed, "failed", by, "mean").rename({"value": "median"})
    unanswered = unanswered.filter(pl.col("median") > 0).with_columns(measure=pl.lit(_UNANSWERED))
    waited = metrics.in_rtts(
        named.filter(pl.col("silence_ms") > 0).with_columns(beyond_ms=pl.col("answer_ms") - pl.col("silence_ms")),
        inputs.rtts,
        ["beyond_ms"],
    )
    beyond = metrics.medians(waited, "beyond_rtt", ["protocol", "client", "path_event"], level=_P99)
    beyond = beyond.with_columns(measure=pl.lit(_BEYOND), link=pl.lit("all")).filter(pl.col("n") >= _OF_P99)
    frame = pl.concat([answers, unanswered, beyond], how="diagonal")
    idle_times = {idle: _written(idle) for idle in sorted(frame["idle_s"].drop_nulls().unique())}
    ranks = {
        name: at for order in (Protocol, _PATH_EVENTS.values(), _STYLES) for at, name in enumerate(map(str, order))
    }
    return inputs.by_rtt(
        frame.with_columns(idle=pl.col("idle_s").replace_strict(idle_times, default=None, return_dtype=pl.String)).sort(
            "measure",
            *(pl.col(name).replace_strict(ranks, return_dtype=pl.Int64) for name in ("protocol", "path_event")),
            "idle_s",
            pl.col("client").replace_strict(ranks, return_dtype=pl.Int64),
        )
    )


def idle_connections(frame: pl.DataFrame) -> AnyChart:
    """Chart of answer times by idle time, on the link with the longest RTT; a plot for each transport and event."""
    answers = frame.filter(pl.col("measure") == _ANSWER)
    if answers.is_empty():
        return marks.empty_plot("no idle connections in this dataset", TEXT_WIDTH - 60)
    link = answers["link"].unique(maintain_order=True)[-1]
    shown = answers.filter(pl.col("link") == link)
    path_events = [name for name in _PATH_EVENTS.values() if name in set(shown["path_event"])]
    protocols = [str(name) for name in Protocol if name in set(shown["protocol"])]
    known = {name: encodings for name, encodings in _STYLES.items() if name in set(shown["client"])}
    low, high = shown["median"].min(), shown["median"].max()
    scale = alt.Scale(type="log", domain=[float(low) * 0.7, float(high) * 1.4], nice=False)  # type: ignore[arg-type]
    x = alt.X(
        "median:Q",
        title=f"Next answer, {link_title(link)} (ms)",
        scale=scale,
        axis=alt.Axis(values=[100, 300, 1000, 3000, 10000], grid=True, format="~s"),
    )
    y = marks.rows("idle", list(shown.sort("idle_s")["idle"].unique(maintain_order=True)))
    encodings = marks.encode_series("client", known, "color", "shape", "offset", columns=len(known))
    tooltip = marks.tooltip("client", "protocol", "path_event", "idle", value="ms", digits=".1f", counted="answers")
    base = alt.Chart(width=(TEXT_WIDTH - 150) // len(path_events), height=alt.Step(7))
    layers = marks.intervals(base, x, y, tooltip, encodings, size=26)
    chart: AnyChart = marks.multiples(
        layers,
        row=marks.facet_rows("protocol", protocols),
        column=marks.facet_columns("path_event", path_events),
        spacing=6,
    )
    chart.data = shown
    return chart


def idle_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time from the first query after an idle time to its answer."""
    answers = frame.filter(pl.col("measure") == _ANSWER)
    if answers.is_empty():
        return "Not answered: this dataset has no idle connections."
    stub = _NAMES[ClientKind.STUB]
    sentences = []
    beyond = frame.filter(pl.col("measure") == _BEYOND, pl.col("client") == stub)
    for (event,), some in beyond.group_by(["path_event"], maintain_order=True):
        worst = ", ".join(f"{values['protocol']} {values['median']:.2f} RTT" for values in some.iter_rows(named=True))
        title = str(event)
        sentences.append(f"{title[:1].upper()}{title[1:]}: {worst}.")
    verdict = ""
    if sentences:
        verdict = (
            "If the stub gets no packet on its old connection within one probe timeout (PTO), it also sends the query "
            "over a new connection. For each event and transport with at least "
            f"{_OF_P99} answers, the next sentences give the 99th percentile of the time from the end of this timeout "
            f"to the answer, over all links and idle times. {' '.join(sentences)} "
        )
    early = beyond.filter(pl.col("protocol").is_in([protocol for protocol in Protocol if protocol.transport.over_quic]))
    within: dict[bool, list[str]] = {True: [], False: []}
    for (event,), some in early.group_by(["path_event"], maintain_order=True):
        if (most := some["median"].max()) is not None:
            within[float(most) <= _LIMIT_RTT].append(_WHERE[str(event)])  # type: ignore[arg-type]
    if any(within.values()):
        verdict += (
            f"Over QUIC, we expect at most {_LIMIT_RTT:g} RTT, because the query on the new connection is sent as "
            "early data. "
        )
    for events, where in ((within[True], "at most"), (within[False], "more than")):
        if events:
            verdict += (
                f"Over QUIC, the largest 99th percentile is {where} {_LIMIT_RTT:g} RTT if {' or if '.join(events)}. "
            )
    late = answers.filter(pl.col("median") >= _STALL_MS)
    stalls = [
        f"{client} {reach(some['median'] / 1000, 1)} s"
        for client in _STYLES
        if not (some := late.filter(client=client)).is_empty()
    ]
    stalled = (
        "In some cases (event, transport, link, idle time), a client's median time from its first query to the answer "
        f"is one second or more. Ranges of these medians, by client: {', '.join(stalls)}."
        if stalls
        else "No client's median time from its first query to the answer is one second or more."
    )
    never = [
        f"{client} over {', '.join(some['protocol'].unique(maintain_order=True))} ({path_event})"
        for (path_event, client), some in frame.filter(pl.col("measure") == _UNANSWERED).group_by(
            ["path_event", "client"], maintain_order=True
        )
    ]
    unanswered = (
        f" In one or more rounds, a client gave up without a valid answer: {'; '.join(never)}." if never else ""
    )
    return f"{verdict}{stalled}{unanswered}"


FIGURES = (
    Figure(
        name="idle-next-answer",
        title="The first query after an idle time",
        notebook="question_idle_connection",
        caption="Time from the first query after an idle time to its valid answer, repetitions by the client "
        "included, on the link with the longest RTT. Columns: event that affects the client's connection, in the "
        "middle of the idle time. Rows: transport and length of the idle time.",
        note="Bars: 95 % intervals (bootstrap over rounds). Chromium resolves names itself, over DoH and DoH3 only. "
        "Other clients repeat a query at once after an error, and after 5 s without an answer. No mark: not measured, "
        "or the client gave up in every round, after 20 queries without a valid answer. In the data, the stub without "
        "path probe is stub-no-idle-probe, and crosslayer's client is library.",
        data=idle_data,
        chart=idle_connections,
        table=("measure", "link", "protocol", "path_event", "idle", "client", "n", "median", "low", "high"),
        width=TEXT_WIDTH,
        verdict=idle_verdict,
    ),
)
