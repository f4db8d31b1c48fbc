"""A target of a comparison: one address of a resolver with one transport."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosslayer.vocabulary import Protocol, Role

DNS_PATH = "/dns-query"
"""Path of DoH and DoH3 if a list gives none."""


@dataclass(frozen=True, slots=True)
class ResolverTarget:
    """One transport of one address of a resolver."""

    name: str
    operator: str
    """Operator of the resolver. Queries to all targets of an operator share one rate limit."""
    address: str
    """IPv4 or IPv6 address in its canonical form."""
    protocol: Protocol
    port: int
    host: str = ""
    """Name in the certificate; empty for unencrypted transports."""
    path: str = DNS_PATH
    role: Role = Role.MEASURED
    """`SELF_CHECK` for the copy of a target in the A/A self-check."""

    @property
    def label(self) -> str:
        """The target in one line of text."""
        return f"{self.title} {self.address} {self.protocol}"

    @property
    def title(self) -> str:
        """Name of the resolver; an A/A copy has a suffix."""
        return self.name if self.role is Role.MEASURED else f"{self.name} (A/A)"

    def copies(self, other: ResolverTarget) -> bool:
        """Whether this target is the A/A copy of `other`."""
        return self.role is Role.SELF_CHECK and replace(self, role=Role.MEASURED) == other
