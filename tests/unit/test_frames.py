"""Durations of a campaign as frames for notebooks."""

from __future__ import annotations

import polars as pl
import pytest

import crosslayer
from crosslayer.campaign.dataset import Dataset
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.frames import frame


@pytest.fixture(scope="module")
def combinations() -> Dataset:
    return Dataset.open("data/raw/combinations")


def test_a_frame_has_a_row_per_measured_load_with_its_condition_and_the_links_rtt(combinations: Dataset) -> None:
    plt = frame(combinations, "plt")
    assert {"round", "link", "link_rtt_ms", "page", "condition", "plt_ms", "plt_rtt"} <= set(plt.columns)
    loads = combinations.table("page_loads").filter(pl.col("error").is_null(), pl.col("role") == "measured")
    assert plt.height == loads.select(pl.len()).collect().item()
    assert plt.filter((pl.col("plt_rtt") * pl.col("link_rtt_ms") - pl.col("plt_ms")).abs() > 1e-9).is_empty()
    medians = plt.group_by("link", "page", "condition", "coupling", "h3").agg(pl.col("plt_ms").median())
    of_loads = loads.group_by("link", "page", "condition", "coupling", "h3").agg(pl.col("plt_ms").median())
    keys = ["link", "page", "condition", "coupling", "h3"]
    text = [pl.col(name).cast(pl.String) for name in keys]
    assert medians.with_columns(text).sort(keys).equals(of_loads.with_columns(text).collect().sort(keys))


def test_a_unit_and_a_table_may_be_named(combinations: Dataset) -> None:
    assert frame(combinations, "plt_ms").equals(frame(combinations, "page_loads.plt"))


def test_a_frame_of_exchanges_has_transport_and_resumption() -> None:
    total = crosslayer.open("data/raw/loss").frame("total")
    assert {"protocol", "resumption", "total_ms", "total_rtt"} <= set(total.columns)
    assert total["total_ms"].null_count() == 0


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("ptl", r"ptl: is no duration of this campaign.*plt"),
        ("page_loads.total", "is no duration"),
        ("", "is no duration"),
    ],
)
def test_an_unknown_measure_is_refused_with_those_there_are(combinations: Dataset, measure: str, message: str) -> None:
    with pytest.raises(NotebookError, match=message):
        frame(combinations, measure)
