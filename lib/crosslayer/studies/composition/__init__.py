"""Comparison of a coupled load (the browser resolves names itself) with the sum of an exchange and a decoupled load."""

from crosslayer.studies import web
from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="Does a DNS exchange plus a page load take as long as a browser that resolves by itself?",
    heading="Does adding DNS and page time match a real browser?",
    lead="The paper adds the time of a DNS exchange to that of a page load. Does this sum equal the time of a browser "
    "that resolves by itself?",
    options=web.Options,
    links=LINKS,
    pages=PAGES,
    rounds=(3, 8, 100),
    smoke={"links": ("fiber", "4g"), "pages": PAGES[:1]},
    quick={"links": ("fiber", "dsl", "4g")},
    one_host="it adds one DNS exchange to a load, but a load of several hosts needs several lookups",
)
