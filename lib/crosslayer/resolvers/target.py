"""A resolver's address and transport: what a comparison asks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosslayer.vocabulary import Protocol, Role

DNS_PATH = "/dns-query"
"""Path of DoH and DoH3 where a list gives none."""


@dataclass(frozen=True, slots=True)
class ResolverTarget:
    """One transport of one address of a resolver."""

    name: str
    operator: str
    """Who is asked: the queries to all targets of an operator share one rate limit."""
    address: str
    """IPv4 or IPv6 address in its canonical form."""
    protocol: Protocol
    port: int
    host: str = ""
    """Name in the certificate; empty for unencrypted transports."""
    path: str = DNS_PATH
    role: Role = Role.MEASURED
    """`SELF_CHECK` for the same target once more, under another name (A/A)."""

    @property
    def label(self) -> str:
        """The target in one line of text."""
        return f"{self.title} {self.address} {self.protocol}"

    @property
    def title(self) -> str:
        """Its name; that of an A/A copy has a suffix."""
        return self.name if self.role is Role.MEASURED else f"{self.name} (A/A)"

    def copies(self, other: ResolverTarget) -> bool:
        """Whether it is the A/A copy of another target."""
        return self.role is Role.SELF_CHECK and replace(self, role=Role.MEASURED) == other
