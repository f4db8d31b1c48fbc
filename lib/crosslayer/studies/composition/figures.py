"""Is the sum of an exchange and a load what a browser that resolves by itself takes?"""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import row, with_interval
from crosslayer.figures.style import TEXT_WIDTH, AnyChart, link_title, with_titles

PROTOCOLS = ("DoUDP", "DoH", "DoQ")
_MEASURES = {"response_start_ms": "first byte", "plt_ms": "PLT"}


def composition_data(inputs: Inputs) -> pl.DataFrame:
    """The sum minus the coupled load of the same round, ms.

    Columns link, page, protocol, measure (`first byte`, `PLT`), source, n, rounds, median, low, high. Rows of source
    `pooled` have all links and pages together.
    """
    loads = inputs.loads.select(*metrics.ROUND, "coupling", "dns_protocol", *_MEASURES)
    resumed = metrics.exchanges(inputs.dns_exchanges, resumption="ticket")
    of_plain = metrics.exchanges(inputs.dns_exchanges).filter(pl.col("protocol") == "DoUDP")
    exchanges = pl.concat([resumed, of_plain]).select(*metrics.ROUND, "protocol", "total_ms")
    coupled = loads.filter(pl.col("coupling") == "coupled").rename({"dns_protocol": "protocol"}).drop("coupling")
    alone = loads.filter(pl.col("coupling") == "decoupled").drop("coupling", "dns_protocol")
    found = exchanges.join(alone, on=metrics.ROUND).join(coupled, on=[*metrics.ROUND, "protocol"], suffix="_coupled")
    parts = []
    for column, measure in _MEASURES.items():
        rows = found.with_columns(difference=pl.col("total_ms") + pl.col(column) - pl.col(f"{column}_coupled"))
        for by, source in ((["link", "page", "protocol"], "measured"), (["protocol"], "pooled")):
            medians = metrics.medians(rows, "difference", by)
            parts.append(medians.with_columns(measure=pl.lit(measure), source=pl.lit(source)))
    return inputs.by_rtt(pl.concat(parts, how="diagonal"), "source", "measure", "page")


def composition(frame: pl.DataFrame) -> AnyChart:
    """A row a link, a column first byte and PLT."""
    shown = frame.filter(pl.col("source") == "measured")
    if shown.is_empty():
        return marks.empty_plot("no rounds with a coupled load, an exchange and a load", TEXT_WIDTH - 60)
    links = [link_title(link) for link in shown["link"].unique(maintain_order=True)]
    pages = shown["page"].unique(maintain_order=True).to_list()
    x = alt.X("median:Q", title="Sum minus coupled load (ms)", scale=marks.reach(shown, least=(-5.0, 5.0), margin=1.0))
    look = marks.by("protocol", marks.looks(PROTOCOLS), "color", "shape", "offset")
    who = ("link_title", "page", "protocol", "measure")
    base = alt.Chart(width=(TEXT_WIDTH - 190) // 2, height=34 * len(pages))
    layers = [
        marks.line_at(base, x=0, dashed=True),
        *marks.intervals(
            base, x, marks.rows("page", pages), marks.tips(*who, value="difference, ms", counted="pairs"), look
        ),
    ]
    chart: AnyChart = marks.multiples(
        layers, column=marks.across("measure", [*_MEASURES.values()]), row=marks.down("link_title", links), spacing=12
    )
    chart.data = with_titles(shown)
    return chart


def composition_table(frame: pl.DataFrame) -> pl.DataFrame:
    """source, measure, link, page, protocol, n, median, low, high; ms."""
    return frame.select("source", "measure", "link", "page", "protocol", "n", "median", "low", "high")


def composition_verdict(frame: pl.DataFrame) -> str:
    """Is the sum what a browser that resolves by itself takes?"""
    said = []
    for measure in _MEASURES.values():
        found = {name: row(frame, source="pooled", protocol=name, measure=measure) for name in PROTOCOLS}
        told = [f"{with_interval(value, 'ms', 2)} over {name}" for name, value in found.items() if value]
        if told:
            said.append(f"{measure} {', '.join(told)}")
    if not said:
        return "Not answered: this dataset lacks coupled loads, exchanges or loads."
    return f"The sum is longer than a load that resolves by itself by these times: {'; '.join(said)}."


FIGURES = (
    Figure(
        name="composition",
        title="The sum against a load that resolves by itself",
        notebook="question_composition",
        caption="Time of a DNS exchange plus that of a page load whose browser is told the address, minus that of a "
        "load whose browser asks for it, in the same round. DNS resumes an earlier session where its transport has "
        "sessions.",
        note="Marks: medians; bars: 95 % intervals.",
        data=composition_data,
        chart=composition,
        table=composition_table,
        width=TEXT_WIDTH,
        verdict=composition_verdict,
    ),
)
