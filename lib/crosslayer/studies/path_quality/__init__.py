"""Effect of a path's RTT, jitter and queue on early data, and of packet loss on shared connections and coalescing."""

from __future__ import annotations

from crosslayer.links import sweep
from crosslayer.study import question

_RTTS, _JITTERS = (5, 20, 50, 100, 300, 600), (5, 10, 20)
_QUEUES, _LOSSES = ("1bdp", "10bdp", "fq_codel", "cake"), (0, 1, 2, 5)
_LINKS = (
    *(f"4g-rtt-{ms}" for ms in _RTTS),
    *(f"4g-jitter-{ms}" for ms in _JITTERS),
    *(f"4g-queue-{queue}" for queue in _QUEUES),
    *(f"4g-loss-{percent}" for percent in _LOSSES),
)


def loses(link: str) -> float | None:
    """Loss (percent) of a link whose loss this study varies, e.g. 2 for `4g-loss-2`; None for other links."""
    varied = sweep(link)
    return float(varied[2]) if varied and varied[1] == "loss" else None


STUDY = question(
    __name__,
    asks="Where does 0-RTT no longer save time, what does head-of-line blocking cost, and does coalescing save time "
    "with loss?",
    heading="Quality of the path",
    lead="Effect of a path's RTT, jitter, queue and loss on early data, on a shared connection, and on coalescing.",
    links=_LINKS,
    pages=("wikipedia.org", "instagram.com"),
    rounds=(3, 25, 200),  # 200: 99th percentiles of lookups
    smoke={"links": ("4g-rtt-20", "4g-loss-5"), "pages": ("wikipedia.org",)},
    quick={
        "links": tuple(link for link in _LINKS if link not in ("4g-rtt-50", "4g-jitter-10", "4g-queue-cake")),
        "pages": ("wikipedia.org",),
    },
    one_host="its client loads a page on one connection to one host",
)
