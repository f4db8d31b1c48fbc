"""What the size of a server's certificate costs, and what spares it: today's, Merkle-tree and post-quantum ones."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_WHOLE = Plan(study="certificates", links=("fiber", "dsl", "4g"), pages=("wikipedia.org",))

STUDY = Study(
    name="certificates",
    room=__name__,
    lead="What the size of a server's certificate costs, and what spares it.",
    sections=(
        Section(
            "question_certificates",
            "Certificates",
            "What does the size of a certificate cost, and what does one connection save of it?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=1, links=("4g",)),
        "quick": _WHOLE.resized(rounds=6),
        # Nobody has published it on these links; as many rounds as the other questions have.
        "paper": _WHOLE.resized(rounds=100),
    },
)
