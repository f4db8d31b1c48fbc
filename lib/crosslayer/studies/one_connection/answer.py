"""Answer of the study: time until the document, with name and page on one connection.

On a first visit, the time is compared with that of DoQ on a separate connection. On each kind of visit, it is compared
with that of plain DNS. The HTTP/3 handshake is of the same kind (1-RTT or 0-RTT) in both visits of a comparison.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import added, extremes, percent
from crosslayer.figures.style import page_title
from crosslayer.studies.coalescing import SLOWEST_UPLINK
from crosslayer.studies.one_connection.metrics import BACK, DOCUMENT, FIRST, TIMES, WORTH, Worth, loads
from crosslayer.study import ONE_CONNECTION, AnswerNumber, AnswerValues, StudyAnswer

_PAGES = ("example.org", "wikipedia.org")
_SAVED = "saved over separate DoQ"
_OF_PAGE = "over separate DoQ, {}"
_ADDED = {FIRST: "added to plain DNS, first visit", BACK: "added to plain DNS, returning visit"}


def numbers(inputs: Inputs) -> Sequence[AnswerNumber]:
    """Numbers of the answer: time saved compared with separate DoQ, and maximum time added compared with plain DNS."""
    of_study = loads(inputs.resolved_loads).filter(pl.col("page").is_in(_PAGES))
    worth = {(one.what, one.visit): _costs(of_study, inputs, one) for one in WORTH}
    own_first = worth["over DoQ, then H3", FIRST]
    later = {FIRST: worth["over DoUDP, then H3", FIRST], BACK: worth["over DoUDP, then H3 0-RTT", BACK]}
    if any(set(_PAGES) - set(of["page"]) for of in (own_first, *later.values())):
        return ()
    saved = extremes([row | {"saved": -row["rtt"]} for row in own_first.rows(named=True)], "saved", SLOWEST_UPLINK)
    medians = {page: statistics.median(own_first.filter(page=page)["percent"]) for page in _PAGES}
    parts = [
        *((f"{_SAVED}, {end}", "RTT", row["saved"]) for end, row in saved.items()),
        *((_OF_PAGE.format(page_title(page)), "%", value) for page, value in medians.items()),
        *((f"{name}, largest", "RTT", max(later[visit]["rtt"])) for visit, name in _ADDED.items()),
        *((f"{name}, largest share", "%", max(later[visit]["percent"])) for visit, name in _ADDED.items()),
    ]
    return [AnswerNumber(ONE_CONNECTION, name, unit, value) for name, unit, value in parts]


def answer(values: AnswerValues, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """The answer in two sentences; empty without numbers."""
    if not values:
        return StudyAnswer()
    of = {name: value for (_, name), value in values.items()}
    shares = dict.fromkeys(f"{-of[_OF_PAGE.format(page_title(page))]:.0f}\N{NO-BREAK SPACE}%" for page in _PAGES)
    first, back = (
        f"{of[f'{name}, largest']:.2f} RTT ({percent(of[f'{name}, largest share'], 1)})" for name in _ADDED.values()
    )
    saved = added(values, ONE_CONNECTION, _SAVED, SLOWEST_UPLINK)
    sentence = (
        f"On {' and '.join(map(page_title, _PAGES))}, a first visit's document is complete earlier than with DoQ on a "
        f"second connection: by {saved} ({' and '.join(shares)} of its time). Compared with plain DNS, it is at most "
        f"{first} later on a first visit, {back} on a returning one."
    )
    return StudyAnswer(((ONE_CONNECTION, sentence),))


def _costs(of_study: pl.LazyFrame, inputs: Inputs, worth: Worth) -> pl.DataFrame:
    """Time until the document is complete in the mode `worth.with_it` minus that in `worth.without`, by link and page.

    Columns link, page, rtt, percent. `rtt` is the median of the differences within rounds, in multiples of the RTT.
    `percent` is the median of the same differences, in percent of the median time in `worth.without`.
    """
    costs = metrics.paired_costs(of_study, TIMES[DOCUMENT], "mode", worth.with_it.name, worth.without.name)
    in_rtts = metrics.in_rtts(costs, inputs.rtts, ["difference_ms"])
    return (
        in_rtts.group_by("link", "page")
        .agg(rtt=pl.col("difference_rtt").median(), percent=pl.col("difference_percent").median())
        .sort("link", "page")
        .collect()
    )
