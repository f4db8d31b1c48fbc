"""Time that early data saves a returning visitor in Chromium and in Firefox, on the same links."""

from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="Does early data save the same in Chromium and Firefox, and which browser loads a page faster?",
    heading="Firefox and Chromium",
    lead="Full handshakes and early data in Chromium and in Firefox, measured alternately.",
    links=LINKS,
    pages=PAGES,
    rounds=(3, 8, 100),
    smoke={"links": ("4g",), "pages": ("example.org",)},
)
