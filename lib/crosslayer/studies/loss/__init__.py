"""Effect of packet loss on DNS transports and on early data."""

from __future__ import annotations

from crosslayer.links import sweep
from crosslayer.studies.coalescing import PAGES
from crosslayer.study import question

KEPT = "kept"
"""Condition of a query on a connection that has just answered another query."""


def lossy(link: str) -> tuple[str, float] | None:
    """Base link and loss (percent) that a name like `4g-loss-2` states: `4g` and 2; None for other names."""
    varied = sweep(link)
    return (varied[0], float(varied[2])) if varied and varied[1] == "loss" else None


_LINKS = tuple(f"4g-loss-{percent:g}" for percent in (0, 0.5, 1, 2, 3, 5))

STUDY = question(
    __name__,
    asks="At which loss does 0-RTT no longer save time, and where is DoQ faster than DoUDP?",
    heading="Packet loss",
    lead="Effect of packet loss on DNS transports and on early data.",
    links=_LINKS,
    pages=PAGES,
    rounds=(3, 40, 400),  # 400: 99th percentiles
    smoke={"links": ("4g-loss-0", "4g-loss-5"), "pages": ("example.org",)},
    quick={"links": tuple(link for link in _LINKS if link not in ("4g-loss-0.5", "4g-loss-3"))},
    primes_alias=False,
)
