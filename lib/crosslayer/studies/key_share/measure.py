"""What a post-quantum key share in the client's hello, as browsers send it today, costs."""

from __future__ import annotations

from typing import Any

from crosslayer import dns
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.observe import StubExchanges
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows

_KEY_SHARES = {
    f"{protocol}, {variant}": (protocol, variant)
    for protocol in (dns.Protocol.DOQ, dns.Protocol.DOT)
    for variant in ("x25519", "x25519mlkem768")
}


class KeyShare(Measurer):
    """Full handshakes with and without the post-quantum key share, by four stubs on loopback addresses.

    Chromium has no switch for its key share any more; Go's TLS and quic-go, which the stub uses, let it be chosen.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        wanted = {
            condition: (protocol, {"post_quantum": variant == "x25519mlkem768"})
            for condition, (protocol, variant) in _KEY_SHARES.items()
        }
        self._exchanges = StubExchanges(bench, wanted)

    def close(self) -> None:
        """Stop the stubs."""
        self._exchanges.close()

    def conditions(self, cell: Cell) -> list[str]:
        """DoQ and DoT with either key share."""
        return list(_KEY_SHARES)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        protocol, variant = _KEY_SHARES[condition]
        return "dns_exchanges", {
            "protocol": protocol.value,
            "resumption": "none",
            "warming": False,
            "variant": variant,
        }

    def warm_up(self) -> None:
        """One exchange of each kind."""
        page = self.bench.pages[self.bench.plan.pages[0]]
        for condition in _KEY_SHARES:
            self._exchanges.exchange(condition, page.host)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One exchange on a new connection."""
        row = self.row(condition, cell, round_number, position)
        return {"dns_exchanges": [row | self._exchanges.exchange(condition, self.bench.pages[cell.page].host)]}


MEASURER = KeyShare
