"""The `combinations` study: DNS exchanges and page loads in every state that an earlier visit may have left.

{DoUDP, DoTCP, DoT, DoH, DoH3, DoQ} x {full handshake, resumed, early data where the transport has it} as DNS exchanges,
{H3 1-RTT, H3 0-RTT without token, H3 0-RTT with token} as page loads. Each is measured once a round; what they come to
together is computed afterwards, as a sum within the round.
"""

from __future__ import annotations

import contextlib
from typing import Any

from crosslayer import dns
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import Exchanges, LoadKind, Loads, StubExchanges, self_check_of, self_checks
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_EXCHANGES = {
    f"{protocol}, {resumption}": (protocol, resumption)
    for protocol, resumptions in dns.RESUMPTIONS.items()
    for resumption in resumptions
}
_BY_STUB = {
    "DoQ by quic-go": ("quic-go", {}),
    "DoQ by quic-go, the browser's key share": ("quic-go-x25519mlkem768", {"post_quantum": True}),
}
"""Variant and further settings of the stub: another implementation, and one with a hello as large as the browser's."""
_LOADS = {
    "H3 1-RTT": LoadKind("1-rtt", "main", 0),
    "H3 0-RTT": LoadKind("0-rtt", "main", None),
    "H3 0-RTT without token": LoadKind("0-rtt", "no-token", None, token=False),
}
_CHECKS = self_checks(_LOADS)


class Combinations(Measurer):
    """Measures the parts that combinations are made of, one at a time, with one Chromium kept between them."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        with contextlib.ExitStack() as undo:
            self._exchanges = Exchanges(bench.server)
            undo.callback(self._exchanges.close)
            self._by_stub = StubExchanges(
                bench, {name: (dns.Protocol.DOQ, others) for name, (_, others) in _BY_STUB.items()}
            )
            undo.pop_all()
        self._loads = Loads(bench)

    def close(self) -> None:
        """End Chromium and the capture."""
        self._loads.close()
        self._by_stub.close()
        self._exchanges.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every exchange and every load; and exchanges by another implementation, to see what ours adds."""
        return [*_EXCHANGES, *_BY_STUB, *_LOADS]

    def not_every_round(self, cell: Cell, round_number: int) -> list[str]:
        """One in turn."""
        return self_check_of(self.bench.plan, cell, round_number, _CHECKS)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _EXCHANGES:
            protocol, resumption = _EXCHANGES[condition]
            columns = {"protocol": protocol.value, "resumption": resumption.value, "warming": False, "variant": "main"}
            return "dns_exchanges", columns
        if condition in _BY_STUB:
            columns = {"protocol": dns.Protocol.DOQ.value, "resumption": dns.Resumption.NONE.value, "warming": False}
            return "dns_exchanges", columns | {"variant": _BY_STUB[condition][0]}
        return "page_loads", (_LOADS | _CHECKS)[condition].columns

    def warm_up(self) -> None:
        """One exchange of each kind and one load."""
        page = self.bench.pages[self.bench.plan.pages[0]]
        for protocol, resumption in _EXCHANGES.values():
            self._exchanges.resuming({}, page.host, protocol, resumption)
        for name in _BY_STUB:
            self._by_stub.exchange(name, page.host)
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation as rows by table; the warming exchange of one that resumes a session is a row too."""
        row = self.row(condition, cell, round_number, position)
        page = self.bench.pages[cell.page]
        if condition in _EXCHANGES:
            return {"dns_exchanges": self._exchanges.resuming(row, page.host, *_EXCHANGES[condition])}
        if condition in _BY_STUB:
            return {"dns_exchanges": [row | self._by_stub.exchange(condition, page.host)]}
        return self._loads.load(row, page, (_LOADS | _CHECKS)[condition])


MEASURER = Combinations
