"""A comparison: medians of series, differences within a round, cells together, in RTT and in ms."""

from __future__ import annotations

import polars as pl
import pytest

from charts import valid
from crosslayer import published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.figures.comparison import Comparison
from crosslayer.figures.style import EARLY_DATA, TRANSPORTS

RTT_MS = {"fiber": 10.0, "4g": 100.0}
ROUNDS = 12
COMPARISON = Comparison(
    observations=lambda inputs: inputs.page_loads.with_columns(series="h3"),
    measures={"PLT": "plt_ms", "start of the response": "response_start_ms"},
    measures_in_ms={"PLT (ms)": "plt_ms"},
    differences={"saved": ("1-rtt", "0-rtt")},
    pooled=["page"],
    styles={"1-rtt": TRANSPORTS["DoH"], "0-rtt": EARLY_DATA},
    axis="PLT (RTT)",
)


def inputs(rounds: int = ROUNDS) -> Inputs:
    """Loads of three round-trips, of two with early data, on two links and two pages."""
    rows = [
        {"campaign": "c", "host": "", "round": number, "link": link, "page": page, "h3": h3}
        | {"plt_ms": rtts * rtt + number / 10, "response_start_ms": (rtts - 1) * rtt}
        for link, rtt in RTT_MS.items()
        for page in ("example.org", "wikipedia.org")
        for number in range(rounds)
        for h3, rtts in (("1-rtt", 3), ("0-rtt", 2))
    ]
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in RTT_MS.items()]
    tables = {"page_loads": rows, "link_checks": checks, "dns_exchanges": [], "tcp_rtts": []}
    frames = {name: pl.LazyFrame(of, schema=TABLES[name].polars_schema()) for name, of in tables.items()}
    return Inputs(**frames, published=published.load(), links=tuple(RTT_MS), pages=("example.org", "wikipedia.org"))


def test_rows_have_every_source_of_every_measure() -> None:
    rows = COMPARISON.rows(inputs())
    counts = dict(rows.group_by("measure", "source").len().select("source", "len").unique().iter_rows())
    assert counts == {"measured": 2 * 2 * 2, "difference": 2 * 2, "pooled": 2}
    assert set(rows["measure"]) == {"PLT", "start of the response", "PLT (ms)"}
    fiber = rows.filter(measure="PLT", link="fiber", page="example.org")
    assert fiber.filter(series="1-rtt")["median"].item() == pytest.approx(3.055)
    saved = rows.filter(series="saved", link="4g", page="example.org")
    assert saved.filter(measure="PLT")["median"].item() == pytest.approx(1.0)
    assert saved.filter(measure="PLT (ms)")["median"].item() == pytest.approx(100.0)
    pooled = rows.filter(source="pooled", measure="PLT", page="wikipedia.org").row(0, named=True)
    assert (pooled["link"], pooled["n"], pooled["rounds"]) == (None, 2 * ROUNDS, ROUNDS)
    assert pooled["low"] == pytest.approx(1.0)
    assert rows["link"].to_list() == sorted(rows["link"].to_list(), key=["fiber", "4g", None].index)


def test_without_differences_series_are_pooled() -> None:
    alone = Comparison(
        observations=COMPARISON.observations, measures={"PLT": "plt_ms"}, unit="ms", pooled=[],
        styles=COMPARISON.styles, axis="PLT (ms)",
    )  # fmt: skip
    pooled = alone.rows(inputs()).filter(source="pooled")
    assert dict(pooled.select("series", "n").iter_rows()) == {"0-rtt": 4 * ROUNDS, "1-rtt": 4 * ROUNDS}


@pytest.mark.parametrize(("rounds", "dots"), [(ROUNDS, 8), (0, 0)])
def test_the_chart_has_the_first_measure_of_the_series_with_a_style(rounds: int, dots: int) -> None:
    drawing = draw(COMPARISON.figure(name="x", title="x", notebook="x", caption="x"), inputs(rounds), "")
    spec = valid(drawing)
    shown = [rows for rows in spec["datasets"].values() if rows and "series" in rows[0]]
    assert sum(map(len, shown)) == dots
    assert {row["measure"] for rows in shown for row in rows} <= {"PLT"}
    assert drawing.table is not None
    assert drawing.table.columns[:5] == ["measure", "source", "page", "link", "series"]
