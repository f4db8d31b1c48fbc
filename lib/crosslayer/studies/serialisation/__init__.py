"""Why a DoQ query takes 1.37 RTT on DSL (TNSM24): exchanges with more or fewer bytes on the uplink."""

from crosslayer.studies.serialisation.conditions import DOQ_SIZES
from crosslayer.study import question

_LINKS = ("dsl", "dsl-uplink-x2", "dsl-uplink-x4", "dsl-uplink-x16")

STUDY = question(
    __name__,
    asks="Why does a DoQ query take 1.37 RTT on DSL?",
    heading="Serialisation",
    lead="Why a DoQ query takes 1.37 RTT on DSL: exchanges with more or fewer bytes on the uplink.",
    links=_LINKS,
    pages=("example.org",),
    rounds=(3, 20, 100),  # 100: intervals of half a millisecond
    smoke={"links": _LINKS[::2]},
    condition_titles={name: sizes.series.removeprefix("DoQ, ") for name, sizes in DOQ_SIZES.items() if name != "main"},
)
