"""Why a DoQ query takes 1.37 RTT on DSL (TNSM24 section IV-B): exchanges with more or fewer bytes on the uplink."""

from __future__ import annotations

from typing import Any

from crosslayer import dns
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import Exchanges
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_EXCHANGES: dict[str, tuple[dns.Protocol, dns.ClientSettings]] = {
    "DoUDP": (dns.Protocol.DOUDP, dns.ClientSettings()),
    "DoQ": (dns.Protocol.DOQ, dns.ClientSettings()),
    "DoQ, datagrams of 1400": (dns.Protocol.DOQ, dns.ClientSettings(quic_datagram_bytes=1400)),
    "DoQ, query padded to 512": (dns.Protocol.DOQ, dns.ClientSettings(padding_block_bytes=512)),
    "DoQ, query padded to 1024": (dns.Protocol.DOQ, dns.ClientSettings(padding_block_bytes=1024)),
}


class Serialisation(Measurer):
    """DoQ exchanges that put more or fewer bytes on the uplink."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._exchanges = Exchanges(bench.server)

    def close(self) -> None:
        """Close the capture."""
        self._exchanges.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Exchanges with datagrams and queries of different size, and DoUDP, which is never padded."""
        return list(_EXCHANGES)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        protocol, settings = _EXCHANGES[condition]
        variant = f"datagram-{settings.quic_datagram_bytes}-padding-{settings.padding_block_bytes}"
        return "dns_exchanges", {
            "protocol": protocol.value,
            "resumption": "none",
            "warming": False,
            "variant": "main" if settings == dns.ClientSettings() else variant,
        }

    def warm_up(self) -> None:
        """One exchange of each kind."""
        for protocol, settings in _EXCHANGES.values():
            self._exchanges.exchange(self.bench.pages[self.bench.plan.pages[0]].host, protocol, settings)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One exchange."""
        protocol, settings = _EXCHANGES[condition]
        found = self._exchanges.exchange(self.bench.pages[cell.page].host, protocol, settings)
        return {"dns_exchanges": [self.row(condition, cell, round_number, position) | found]}


MEASURER = Serialisation
