"""The study's part of the answer at the top of the report: cost of encrypted DNS on a first and a returning visit.

Each visit is compared with a visit that uses plain DNS and has the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent, reach
from crosslayer.figures.style import page_title
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.combinations.figures import VISITS
from crosslayer.studies.combinations.metrics import combined, costs
from crosslayer.study import FIRST_VISIT, RETURNING_VISIT, AnswerNumber, AnswerValues, StudyAnswer
from crosslayer.vocabulary import Protocol

_QUIC = (Protocol.DOQ, Protocol.DOH3)
_TCP = (Protocol.DOT, Protocol.DOH)
_TITLES: Mapping[tuple[Protocol, ...], str] = {protocols: " or ".join(protocols) for protocols in (_QUIC, _TCP)}
_MOST = f"{Protocol.DOQ}, largest of a link and page"


def numbers(inputs: Inputs) -> Sequence[AnswerNumber]:
    """Cost of encrypted DNS on a first and on a returning visit.

    For the transports over QUIC and for those over TCP: the lowest and the highest of the cells' medians, in multiples
    of the RTT. For DoQ and for DoH: the median of each page on all links together, in percent. For DoQ on a returning
    visit: also the highest of the cells' medians, in percent.
    """
    rows = combined(inputs.dns_exchanges, inputs.page_loads).filter(pl.col("page").is_in(PAGES))
    result = []
    for topic, pairs in zip((FIRST_VISIT, RETURNING_VISIT), VISITS.values(), strict=True):
        of = {protocol: costs(rows, *pairs[protocol]) for protocol in (*_QUIC, *_TCP)}
        cells = {protocol: _medians(inputs, each, metrics.CELL) for protocol, each in of.items()}
        if any(set(PAGES) - set(each["page"]) for each in cells.values()):
            return ()
        for protocols, title in _TITLES.items():
            rtts = pl.concat(cells[protocol]["rtt"] for protocol in protocols).to_list()
            result += [AnswerNumber(topic, f"{title}, {end}", "RTT", of_cells(rtts)) for end, of_cells in _ENDS.items()]
        for protocol in (Protocol.DOQ, Protocol.DOH):
            pages = dict(_medians(inputs, of[protocol], ("page",)).select("page", "percent").iter_rows())
            result += [AnswerNumber(topic, f"{protocol}, {page_title(page)}", "%", pages[page]) for page in PAGES]
    return [*result, AnswerNumber(RETURNING_VISIT, _MOST, "%", max(cells[Protocol.DOQ]["percent"]))]


_ENDS = {"smallest": min, "largest": max}


def _medians(inputs: Inputs, of: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
    """Median costs over all rounds. Columns: those in `by`, rtt, percent (of the baseline's PLT)."""
    in_rtts = metrics.in_rtts(of, inputs.rtts, ["difference_ms"])
    return (
        in_rtts.group_by(by)
        .agg(rtt=pl.col("difference_rtt").median(), percent=pl.col("difference_percent").median())
        .sort(by)
        .collect()
    )


def answer(values: AnswerValues, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """Cost of encrypted DNS on each kind of visit, in RTT and in percent of each page's PLT; empty without numbers."""
    if not values:
        return StudyAnswer()

    def rtts(topic: str, protocols: tuple[Protocol, ...]) -> str:
        return reach(pl.Series([values[topic, f"{_TITLES[protocols]}, {end}"] for end in _ENDS]), 1)

    def pages(topic: str, protocol: Protocol) -> dict[str, str]:
        shares = {page: values[topic, f"{protocol}, {page_title(page)}"] for page in PAGES}
        return {page: percent(share, 0 if abs(share) >= 2 else 1) for page, share in shares.items()}

    on_first = (
        f"DoQ or DoH3 adds {rtts(FIRST_VISIT, _QUIC)} round-trips (RTT) to plain DNS. "
        f"DoT or DoH adds {rtts(FIRST_VISIT, _TCP)} RTT."
    )
    on_returning = (
        f"With early data, DoQ or DoH3 adds {rtts(RETURNING_VISIT, _QUIC)} RTT. On the slowest uplink, DoQ's cost "
        f"reaches {percent(values[RETURNING_VISIT, _MOST], 0)} of the page load time. Resumed DoT or DoH adds "
        f"{rtts(RETURNING_VISIT, _TCP)} RTT."
    )
    increases = tuple(
        (topic, name, pages(topic, protocol))
        for topic, doq, doh in (
            (FIRST_VISIT, "DoQ", "DoH"),
            (RETURNING_VISIT, "DoQ with early data", "DoH, resumed"),
        )
        for name, protocol in ((doq, Protocol.DOQ), (doh, Protocol.DOH))
    )
    return StudyAnswer(((FIRST_VISIT, on_first), (RETURNING_VISIT, on_returning)), increases)
