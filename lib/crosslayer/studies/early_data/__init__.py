"""Reason why 0-RTT saves a whole round-trip here, but only a fraction of a round-trip in the paper (TNSM24)."""

from crosslayer.studies.coalescing import LINKS
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="Why does 0-RTT save a whole round-trip here and only a fraction of a round-trip in the paper?",
    heading="Early data",
    lead="Why 0-RTT saves a whole round-trip here and only a fraction of a round-trip in the paper.",
    links=LINKS,
    pages=("example.org",),
    rounds=(3, 20, 100),  # 100: intervals of half a millisecond
    smoke={"links": ("fiber", "dsl")},
    condition_titles={"late": "answered late"},
)
