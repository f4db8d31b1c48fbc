"""Consent to packets that leave the machine: refused in code unless the user gave it.

A destination is inside if it is a loopback address, or if the calling thread is in a network namespace of a testbed or
a box, from which nothing leaves. Everything else is outside.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import OutsideError

_allowed: set[str] = set()


def inside(address: str) -> bool:
    """Whether packets to an address stay in this machine's loopback or private namespaces."""
    return ipaddress.ip_address(address).is_loopback or namespaces.in_any_namespace()


def allow(addresses: Iterable[str]) -> None:
    """Record that the user consented to packets to these addresses, for the rest of this process."""
    _allowed.update(str(ipaddress.ip_address(address)) for address in addresses)


def check(address: str) -> None:
    """Raise `OutsideError` if the address is outside and the user has not consented."""
    if str(ipaddress.ip_address(address)) not in _allowed and not inside(address):
        raise OutsideError(
            "is outside this machine, and nobody consented to packets to it",
            where=address,
            next_step="Use a command that asks for consent: `crosslayer compare` or `crosslayer discover --outside`.",
        )
