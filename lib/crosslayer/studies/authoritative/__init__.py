"""Queries at a constant rate on kept connections to an authoritative server (Batenburg, Twente 2022)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from crosslayer.campaign.plan import Plan
from crosslayer.study import Paper, Section, Study

_Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class Options:
    """Options of this study."""

    clients: _Count = 4
    """Number of clients of each kept connection; each client sends queries at a constant rate."""
    interval_ms: _Count = 2000
    """Time between two queries of a client, ms."""
    queries: _Count = 4
    """Number of queries of each client in a round."""
    proxy: Literal["crosslayer", "dnsproxy"] = "crosslayer"
    """Programs at both ends of the link: our server and stub, or AdGuard's dnsproxy as in the paper."""
    server: str = ""
    """Real server, as `crosslayer measure --server` names it; empty for the emulated one."""
    name: str = ""
    """Name that is queried at a real server, with type A."""


_LINKS = ("twente-local", "twente-eu", "twente-us", "twente-au", "twente-us-jitter", "twente-us-loss")
_WHOLE = Plan(study="authoritative", links=_LINKS, pages=("example.org",), options=Options())

STUDY = Study(
    name="authoritative",
    package=__name__,
    paper=Paper("BATENBURG22", "Batenburg, Twente Student Conference on IT 2022"),
    lead="Paced queries to BIND 9 on kept and new connections: jitter, loss, 0-RTT.",
    sections=(
        Section(
            "authoritative",
            "Resolver to authoritative server",
            "Duration of queries on a kept connection (Batenburg, Twente 2022).",
        ),
    ),
    options=Options,
    sizes={
        "smoke": _WHOLE.resized(rounds=3, links=_LINKS[:2], options=Options(queries=2)),
        # With 32 rounds, the variances have intervals.
        "quick": _WHOLE.resized(rounds=32),
        # 100 rounds of 4 x 15 queries are the paper's 6,000 data points
        "paper": _WHOLE.resized(rounds=100, options=Options(queries=15)),
    },
)
