"""DNS exchanges over DoUDP, DoH and DoQ, combined with page loads over HTTP/3 (Sengupta et al., IEEE TNSM 2024).

The exchanges are on new connections without resumption. The page loads have a full handshake or early data.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.campaign.plan import Plan
from crosslayer.study import Paper, Section, Study
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    aa_period: Annotated[int, Meta(ge=0)] = 8
    """Period of the self-checks, in rounds; 0: no self-checks. In each period, a cell makes each self-check once; a
    period shorter than the number of self-checks counts as this number. For each kind of load, there is a self-check
    that makes a second load of this kind (A/A). A further self-check is a negative control: a load with a ticket, as
    for 0-RTT, but the server refuses the ticket."""


TNSM24 = Paper("TNSM24", "Sengupta et al., IEEE TNSM 2024", "10.1109/TNSM.2024.3383787")
LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
"""Links of the paper by ascending RTT."""
SLOWEST_UPLINK = "dsl"
"""The link of `LINKS` with the slowest uplink. Sending the packets of a handshake takes longest there."""
PAGES = ("example.org", "wikipedia.org", "instagram.com")
"""Pages of the paper, simplest first."""

_WHOLE = Plan(study="coalescing", links=LINKS, pages=PAGES, options=Options())

STUDY = Study(
    name="coalescing",
    package=__name__,
    paper=TNSM24,
    lead="DNS over UDP, HTTPS and QUIC, and HTTP/3 with a full handshake (1-RTT) or early data (0-RTT), on five access "
    "links and three pages.",
    sections=(
        Section(
            "link_check",
            "The testbed",
            "Link checks, self-checks of the procedure, and failed observations.",
        ),
        Section(
            "handshakes",
            "Handshakes",
            "Handshake times of DoQ and HTTP/3, and when the browser sends its first request.",
        ),
        Section(
            "dns_overhead",
            "DNS exchanges",
            "Duration of a lookup on each transport, in round-trips and beyond them.",
        ),
        Section(
            "page_loads",
            "Page loads",
            "Cost of the DNS transport and the HTTP/3 handshake for a page load.",
        ),
    ),
    options=Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber", "4g"), pages=PAGES[:1]),
        "quick": _WHOLE.resized(rounds=8),
        "paper": _WHOLE.resized(rounds=3830),
    },
    headlines={
        "T077": "DNS exchange on a new connection, DoUDP",
        "T079": "DNS exchange, DoQ",
        "T082": "DNS exchange, DoH",
        "T196": "PLT over DoUDP + H3 1-RTT: DoQ + H3 0-RTT (coalescing, emulated)",
        "T197": "PLT over DoUDP + H3 1-RTT: DoQ + H3 1-RTT",
        "T198": "PLT over DoUDP + H3 1-RTT: DoH + H3 1-RTT",
        "T203": "PLT that H3 0-RTT saves",
    },
    condition_titles={"no-token": "without token"},
    browsers=(Browser.CHROMIUM, Browser.FIREFOX),
)
