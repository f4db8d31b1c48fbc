"""Loads of a browser that resolves by itself, and the two parts of the sum that the paper has instead.

The state is the same on both sides: DNS resumes the session of an earlier connection where its transport has sessions,
the page's connection is new, with a full handshake.
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
"""Transports of the paper."""
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
    """Coupled loads as the study of browsers that resolve makes them; exchanges and loads as the combinations do."""

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
        """Server options of the study `web`, whose loads these are."""
        return web.STUDY.measurer.server_options(plan)

    def conditions(self, cell: Cell) -> list[str]:
        """A coupled load and an exchange over each transport, and the load that is added to all of these."""
        return [*_COUPLED, *_EXCHANGES, _LOAD]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _COUPLED:
            return self._coupled.table_and_columns(_COUPLED[condition].value)
        measured = FULL_HANDSHAKE if condition == _LOAD else _EXCHANGES[condition]
        return measured.table, measured.columns

    def warm_up(self) -> None:
        """One load of each browser and one exchange of each kind."""
        page = self.context.pages[self.context.plan.pages[0]]
        for exchange in _EXCHANGES.values():
            exchange.warm_up(self._exchanges, page)
        self._coupled.warm_up()
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation as rows by table; the priming exchange of one that resumes a session is a row too."""
        if condition in _COUPLED:
            return self._coupled.measure(_COUPLED[condition].value, cell, round_number, position)
        row = self.row(condition, cell, round_number, position)
        page = self.context.pages[cell.page]
        if condition == _LOAD:
            return FULL_HANDSHAKE.observe(self._loads, page, row)
        return _EXCHANGES[condition].observe(self._exchanges, page, row)


MEASURER = Composition
