"""A function that validates charts, for several test modules."""

from __future__ import annotations

from typing import Any

import altair as alt

from crosslayer.figures import Drawing


def valid(drawing: Drawing) -> dict[str, Any]:
    """Validate the whole Vega-Lite specification of a drawing against Altair's schema; returns the specification."""
    spec = drawing.vega_lite()
    alt.VConcatChart.validate(spec)
    return spec
