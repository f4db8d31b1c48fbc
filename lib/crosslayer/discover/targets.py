"""Parse targets: single addresses and host names. Networks and address ranges are refused. No packets are sent."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crosslayer.decode import read_text
from crosslayer.discover.errors import DiscoverError
from crosslayer.dns.model import is_host_name

_ONE_BY_ONE = "List the addresses one by one, and only those you may probe; --file takes a file of them."


@dataclass(frozen=True, slots=True)
class Target:
    """One address or host name to probe."""

    text: str
    """Address in its canonical form, or host name in lower case."""
    address: str | None
    """The address; None for a host name."""


def parse_targets(arguments: Iterable[str], *, where: str = "TARGETS") -> list[Target]:
    """Targets from arguments, without duplicates, in order.

    Raises `DiscoverError` for the first argument that is not one address or one host name.
    """
    return list(dict.fromkeys(parse_target(argument, where=where) for argument in arguments))


def read_targets(path: Path) -> list[Target]:
    """Targets from a file, one per line; empty lines and text after `#` are ignored.

    Raises `DiscoverError` if the file cannot be read or a line is not a target; the error names this line.
    """
    if not path.is_file():  # excludes pipes: the file is read again inside the private namespaces
        raise DiscoverError("is not a file", where=str(path), next_step="Name a text file with one target per line.")
    lines = read_text(path, DiscoverError, "Name a text file with one target per line.").splitlines()
    targets: list[Target] = []
    for number, line in enumerate(lines, start=1):
        if argument := line.partition("#")[0].strip():
            targets.append(parse_target(argument, where=f"{path}, line {number}"))
    return list(dict.fromkeys(targets))


def parse_target(argument: str, *, where: str) -> Target:
    """Parse one target; `DiscoverError` with the reason if the argument is not a target."""
    address = _address(argument)
    if address is not None:
        if getattr(address, "scope_id", None):
            raise DiscoverError(f"'{argument}' has a zone", where=where, next_step="Give an address without %ZONE.")
        if address.is_multicast or address.is_unspecified or str(address) == "255.255.255.255":
            raise DiscoverError(f"'{argument}' is not the address of one host", where=where, next_step=_ONE_BY_ONE)
        return Target(str(address), str(address))
    if "://" in argument:
        raise DiscoverError(f"'{argument}' is a URL", where=where, next_step="Give its host name alone.")
    if _is_network(argument):
        raise DiscoverError(
            f"'{argument}' is a network, and networks are not probed", where=where, next_step=_ONE_BY_ONE
        )
    if _is_range(argument):
        raise DiscoverError(f"'{argument}' is a range, and ranges are not probed", where=where, next_step=_ONE_BY_ONE)
    if _has_port(argument):
        raise DiscoverError(
            f"'{argument}' has a port or brackets",
            where=where,
            next_step="Leave them out: each transport is probed on its own ports.",
        )
    name = argument.removesuffix(".").lower()
    if not is_host_name(name) or name.rpartition(".")[2].isdecimal():
        raise DiscoverError(
            f"'{argument}' is neither an address nor a host name",
            where=where,
            next_step="Give a complete IPv4 or IPv6 address, or a name in its ASCII form.",
        )
    return Target(name, None)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_network(argument: str) -> bool:
    network, slash, _prefix = argument.partition("/")
    return bool(slash) and _address(network) is not None


def _is_range(argument: str) -> bool:
    first, dash, _last = argument.partition("-")
    return "*" in argument or (bool(dash) and _address(first) is not None)


def _has_port(argument: str) -> bool:
    host, colon, port = argument.rpartition(":")
    return "[" in argument or (bool(colon) and ":" not in host and port.isdecimal())
