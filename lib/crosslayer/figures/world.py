"""A map of the world with points.

`land.json` has the coastlines of Natural Earth (1:110m, public domain) from the package world-atlas 2.0.2. They are
simplified to half a degree, without small islands.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from crosslayer.figures.style import TEXT_WIDTH, AnyChart

_LAND, _COAST = "#e3e3e3", "#b8b8b8"


@cache
def _land() -> dict[str, Any]:
    outlines = json.loads(Path(__file__).with_name("land.json").read_text(encoding="ascii"))
    return {"type": "Feature", "geometry": outlines}


def points_on_a_map(frame: pl.DataFrame, looks: dict[str, tuple[str, str]], tooltip: list[alt.Tooltip]) -> AnyChart:
    """World map with a point for each row at `longitude` and `latitude`; `looks` has colour and shape by `kind`."""
    outlines = alt.Data(values=[_land()])  # type: ignore[no-untyped-call]
    land = alt.Chart(outlines).mark_geoshape(fill=_LAND, stroke=_COAST, strokeWidth=0.5)
    present = set(frame["kind"])
    looks = {kind: look for kind, look in looks.items() if kind in present}
    kinds = list(looks)
    legend = alt.Legend(orient="top", labelExpr="replace(datum.label, '-', ' ')")
    colors, shapes = zip(*looks.values(), strict=True)
    points = (
        alt.Chart(frame)
        .mark_point(filled=True, size=34, opacity=0.85, stroke="white", strokeWidth=0.5)
        .encode(
            longitude="longitude:Q",
            latitude="latitude:Q",
            color=alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=list(colors)), title=None, legend=legend),
            shape=alt.Shape("kind:N", scale=alt.Scale(domain=kinds, range=list(shapes)), title=None, legend=legend),
            tooltip=tooltip,
        )
    )
    chart: AnyChart = (
        alt.layer(land, points)
        .project(type="equalEarth", rotate=[-11, 0, 0])
        .properties(width=TEXT_WIDTH - 20, height=(TEXT_WIDTH - 20) // 2)
    )
    return chart
