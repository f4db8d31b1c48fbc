"""Kinds of load: without a gateway, and through a gateway with one or two upstream connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crosslayer.vocabulary import Coupling, Http3, Protocol, Sharing


@dataclass(frozen=True, slots=True)
class GatewayKind:
    """A kind of page load in a browser that resolves over DoH3."""

    condition: str
    """Value of the column `condition` of `page_loads`."""
    through: Sharing | None = None
    """Whether lookups and page share the gateway's upstream connection; None without a gateway."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `page_loads` that distinguish this kind from the others."""
        common = {"h3": Http3.ONE_RTT.value, "coupling": Coupling.COUPLED.value, "dns_protocol": Protocol.DOH3.value}
        return common | {"condition": self.condition}

    @property
    def connection_count(self) -> int:
        """Number of QUIC connections that the server must see."""
        return 1 if self.through is Sharing.SHARED else 2


NONE, TWO, ONE = "no gateway", "gateway, two connections", "gateway, one connection"

KINDS = {
    NONE: GatewayKind("main"),
    TWO: GatewayKind("gateway-two", Sharing.SEPARATE),
    ONE: GatewayKind("gateway-one", Sharing.SHARED),
}
"""Kinds by name of the condition."""
