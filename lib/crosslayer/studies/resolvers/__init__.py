"""Queries to resolvers over the real network, from one or several vantage points (as in IMC 2022, section 3.1).

`crosslayer compare` measures this study.
"""

from crosslayer.resolvers.plan import STUDY as NAME
from crosslayer.resolvers.plan import CompareOptions
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="Which resolver, over which transport, is fastest from here?",
    heading="Resolvers from here",
    lead="Queries to a list of resolvers over each transport: new and kept connections, names in the cache and not.",
    links=("host-1",),
    pages=("www.example.org",),
    rounds=(1, 6, 84),
    options=CompareOptions,
    notebook=NAME,
    measured_by="crosslayer compare",
)
