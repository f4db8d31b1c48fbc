"""Time that a browser saves if DNS and page share one connection.

A gateway sets this connection up, because browsers cannot.
"""

from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="What would a browser gain if it resolved a name on the connection that it loads the page on?",
    heading="One connection for a browser",
    lead="What a browser would gain by resolving on the page's connection, measured with a local gateway that does so.",
    links=LINKS,
    pages=PAGES[:2],
    rounds=(3, 8, 30),  # in virtual time, further rounds add no information
    smoke={"links": ("4g",)},
    quick={"links": ("fiber", "dsl", "4g")},
    one_host="its resolver is the one host that the page comes from",
)
