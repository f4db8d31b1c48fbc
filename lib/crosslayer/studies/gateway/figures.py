"""What would a browser gain if it resolved a name on the connection that it loads the page on?"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import row, with_interval
from crosslayer.figures.style import BLUE, GREY, RED, SOLID, TEXT_WIDTH, AnyChart, Look, link_title, with_titles
from crosslayer.studies.gateway.kinds import KINDS, NONE, ONE, TWO

LIKE, NOW, SAME = "two connections - one", "no gateway - one connection", "two connections - no gateway (A/A)"
_COMPARED = {LIKE: (TWO, ONE), NOW: (NONE, ONE), SAME: (TWO, NONE)}
_LOOKS = {LIKE: Look(BLUE, "circle", SOLID), NOW: Look(RED, "square", SOLID), SAME: Look(GREY, "diamond", SOLID)}
_MEASURES = {"plt_ms": "PLT", "response_start_ms": "start of the response"}
_ENDS = ("median", "low", "high")


def gateway_data(inputs: Inputs) -> pl.DataFrame:
    """How much later a kind of load is than another of the round.

    Columns compared (see `_COMPARED`), measure (`PLT`, `start of the response`), link, page, n, rounds, median, low,
    high (multiples of the RTT), median_ms, low_ms, high_ms.
    """
    names = pl.LazyFrame([kind.columns | {"kind": name} for name, kind in KINDS.items()])
    loads = metrics.page_loads(inputs.page_loads, variant=None).join(names, on=names.collect_schema().names()[:-1])
    parts = []
    for column, measure in _MEASURES.items():
        for compared, (first, second) in _COMPARED.items():
            later = metrics.paired(loads, column, "kind", first, second).rename({"difference": "later_ms"})
            later = metrics.in_rtts(later, inputs.rtts, ["later_ms"])
            in_ms, in_rtts = (metrics.medians(later, value, ["link", "page"]) for value in ("later_ms", "later_rtt"))
            in_ms = in_ms.select("link", "page", *(pl.col(end).alias(f"{end}_ms") for end in _ENDS))
            found = in_rtts.join(in_ms, on=["link", "page"])
            parts.append(found.with_columns(compared=pl.lit(compared), measure=pl.lit(measure)))
    return inputs.by_rtt(pl.concat(parts), "page")


def gateway(frame: pl.DataFrame) -> AnyChart:
    """How much later the page is complete, link by link, a plot for each page."""
    shown = frame.filter(pl.col("measure") == "PLT")
    if shown.is_empty():
        return marks.empty_plot("no pairs of page loads of this study", TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    pages = sorted(shown["page"].unique())
    scale = marks.reach(shown, least=(-0.1, 1.1), margin=0.1)
    x = alt.X("median:Q", title="PLT, one minus the other (RTT)", scale=scale)
    y = marks.rows("link_title", links)
    look = marks.by("compared", _LOOKS, "color", "shape", "offset")
    more = [alt.Tooltip("median_ms:Q", format=".1f", title="ms")]
    tooltip = marks.tips(
        "page", "link_title", "compared", value="median, RTT", digits=".3f", counted="rounds", more=more
    )
    base = alt.Chart(width=(TEXT_WIDTH - 130) // max(len(pages), 2), height=alt.Step(22))
    layers = [
        marks.line_at(base, x=0),
        marks.line_at(base, x=1, dashed=True),
        *marks.intervals(base, x, y, tooltip, look),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.across("page", pages), spacing=14)
    chart.data = with_titles(shown)
    return chart


def gateway_table(frame: pl.DataFrame) -> pl.DataFrame:
    """compared, measure, link, page, n; median, low, high in RTT and in ms."""
    order = pl.col("compared").replace_strict({name: place for place, name in enumerate(_COMPARED)}, default=None)
    columns = ("compared", "measure", "link", "page", "n", *_ENDS, *(f"{end}_ms" for end in _ENDS))
    return frame.sort(order, "measure", maintain_order=True).select(columns)


def gateway_verdict(frame: pl.DataFrame) -> str:
    """What would a browser gain if it resolved a name on the connection that it loads the page on?"""
    plt = frame.filter(pl.col("measure") == "PLT") if "measure" in frame.columns else frame
    cells = list(plt.select("link", "page").unique(maintain_order=True).iter_rows()) if plt.height else []

    def said(compared: str, *, in_rtts: bool) -> str:
        found = {cell: row(plt, link=cell[0], page=cell[1], compared=compared) for cell in cells}
        return "; ".join(
            f"{page} on {link_title(link)} {_in_ms(of)}" + (f" ({with_interval(of, 'RTT', 3)})" if in_rtts else "")
            for (link, page), of in found.items()
            if of
        )

    like, now, same = said(LIKE, in_rtts=True), said(NOW, in_rtts=True), said(SAME, in_rtts=False)
    if not (like and now and same):
        return "Not answered: this dataset lacks loads without a gateway, or through one with one connection or two."
    return (
        f"On a first visit one connection for DNS and page brings PLT forward. Against the browser's own two: {now}. "
        f"Against two of the same gateway: {like}. What the gateway itself adds, with two (A/A): {same}."
    )


def _in_ms(of: dict[str, float]) -> str:
    return with_interval({end: of[f"{end}_ms"] for end in _ENDS}, "ms", 1)


FIGURES = (
    Figure(
        name="gateway-worth",
        title="What one connection for DNS and pages would give a browser",
        notebook="question_gateway",
        caption="Differences of PLT within a round, first visits in Chromium: without a gateway, and through one "
        "beside it, which has two connections upstream, one for DoH3 and one for the page, or one for both.",
        note="Dashed: one RTT. Marks: medians; bars: 95 % intervals. What each load was, the server says.",
        data=gateway_data,
        chart=gateway,
        table=gateway_table,
        width=TEXT_WIDTH,
        verdict=gateway_verdict,
    ),
)
