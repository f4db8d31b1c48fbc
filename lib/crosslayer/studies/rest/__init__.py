"""What a connection that rested costs the next query: its path forgot it, its client moved, its server restarted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.study import question
from crosslayer.vocabulary import ClientKind


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    rests_s: Annotated[tuple[Annotated[float, Meta(ge=1.5, le=7200)], ...], Meta(min_length=1)] = (2, 24, 1800)
    """Idle times, seconds; in real time a campaign waits for them.

    The path event is in the middle. At 10 and 30 s, when the server lets connections go, it would be a matter of chance
    which comes first.
    """
    keepers: Annotated[tuple[ClientKind, ...], Meta(min_length=1)] = (
        ClientKind.STUB,
        ClientKind.PATIENT_STUB,
        ClientKind.LIBRARY,
        ClientKind.CHROMIUM,
    )
    """Who keeps the connection: see `crosslayer.vocabulary.ClientKind`.

    `chromium` asks over DoH and DoH3 by itself, in every twelfth round, and rests 60 s at most: half an hour of its
    timers takes 12 s of computing. `dnsproxy` is AdGuard's (`make servers`).
    """


STUDY = question(
    __name__,
    asks="How long does the next query take if the path was lost while its connection was idle?",
    heading="First query after idle",
    lead="Cost of an idle connection for the next query: NAT mapping expired, client moved, server restarted.",
    options=Options,
    links=("fiber", "4g"),
    pages=("example.org",),
    # 25 rounds of two links and two rests that a connection outlives: a 99th percentile
    rounds=(1, 25, 100),
    smoke={"links": ("4g",), "options": Options(rests_s=(2,))},
    paper={"options": Options((2, 24, 90, 300, 1800), tuple(ClientKind))},
)
