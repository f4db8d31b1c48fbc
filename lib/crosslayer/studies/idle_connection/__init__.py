"""Time from the first query after an idle time to its answer, e.g. if a NAT mapping expired in the idle time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.study import question
from crosslayer.vocabulary import ClientKind


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    idle_times_s: Annotated[tuple[Annotated[float, Meta(ge=1.5, le=7200)], ...], Meta(min_length=1)] = (2, 24, 1800)
    """Idle times, s. A campaign in real time waits for them.

    The path event (NAT mapping expired, client moved, server restarted) is in the middle of the idle time. Avoid 20 and
    60 s. The server closes an idle connection after 10 s (DoTCP, DoT) or 30 s (DoH, DoH3, DoQ). With an idle time of 20
    or 60 s, the event would be at the time of this close. It would then be random which comes first.
    """
    clients: Annotated[tuple[ClientKind, ...], Meta(min_length=1)] = (
        ClientKind.STUB,
        ClientKind.STUB_NO_IDLE_PROBE,
        ClientKind.LIBRARY,
        ClientKind.CHROMIUM,
    )
    """Clients that keep the connection (`crosslayer.vocabulary.ClientKind`).

    `chromium` resolves over DoH and DoH3 by itself, in every twelfth round. Its idle times are at most 60 s, because
    Chromium's timers take 12 s of CPU time in half an hour. `dnsproxy` is AdGuard's forwarder (`make servers`).
    """


STUDY = question(
    __name__,
    asks="How long does the next query take if the path was lost while its connection was idle?",
    heading="First query after idle",
    lead="Cost of an idle connection for the next query: NAT mapping expired, client moved, server restarted.",
    options=Options,
    links=("fiber", "4g"),
    pages=("example.org",),
    # 25 rounds, two links, two idle times that a connection survives: 100 observations for a 99th percentile
    rounds=(1, 25, 100),
    smoke={"links": ("4g",), "options": Options(idle_times_s=(2,))},
    paper={"options": Options((2, 24, 90, 300, 1800), tuple(ClientKind))},
)
