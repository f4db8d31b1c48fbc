"""Why a DoQ query takes 1.37 RTT on DSL: exchanges that put more or fewer bytes on the uplink."""

from crosslayer.campaign.plan import Plan
from crosslayer.study import Section, Study

_LINKS = ("dsl", "dsl-uplink-x2", "dsl-uplink-x4", "dsl-uplink-x16")
_WHOLE = Plan(study="serialisation", links=_LINKS, pages=("example.org",))

STUDY = Study(
    name="serialisation",
    room=__name__,
    lead="Why a DoQ query takes 1.37 RTT on DSL: exchanges that put more or fewer bytes on the uplink.",
    sections=(
        Section(
            "question_serialisation",
            "Serialisation",
            "Why does a DoQ query take 1.37 RTT on DSL?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=_LINKS[::2]),
        "quick": _WHOLE.resized(rounds=20),
        # Nobody has published it; as many rounds as intervals of half a millisecond take.
        "paper": _WHOLE.resized(rounds=100),
    },
)
