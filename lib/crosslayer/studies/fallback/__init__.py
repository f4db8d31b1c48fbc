"""Page loads on a path that blocks QUIC, TCP or DNS: delay of the page, and times of the client's attempts."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.studies.fallback.cases import CASES
from crosslayer.study import question
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    cases: tuple[str, ...] = ()
    """Names of cases (`cases.CASES`); all cases if empty."""
    clients: Annotated[tuple[Browser, ...], Meta(min_length=1)] = tuple(Browser)
    """Clients that are measured if they are installed, see `crosslayer.vocabulary.Browser`."""
    full_rounds: Annotated[int, Meta(ge=0)] = 1
    """Every case is measured in this many rounds of a cell, the first ones. Later rounds measure only the cases that
    claims need and all cases of curl, because rounds in virtual time hardly differ."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.cases) - set(CASES)):
            raise ValueError(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")


STUDY = question(
    __name__,
    asks="By how much is a page delayed if the network blocks QUIC, and when does a browser try something else?",
    heading="Blocked paths",
    lead="Page loads on a path that drops or rejects packets: time to the first byte, and what the browser tried.",
    options=Options,
    links=("fiber", "4g"),
    pages=("example.org",),
    rounds=(1, 10, 30),
    smoke={"links": ("4g",)},
    one_host="it blocks packets to the page's own host only",
)
