"""What would a browser gain if it resolved a name on the connection that it loads the page on?"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import row, with_interval
from crosslayer.figures.style import BLUE, GREY, SOLID, TEXT_WIDTH, AnyChart, Look, link_title, with_titles
from crosslayer.studies.gateway.kinds import KINDS, NONE, ONE, TWO

GAIN, SAME = "with one connection", "without a gateway (A/A)"
_AGAINST = {GAIN: ONE, SAME: NONE}
_LOOKS = {GAIN: Look(BLUE, "circle", SOLID), SAME: Look(GREY, "diamond", SOLID)}
_MEASURES = {"plt_ms": "PLT", "response_start_ms": "start of the response"}
_ENDS = ("median", "low", "high")


def gateway_data(inputs: Inputs) -> pl.DataFrame:
    """Loads through the gateway with two connections, minus others of the round.

    Columns against (`with one connection`, `without a gateway (A/A)`), measure (`PLT`, `start of the response`), link,
    page, n, rounds, median, low, high (multiples of the RTT), median_ms, low_ms, high_ms.
    """
    names = pl.LazyFrame([kind.columns | {"kind": name} for name, kind in KINDS.items()])
    loads = metrics.page_loads(inputs.page_loads, variant=None).join(names, on=names.collect_schema().names()[:-1])
    parts = []
    for column, measure in _MEASURES.items():
        for against, other in _AGAINST.items():
            later = metrics.paired(loads, column, "kind", TWO, other).rename({"difference": "later_ms"})
            later = metrics.in_rtts(later, inputs.rtts, ["later_ms"])
            in_ms, in_rtts = (metrics.medians(later, value, ["link", "page"]) for value in ("later_ms", "later_rtt"))
            in_ms = in_ms.select("link", "page", *(pl.col(end).alias(f"{end}_ms") for end in _ENDS))
            found = in_rtts.join(in_ms, on=["link", "page"])
            parts.append(found.with_columns(against=pl.lit(against), measure=pl.lit(measure)))
    return inputs.by_rtt(pl.concat(parts), "page")


def gateway(frame: pl.DataFrame) -> AnyChart:
    """How much later the page is complete with two connections, link by link, a plot for each page."""
    shown = frame.filter(pl.col("measure") == "PLT")
    if shown.is_empty():
        return marks.empty_plot("no pairs of page loads of this study", TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    pages = sorted(shown["page"].unique())
    scale = marks.reach(shown, least=(-0.1, 1.1), margin=0.1)
    x = alt.X("median:Q", title="PLT through the gateway with two connections, minus that (RTT)", scale=scale)
    y = marks.rows("link_title", links)
    look = marks.by("against", _LOOKS, "color", "shape", "offset")
    more = [alt.Tooltip("median_ms:Q", format=".1f", title="ms")]
    tooltip = marks.tips(
        "page", "link_title", "against", value="median, RTT", digits=".3f", counted="rounds", more=more
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
    """against, measure, link, page, n; median, low, high in RTT and in ms."""
    return frame.select("against", "measure", "link", "page", "n", *_ENDS, *(f"{end}_ms" for end in _ENDS)).sort(
        "against", "measure", descending=[True, False], maintain_order=True
    )


def gateway_verdict(frame: pl.DataFrame) -> str:
    """What would a browser gain if it resolved a name on the connection that it loads the page on?"""
    plt = frame.filter(pl.col("measure") == "PLT") if "measure" in frame.columns else frame
    gains, same = [], []
    for link, page in plt.select("link", "page").unique(maintain_order=True).iter_rows() if plt.height else ():
        where = f"{page} on {link_title(link)}"
        if gain := row(plt, link=link, page=page, against=GAIN):
            gains.append(f"{where} {_in_ms(gain)} ({with_interval(gain, 'RTT', 3)})")
        if aa := row(plt, link=link, page=page, against=SAME):
            same.append(f"{where} {_in_ms(aa)}")
    if not gains:
        return "Not answered: this dataset has no loads through the gateway with one connection and with two."
    told = f"On a first visit one connection instead of two brings PLT forward: {'; '.join(gains)}."
    if same:
        told += f" The gateway itself, with two connections, changes it by: {'; '.join(same)}."
    return told


def _in_ms(of: dict[str, float]) -> str:
    return with_interval({end: of[f"{end}_ms"] for end in _ENDS}, "ms", 1)


FIGURES = (
    Figure(
        name="gateway-worth",
        title="What one connection for DNS and pages would give a browser",
        notebook="question_gateway",
        caption="PLT of a first visit in Chromium through a gateway beside it, which has two connections upstream, one "
        "for DoH3 and one for the page, minus PLT in the same round with one connection for both, or without a "
        "gateway.",
        note="Dashed: one RTT. Marks: medians; bars: 95 % intervals. What each load was, the server says.",
        data=gateway_data,
        chart=gateway,
        table=gateway_table,
        width=TEXT_WIDTH,
        verdict=gateway_verdict,
    ),
)
