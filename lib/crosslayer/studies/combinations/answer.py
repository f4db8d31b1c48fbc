"""The study's part of the answer at the top of the report: cost of encrypted DNS on a first and a returning visit.

Each visit is compared with a visit that uses plain DNS and has the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import added, extremes, percent
from crosslayer.figures.style import page_title
from crosslayer.studies.coalescing import PAGES, SLOWEST_UPLINK
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

    For the transports over QUIC and for those over TCP: medians of cells as in `extremes`, in multiples of the RTT. For
    DoQ and for DoH: the median of each page on all links together, in percent. For DoQ on a returning visit: also the
    highest of the cells' medians, in percent.
    """
    rows = combined(inputs.dns_exchanges, inputs.page_loads).filter(pl.col("page").is_in(PAGES))
    result = []
    for topic, pairs in zip((FIRST_VISIT, RETURNING_VISIT), VISITS.values(), strict=True):
        of = {protocol: costs(rows, *pairs[protocol]) for protocol in (*_QUIC, *_TCP)}
        cells = {protocol: _medians(inputs, each, metrics.CELL) for protocol, each in of.items()}
        if any(set(PAGES) - set(each["page"]) for each in cells.values()):
            return ()
        for protocols, title in _TITLES.items():
            rows_of = pl.concat(cells[protocol] for protocol in protocols).rows(named=True)
            ends = extremes(rows_of, "rtt", SLOWEST_UPLINK)
            result += [AnswerNumber(topic, f"{title}, {which}", "RTT", row["rtt"]) for which, row in ends.items()]
        for protocol in (Protocol.DOQ, Protocol.DOH):
            pages = dict(_medians(inputs, of[protocol], ("page",)).select("page", "percent").iter_rows())
            result += [AnswerNumber(topic, f"{protocol}, {page_title(page)}", "%", pages[page]) for page in PAGES]
    return [*result, AnswerNumber(RETURNING_VISIT, _MOST, "%", max(cells[Protocol.DOQ]["percent"]))]


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

    quic, tcp = (_TITLES[protocols] for protocols in (_QUIC, _TCP))
    on_first = (
        f"Compared with plain DNS, {quic} adds "
        f"{added(values, FIRST_VISIT, quic, SLOWEST_UPLINK, unit='round-trips (RTT)')}. "
        f"{tcp} adds {added(values, FIRST_VISIT, tcp, SLOWEST_UPLINK)}."
    )
    on_returning = (
        f"With early data, {quic} adds {added(values, RETURNING_VISIT, quic, SLOWEST_UPLINK)} (DoQ: at worst "
        f"{percent(values[RETURNING_VISIT, _MOST], 0)} page load time). Resumed {tcp} adds "
        f"{added(values, RETURNING_VISIT, tcp, SLOWEST_UPLINK)}."
    )
    increases = tuple(
        (topic, name, {page: f"{protocol}, {page_title(page)}" for page in PAGES})
        for topic, doq, doh in (
            (FIRST_VISIT, "DoQ", "DoH"),
            (RETURNING_VISIT, "DoQ with early data", "DoH, resumed"),
        )
        for name, protocol in ((doq, Protocol.DOQ), (doh, Protocol.DOH))
    )
    return StudyAnswer(((FIRST_VISIT, on_first), (RETURNING_VISIT, on_returning)), increases)
