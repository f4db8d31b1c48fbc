"""Measures one query on a new connection over every transport, as Kosek et al. do (IMC 2022, section 3.1).

A cell is a pair of vantage point and resolver, i.e. a link with the RTT of this pair (`vantage`). At its far end,
several resolvers run at the same time, each on its own host and with options that some public resolvers use. All
conditions of a round thus have the same path. As in the paper, a priming query fetches the ticket and the
address-validation token. The measured query follows at once, on a new connection that uses both.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from crosslayer import dns
from crosslayer.campaign.instruments import exchange_rows, warmed
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.dns import Protocol, Resumption
from crosslayer.studies.single_query.vantage import vantage_point
from crosslayer.testbed import network
from crosslayer.testbed.server import Server

NAME = "google.com"
"""The queried name, as in the paper: its length affects the bytes of Table 1."""

LARGE_CERTIFICATE_BYTES = 4500
"""Size of the large certificate in bytes.

It exceeds the amplification limit, which is three times the client's first datagram.
"""

RESOLVERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # No resolver of the paper accepted early data, and nearly all supported TLS 1.3.
        "main": {"early_data": False},
        "early-data": {"early_data": True},
        "retry": {"early_data": False, "retry": True},
        "tls-1.2": {"early_data": False, "max_tls": "1.2"},
        "large-certificate": {"early_data": False, "certificate_bytes": LARGE_CERTIFICATE_BYTES},
    }
)
"""Resolvers by the value of `condition` in their rows, each with its options (arguments of `Server.start`)."""

SETTINGS = dns.ClientSettings(
    quic_datagram_bytes=1252, cookie=True, padding_block_bytes=0, pad_hello=False, group=dns.KeyShareGroup.X25519
)
"""Settings of a client that sends as many bytes as the paper's client.

Initial datagrams have 1252 bytes, as in quic-go. Queries have a DNS cookie and no padding, so answers have no padding
either. The key share is the one that Go preferred.
"""

SETTINGS_TLS_1_2 = replace(SETTINGS, group=dns.KeyShareGroup.P256)
"""Settings for TLS 1.2: the client's groups must include the curve of the certificate (RFC 8422, section 5.1.1)."""


@dataclass(frozen=True, slots=True)
class QueryCondition:
    """A kind of exchange: the resolver that is queried (a name of `RESOLVERS`), the transport and the resumption."""

    resolver: str
    protocol: Protocol
    resumption: Resumption

    def __str__(self) -> str:
        return f"{self.protocol}, {self.resumption}, {self.resolver}"


_TICKET, _NONE, _EARLY = Resumption.TICKET, Resumption.NONE, Resumption.EARLY_DATA

EVERYWHERE = (
    *(QueryCondition("main", protocol, _NONE) for protocol in (Protocol.DOUDP, Protocol.DOTCP)),
    *(QueryCondition("main", p, _TICKET) for p in (Protocol.DOT, Protocol.DOH, Protocol.DOH3, Protocol.DOQ)),
    *(QueryCondition("early-data", protocol, _EARLY) for protocol in (Protocol.DOH3, Protocol.DOQ)),
)
"""Conditions of all cells: the paper's transports, DoH3, and early data."""

FIRST_ONLY = (
    *(QueryCondition("main", protocol, _NONE) for protocol in (Protocol.DOT, Protocol.DOH, Protocol.DOQ)),
    *(
        QueryCondition("tls-1.2", p, resumption)
        for p in (Protocol.DOT, Protocol.DOH)
        for resumption in (_NONE, _TICKET)
    ),
    *(QueryCondition(name, Protocol.DOQ, r) for name in ("retry", "large-certificate") for r in (_NONE, _TICKET)),
)
"""Conditions of the first vantage point only, because their round-trips do not depend on the vantage point."""

CONDITIONS = {str(condition): condition for condition in (*EVERYWHERE, *FIRST_ONLY)}


class SingleQuery(Measurer):
    """Measures single queries; starts the resolvers at the far end of the link."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._stack = contextlib.ExitStack()
        self._targets: dict[str, dns.Resolver] = {}
        self._servers: dict[str, Server] = {}
        with contextlib.ExitStack() as undo:
            undo.enter_context(self._stack)
            self._capture = dns.Capture()
            self._stack.callback(self._capture.close)
            for number, name in enumerate(RESOLVERS):
                self._targets[name] = self._start(number, name)
            undo.pop_all()

    def _start(self, number: int, name: str) -> dns.Resolver:
        machine, address = self._stack.enter_context(network.far_host(number, self.context.plan.congestion_control))
        spawn = functools.partial(network.spawn, machine)
        server = self._stack.enter_context(
            Server.start(
                spawn,
                pages_dir=None,
                addresses={NAME: address},
                folder=self.context.folder / f"resolver-{name}",
                **RESOLVERS[name],
            )
        )
        self._servers[name] = server
        return dns.Resolver(address, server_name=NAME, ca_file=server.ca_file)

    def close(self) -> None:
        """Stop the resolvers."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Conditions of a cell: `EVERYWHERE`, and at the first vantage point also `FIRST_ONLY`."""
        first = vantage_point(cell.link) == vantage_point(self.context.plan.links[0])
        return [str(condition) for condition in (*EVERYWHERE, *(FIRST_ONLY if first else ()))]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        chosen = CONDITIONS[condition]
        return "dns_exchanges", {
            "page": NAME,
            "protocol": chosen.protocol.value,
            "resumption": chosen.resumption.value,
            "condition": chosen.resolver,
        }

    def warm_up(self) -> None:
        """Make one exchange of each kind."""
        for condition in CONDITIONS.values():
            self._exchanges(condition)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make an exchange, and before it a priming exchange if a session is resumed; return the rows of both."""
        row = self.row(condition, cell, round_number, position)
        results = self._exchanges(CONDITIONS[condition])
        return {"dns_exchanges": exchange_rows(row, results, self._servers[CONDITIONS[condition].resolver].events())}

    def _exchanges(self, condition: QueryCondition) -> list[dns.ExchangeResult]:
        return warmed(
            self._targets[condition.resolver],
            dns.Question(NAME),
            condition.protocol,
            condition.resumption,
            capture=self._capture,
            settings=SETTINGS_TLS_1_2 if condition.resolver == "tls-1.2" else SETTINGS,
        )


MEASURER = SingleQuery
