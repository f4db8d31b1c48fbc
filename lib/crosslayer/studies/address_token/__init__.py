"""What the token is worth that proves a returning visitor's address."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_WHOLE = Plan(study="address-token", links=_LINKS, pages=("example.org", "wikipedia.org", "instagram.com"))

STUDY = Study(
    name="address-token",
    room=__name__,
    lead="What the token is worth that proves a returning visitor's address.",
    sections=(
        Section(
            "question_token",
            "The token",
            "What is the token worth that proves a returning visitor's address?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("4g",), pages=("wikipedia.org",)),
        "quick": _WHOLE.resized(rounds=8),
        # Nobody has published it; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100),
    },
)
