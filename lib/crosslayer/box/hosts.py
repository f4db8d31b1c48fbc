"""The hosts of a box, their addresses, and the rules that direct packets to them."""

from __future__ import annotations

import ipaddress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from crosslayer.box.description import TRANSPORTS, BoxResolver, Description, Origin, Transport

CLIENT_MAC: Final = "020000000001"
_VANTAGE_MAC: Final = "0200000002{:02x}"
_VANTAGE_ADDRESSES: Final = ("198.19.64.{}", "2001:db8:fe::{:x}")
_CONTROL_ADDRESS: Final = "192.168.54.{}"
ROUTER_MAC: Final = "0200000000fe"
GATEWAYS: Final = {4: "198.19.255.254", 6: "2001:db8:ffff::1"}
"""Default gateway of every host and client, by IP version.

No machine has this address: a permanent neighbour entry maps it to the router's Ethernet address.
"""
CLIENT_ADDRESSES: Final = {4: "198.19.0.1", 6: "2001:db8:ff::1"}
INSIDE_ADDRESS: Final = "192.168.53.2"
"""IPv4 address of the first client if it is behind a NAT."""
OUTSIDE_ADDRESSES: Final = tuple(str(ipaddress.ip_address("198.19.0.1") + number) for number in range(64))
"""Addresses of the NAT, in the order in which the NAT uses them."""
_EGRESS: Final = ipaddress.ip_address("198.19.128.0")
NOBODY: Final = "198.18.253.53"
"""An address of the box that no host has."""
AUTHORITY: Final = "authority"
INTERCEPTOR: Final = "interceptor-"
WILDCARD_ADDRESS: Final = "198.18.254.1"
"""Address of every name in the box's zone, except the names of hosts; no host has this address."""


@dataclass(frozen=True, slots=True)
class BoxHost:
    """A host at the far end, in a namespace of its own."""

    name: str
    """Name of the resolver, with site or number if the resolver has several hosts: `near`, `wide/fra`, `many/2`.

    Other hosts are `authority`, `origin-N` and `interceptor-N`.
    """
    number: int
    addresses: tuple[str, ...]
    path: tuple[tuple[float, float], ...]
    """RTT of the host's path, as pairs (t, rtt): from t seconds after the start of the box's events, it is rtt ms."""
    resolver: BoxResolver | None = None
    origin: Origin | None = None
    egress: str = ""
    """Source address of the host's own queries if the host shares `addresses` with other hosts; else empty."""
    rewritten: bool = False
    """Whether the host is an interceptor: the router sends it packets whose destination is another address.

    The router replaces this destination by the host's address, and restores the original address in the answers.
    """

    @property
    def site(self) -> str:
        """Name of the host's site, or its number among the caches of its resolver; empty for a resolver's only host."""
        return self.name.partition("/")[2]

    @property
    def namespace(self) -> str:
        """Name of its network namespace."""
        return f"far-{self.number}"

    @property
    def mac(self) -> str:
        """Its Ethernet address, hexadecimal digits."""
        return f"0200000001{self.number:02x}"


@dataclass(frozen=True, slots=True)
class BoxVantage:
    """A client besides the first one."""

    name: str
    number: int
    """Number of the client; the first client of the box has number 0."""

    @property
    def namespace(self) -> str:
        """Name of its network namespace."""
        return f"vantage-{self.name}"

    @property
    def mac(self) -> str:
        """Its Ethernet address, hexadecimal digits."""
        return _VANTAGE_MAC.format(self.number)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the client, IPv4 first."""
        return tuple(address.format(self.number) for address in _VANTAGE_ADDRESSES)

    @property
    def control(self) -> str:
        """Address of the client in the network that connects the clients with each other."""
        return control_address(self.number)


def control_address(number: int) -> str:
    """Address of a client in the network that connects the clients with each other. The first client has number 0."""
    return _CONTROL_ADDRESS.format(number + 1)


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """A rule of the router (`router.CompiledRule`) in JSON types; an empty condition matches every packet."""

    hosts: list[int] = field(default_factory=list)
    reason: str = ""
    addresses: list[str] = field(default_factory=list)
    protocol: str = ""
    ports: list[int] = field(default_factory=list)
    family: int | None = None
    from_s: float = 0.0
    until_s: float | None = None
    of_client: bool = False


@dataclass(frozen=True, slots=True)
class HostPlan:
    """All hosts of a box and the rules of its router."""

    hosts: tuple[BoxHost, ...]
    rules: tuple[RoutingRule, ...]
    addresses: dict[str, tuple[str, ...]]
    """Addresses of every resolver, IPv4 first."""

    def router(self, description: Description, *, seed: int, truth: str, packets: bool) -> dict[str, Any]:
        """Configuration of the router, as `router.Router` reads it."""
        nat = description.network.nat
        inside = CLIENT_ADDRESSES[4] if nat is None else INSIDE_ADDRESS
        return {
            "mac": ROUTER_MAC,
            "truth": truth,
            "seed": seed & 0xFFFFFFFF,
            "packets": packets,
            "client": {
                "mac": CLIENT_MAC,
                "addresses": [inside, CLIENT_ADDRESSES[6]],
                "outside": list(OUTSIDE_ADDRESSES) if nat else [],
            },
            "nat": nat
            and {
                "udp_timeout_s": nat.udp_timeout_s,
                "drop": nat.forgotten == "drop",
                "address_changes_s": nat.address_changes_s,
            },
            "clock_steps": sorted((step.at_s, step.by_s) for step in description.clock_step),
            "vantages": [
                {
                    "mac": vantage.mac,
                    "addresses": vantage.addresses,
                    "rtt_ms": described.rtt_ms,
                    "paths": {
                        str(host.number): described.paths[host.resolver.name]
                        for host in self.hosts
                        if host.resolver is not None and host.resolver.name in described.paths
                    },
                }
                for vantage, described in zip(vantages(description), description.vantage, strict=True)
            ],
            "hosts": [
                {
                    "name": host.name,
                    "mac": host.mac,
                    "path": host.path,
                    "jitter_ms": host.resolver.jitter_ms if host.resolver else 0.0,
                    "own": host.addresses if host.rewritten else [],
                }
                for host in self.hosts
            ],
            "rules": [asdict(rule) for rule in self.rules],
        }


def vantages(description: Description) -> tuple[BoxVantage, ...]:
    """Clients besides the first one, numbered from 1."""
    return tuple(BoxVantage(one.name, number) for number, one in enumerate(description.vantage, start=1))


def plan(description: Description) -> HostPlan:
    """Assign hosts, addresses and rules to the parts of a box."""
    hosts: list[BoxHost] = []
    rules: list[RoutingRule] = []
    addresses = {
        resolver.name: (
            f"198.18.{number}.53",
            *([f"2001:db8:53:{number:x}::53"] if resolver.has_ipv6 else []),
        )
        for number, resolver in enumerate(description.resolver, start=1)
    }

    def add(name: str, own: tuple[str, ...], *path: tuple[float, float], **further: Any) -> int:
        hosts.append(BoxHost(name, len(hosts), own, path, **further))
        return len(hosts) - 1

    for blocked in description.network.blocked:
        protocol, port = blocked.split("/")
        rules.append(
            RoutingRule(reason=f"blocked-{protocol}-{port}", protocol=protocol, ports=[int(port)], of_client=True)
        )
    for index, interception in enumerate(description.network.interception):
        own = f"198.18.252.{index + 1}"
        host = add(f"{INTERCEPTOR}{index}", (own,), (0.0, interception.rtt_ms), rewritten=True)
        rules.append(RoutingRule([host], addresses=[own]))
        taken = [address for name in interception.resolvers for address in addresses[name]]
        for transport in interception.transports:
            below, at_port = socket_of(transport)
            rules.append(
                RoutingRule([host], "", taken, below, [at_port], 4, from_s=interception.from_s, of_client=True)
            )
    own = "198.18.250.1"
    rules.append(RoutingRule([add(AUTHORITY, (own,), (0.0, description.zone.rtt_ms))], addresses=[own]))
    for number, origin in enumerate(description.origin):
        own = f"198.18.251.{number + 1}"
        rules.append(
            RoutingRule([add(f"origin-{number}", (own,), (0.0, origin.rtt_ms), origin=origin)], addresses=[own])
        )
    for resolver in description.resolver:
        own_addresses = addresses[resolver.name]
        rules += _rules_of(resolver, own_addresses)
        if resolver.dead:
            continue
        path: tuple[tuple[float, float], ...] = (
            (0.0, resolver.rtt_ms),
            *((change.at_s, change.rtt_ms) for change in resolver.path_change),
        )
        paths: dict[str, tuple[tuple[float, float], ...]] = {site.name: ((0.0, site.rtt_ms),) for site in resolver.site}
        if resolver.caches > 1:
            paths = {str(number): path for number in range(resolver.caches)}
        if not paths:
            rules.append(
                RoutingRule(
                    [add(resolver.name, own_addresses, *path, resolver=resolver)], addresses=list(own_addresses)
                )
            )
            continue
        at: dict[str, int] = {}
        for name, one_path in paths.items():
            egress = str(_EGRESS + len(hosts))
            at[name] = add(f"{resolver.name}/{name}", own_addresses, *one_path, resolver=resolver, egress=egress)
            rules.append(RoutingRule([at[name]], addresses=[egress]))
        for route in resolver.route:
            shared: dict[str, Any] = {
                "hosts": [at[route.site]], "addresses": list(own_addresses), "family": route.family,
                "from_s": route.from_s, "until_s": route.until_s,
            }  # fmt: skip
            rules += [
                RoutingRule(protocol=below, ports=[port], **shared) for below, port in map(socket_of, route.transports)
            ]
            if not route.transports:
                rules.append(RoutingRule(**shared))
        receivers = list(at.values()) if resolver.caches > 1 else [at[resolver.site[0].name]]
        rules.append(RoutingRule(receivers, addresses=list(own_addresses)))
    return HostPlan(tuple(hosts), tuple(rules), addresses)


def _rules_of(resolver: BoxResolver, addresses: tuple[str, ...]) -> list[RoutingRule]:
    """Rules that drop packets to a resolver that is dead, has broken IPv6 or does not offer the packets' transport."""
    if resolver.dead:
        return [RoutingRule(reason="dead", addresses=list(addresses))]
    rules = [RoutingRule(reason="broken-ipv6", addresses=list(addresses[1:]))] if resolver.broken_ipv6 else []
    offered = {socket_of(transport) for transport in resolver.transports}
    for transport in TRANSPORTS:
        protocol, port = socket_of(transport)
        if (protocol, port) not in offered:
            rules.append(RoutingRule(reason="not-offered", addresses=list(addresses), protocol=protocol, ports=[port]))
    return rules


def socket_of(transport: Transport) -> tuple[str, int]:
    """Protocol below a DNS transport (`tcp` or `udp`), and the port of the DNS transport."""
    properties = TRANSPORTS[transport].transport
    over_udp = transport == "doudp" or properties.over_quic
    return "udp" if over_udp else "tcp", properties.port
