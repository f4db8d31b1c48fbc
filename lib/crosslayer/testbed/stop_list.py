"""Stop list: addresses, networks and operators to which no packet is sent.

It has the entries of two lists: the list of this package, and the user's own list.

An entry has networks or operators, and a reason. An operator is given by its name in a list of resolvers, or by a
domain of its host names. For an address in `well_known.toml`, the operator is known even if the user gives no name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from crosslayer import resources
from crosslayer.decode import FieldError, checked, read_toml
from crosslayer.testbed.errors import OutsideError

FILE = "stop_list.toml"
"""File name of a stop list, in this package and in the user's folder."""
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class StopEntry:
    """An entry of a stop list: a table `[[stop]]` of its file."""

    reason: Annotated[str, Meta(min_length=1)]
    networks: list[str] = field(default_factory=list)
    """Addresses, and networks such as `192.0.2.0/24`."""
    operators: list[Annotated[str, Meta(min_length=1)]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.networks and not self.operators:
            step = "Give networks, operators or both."
            raise FieldError("is missing, and so is operators", key="networks", next_step=step)
        for number, network in enumerate(self.networks):
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                step = "Give an address, or a network such as 192.0.2.0/24."
                raise FieldError(f"is no network ({error})", key=f"networks[{number}]", next_step=step) from None

    @cached_property
    def _parsed(self) -> list[IpNetwork]:
        return [ipaddress.ip_network(network) for network in self.networks]

    def contains(self, address: str, names: Iterable[str]) -> bool:
        """Whether this entry applies to an address in canonical form, or to a name of its operator or host."""
        host = ipaddress.ip_address(address)
        return any(host in network for network in self._parsed) or self.has_name(names)

    def has_name(self, names: Iterable[str]) -> bool:
        """Whether this entry applies to one of these names of an operator or host."""
        domains = [operator.casefold().rstrip(".") for operator in self.operators]
        return any(
            name.casefold() == domain or name.casefold().endswith(f".{domain}") for name in names for domain in domains
        )


@dataclass(frozen=True, slots=True)
class _StopFile:
    stop: list[StopEntry]


@dataclass(frozen=True, slots=True)
class StopList:
    """The entries of this package's and the user's stop list."""

    entries: tuple[StopEntry, ...]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Operator's name and host name of each resolver in `well_known.toml`, by its address."""

    def reason(self, address: str, *names: str) -> str | None:
        """Reason why no packet may be sent to an address with these names; None if packets may be sent."""
        known = (*filter(None, names), *self.names.get(address, ()))
        return next((entry.reason for entry in self.entries if entry.contains(address, known)), None)

    def reason_of_host(self, host: str) -> str | None:
        """Reason why no packet may be sent to a web server with this name; None if packets may be sent."""
        return next((entry.reason for entry in self.entries if entry.has_name([host])), None)


def user_file() -> Path:
    """Path of the user's own stop list; the file may be missing."""
    return resources.user_folder("config") / FILE


def load() -> StopList:
    """Read both lists; `OutsideError` if one cannot be read, so that no packet is sent without the check."""
    with as_file(files("crosslayer.testbed") / FILE) as shipped:
        entries = _read(shipped)
    own = user_file()
    return StopList((*entries, *(_read(own) if own.exists() else [])), _well_known_names())


def _well_known_names() -> dict[str, tuple[str, ...]]:
    with as_file(files("crosslayer.testbed") / "well_known.toml") as path:
        known = read_toml(path, OutsideError)["resolver"]
    return {address: (entry["name"], entry["host"]) for entry in known for address in entry["address"]}


def _read(path: Path) -> list[StopEntry]:
    return checked(read_toml(path, OutsideError), _StopFile, where=str(path), error=OutsideError).stop
