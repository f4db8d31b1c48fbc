"""What packet loss does to transports of DNS and to early data."""

from __future__ import annotations

from crosslayer.campaign.plan import Plan
from crosslayer.links import sweep
from crosslayer.study import Section, Study

KEPT = "kept"
"""Variant of a query on a connection that has answered another just before."""


def lossy(link: str) -> tuple[str, float] | None:
    """The link that `4g-loss-2` is without loss, and its loss in percent; None for other names."""
    told = sweep(link)
    return (told[0], float(told[2])) if told and told[1] == "loss" else None


_LINKS = tuple(f"4g-loss-{percent:g}" for percent in (0, 0.5, 1, 2, 3, 5))
_WHOLE = Plan(study="loss", links=_LINKS, pages=("example.org", "wikipedia.org", "instagram.com"))

STUDY = Study(
    name="loss",
    room=__name__,
    lead="What packet loss does to transports of DNS and to early data.",
    sections=(
        Section(
            "question_loss",
            "Packet loss",
            "When packets are lost, where does 0-RTT stop paying, and where does DoQ beat DoUDP?",
        ),
    ),
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=("4g-loss-0", "4g-loss-5"), pages=("example.org",)),
        "quick": _WHOLE.resized(
            rounds=40, links=tuple(link for link in _LINKS if link not in ("4g-loss-0.5", "4g-loss-3"))
        ),
        # Nobody has published it; as many rounds as 99th percentiles take.
        "paper": _WHOLE.resized(rounds=400),
    },
    primes_alias=False,
)
