"""Consent of the user to packets that leave the machine. Every client checks it here before it sends.

A destination is inside if it is a loopback address or another address of this machine. Every destination is inside if
the calling thread is in a network namespace of a testbed or a box, from which no packet leaves. Every other destination
is outside. No packet is sent to an outside address on the stop list, even with consent.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterable
from functools import cache

from crosslayer.testbed import namespaces, stop_list
from crosslayer.testbed.errors import OutsideError

SENTENCE = "I may send this"
"""The sentence that a user types to consent."""
BOX_IS_OUTSIDE = "CROSSLAYER_BOX_IS_OUTSIDE"
"""Environment variable; `1` makes the network of a testbed or a box count as outside, to test the checks there."""
_DISCARD_PORT = 9
_allowed: set[str] = set()
_ANY_NAME = "*"


def canonical(address: str) -> str:
    """An address in its canonical form, IPv4 for an IPv4-mapped address; `ValueError` if it is no address."""
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def private() -> bool:
    """Whether the calling thread is in a private network namespace, from which no packet leaves."""
    return namespaces.in_any_namespace() and os.environ.get(BOX_IS_OUTSIDE) != "1"


def inside(address: str) -> bool:
    """Whether packets to an address stay in this machine.

    They do if the address is a loopback address or the machine's own, or if `private` returns True.
    """
    address = canonical(address)
    return ipaddress.ip_address(address).is_loopback or private() or _is_own(address)


def local_address(address: str) -> str | None:
    """Source address of packets from this machine to an address; None without a route. No packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, _DISCARD_PORT))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _is_own(address: str) -> bool:
    """Whether an address belongs to this machine."""
    own = local_address(address)
    return own is not None and ipaddress.ip_address(own) == ipaddress.ip_address(address)


def obtain_consent(what: str, where: str, *, given: bool, ask: Callable[[str], str]) -> None:
    """Raise `OutsideError` unless consent is given or the user types `SENTENCE`.

    `what` is a sentence about the packets that leave this machine. `ask` receives a question and returns what the user
    typed.
    """
    if not given and ask(f"{what} Type '{SENTENCE}'").strip() != SENTENCE:
        raise OutsideError(
            "you did not consent; nothing was sent",
            where=where,
            next_step=f"Type '{SENTENCE}', or give --i-may-send-this in a script.",
        )


def allow(addresses: Iterable[str]) -> None:
    """Record the user's consent to packets to these addresses. It lasts until `withdraw` or the end of the process."""
    _allowed.update(map(canonical, addresses))


def allow_any_name() -> None:
    """Record the user's consent that a browser loads pages, with resources from every host that these pages name."""
    _allowed.add(_ANY_NAME)


def withdraw() -> None:
    """Withdraw all consent, so that no packet leaves this machine."""
    _allowed.clear()


def check(address: str, *names: str) -> None:
    """Raise `OutsideError` for an outside address that is on the stop list or has no consent.

    `names` are names of the operator or host of the address. The stop list is searched for them too.
    """
    if inside(address):
        return
    address = canonical(address)
    if (reason := _stops().reason(address, *names)) is not None:
        raise OutsideError(
            f"is on the stop list ({reason})",
            where=address,
            next_step=f"Leave it out. Your own list is {stop_list.user_file()}.",
        )
    if address not in _allowed:
        raise OutsideError(
            "is outside this machine, and there is no consent to send packets to it",
            where=address,
            next_step="Use `crosslayer compare`, `discover --allow-external` or `stub --i-may-send-this`: they ask for "
            "consent.",
        )


def open_socket(address: str, kind: socket.SocketKind, *names: str) -> socket.socket:
    """A new socket for packets to an address; raises `OutsideError` like `check`."""
    check(address, *names)
    return socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)


def check_names(names: Iterable[str], program: str) -> None:
    """Raise `OutsideError` if a program would look up names and send packets to the addresses that it gets.

    Such addresses cannot be checked, because they are unknown before the lookup. A lookup is allowed in three cases:
    `private` returns True, the name is `localhost`, or `allow_any_name` was called.
    """
    if not private() and _ANY_NAME not in _allowed and (unknown := sorted(set(names) - {"localhost"})):
        raise OutsideError(
            f"would be looked up by {program}, and its address is not known before",
            where=unknown[0],
            next_step="Give the address.",
        )


def check_private(program: str) -> None:
    """Raise `OutsideError` if `private` returns False.

    Called before the start of a program that sends packets of its own accord.
    """
    if not private():
        raise OutsideError(
            "sends packets of its own accord, to addresses that are not known before",
            where=program,
            next_step="Run it on a link or in a box, or use another one.",
        )


@cache
def _stops() -> stop_list.StopList:
    return stop_list.load()
