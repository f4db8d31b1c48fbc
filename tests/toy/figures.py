"""The one figure of the toy."""

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs


def toy_data(inputs: Inputs) -> pl.DataFrame:
    """link, n, rounds, median, low, high: exchanges, ms."""
    return metrics.medians(inputs.exchanges, "total_ms", ["link"])


def toy(frame: pl.DataFrame) -> alt.Chart:
    """A dot for each link."""
    return alt.Chart(frame).mark_point().encode(x="median:Q", y="link:N", tooltip=["link:N", "median:Q"])


FIGURES = (
    Figure(
        name="toy-exchange", title="A toy", notebook="question_toy", caption="What it takes.", data=toy_data, chart=toy
    ),
)
