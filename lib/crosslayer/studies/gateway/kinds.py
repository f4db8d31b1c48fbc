"""The kinds of load: without a gateway, and through one with two connections upstream or with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crosslayer.vocabulary import Coupling, Http3, Protocol, Sharing


@dataclass(frozen=True, slots=True)
class GatewayKind:
    """One way of a browser to a page that it resolves over DoH3."""

    condition: str
    """Value of the column `condition` of `page_loads`."""
    through: Sharing | None = None
    """How the gateway's connections upstream are shared; None without a gateway."""

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `page_loads` that distinguish it from other kinds."""
        common = {"h3": Http3.ONE_RTT.value, "coupling": Coupling.COUPLED.value, "dns_protocol": Protocol.DOH3.value}
        return common | {"condition": self.condition}

    @property
    def connection_count(self) -> int:
        """Connections that the server sees."""
        return 1 if self.through is Sharing.SHARED else 2


NONE, TWO, ONE = "no gateway", "gateway, two connections", "gateway, one connection"

KINDS = {
    NONE: GatewayKind("main"),
    TWO: GatewayKind("gateway-two", Sharing.SEPARATE),
    ONE: GatewayKind("gateway-one", Sharing.SHARED),
}
"""Kinds by condition."""
