"""Time that the address-validation token saves a returning visitor."""

from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.study import question

STUDY = question(
    __name__,
    asks="What does the address-validation token save a returning visitor?",
    heading="Address-validation token",
    lead="What the address-validation token saves a returning visitor.",
    notebook="question_token",
    links=LINKS,
    pages=PAGES,
    rounds=(3, 8, 100),
    smoke={"links": ("4g",), "pages": ("wikipedia.org",)},
    one_host="it controls only the token of the page's own host; whether a browser keeps others depends on chance",
)
