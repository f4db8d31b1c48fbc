"""How the time that a server's certificate costs depends on its size.

The sizes are those of today's certificates, Merkle-tree certificates and post-quantum certificates.
"""

from crosslayer.study import question

STUDY = question(
    __name__,
    asks="What does the size of a certificate cost, and how much of this cost is saved if DNS and page use one "
    "connection?",
    heading="Certificates",
    lead="What the size of a server's certificate costs, and how that cost is avoided.",
    links=("fiber", "dsl", "4g"),
    pages=("wikipedia.org",),
    rounds=(1, 6, 100),
    smoke={"links": ("4g",)},
    one_host="its client loads a page on one connection to one host",
)
