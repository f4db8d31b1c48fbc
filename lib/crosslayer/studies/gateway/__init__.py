"""What one connection for DNS and pages would give a browser, which cannot have it by itself."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_WHOLE = Plan(study="gateway", links=_LINKS, pages=("example.org", "wikipedia.org"))

STUDY = Study(
    name="gateway",
    room=__name__,
    lead="What a browser would gain if it asked DNS on the page's connection: a gateway beside it does so instead.",
    sections=(
        Section(
            "question_gateway",
            "One connection for a browser",
            "What would a browser gain if it resolved a name on the connection that it loads the page on?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("4g",)),
        "quick": _WHOLE.resized(rounds=8, links=("fiber", "dsl", "4g")),
        # Nobody has published it; by the virtual clock more would show nothing more.
        "paper": _WHOLE.resized(rounds=30),
    },
)
