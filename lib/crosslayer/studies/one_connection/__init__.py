"""Time saved by resolving a name and loading its page on one connection, and by further changes, e.g. a token."""

from crosslayer.studies.coalescing import LINKS
from crosslayer.studies.one_connection.modes import FIRST_VISIT, RETURNING, Mode
from crosslayer.study import question

__all__ = ["FIRST_VISIT", "RETURNING", "STUDY", "Mode"]

_PAGES = ("example.org", "wikipedia.org", "long-document", "instagram.com")

STUDY = question(
    __name__,
    asks="What is saved by resolving a name and loading its page on one connection?",
    heading="One connection",
    lead="What is saved by resolving a name and loading its page on one connection, on a first and a returning visit.",
    links=LINKS,
    pages=_PAGES,
    rounds=(3, 16, 30),  # in virtual time, further rounds add no information
    smoke={"links": ("4g",), "pages": ("wikipedia.org",)},
    quick={"links": ("fiber", "dsl", "4g"), "pages": _PAGES[:3]},
    one_host="its client loads a page on one connection to one host",
)
