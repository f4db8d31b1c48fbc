"""The study's part of the answer at the top of the report.

It has the cost of encrypted DNS on a first visit, and verdicts on four statements of TNSM24's abstract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Verdict
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent, reach
from crosslayer.figures.style import page_title
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.coalescing.claims import DOH, DOQ, FIXED, MOBILE, published_reduction
from crosslayer.study import FIRST_VISIT, AnswerNumber, AnswerValues, StudyAnswer
from crosslayer.vocabulary import Protocol

_COMPARED = {Protocol.DOQ: DOQ, Protocol.DOH: DOH}
_AT_WORST = {
    "T001": "DoH adds over 30\N{NO-BREAK SPACE}% on fixed lines",
    "T002": "DoH adds over 50\N{NO-BREAK SPACE}% on mobile links",
}
_REDUCED = {
    "T003": (
        "the paper's coalescing (DoQ, then HTTP/3 with early data) saves about 1/3 of DoH's time on fixed lines",
        FIXED,
        1 / 3,
    ),
    "T004": ("this coalescing saves about 1/2 of DoH's time on mobile links", MOBILE, 1 / 2),
}


def numbers(inputs: Inputs) -> Sequence[AnswerNumber]:
    """Cost of DoQ and of DoH, compared with plain DNS.

    For each of the two transports: the lowest and the highest of the cells' medians, in multiples of the RTT, and the
    median of each page on all links together, in percent.
    """
    loads = metrics.combine(inputs.exchanges, inputs.loads)
    result = []
    for protocol, combination in _COMPARED.items():
        costs = metrics.paired_costs(loads, "plt_ms", "combination", combination, metrics.BASELINE)
        in_rtts = metrics.in_rtts(costs, inputs.rtts, ["difference_ms"])
        cells = _medians(in_rtts, "difference_rtt", metrics.CELL)
        pages = {row["page"]: row for row in _medians(costs, "difference_percent", ["page"])}
        if set(PAGES) - pages.keys():
            return ()
        ends = {end: of(cells, key=itemgetter("median")) for end, of in _ENDS.items()}
        result += [_number(f"{protocol}, {end}", "RTT", row) for end, row in ends.items()]
        result += [_number(f"{protocol}, {page_title(page)}", "%", pages[page]) for page in PAGES]
    return result


_ENDS = {"smallest": min, "largest": max}


def _medians(of: pl.LazyFrame, value: str, by: Sequence[str]) -> list[dict[str, Any]]:
    return metrics.medians(of.filter(pl.col("page").is_in(PAGES)), value, by).rows(named=True)


def _number(name: str, unit: str, row: Mapping[str, Any]) -> AnswerNumber:
    """Number of the answer, from a row with its median and interval."""
    error = None if row["low"] is None else metrics.standard_error(row["low"], row["high"], row["rounds"])
    return AnswerNumber(FIRST_VISIT, name, unit, row["median"], error)


def answer(values: AnswerValues, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """Cost of encrypted DNS on a first visit, and verdicts on those statements of the abstract that were measured."""
    known = {claim: row for claim, row in verdicts.items() if row["ours"] is not None}
    at_worst = [(claim, statement, _bound(known[claim])) for claim, statement in _AT_WORST.items() if claim in known]
    reduced = [
        (claim, statement, _fraction(known[claim], fraction, 100 * published_reduction(links)))
        for claim, (statement, links, fraction) in _REDUCED.items()
        if claim in known
    ]
    return StudyAnswer(_first_visit(values), _increases(values), (*at_worst, *reduced))


def _first_visit(values: AnswerValues) -> tuple[tuple[str, str], ...]:
    if not values:
        return ()
    doq, doh = (reach(pl.Series([values[FIRST_VISIT, f"{name}, {end}"] for end in _ENDS]), 1) for name in _COMPARED)
    return ((FIRST_VISIT, f"DoQ adds {doq} RTT, DoH {doh} RTT (DSL included)."),)


def _increases(values: AnswerValues) -> tuple[tuple[str, str, Mapping[str, str]], ...]:
    if not values:
        return ()
    return tuple(
        (FIRST_VISIT, str(name), {page: f"{name}, {page_title(page)}" for page in PAGES}) for name in _COMPARED
    )


def _bound(row: Mapping[str, Any]) -> str:
    """Verdict on a worst-case increase, as text. The number is the largest of the medians of the cells."""
    held = {
        Verdict.REPRODUCED: "holds for the worst link and page",
        Verdict.INCONCLUSIVE: "undecided for the worst link and page",
    }.get(Verdict(row["verdict"]), "does not hold here, not even for the worst link and page")
    return f"{held} ({percent(row['ours'], 0)})"


def _fraction(row: Mapping[str, Any], fraction: float, published_percent: float) -> str:
    """Verdict on a reduction, as text. The paper's own Fig. 8 may contradict the published reduction."""
    ours = f"{100 * row['ours']:.0f}\N{NO-BREAK SPACE}%"
    held = {
        Verdict.REPRODUCED: "holds",
        Verdict.INCONCLUSIVE: "inconclusive",
        Verdict.DIRECTION_ONLY: "reproduced in direction only",
    }.get(Verdict(row["verdict"]), "does not hold")
    here = f"{held} (at most {ours})"
    if published_percent >= 100 * fraction - 5:
        return here
    return f"{here}; the paper's Fig. 8: at most {published_percent:.0f}\N{NO-BREAK SPACE}%"
