"""What a first visit costs in real time, and the four headlines of TNSM24's abstract with a verdict in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from crosslayer import metrics
from crosslayer.claims import Verdict
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent
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
    "T003": ("coalescing saves about 1/3 on fixed lines", FIXED, 1 / 3),
    "T004": ("coalescing saves about 1/2 on mobile links", MOBILE, 1 / 2),
}


def numbers(inputs: Inputs) -> Sequence[AnswerNumber]:
    """DoQ and DoH over plain DNS page by page, all links together; none if one is missing."""
    loads = metrics.combine(inputs.exchanges, inputs.loads)
    result = []
    for protocol, combination in _COMPARED.items():
        costs = metrics.paired_costs(loads, "plt_ms", "combination", combination, metrics.BASELINE)
        medians = metrics.medians(costs, "difference_percent", ["page"])
        of_page = {row["page"]: row for row in medians.iter_rows(named=True)}
        if set(PAGES) - of_page.keys():
            return ()
        for page in PAGES:
            low, high, rounds = (of_page[page][column] for column in ("low", "high", "rounds"))
            error = None if low is None else metrics.standard_error(low, high, rounds)
            name = f"{protocol}, {page_title(page)}"
            result.append(AnswerNumber(FIRST_VISIT, name, "%", of_page[page]["median"], error))
    return result


def answer(values: AnswerValues, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """A sentence on the first visit in the campaign's clock, and the headlines that the campaign measured."""
    known = {claim: row for claim, row in verdicts.items() if row["ours"] is not None}
    at_worst = [(claim, statement, _bound(known[claim])) for claim, statement in _AT_WORST.items() if claim in known]
    reduced = [
        (claim, statement, _fraction(known[claim], fraction, 100 * published_reduction(links)))
        for claim, (statement, links, fraction) in _REDUCED.items()
        if claim in known
    ]
    return StudyAnswer(_first_visit(values), (*at_worst, *reduced))


def _first_visit(values: AnswerValues) -> tuple[tuple[str, str], ...]:
    if not values:
        return ()
    titles = [page_title(page) for page in PAGES]
    doq, doh = (
        ", ".join(percent(values[FIRST_VISIT, f"{protocol}, {title}"], 0) for title in titles) for protocol in _COMPARED
    )
    return ((FIRST_VISIT, f"DoQ {doq}; DoH {doh} ({', '.join(titles)})."),)


def _bound(row: Mapping[str, Any]) -> str:
    """The verdict on an increase at the worst."""
    held = {
        Verdict.REPRODUCED: "holds as a worst case",
        Verdict.INCONCLUSIVE: "undecided",
    }.get(Verdict(row["verdict"]), "does not hold here")
    return f"{held} ({percent(row['ours'], 0)})"


def _fraction(row: Mapping[str, Any], fraction: float, published_percent: float) -> str:
    """The verdict on a reduction, which the paper's own figure may contradict."""
    ours = f"here at most {100 * row['ours']:.0f}\N{NO-BREAK SPACE}%"
    if published_percent < 100 * fraction - 5:
        return (
            f"does not follow from the paper's own Fig. 8 (at most {published_percent:.0f}\N{NO-BREAK SPACE}%); {ours}"
        )
    held = {
        Verdict.REPRODUCED: "holds",
        Verdict.INCONCLUSIVE: "undecided",
    }.get(Verdict(row["verdict"]), "does not hold here")
    return f"{held}: {ours}"
