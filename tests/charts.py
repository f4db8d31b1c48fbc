"""A check of charts for several tests."""

from __future__ import annotations

from typing import Any

import altair as alt

from crosslayer.figures import Drawing


def valid(drawing: Drawing) -> dict[str, Any]:
    """Vega-Lite of a drawing, validated as a whole against the schema; `Drawing.chart` validates every part."""
    spec = drawing.vega_lite()
    alt.VConcatChart.validate(spec)
    return spec
