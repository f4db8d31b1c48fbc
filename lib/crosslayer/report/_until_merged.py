"""What the rooms of figures and claims will give themselves; each function says what stands in its place then."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from crosslayer import claims, figures
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims.studies import BY_STUDY
from crosslayer.figures import FIGURES, Figure, FigureError, Inputs
from crosslayer.study import Study

FOLLOWING = "follows from another"
"""`claims.FOLLOWING`"""


def figures_of(study: Study) -> tuple[Figure, ...]:
    """`study.figures`."""
    return tuple(figure for figure in FIGURES.values() if figure.study == study.name)


def claims_of(study: Study) -> Any:
    """`study.claims`."""
    return BY_STUDY.get(study.name)


def check(dataset: Dataset, study: Study | None, published_claims: pl.DataFrame) -> pl.DataFrame:
    """`claims.check(dataset, study.claims, published_claims, elsewhere=...)`."""
    tables = ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks", "paced_queries")
    frames = {name: dataset.table(name) for name in tables}
    return claims.check(**frames, claims=published_claims, study=study.name if study else "")


@dataclass(frozen=True)
class Drawing:
    """`figures.Drawing`."""

    figure: Figure
    rows: pl.DataFrame
    chart: alt.VConcatChart
    caption: str
    table: pl.DataFrame | None
    verdict: str | None

    def vega_lite(self) -> dict[str, Any]:
        return dict(self._spec)

    def svg(self) -> str:
        return self._svg

    def png(self) -> bytes:
        picture: bytes = vl_convert.svg_to_png(self.svg(), scale=2.0)
        return picture

    @cached_property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.chart.to_dict(validate=False)
        return spec

    @cached_property
    def _svg(self) -> str:
        numbers: dict[str, int] = {}
        svg = vl_convert.vegalite_to_svg(json.dumps(self._spec), vl_version=vegalite_version())
        return re.sub(r"\bclip(\d+)\b", lambda found: f"clip{numbers.setdefault(found[1], len(numbers))}", svg)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        import base64

        schema = "https://vega.github.io/schema/vega-lite/v5.json"
        return {
            "application/vnd.vegalite.v5+json": self._spec | {"$schema": schema},
            "image/png": base64.b64encode(self.png()).decode(),
            "text/plain": f"{self.figure.heading}. {self.caption}",
        }


def draw(figure: Figure, source: Inputs, provenance: str) -> Drawing:
    """`figures.draw`."""
    try:
        drawn = figures.draw(figure, source, provenance)
        rows = drawn.frame
        table = figure.table(rows) if figure.table else None
        verdict = figure.verdict(rows) if figure.verdict else None
    except FigureError:
        raise
    except Exception as error:
        raise FigureError(f"cannot be drawn ({type(error).__name__}: {error})", where=figure.name) from error
    return Drawing(figure, rows, drawn.chart, drawn.caption, table, verdict)


def vegalite_version() -> str:
    """`figures.figure.vegalite_version`."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def draw_server_cost(transports: Any, note: str) -> Drawing:
    """`figures.draw(server_cost.FIGURE, transports, note)`."""
    from crosslayer.figures import server_cost
    from crosslayer.figures.style import TEXT_WIDTH

    rows = server_cost.rows(transports)
    caption = "CPU time and peak memory of the server's process at a rising rate of queries, for each transport."
    title = "What queries on a kept connection cost the server"
    figure = Figure(
        "server-cost",
        title,
        "",
        "",
        "server_cost",
        caption,
        "",
        lambda _: rows,
        lambda _: alt.Chart(),
        width=TEXT_WIDTH,
    )
    return Drawing(figure, rows, server_cost.draw(rows, note), caption, None, None)
