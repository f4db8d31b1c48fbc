"""A study as in the recipe of CONTRIBUTING.md: what one transport takes on one link."""

from crosslayer.study import question

STUDY = question(
    __name__,
    asks="How long does it take?",
    heading="A toy",
    lead="What one transport takes on one link.",
    links=("fiber",),
    pages=("example.org",),
    rounds=(3, 8, 100),
)
