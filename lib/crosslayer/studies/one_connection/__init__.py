"""What one connection for name resolution and page is worth, and what on it."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_PAGES = ("example.org", "wikipedia.org", "long-document", "instagram.com")
_WHOLE = Plan(study="one-connection", links=_LINKS, pages=_PAGES)

STUDY = Study(
    name="one-connection",
    room=__name__,
    lead="What it is worth to resolve a name and load its page on one connection, for a first and a returning visit.",
    sections=(
        Section(
            "question_one_connection",
            "One connection",
            "What is it worth to resolve a name and load its page on one connection?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("4g",), pages=("wikipedia.org",)),
        "quick": _WHOLE.resized(rounds=16, links=("fiber", "dsl", "4g"), pages=_PAGES[:3]),
        # Nobody has published it; by the virtual clock more would show nothing more.
        "paper": _WHOLE.resized(rounds=30),
    },
)
