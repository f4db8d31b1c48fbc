"""What queries cost a server: CPU time and memory per transport at a rising rate, from the benchmark's results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from crosslayer.figures.figure import Figure
from crosslayer.figures.style import TEXT_WIDTH, AnyChart, faceted, series_color, series_dash

SERVERS = {"ours": "our server (CoreDNS)", "bind": "BIND 9 alone"}
PROTOCOLS = ("DoUDP", "DoTCP", "DoT", "DoH", "DoH3", "DoQ")
_QUANTITIES = {"cpu_s_per_10000": "CPU time per 10,000 queries (s)", "peak_mb": "Peak memory (MB)"}


def rows(transports: Mapping[str, list[Mapping[str, Any]]]) -> pl.DataFrame:
    """One row for each server, transport and rate.

    Parameters
    ----------
    transports
        The `transports` of the results of `tests/benchmarks/bench_server_cost.py`.

    Returns
    -------
    polars.DataFrame
        `server`, `series` (transport), `rate` (queries per s), `cpu_s_per_10000` (s), `rss_mb`, `peak_mb`,
        `median_response_ms`, `late_ms` (of the load generator), `lost`, `held` (whether the rate was).
    """
    found = [
        {"server": SERVERS[name.split()[0]], "series": name.split()[1], **step}
        for name, steps in transports.items()
        for step in steps
    ]
    return pl.DataFrame(found)


def chart(frame: pl.DataFrame) -> AnyChart:
    """CPU time and memory against the rate, a column for each server; rates that were not held are hollow."""
    order = [name for name in PROTOCOLS if name in set(frame["series"])]
    return alt.vconcat(*(_panel(frame, quantity, order) for quantity in _QUANTITIES), spacing=18)


def _panel(frame: pl.DataFrame, quantity: str, order: list[str]) -> AnyChart:
    x = alt.X("rate:Q", title="Queries per second", axis=alt.Axis(values=sorted(set(frame["rate"])), format="~s"))
    y = alt.Y(f"{quantity}:Q", title=_QUANTITIES[quantity], scale=alt.Scale(zero=True))
    color = series_color(order)
    base = alt.Chart(width=270, height=150)
    numbers = ["rate:Q", *(alt.Tooltip(f"{name}:Q", title=title) for name, title in _QUANTITIES.items())]
    tooltip = ["server:N", "series:N", *numbers, "held:N"]
    held, missed = (base.transform_filter(f"datum.held == {value}") for value in ("true", "false"))
    layers = alt.layer(
        base.mark_line(strokeWidth=1.6).encode(x, y, color, series_dash(order)),
        held.mark_point(size=34, filled=True, opacity=1).encode(x, y, color, tooltip=tooltip),
        missed.mark_point(size=34, fill="white", opacity=1).encode(x, y, color, tooltip=tooltip),
    )
    panel = faceted(layers, column=alt.Column("server:N", sort=list(SERVERS.values()), title=None), spacing=16)
    panel.data = frame
    return panel


FIGURE = Figure(
    name="server-cost",
    title="What queries on a kept connection cost the server",
    notebook="server_cost",
    caption="CPU time and peak memory of the server's process at a rising rate of queries, for each transport.",
    note="Hollow: rates that this machine did not hold.",
    data=rows,
    chart=chart,
    width=TEXT_WIDTH,
)
"""Drawn from the `transports` of the benchmark's results."""
