"""Cost of the post-quantum key share that today's browsers send."""

from crosslayer.studies.coalescing import LINKS
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="What does the key share of today's browsers cost?",
    heading="The post-quantum key share",
    lead="What the post-quantum key share of today's browsers costs.",
    links=LINKS,
    pages=("example.org",),
    rounds=(3, 20, 100),  # 100: intervals of half a millisecond
    smoke={"links": ("fiber", "dsl")},
    condition_titles={"x25519": "X25519", "x25519mlkem768": "X25519MLKEM768"},
)
