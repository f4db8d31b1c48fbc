"""What a browser makes of HTTPS records (RFC 9460), broken ones too, and of Encrypted Client Hello (RFC 9849)."""

from dataclasses import dataclass

from crosslayer.campaign.plan import Plan
from crosslayer.studies.https_records.records import KINDS
from crosslayer.study import Section, Study


@dataclass(frozen=True)
class Options:
    """What only this study can be told."""

    kinds: tuple[str, ...] = ()
    """Of records, by their names (`records.KINDS`); every one where none is named."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"no kind of record is called {', '.join(unknown)}; there are {', '.join(KINDS)}")
        if len(set(self.kinds)) < len(self.kinds):
            raise ValueError("a kind of record is named twice")


_WHOLE = Plan(study="https-records", links=("fiber", "4g"), pages=("example.org",), options=Options())

STUDY = Study(
    name="https-records",
    room=__name__,
    lead="What a browser makes of HTTPS records, fifteen broken ones among them, and what Encrypted Client Hello "
    "costs.",
    sections=(
        Section(
            "question_https_records",
            "HTTPS records",
            "What does a page cost whose HTTPS record is broken, and does Encrypted Client Hello cost a round-trip?",
        ),
    ),
    options=Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=1, links=("4g",)),
        "quick": _WHOLE.resized(rounds=8),
        # Nobody has published it; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100, links=("fiber", "cable", "dsl", "4g", "4g-medium")),
    },
    browsers=("chromium", "firefox"),
)
