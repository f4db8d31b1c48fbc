"""Figures: time that a browser would save by resolving a name on the page's connection."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.comparison import DIFFERENCE, Comparison
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import BLUE, GREY, RED, SOLID, Style
from crosslayer.studies.gateway.kinds import KINDS, NONE, ONE, TWO

LIKE, NOW, SAME = "two connections minus one", "no gateway minus one connection", "two connections minus no gateway"
_COMPARED = {LIKE: (TWO, ONE), NOW: (NONE, ONE), SAME: (TWO, NONE)}
_STYLES = {LIKE: Style(BLUE, "circle", SOLID), NOW: Style(RED, "square", SOLID), SAME: Style(GREY, "diamond", SOLID)}
_PLT, _PLT_MS = "PLT", "PLT (ms)"


def _observations(inputs: Inputs) -> pl.LazyFrame:
    names = pl.LazyFrame([kind.columns | {"series": name} for name, kind in KINDS.items()])
    return metrics.page_loads(inputs.page_loads, condition=None).join(names, on=names.collect_schema().names()[:-1])


def gateway_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time that a browser would save by resolving a name on the page's connection."""
    differences = frame.filter(source=DIFFERENCE)

    def medians(series: str, measure: str) -> pl.Series:
        return differences.filter(series=series, measure=measure)["median"]

    if frame.is_empty() or any(medians(series, _PLT).is_empty() for series in _COMPARED):
        return (
            "Not answered: this dataset lacks loads without a gateway, or through a gateway with one connection or "
            "with two."
        )
    now, like, same = (
        f"{reach(medians(series, _PLT), 2)} RTT ({reach(medians(series, _PLT_MS), 1)} ms)"
        for series in (NOW, LIKE, SAME)
    )
    return (
        f"Compared with no gateway, a local gateway with one connection for DNS and page shortens the PLT by {now}. "
        f"Compared with a gateway with two connections, it shortens the PLT by {like}. A gateway with two connections "
        f"lengthens the PLT by {same}, compared with no gateway. Ranges: over links and pages."
    )


FIGURES = (
    Comparison(
        observations=_observations,
        measures={_PLT: "plt_ms", "start of the response": "response_start_ms"},
        measures_in_ms={_PLT_MS: "plt_ms", "start of the response (ms)": "response_start_ms"},
        differences=_COMPARED,
        styles=_STYLES,
        drawn=DIFFERENCE,
        axis="PLT difference (RTT)",
        least=(-0.1, 1.1),
        reference=1.0,
        zero_line=True,
        counted="rounds",
        empty="no pairs of page loads of this study",
    ).figure(
        name="gateway-worth",
        title="What one connection for DNS and pages would save in a browser",
        notebook="question_gateway",
        caption="Differences of the PLT within a round. Each round has three loads in Chromium, all first visits: "
        "without a gateway, through a local gateway that has one connection to the server, and through a local gateway "
        "that has two. The gateway runs on the client's host and forwards queries and page requests. Two connections: "
        "one for DoH3, one for the page.",
        note="Dashed: one RTT. Marks: medians; bars: 95 % intervals. The server log confirms the number of "
        "connections.",
        verdict=gateway_verdict,
    ),
)
