"""What a page over HTTP/3 costs where the path blocks QUIC, TCP or DNS: what a browser tries, and when."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from crosslayer.studies.fallback.cases import CASES
from crosslayer.study import question
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of a plan that only this study has."""

    cases: tuple[str, ...] = ()
    """Cases by their names (`cases.CASES`); every one where none is named."""
    clients: Annotated[tuple[Browser, ...], Meta(min_length=1)] = tuple(Browser)
    """Clients that are measured, where they are installed: see `crosslayer.vocabulary.Browser`."""
    full_rounds: Annotated[int, Meta(ge=0)] = 1
    """Rounds of a cell that have every case, from the first. Others have those that claims need. Rounds in virtual time
    hardly differ."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.cases) - set(CASES)):
            raise ValueError(f"no case is called {', '.join(unknown)}; there are {', '.join(CASES)}")


STUDY = question(
    __name__,
    asks="How much later does a page load if the network blocks QUIC, and when does a browser try something else?",
    heading="Blocked paths",
    lead="Page loads on a path that drops or rejects packets: time to the first byte, and what the browser tried.",
    options=Options,
    links=("fiber", "4g"),
    pages=("example.org",),
    rounds=(1, 10, 30),
    smoke={"links": ("4g",)},
    one_host="it blocks packets to the page's own host only",
)
