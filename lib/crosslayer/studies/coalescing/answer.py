"""What a first visit costs in real time, and the four headlines of TNSM24's abstract with a verdict in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crosslayer import metrics
from crosslayer.claims import Verdict
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.coalescing.claims import DOH, DOQ, FIXED, MOBILE, published_reduction
from crosslayer.study import FIRST_VISIT, StudyAnswer

_AT_WORST = {
    "T001": "DoH adds over 30\N{NO-BREAK SPACE}% on fixed lines",
    "T002": "DoH adds over 50\N{NO-BREAK SPACE}% on mobile links",
}
_REDUCED = {
    "T003": ("coalescing saves about 1/3 on fixed lines", FIXED, 1 / 3),
    "T004": ("coalescing saves about 1/2 on mobile links", MOBILE, 1 / 2),
}


def answer(inputs: Inputs, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """The increases of a first visit in the campaign's clock, and the headlines that the campaign measured."""
    known = {claim: row for claim, row in verdicts.items() if row["ours"] is not None}
    at_worst = [(claim, statement, _bound(known[claim])) for claim, statement in _AT_WORST.items() if claim in known]
    reduced = [
        (claim, statement, _fraction(known[claim], fraction, 100 * published_reduction(links)))
        for claim, (statement, links, fraction) in _REDUCED.items()
        if claim in known
    ]
    return StudyAnswer(increases=_first_visit(inputs), headlines=(*at_worst, *reduced))


def _first_visit(inputs: Inputs) -> tuple[tuple[str, str, Mapping[str, str]], ...]:
    """DoQ and DoH over plain DNS page by page, all links together; empty if one is missing."""
    loads = metrics.combine(inputs.exchanges, inputs.loads)
    costs = [metrics.paired_costs(loads, "plt_ms", "combination", name, metrics.BASELINE) for name in (DOQ, DOH)]
    doq, doh = (
        dict(metrics.medians(of, "difference_percent", ["page"]).select("page", "median").rows()) for of in costs
    )
    if not set(PAGES) <= doq.keys() & doh.keys():
        return ()
    return tuple(
        (FIRST_VISIT, name, {page: percent(of[page], 0) for page in PAGES}) for name, of in (("DoQ", doq), ("DoH", doh))
    )


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
