"""Full factorial design: every kind of DNS exchange is combined with every kind of HTTP/3 load.

The exchanges differ in transport and resumption, the loads in the ticket and token that an earlier visit left.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import question


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    aa_period: Annotated[int, Meta(ge=0)] = 8
    """Period of the self-checks, in rounds; 0: no self-checks. In each period, a cell makes each self-check once; a
    period shorter than the number of self-checks counts as this number. For each kind of load, there is a self-check
    that makes a second load of this kind (A/A). A further self-check is a negative control: a load with a ticket, as
    for 0-RTT, but the server refuses the ticket."""


STUDY = question(
    __name__,
    asks="What does encrypted DNS cost a page, compared with plain DNS in the same connection state?",
    heading="All states of DNS and HTTP/3",
    lead="Cost of six DNS transports with full handshakes, resumed sessions and early data, for page loads over HTTP/3 "
    "with a full handshake and with early data, on a first and on a returning visit.",
    options=Options,
    links=LINKS,
    pages=PAGES,
    rounds=(3, 8, 100),
    smoke={"links": ("fiber", "4g"), "pages": PAGES[:1]},
    picture="visits",
)
