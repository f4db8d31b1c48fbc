"""A load that resolves by itself beside the sum that stands for one: an exchange, and a load without a lookup."""

from crosslayer.campaign.plan import Plan
from crosslayer.studies import web
from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import Section, Study

_WHOLE = Plan(study="composition", links=LINKS, pages=PAGES, options=web.Options())

STUDY = Study(
    name="composition",
    room=__name__,
    lead="The paper adds the time of a DNS exchange to that of a page load. Is the sum what a browser takes that "
    "resolves by itself?",
    sections=(
        Section(
            "question_composition",
            "Sum and truth",
            "Is a DNS exchange plus a page load what a browser that resolves by itself takes?",
        ),
    ),
    options=web.Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("fiber", "4g"), pages=PAGES[:1]),
        "quick": _WHOLE.resized(rounds=8, links=("fiber", "dsl", "4g")),
        # Nobody has published it; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100),
    },
)
