"""The paper that each study measures again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper, and how its claims are called."""

    name: str
    """As in the column `paper` of the claims."""
    citation: str
    doi: str
    """Empty where it has none."""


_IMC22 = Paper("IMC22", "Kosek et al., ACM IMC 2022", "10.1145/3517745.3561445")

PAPERS = {
    "coalescing": Paper("TNSM24", "Sengupta et al., IEEE TNSM 2024", "10.1109/TNSM.2024.3383787"),
    "single-query": _IMC22,
    "web": _IMC22,
    "authoritative": Paper("BATENBURG22", "Batenburg, Twente Student Conference on IT 2022", ""),
}
"""By study; the other studies answer questions that the papers leave open."""
