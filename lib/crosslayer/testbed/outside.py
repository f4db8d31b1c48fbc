"""Consent to packets that leave the machine: refused in code unless the user gave it.

A destination is inside if it is a loopback address or another address of this machine, or if the calling thread is in a
network namespace of a testbed or a box, from which nothing leaves. Everything else is outside.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import OutsideError

_DISCARD_PORT = 9
_allowed: set[str] = set()


def inside(address: str) -> bool:
    """Whether packets to an address stay in this machine: its loopback, its own addresses, its private namespaces."""
    return ipaddress.ip_address(address).is_loopback or namespaces.in_any_namespace() or _is_own(address)


def _is_own(address: str) -> bool:
    """Whether an address is one of this machine; a connected UDP socket has sent nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _DISCARD_PORT))
            own = probe.getsockname()[0]
    except OSError:
        return False
    return ipaddress.ip_address(own) == ipaddress.ip_address(address)


def allow(addresses: Iterable[str]) -> None:
    """Record that the user consented to packets to these addresses, for the rest of this process."""
    _allowed.update(str(ipaddress.ip_address(address)) for address in addresses)


def check(address: str) -> None:
    """Raise `OutsideError` if the address is outside and the user has not consented."""
    if str(ipaddress.ip_address(address)) not in _allowed and not inside(address):
        raise OutsideError(
            "is outside this machine, and there is no consent to send packets to it",
            where=address,
            next_step="Use `crosslayer compare` or `crosslayer discover --allow-external`, which ask for consent.",
        )
