"""Figure: sum of an exchange and a decoupled load, compared with a browser that resolves names itself."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs, marks
from crosslayer.figures.comparison import MEASURED, Comparison
from crosslayer.figures.sentences import reach

PROTOCOLS = ("DoUDP", "DoH", "DoQ")
_FIRST_BYTE, _PLT = "first byte", "PLT"
_TIMES = {_FIRST_BYTE: "response_start_ms", _PLT: "plt_ms"}


def _observations(inputs: Inputs) -> pl.LazyFrame:
    """Exchange plus decoupled load minus the coupled load of the same round, ms. The series is the DNS transport."""
    loads = inputs.loads.select(*metrics.ROUND, "coupling", "dns_protocol", *_TIMES.values())
    resumed = metrics.exchanges(inputs.dns_exchanges, resumption="ticket")
    of_plain = metrics.exchanges(inputs.dns_exchanges).filter(pl.col("protocol") == "DoUDP")
    exchanges = pl.concat([resumed, of_plain]).select(*metrics.ROUND, "protocol", "total_ms")
    coupled = loads.filter(pl.col("coupling") == "coupled").rename({"dns_protocol": "protocol"}).drop("coupling")
    alone = loads.filter(pl.col("coupling") == "decoupled").drop("coupling", "dns_protocol")
    both = exchanges.join(alone, on=metrics.ROUND).join(coupled, on=[*metrics.ROUND, "protocol"], suffix="_coupled")
    return both.with_columns(
        (pl.col("total_ms") + pl.col(column) - pl.col(f"{column}_coupled")).alias(column) for column in _TIMES.values()
    ).rename({"protocol": "series"})


def composition_verdict(frame: pl.DataFrame) -> str:
    """Verdict: sum of an exchange and a decoupled load, minus the coupled load."""
    sentences = []
    for measure in _TIMES:
        cells = frame.filter(source=MEASURED, measure=measure)
        by_protocol = {name: cells.filter(series=name)["median"] for name in PROTOCOLS}
        parts = [f"{reach(values, 2)} ms over {name}" for name, values in by_protocol.items() if values.len()]
        if parts:
            sentences.append(f"{measure[:1].upper()}{measure[1:]}: {', '.join(parts)}")
    if not sentences:
        return "Not answered: this dataset lacks coupled loads, exchanges or loads."
    return (
        "Time of a DNS exchange plus time of a load without name resolution, minus the time of a load in which the "
        f"browser resolves the name (medians; ranges: over links and pages). {'. '.join(sentences)}."
    )


FIGURES = (
    Comparison(
        observations=_observations,
        measures=_TIMES,
        unit="ms",
        pooled=[],
        styles=marks.styles(PROTOCOLS),
        axis="Sum minus coupled load (ms)",
        least=(-5.0, 5.0),
        margin=1.0,
        reference=0.0,
        rows_by="page",
        columns_by="measure",
        facet_rows_by="link_title",
        counted="pairs",
        empty="no rounds with a coupled load, an exchange and a load",
    ).figure(
        name="composition",
        title="DNS exchange plus decoupled load, minus coupled load",
        notebook="question_composition",
        caption="Time of a DNS exchange plus time of a decoupled load (the browser is given the address and resolves "
        "no name), minus the time of a coupled load (the browser resolves the name itself) of the same round. The time "
        "of a load is the time until the first byte, or the PLT. Over DoH and DoQ, lookups resume a TLS session. "
        "The PLT of wikipedia.org has two modes up to 14 ms apart: Chromium requests its background picture when it "
        "draws a frame.",
        note="Marks: medians; bars: 95 % intervals.",
        verdict=composition_verdict,
    ),
)
