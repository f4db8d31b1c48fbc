"""Which checks belong to which study: the one place where a study's claims hook in.

The claims of a study are a module beside `tnsm24` that has `CHECKS`, a check by claim identifier, and a subclass of
`Observed` (or `Observed` itself) that those checks ask for estimates. Both are entered in `BY_STUDY` under the study's
name; `check` in `table` takes it from there. A claim belongs to one study at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crosslayer.claims.checks import Check
from crosslayer.claims.observed import Observed
from crosslayer.studies.authoritative import claims as batenburg22
from crosslayer.studies.coalescing import claims as tnsm24
from crosslayer.studies.single_query import claims as imc22
from crosslayer.studies.web import claims as imc22_web


@dataclass(frozen=True, slots=True)
class StudyClaims:
    """The claims that a campaign of one study is held against."""

    checks: Mapping[str, Check]
    """By claim identifier."""
    observed: type[Observed] = Observed
    """What the checks ask: made from the tables of a dataset."""
    tables: tuple[str, ...] = ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks")
    """Which tables it is made from."""


BY_STUDY: Mapping[str, StudyClaims] = {
    "coalescing": StudyClaims(tnsm24.CHECKS),
    "single-query": StudyClaims(imc22.CHECKS, imc22.Queries),
    "authoritative": StudyClaims(batenburg22.CHECKS, batenburg22.PacedObserved, ("paced_queries",)),
    "web": StudyClaims(imc22_web.CHECKS, imc22_web.WebObserved),
}
"""By name of the study; studies that no paper has made have no claims."""

ELSEWHERE = {"IMC22": "the studies single-query and web are", "BATENBURG22": "the study authoritative is"}
"""Where claims belong that no study here checks, by paper, as the start of a sentence."""


def missing(claim_id: str, paper: str) -> str:
    """Why a campaign whose study does not check a claim has not measured it."""
    for study, claims in BY_STUDY.items():
        if claim_id in claims.checks:
            return f"the study {study} is not in this dataset"
    return f"{ELSEWHERE[paper]} not in this dataset" if paper in ELSEWHERE else "no check is written for it"
