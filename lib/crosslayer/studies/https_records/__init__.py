"""Use of valid and malformed HTTPS records (RFC 9460) and of Encrypted Client Hello (RFC 9849) by a browser."""

from dataclasses import dataclass

from crosslayer.studies.coalescing import LINKS
from crosslayer.studies.https_records.records import KINDS
from crosslayer.study import question
from crosslayer.vocabulary import Browser


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    kinds: tuple[str, ...] = ()
    """Kinds of records by name (`records.KINDS`); empty for all."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"no kind of record is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError("a kind of record is named twice")


STUDY = question(
    __name__,
    asks="What does a malformed HTTPS record cost a page, and does Encrypted Client Hello cost a round-trip?",
    heading="HTTPS records",
    lead="Page loads with valid and with fifteen malformed HTTPS records, and the cost of Encrypted Client Hello.",
    options=Options,
    links=("fiber", "4g"),
    pages=("example.org",),
    rounds=(1, 8, 100),
    smoke={"links": ("4g",)},
    paper={"links": LINKS},
    browsers=(Browser.CHROMIUM, Browser.FIREFOX),
    one_host="it varies the HTTPS record of the page's own host only",
)
