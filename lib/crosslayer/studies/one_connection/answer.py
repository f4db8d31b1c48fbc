"""What one connection for a name and its page saves, compared with plain DNS in the same state and with DoQ."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent, reach
from crosslayer.figures.style import page_title
from crosslayer.studies.one_connection.metrics import BACK, DOCUMENT, FIRST, TIMES, WORTH, Worth, loads
from crosslayer.study import ONE_CONNECTION, StudyAnswer

_PAGES = ("example.org", "wikipedia.org")


def answer(inputs: Inputs, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """What it saves and adds; nothing if the campaign lacks a page or a mode."""
    of_study = loads(inputs.resolved_loads).filter(pl.col("page").is_in(_PAGES))
    worth = {(one.what, one.visit): _costs(of_study, inputs, one) for one in WORTH}
    own_first = worth["over DoQ, then H3", FIRST]
    plain_first, plain_back = worth["over DoUDP, then H3", FIRST], worth["over DoUDP, then H3 0-RTT", BACK]
    if {page for of in (own_first, plain_first, plain_back) for page in _PAGES if page not in set(of["page"])}:
        return StudyAnswer()
    medians = [statistics.median(own_first.filter(page=page)["percent"]) for page in _PAGES]
    shares = ", ".join(f"{percent(of, 0)} on {page_title(page)}" for of, page in zip(medians, _PAGES, strict=True))
    sentence = (
        f"The document of a first visit arrives {reach(-own_first['rtt'], 1)} RTT earlier than over separate DoQ "
        f"({shares}). Compared with plain DNS it arrives at most {_most(plain_first)} later, on a returning visit "
        f"{_most(plain_back)}."
    )
    return StudyAnswer(((ONE_CONNECTION, sentence),))


def _costs(of_study: pl.LazyFrame, inputs: Inputs, worth: Worth) -> pl.DataFrame:
    """What one connection costs until the document is complete: link, page, rtt, percent; medians within rounds."""
    costs = metrics.paired_costs(of_study, TIMES[DOCUMENT], "mode", worth.with_it.name, worth.without.name)
    in_rtts = metrics.in_rtts(costs, inputs.rtts, ["difference_ms"])
    return (
        in_rtts.group_by("link", "page")
        .agg(rtt=pl.col("difference_rtt").median(), percent=pl.col("difference_percent").median())
        .sort("link", "page")
        .collect()
    )


def _most(costs: pl.DataFrame) -> str:
    """The largest cost of a link and page."""
    return f"{max(costs['rtt']):.2f} RTT ({percent(max(costs['percent']), 1)})"
