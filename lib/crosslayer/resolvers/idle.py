"""Estimate the idle time after which a network forgets UDP flows, from queries after idle times. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crosslayer.resolvers.plan import SILENT, IdleQuery

RESOLUTION_S = 1.0
"""Resolution of the estimate, s: the search ends when both bounds are this close."""
_LEAST_EVIDENCE = 2
"""Minimum number of queries on forgotten flows that counts as evidence. A single one may be due to a lost packet."""


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Bounds of the idle time after which a network forgets a UDP flow."""

    kept_s: float
    """The longest idle time after which a flow was kept; 0 if no flow was kept."""
    forgotten_s: float
    """The shortest idle time after which a flow was forgotten."""
    queries: int
    """Number of queries on forgotten flows."""
    silent: int
    """Number of those `queries` that got no answer.

    The other queries were answered, but the server saw another port or address of the client.
    """

    @property
    def shown(self) -> bool:
        """Whether at least `_LEAST_EVIDENCE` queries show a forgotten flow."""
        return self.queries >= _LEAST_EVIDENCE

    @property
    def middle_s(self) -> float:
        """The estimate: the middle between both bounds."""
        return (self.kept_s + self.forgotten_s) / 2

    @property
    def next_s(self) -> float | None:
        """The next idle time to measure; None if the bounds are within `RESOLUTION_S`."""
        if self.forgotten_s - self.kept_s <= RESOLUTION_S:
            return None
        return self.middle_s

    def __str__(self) -> str:
        how = "without an answer" if self.silent == self.queries else "from another port or address of the client"
        return (
            f"kept connections worked after {self.kept_s:.1f} s without a packet, and not after "
            f"{self.forgotten_s:.1f} s ({self.queries} queries {how})"
        )


def forgetting(queries: Sequence[IdleQuery]) -> Forgetting | None:
    """Bounds of the idle time after which the network forgets a flow; None if no query shows a forgotten flow.

    Either all `queries` used QUIC, or all used DoUDP. A flow was forgotten if the query got no answer, or if the server
    then validated another address or port of the client (QUIC). A connection that server or client closed while it was
    idle is ignored. The result is also None if one flow was kept for a longer idle time than another flow that was
    forgotten, or for the same time. Lost packets are then taken to be the cause.
    """
    forgotten = [query for query in queries if query.error == SILENT or (query.error is None and query.moved)]
    if not forgotten:
        return None
    kept = [query.measured_idle_s for query in queries if query.error is None and not query.moved]
    shortest_s = min(query.measured_idle_s for query in forgotten)
    if max(kept, default=0.0) >= shortest_s:
        return None
    silent = sum(query.error == SILENT for query in forgotten)
    return Forgetting(max(kept, default=0.0), shortest_s, len(forgotten), silent)
