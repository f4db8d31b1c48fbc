"""Effect of the server's QUIC implementation on times, in conditions of `one-connection` and `combinations`."""

from crosslayer.study import question

_PAGES = ("example.org", "wikipedia.org", "instagram.com")

STUDY = question(
    __name__,
    asks="Do the round-trips depend on the server's QUIC implementation?",
    heading="Another QUIC implementation at the server",
    lead="The conditions of one-connection and the QUIC conditions of combinations, with the server on quic-go and "
    "with one on aioquic.",
    links=("fiber", "4g"),
    pages=_PAGES,
    rounds=(3, 12, 30),  # in virtual time, further rounds add no information
    smoke={"links": ("4g",), "pages": ("example.org",)},
    quick={},
    one_host="its client loads a page on one connection to one host",
)
