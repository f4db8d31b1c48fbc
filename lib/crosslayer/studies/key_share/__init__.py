"""What the post-quantum key share of today's browsers costs."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_WHOLE = Plan(study="key-share", links=_LINKS, pages=("example.org",))

STUDY = Study(
    name="key-share",
    room=__name__,
    lead="What the post-quantum key share of today's browsers costs.",
    sections=(
        Section(
            "question_key_share",
            "The post-quantum key share",
            "What does the key share of today's browsers cost?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber", "dsl")),
        "quick": _WHOLE.resized(rounds=20),
        # Nobody has published it; as many rounds as intervals of half a millisecond take.
        "paper": _WHOLE.resized(rounds=100),
    },
)
