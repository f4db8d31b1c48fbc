"""Measures lookups, queries and page loads on paths of varied quality.

On links with varied RTT, jitter or queue, the study measures lookups with and without early data. On links with varied
loss, it measures queries that share a connection, and page loads with name and page on one connection or on two.
"""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any

from crosslayer import dns
from crosslayer.campaign import tables
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import PacedQueries
from crosslayer.dns import Protocol, Resumption
from crosslayer.stub import Stub, StubSettings
from crosslayer.studies import loss, one_connection
from crosslayer.studies.path_quality import loses
from crosslayer.studies.path_quality.visits import VISITS
from crosslayer.testbed import network
from crosslayer.vocabulary import Role

LOOKUPS = ("DoUDP", "DoT", "DoH", "DoQ", "DoH3", "DoQ 0-RTT", "DoH3 0-RTT")
SHARED = {
    f"{protocol}, shared": protocol
    for protocol in (Protocol.DOUDP, Protocol.DOT, Protocol.DOH, Protocol.DOQ, Protocol.DOH3)
}
"""Conditions of queries that share a connection, each with its transport."""
QUERIES, INTERVAL_MS = 100, 10.0
"""Number of queries on a shared connection, and ms between two queries; on 4G, about nine are in flight at a time."""
_TIMEOUT_S = 60.0
"""Timeout of a query in seconds, so long that even the slowest query has a time instead of an error."""


class Shared(Measurer):
    """Measures series of queries at a steady pace on one connection; the stub opens a connection for each series."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._stack = contextlib.ExitStack()
        self._stubs: dict[Protocol, Stub] = {}
        self._askers: dict[Protocol, dns.Asker] = {}
        far = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=context.server.ca_file)
        try:
            for index, protocol in enumerate(SHARED.values()):
                near = f"127.0.0.{index + 2}"
                settings = StubSettings.towards(
                    far, protocol, Resumption.NONE, listen=f"{near}:53", timeout_s=_TIMEOUT_S
                )
                folder = context.folder / f"shared-{index}"
                self._stubs[protocol] = self._stack.enter_context(Stub.start(subprocess.Popen, settings, folder))
                self._askers[protocol] = self._stack.enter_context(contextlib.closing(dns.Asker((near, 53))))
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Stop the stubs."""
        self._stack.close()

    def conditions(self, cell: Cell) -> list[str]:
        """All conditions of queries that share a connection."""
        return list(SHARED)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition. `number` is 1 (first measured query); `measure` sets it for each query."""
        columns = {"page": None, "connection_mode": "kept", "client": 0, "number": 1}
        return "paced_queries", {"protocol": SHARED[condition].value} | columns

    def warm_up(self) -> None:
        """Make one query over each transport."""
        for protocol in SHARED.values():
            self._ask(protocol, self.context.pages[self.context.plan.pages[0]].host, 1)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make a priming query that opens the connection, then the measured queries; return the rows of all."""
        protocol, host = SHARED[condition], self.context.pages[cell.page].host
        self._stubs[protocol].forget()
        asked = [*self._ask(protocol, host, 1), *self._ask(protocol, host, QUERIES)]
        self._stubs[protocol].raise_if_dead()
        common = self.row(condition, cell, round_number, position)
        return {
            "paced_queries": [
                common
                | {
                    "number": number,
                    "role": (Role.PRIMING if number == 0 else Role.MEASURED).value,
                    "started_s": query.sent_ns / 1e9,
                }
                | {"error": None if query.answered_ns is not None else "no answer"}
                | PacedQueries.taken(tables.ASKED, query)
                for number, query in enumerate(asked)
            ]
        }

    def _ask(self, protocol: Protocol, host: str, queries: int) -> list[dns.Asked]:
        wire = dns.build_query(dns.Question(host), Protocol.DOUDP, dns.ClientSettings()).wire
        schedule = [dns.Due(number * INTERVAL_MS, 0) for number in range(queries)]
        return dns.ask_at_pace([self._askers[protocol]], schedule, wire, timeout_s=_TIMEOUT_S)


class PathQuality(Measurer):
    """Measures lookups as in `loss`, loads as in `one-connection`, and queries that share a connection."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._lookups, self._loads = loss.STUDY.measurer(context), one_connection.STUDY.measurer(context)
        self._shared = Shared(context)

    def _of(self, condition: str) -> Measurer:
        if condition in SHARED:
            return self._shared
        return self._loads if condition in VISITS else self._lookups

    def close(self) -> None:
        """Close the three measurers."""
        for part in (self._lookups, self._loads, self._shared):
            part.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Conditions of a cell.

        On links with varied loss these are page loads. The cells of the plan's first page also have queries that share
        a connection. On other links the conditions are lookups.
        """
        if loses(cell.link) is None:
            return list(LOOKUPS)
        return [*VISITS, *(SHARED if cell.page == self.context.plan.pages[0] else ())]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition, from the responsible one of the three measurers."""
        return self._of(condition).table_and_columns(condition)

    def warm_up(self) -> None:
        """Warm up the three measurers."""
        for part in (self._lookups, self._loads, self._shared):
            part.warm_up()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one observation with the responsible one of the three measurers."""
        return self._of(condition).measure(condition, cell, round_number, position)

    def failed(self, condition: str, cell: Cell, round_number: int, position: int, why: str) -> Rows:
        """Rows of a failed observation, from the responsible one of the three measurers."""
        return self._of(condition).failed(condition, cell, round_number, position, why)


MEASURER = PathQuality
