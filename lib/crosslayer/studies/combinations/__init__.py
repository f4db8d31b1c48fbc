"""Every combination of DNS and HTTP/3, with every state that an earlier visit may have left: the fair factorial."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.campaign.plan import Plan
from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import Section, Study


@dataclass(frozen=True)
class Options:
    """What only this study can be told."""

    aa_period: Annotated[int, Meta(ge=0)] = 8
    """Rounds in which every cell has each self-check once: each kind of load repeated (A/A), and the negative control,
    primed as for 0-RTT and its ticket refused. 0: none."""


_WHOLE = Plan(study="combinations", links=LINKS, pages=PAGES, options=Options())

STUDY = Study(
    name="combinations",
    room=__name__,
    lead="Six DNS transports with full handshakes, resumed sessions and early data, beside page loads over HTTP/3 with "
    "a full handshake and with early data: what do they cost when both sides have been here before, or neither?",
    sections=(
        Section(
            "question_combinations",
            "The whole factorial",
            "What does encrypted DNS cost a page when both sides are compared in the same state?",
        ),
    ),
    options=Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber", "4g"), pages=PAGES[:1]),
        "quick": _WHOLE.resized(rounds=8),
        # Nobody has published it; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100),
    },
)
