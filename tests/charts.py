"""What tests ask of every chart."""

from __future__ import annotations

from typing import Any

import altair as alt

from crosslayer.figures import Drawing


def valid(drawing: Drawing) -> dict[str, Any]:
    """Its Vega-Lite, checked against the language's own schema (once, where `Drawing.chart` checks every part)."""
    spec = drawing.vega_lite()
    alt.VConcatChart.validate(spec)
    return spec
