"""What the size of a server's certificate costs, and what spares it: today's, Merkle-tree and post-quantum ones."""

from crosslayer.study import question

STUDY = question(
    __name__,
    asks="What does the size of a certificate cost, and what does one connection save of it?",
    heading="Certificates",
    lead="What the size of a server's certificate costs, and what spares it.",
    links=("fiber", "dsl", "4g"),
    pages=("wikipedia.org",),
    rounds=(1, 6, 100),
    smoke={"links": ("4g",)},
    one_host="its client loads a page on one connection to one host",
)
