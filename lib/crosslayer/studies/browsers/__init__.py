"""Two browsers on the same links: does early data save a returning visitor the same in each?"""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_WHOLE = Plan(study="browsers", links=_LINKS, pages=("example.org", "wikipedia.org", "instagram.com"))

STUDY = Study(
    name="browsers",
    room=__name__,
    lead="Full handshakes and early data in Chromium and in Firefox, which take turns.",
    sections=(
        Section(
            "question_browsers",
            "Firefox beside Chromium",
            "Does early data save a returning visitor the same in both, and which page is there first?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("4g",), pages=("example.org",)),
        "quick": _WHOLE.resized(rounds=8),
        # Nobody has published it; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100),
    },
)
