"""The `coalescing` study (Sengupta et al., TNSM 2024): what one round of a cell measures.

DNS exchanges over DoUDP, DoH and DoQ with full handshakes, the TCP RTT, and H3 1-RTT and H3 0-RTT loads of the
page, whose address the browser is told. H3 0-RTT is measured with the token that proves the client's address and, in a
browser that can be without, without it, where the server may send three times what it received and then waits (RFC
9000, section 8.1). Combinations of DNS and page are computed afterwards, as the paper does.
"""

from __future__ import annotations

from typing import Any

from crosslayer import dns
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import Exchanges, LoadKind, Loads, possible, self_check_of, self_checks
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_DNS = {p.value: p for p in (dns.Protocol.DOUDP, dns.Protocol.DOH, dns.Protocol.DOQ)}
_TCP_RTT = "TCP RTT"
_LOADS = {
    "H3 1-RTT": LoadKind("1-rtt", "main", 0),
    "H3 0-RTT": LoadKind("0-rtt", "main", None),
    "H3 0-RTT without token": LoadKind("0-rtt", "no-token", None, token=False),
}
_CHECKS = self_checks(_LOADS)


class Coalescing(Measurer):
    """Measures the conditions of this study, one at a time, with one browser kept between them."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._exchanges = Exchanges(bench.server)
        self._loads = Loads(bench)

    def close(self) -> None:
        """End the browser and the capture."""
        self._loads.close()
        self._exchanges.close()

    def conditions(self, cell: Cell) -> list[str]:
        """DNS exchanges, the TCP RTT and loads."""
        return [*_DNS, _TCP_RTT, *possible(self.bench.plan, _LOADS)]

    def not_every_round(self, cell: Cell, round_number: int) -> list[str]:
        """One in turn."""
        return self_check_of(self.bench.plan, cell, round_number, possible(self.bench.plan, _CHECKS))

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _DNS:
            return "dns_exchanges", {"protocol": condition, "resumption": "none", "warming": False}
        if condition == _TCP_RTT:
            return "tcp_rtts", {}
        return "page_loads", (_LOADS | _CHECKS)[condition].columns

    def warm_up(self) -> None:
        """One exchange of each transport and one load."""
        page = self.bench.pages[self.bench.plan.pages[0]]
        for protocol in _DNS.values():
            self._exchanges.exchange(page.host, protocol)
        self._loads.open()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One observation as rows by table."""
        row = self.row(condition, cell, round_number, position)
        page = self.bench.pages[cell.page]
        if condition in _DNS:
            return {"dns_exchanges": [row | self._exchanges.exchange(page.host, _DNS[condition])]}
        if condition == _TCP_RTT:
            return {"tcp_rtts": [row | self._exchanges.tcp_rtt(self.bench.addresses[page.host])]}
        return self._loads.load(row, page, (_LOADS | _CHECKS)[condition])


MEASURER = Coalescing
