"""Figure of a server's CPU time and memory by transport and query rate, from the results of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from crosslayer.figures import marks
from crosslayer.figures.figure import Figure
from crosslayer.figures.style import TEXT_WIDTH, TRANSPORTS, AnyChart

SERVERS = {"ours": "our server (CoreDNS)", "bind": "BIND 9 alone"}
_QUANTITIES = {"cpu_s_per_10000": "CPU time per 10,000 queries (s)", "peak_mb": "Peak memory (MB)"}


def rows(transports: Mapping[str, list[Mapping[str, Any]]]) -> pl.DataFrame:
    """One row for each server, transport and rate.

    Parameters
    ----------
    transports
        The value of `transports` in the results of `tests/benchmarks/bench_server_cost.py`.

    Returns
    -------
    polars.DataFrame
        `server`, `series` (transport), `rate` (queries per s), `cpu_s_per_10000` (CPU time of 10,000
        queries, s), `rss_mb`, `peak_mb`, `median_response_ms`, `late_ms` (median delay with which the load generator
        sent a query), `lost`, `held` (whether the rate was sustained).
    """
    rows = [
        {"server": SERVERS[name.split()[0]], "series": name.split()[1], **step}
        for name, steps in transports.items()
        for step in steps
    ]
    return pl.DataFrame(rows)


def chart(frame: pl.DataFrame) -> AnyChart:
    """Chart of CPU time and peak memory against the query rate, with a column of plots for each server.

    Marks of rates that were not sustained are hollow.
    """
    encodings = marks.encode_series(
        "series", marks.styles(name for name in TRANSPORTS if name in set(frame["series"])), "color", "dash"
    )
    color = {"color": encodings["color"]}
    x = alt.X("rate:Q", title="Queries per second", axis=alt.Axis(values=sorted(set(frame["rate"])), format="~s"))
    numbers = [alt.Tooltip(f"{name}:Q", title=title) for name, title in _QUANTITIES.items()]
    tooltip = marks.tooltip("server", "series", "held", value="rate", of="rate:Q", digits="~s", more=numbers)
    base = alt.Chart(width=270, height=150)
    held, missed = (base.transform_filter(f"datum.held == {value}") for value in ("true", "false"))
    panels = []
    for quantity, title in _QUANTITIES.items():
        y = alt.Y(f"{quantity}:Q", title=title, scale=alt.Scale(zero=True))
        layers = [
            marks.trend(base, x, y, encodings),
            held.mark_point(size=34, filled=True, opacity=1).encode(x=x, y=y, **color, tooltip=tooltip),
            missed.mark_point(size=34, fill="white", opacity=1).encode(x=x, y=y, **color, tooltip=tooltip),
        ]
        panels.append(marks.multiples(layers, column=marks.facet_columns("server", [*SERVERS.values()]), spacing=16))
    plot: AnyChart = alt.vconcat(*panels, spacing=18)
    plot.data = frame
    return plot


FIGURE = Figure(
    name="server-cost",
    title="CPU time and memory of a server, by query rate",
    notebook="server_cost",
    caption="CPU time and peak memory of the server's process for each transport, at increasing rates of queries.",
    note="Hollow: rates that this machine did not sustain.",
    data=rows,
    chart=chart,
    width=TEXT_WIDTH,
)
"""Figure of the benchmark; its `data` is `rows`."""
