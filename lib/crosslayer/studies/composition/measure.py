"""Loads of a browser that resolves names itself, and the exchange and load that TNSM24 adds up instead.

The coupled load and the sum start from the same state of the client. DNS resumes an earlier session if its transport
has sessions. The page's connection is new and has a full handshake.
"""

from __future__ import annotations

import contextlib
from typing import Any

from crosslayer import dns
from crosslayer.campaign.conditions import FULL_HANDSHAKE, Exchange
from crosslayer.campaign.instruments import Exchanges, Loads
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.studies import web

PROTOCOLS = (dns.Protocol.DOUDP, dns.Protocol.DOH, dns.Protocol.DOQ)
"""Transports of TNSM24."""
_COUPLED = {f"{protocol}, coupled": protocol for protocol in PROTOCOLS}
_EXCHANGES = {
    f"{protocol}, exchange": Exchange(
        protocol,
        dns.Resumption.TICKET if dns.Resumption.TICKET in protocol.transport.resumptions else dns.Resumption.NONE,
    )
    for protocol in PROTOCOLS
}
_LOAD = "H3 1-RTT"


class Composition(Measurer):
    """Measures coupled loads as in the study `web`, and exchanges and decoupled loads as in `combinations`."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        with contextlib.ExitStack() as undo:
            self._coupled = web.STUDY.measurer(context)
            undo.callback(self._coupled.close)
            self._exchanges = Exchanges(context)
            undo.pop_all()
        self._loads = Loads(context, FULL_HANDSHAKE, name="composed")

    def close(self) -> None:
        """End both browsers and the capture."""
        self._loads.close()
        self._exchanges.close()
        self._coupled.close()

    @staticmethod
    def server_options(plan: Plan) -> dict[str, Any]:
        """Server options of the study `web`, which makes the coupled loads."""
        return web.STUDY.measurer.server_options(plan)

    def conditions(self, cell: Cell) -> list[str]:
        """A coupled load and an exchange over each transport, and one decoupled load for the sums."""
        return [*_COUPLED, *_EXCHANGES, _LOAD]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _COUPLED:
            return self._coupled.table_and_columns(_COUPLED[condition].value)
        measured = FULL_HANDSHAKE if condition == _LOAD else _EXCHANGES[condition]
        return measured.table, measured.columns

    def warm_up(self) -> None:
        """Make one load in each browser and one exchange of each kind."""
        page = self.context.pages[self.context.plan.pages[0]]
        for exchange in _EXCHANGES.values():
            exchange.warm_up(self._exchanges, page)
        self._coupled.warm_up()
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one observation; returns its rows by table. A priming exchange has a row too."""
        if condition in _COUPLED:
            return self._coupled.measure(_COUPLED[condition].value, cell, round_number, position)
        row = self.row(condition, cell, round_number, position)
        page = self.context.pages[cell.page]
        if condition == _LOAD:
            return FULL_HANDSHAKE.observe(self._loads, page, row)
        return _EXCHANGES[condition].observe(self._exchanges, page, row)


MEASURER = Composition
