"""What a comparison sends, the consent to it, and the pace of its queries.

Each operator has one rate limit for all its addresses and names. An operator that answers with status 429 or 503 or
REFUSED, or that does not answer, gets a pause, which doubles each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crosslayer.discover.pace import Pace
from crosslayer.dns import Protocol, Resumption
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import ResolverTarget
from crosslayer.testbed import outside

SENTENCE = "I may send this"
"""What a user types to consent."""
QUERIES_PER_S = 1.0
"""Default rate for each operator, and the highest one for an address outside."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
SLOWING = ("http status 429", "http status 503", "rcode REFUSED", "timeout")
"""Errors after which an operator gets a pause."""

_CONNECTION_BYTES = {
    Protocol.DOUDP: 500,
    Protocol.DOTCP: 1_200,
    Protocol.DOT: 8_000,
    Protocol.DOH: 9_000,
    Protocol.DOH3: 12_000,
    Protocol.DOQ: 12_000,
}
"""Upper estimate of a new connection with a query, both directions, bytes of IP packets."""
_KEPT_QUERY_BYTES = 1_500
_TCP_CONNECT_BYTES = 500


def resumable(protocol: Protocol) -> bool:
    """Whether a comparison measures a resumed connection."""
    return Resumption.TICKET in protocol.transport.resumptions


def connections(protocol: Protocol) -> int:
    """New connections of a visit: one fills the cache, one is measured, one is resumed."""
    return 3 if resumable(protocol) else 2


@dataclass(frozen=True, slots=True)
class OperatorBudget:
    """What one operator receives and sends at most."""

    operator: str
    addresses: tuple[str, ...]
    queries: int
    bytes: int
    """Estimate, both directions."""


def budget(targets: Iterable[ResolverTarget], rounds: int) -> list[OperatorBudget]:
    """What all rounds of a comparison send at most, by operator."""
    by_operator: dict[str, list[ResolverTarget]] = {}
    for target in targets:
        by_operator.setdefault(target.operator, []).append(target)
    return [
        OperatorBudget(
            operator,
            tuple(dict.fromkeys(target.address for target in asked)),
            rounds * sum(connections(target.protocol) + 1 for target in asked),
            rounds * sum(_visit_bytes(target.protocol) for target in asked),
        )
        for operator, asked in by_operator.items()
    ]


def budget_text(shares: Sequence[OperatorBudget], name: str, queries_per_s: float) -> str:
    """The budget as text for people."""
    rows = [
        (share.operator, str(share.queries), f"{share.bytes / 1e6:.1f}", " ".join(share.addresses)) for share in shares
    ]
    rows.insert(0, ("operator", "queries", "MB", "addresses"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{operator.ljust(widths[0])}  {queries.rjust(widths[1])}  {size.rjust(widths[2])}  {addresses}"
        for operator, queries, size, addresses in rows
    ]
    minutes = max(share.queries for share in shares) / queries_per_s / 60
    total = sum(share.queries for share in shares)
    return "\n".join(
        [
            f"This comparison sends at most {total} queries for '{name}':",
            *lines,
            f"At most {queries_per_s:g} queries/s go to each operator. It takes at least {minutes:.1f} minutes.",
        ]
    )


def check_rate(queries_per_s: float, targets: Iterable[ResolverTarget]) -> None:
    """Raise `ResolversError` for a rate that an address outside must not get."""
    if queries_per_s <= QUERIES_PER_S:
        return
    for target in targets:
        if not outside.inside(target.address):
            raise ResolversError(
                f"{target.address} is outside this machine and gets at most {QUERIES_PER_S:g} query/s",
                where="--rate",
                next_step="Leave --rate out; it is for loopback and private namespaces.",
            )


def outside_addresses(targets: Iterable[ResolverTarget]) -> list[str]:
    """Addresses that need the user's consent."""
    addresses = dict.fromkeys(target.address for target in targets)
    return [address for address in addresses if not outside.inside(address)]


class Turn:
    """The turn of one operator: when the next query may leave."""

    def __init__(self, queries_per_s: float) -> None:
        self._pace = Pace(queries_per_s)
        self._pause_s = 0.0
        self.ready_s = 0.0
        """End of the pause, monotonic clock, seconds."""

    def wait(self) -> None:
        """Sleep until a query may be sent."""
        time.sleep(max(0.0, self.ready_s - time.monotonic()))
        self._pace.wait(1)

    def heed(self, error: str | None) -> None:
        """Pause after an error of `SLOWING`; the next pause is twice as long, unless a query succeeds before."""
        if error is None:
            self._pause_s = 0.0
        elif error.startswith(SLOWING):
            self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
            self.ready_s = time.monotonic() + self._pause_s


def _visit_bytes(protocol: Protocol) -> int:
    return connections(protocol) * _CONNECTION_BYTES[protocol] + _KEPT_QUERY_BYTES + _TCP_CONNECT_BYTES
