"""Measures one lookup over every transport on a link that loses packets.

A lookup uses a new connection with a full handshake, a new connection with early data, or a kept connection. The DoUDP
client repeats a lost query after one second; the other transports retransmit by themselves. A lookup over DoH3 is one
small GET, so its results also hold for such requests over HTTP/3 in general.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from crosslayer import dns
from crosslayer.campaign.evidence import exchange_columns
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.dns import Protocol, Resumption
from crosslayer.dns.timing import PhaseName, collector_paused
from crosslayer.studies.loss import KEPT
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.testbed import network
from crosslayer.vocabulary import Role

SETTINGS = dns.ClientSettings(udp_retransmit_s=1.0, timeout_s=60.0)
"""Settings of the clients. The timeout is so long that even the slowest lookup has a time instead of an error."""


@dataclass(frozen=True, slots=True)
class LookupCondition:
    """A kind of lookup: its transport, its resumption, and whether it uses a kept connection."""

    protocol: Protocol
    resumption: Resumption = Resumption.NONE
    condition: str = "main"


CONDITIONS = {
    **{str(protocol): LookupCondition(protocol) for protocol in SIX_TRANSPORTS},
    "DoQ 0-RTT": LookupCondition(Protocol.DOQ, Resumption.EARLY_DATA),
    "DoH3 0-RTT": LookupCondition(Protocol.DOH3, Resumption.EARLY_DATA),
    "DoT kept": LookupCondition(Protocol.DOT, condition=KEPT),
    "DoQ kept": LookupCondition(Protocol.DOQ, condition=KEPT),
}


class Loss(Measurer):
    """Measures lookups by the clients of `crosslayer.dns`."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._resolver = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=context.server.ca_file)

    def close(self) -> None:
        """Do nothing: `measure` closes each connection before it returns, also one that carried two queries."""

    def conditions(self, cell: Cell) -> list[str]:
        """All kinds of lookup."""
        return list(CONDITIONS)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        chosen = CONDITIONS[condition]
        return "dns_exchanges", {
            "protocol": chosen.protocol.value,
            "resumption": chosen.resumption.value,
            "condition": chosen.condition,
        }

    def warm_up(self) -> None:
        """Make one lookup of each kind."""
        for condition in CONDITIONS.values():
            self._lookups(condition, self.context.pages[self.context.plan.pages[0]].host)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make a lookup, and before it a priming lookup if a ticket is needed; return the rows of both."""
        row = self.row(condition, cell, round_number, position)
        *priming, measured = self._lookups(CONDITIONS[condition], self.context.pages[cell.page].host)
        first = {"resumption": Resumption.NONE.value, "role": Role.PRIMING.value}
        return {"dns_exchanges": [*(row | first | columns for columns in priming), row | measured]}

    def _lookups(self, condition: LookupCondition, name: str) -> list[dict[str, Any]]:
        if condition.condition == KEPT:
            return [self._kept(condition.protocol, name)]
        sessions = dns.SessionStore()
        steps = [(condition.resumption, False)]
        if condition.resumption is not Resumption.NONE:
            steps.insert(0, (Resumption.NONE, True))
        done = [
            dns.exchange(
                self._resolver,
                dns.Question(name),
                condition.protocol,
                resumption,
                sessions=sessions,
                settings=SETTINGS,
                priming=priming,
            )
            for resumption, priming in steps
        ]
        events = self.context.server.events()
        return [exchange_columns(result, events) for result in done]

    def _kept(self, protocol: Protocol, name: str) -> dict[str, Any]:
        """Columns of the second query on a connection. Its handshake time is 0: the connection is already open."""
        queries = [dns.build_query(dns.Question(name), protocol, SETTINGS) for _ in range(2)]
        columns: dict[str, Any] = {"started_s": time.time(), "handshake_ms": 0.0}
        with collector_paused(), dns.client_for(protocol, self._resolver, SETTINGS) as client:
            try:
                client.connect(queries[0])
                client.query(queries[0])
                answer = dns.check_answer(client.query(queries[1]), queries[1])
            except dns.DnsError as error:
                return columns | {"error": error.what}
        asked = client.timeline.phases[PhaseName.QUERY]
        columns |= {"started_s": asked.started_at_ns / 1e9, "error": answer.error}
        return columns | {"query_ms": asked.duration_ms, "total_ms": asked.duration_ms}


MEASURER = Loss
