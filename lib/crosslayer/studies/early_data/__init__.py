"""Why 0-RTT saves a whole round-trip here and a fraction of one in the paper."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_WHOLE = Plan(study="early-data", links=_LINKS, pages=("example.org",))

STUDY = Study(
    name="early-data",
    room=__name__,
    lead="Why 0-RTT saves a whole round-trip here and a fraction of one in the paper.",
    sections=(
        Section(
            "question_early_data",
            "Early data",
            "Why does 0-RTT save a whole round-trip here and a fraction of one in the paper?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber", "dsl")),
        "quick": _WHOLE.resized(rounds=20),
        # Nobody has published it; as many rounds as intervals of half a millisecond take.
        "paper": _WHOLE.resized(rounds=100),
    },
)
