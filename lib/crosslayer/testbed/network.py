"""The fixed part of the network: three namespaces, two bridges, addresses, neighbours.

    client --veth-- client bridge ... link ... server bridge --veth-- server

Both bridges are in the namespace `link`; a backend connects them there.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute, NetlinkError, NetNS, netns

from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import TestbedError

CLIENT = "client"
LINK = "link"
SERVER = "server"
CLIENT_ADDRESS = "10.53.0.1"
SERVER_ADDRESS = "10.53.0.2"
CLIENT_ADDRESS6 = "2001:db8:53::1"
SERVER_ADDRESS6 = "2001:db8:53::2"
NETWORK = ipaddress.ip_network("10.53.0.0/16")
"""Network of the testbed's private IPv4 addresses."""
_HOSTS = ipaddress.ip_network("10.53.1.0/24")
_PUBLIC_HOSTS = ipaddress.ip_network("198.18.1.0/24")
"""Addresses for `add_public_addresses`.

They are from the range for network benchmarks (RFC 2544), which browsers treat as public.
"""
_HOSTS6 = ipaddress.ip_network("2001:db8:53:1::/64")
_FAR_HOSTS = ipaddress.ip_network("10.53.0.64/26")
_FAR_NAMES = [ipaddress.ip_network(f"10.53.{2 + number}.0/24") for number in range(2)]
"""Pool of addresses for the host names at each far host, by the far host's number."""
_CLIENT_ADDRESSES = ("10.53.0.129", "10.53.0.130")
"""Further addresses of the client, which has at most one of them at a time (`assign_client_address`)."""
_MAIN_TABLE = 254
_CONNECT_S = 10.0
_CARRIER_POLL_S = 0.005
_CARRIER_RETURN_S = 0.1
_IFF_UP = 1
_NO_DUPLICATE_TEST = 0x02
"""Flag IFA_F_NODAD: an address is usable at once, without a test for duplicates."""
_IPV6_SETTINGS = {
    "eth0/accept_ra": "0",
    "eth0/addr_gen_mode": "1",
    "eth0/router_solicitations": "0",
    "all/disable_ipv6": "0",
}
"""Files below /proc/sys/net/ipv6/conf and their values, in the order in which they are written.

With `addr_gen_mode` 1 the kernel creates no link-local address.
"""
_OPERATIONAL = ("UP", "UNKNOWN")
"""Operational states in which a device carries packets; loopback is "UNKNOWN"."""
_MAC = {CLIENT: "02:00:00:00:00:01", SERVER: "02:00:00:00:00:02"}


def bridge_of(side: str) -> str:
    """Name of the bridge of `client` or `server`."""
    return f"br-{side}"


def build(congestion_control: str | None = None) -> None:
    """Create the namespaces with their bridges, addresses, routes and permanent neighbours.

    `congestion_control` is the TCP algorithm at both ends; None keeps the machine's default.
    """
    netns.create(LINK)
    _without_ipv6(LINK)
    with NetNS(LINK) as ip:
        for side, address in ((CLIENT, CLIENT_ADDRESS), (SERVER, SERVER_ADDRESS)):
            netns.create(side)
            _without_ipv6(side)
            bridge(ip, bridge_of(side))
            far = SERVER if side == CLIENT else CLIENT
            far_address = SERVER_ADDRESS if side == CLIENT else CLIENT_ADDRESS
            _plug_in(ip, side, side, address=address, mac=_MAC[side], far_address=far_address, far_mac=_MAC[far])
            if side == CLIENT:
                with NetNS(side) as inside:
                    inside.route("add", dst=str(_HOSTS), gateway=SERVER_ADDRESS)
            if congestion_control is not None:
                use_congestion_control(side, congestion_control)


def remove() -> None:
    """Remove what `build` created, also if it failed in the middle."""
    for name in {CLIENT, SERVER, LINK} & set(netns.listnetns()):
        netns.remove(name)


@contextlib.contextmanager
def far_host(number: int, congestion_control: str | None = None) -> Iterator[tuple[str, str]]:
    """Add a host at the far end for the duration of the block; yields its namespace and IPv4 address.

    Numbers start at 0; a number in use raises `FileExistsError`. `congestion_control` is as in `build`.
    """
    name, address = f"machine-{number}", str(_FAR_HOSTS[number])
    mac = f"02:00:00:00:01:{number:02x}"
    netns.create(name)
    _without_ipv6(name)
    with NetNS(LINK) as ip:
        _plug_in(ip, name, SERVER, address=address, mac=mac, far_address=CLIENT_ADDRESS, far_mac=_MAC[CLIENT])
    if congestion_control is not None:
        use_congestion_control(name, congestion_control)
    with NetNS(CLIENT) as client:
        neighbour = {"ifindex": index(client, "eth0"), "dst": address, "lladdr": mac, "state": "permanent"}
        client.neigh("add", **neighbour)
    try:
        yield name, address
    finally:
        with NetNS(CLIENT) as client:
            client.neigh("del", **neighbour)
        with NetNS(LINK) as ip:
            ip.link("del", index=index(ip, f"to-{name}"))
        netns.remove(name)


def spawn(name: str, arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program in a namespace."""
    return subprocess.Popen(namespaces.command_in(name, arguments), **options)


@contextlib.contextmanager
def inside(name: str) -> Iterator[IPRoute]:
    """Open a netlink socket in a namespace for the duration of the block. pyroute2's `NetNS` would start a process."""
    with namespaces.namespace(name):
        ip = IPRoute()
    with ip:
        yield ip


def assign_client_address(host: str, address: str, number: int, congestion_control: str | None = None) -> None:
    """Give the client the address `_CLIENT_ADDRESSES[number]` towards a far host, and remove the other one.

    `host` and `address` are the far host's namespace and address. New connections to this address have the new source
    address. Packets to the removed address, the source address of existing connections, no longer reach the client.
    """
    new, old = _CLIENT_ADDRESSES[number], _CLIENT_ADDRESSES[1 - number]
    with inside(host) as far:
        for client_address in (new, old):
            far.neigh("replace", ifindex=index(far, "eth0"), dst=client_address, lladdr=_MAC[CLIENT], state="permanent")
    with inside(CLIENT) as near:
        device = index(near, "eth0")
        current = {entry.get_attr("IFA_ADDRESS") for entry in near.get_addr(index=device)}
        if new not in current:
            near.addr("add", index=device, address=new, prefixlen=32)
        metrics = {"metrics": {"cc_algo": congestion_control}} if congestion_control else {}
        near.route("replace", dst=f"{address}/32", oif=device, scope="link", prefsrc=new, **metrics)
        if old in current:
            near.addr("del", index=device, address=old, prefixlen=32)


def _plug_in(ip: IPRoute, name: str, side: str, *, address: str, mac: str, far_address: str, far_mac: str) -> None:
    """Connect a namespace to the bridge of a side with a veth pair, and configure the namespace's end."""
    # The namespace's end has the same name in every namespace.
    ip.link("add", ifname=f"to-{name}", kind="veth", peer={"ifname": "eth0", "net_ns_fd": name})
    ip.link("set", index=index(ip, f"to-{name}"), master=index(ip, bridge_of(side)))
    with namespaces.namespace(LINK):
        real_packets(f"to-{name}")
    _up(ip, f"to-{name}")
    with namespaces.namespace(name):
        real_packets("eth0")
    with NetNS(name) as inside:
        _up(inside, "lo")
        device = index(inside, "eth0")
        inside.link("set", index=device, address=mac)
        _up(inside, "eth0")
        inside.addr("add", index=device, address=address, prefixlen=24)
        # ARP would cross the link too and double the first packet's delay.
        inside.neigh("add", ifindex=device, dst=far_address, lladdr=far_mac, state="permanent")


def add_hosts(names: list[str]) -> dict[str, str]:
    """Assign each host name its own address at the server; returns the addresses by name.

    Chromium pools connections of hosts that share an address and a certificate. With separate addresses every host has
    its own connection.
    """
    return _assign(names, _HOSTS, SERVER)


@contextlib.contextmanager
def far_names(names: list[str], number: int, name: str, address: str) -> Iterator[dict[str, str]]:
    """Assign addresses as `add_hosts` does, but at a far host, for the duration of the block.

    `number`, `name` and `address` are the far host's number, namespace and address.
    """
    addresses = _assign(names, _FAR_NAMES[number], name)
    route = {"dst": str(_FAR_NAMES[number]), "gateway": address}
    with NetNS(CLIENT) as client:
        client.route("add", **route)
    try:
        yield addresses
    finally:
        with NetNS(CLIENT) as client:
            client.route("del", **route)


def _assign(names: list[str], pool: ipaddress.IPv4Network | ipaddress.IPv6Network, name: str) -> dict[str, str]:
    """Give each host name an address of a pool, on the loopback device of a namespace.

    `TestbedError` if the pool has too few addresses.
    """
    if len(names) > pool.num_addresses - 2:
        raise TestbedError(
            f"the pages have {len(names)} host names, the testbed has {pool.num_addresses - 2} addresses",
            next_step="Measure fewer pages at once.",
        )
    addresses = {host: str(pool[1 + i]) for i, host in enumerate(names)}
    with NetNS(name) as inside:
        loopback = index(inside, "lo")
        for address in addresses.values():
            inside.addr("add", index=loopback, address=address, prefixlen=32)
    return addresses


def add_public_addresses(names: Sequence[str], congestion_control: str | None = None) -> dict[str, str]:
    """Give each host name a further IPv4 address at the server, outside the private ranges; returns addresses by name.

    Firefox opens no fallback connection to a private address (RFC 1918). `congestion_control` is as in `build`.
    """
    addresses = {name: str(_PUBLIC_HOSTS[1 + i]) for i, name in enumerate(names)}
    metrics = {"metrics": {"cc_algo": congestion_control}} if congestion_control else {}
    with inside(SERVER) as ip:
        loopback = index(ip, "lo")
        for address in addresses.values():
            ip.addr("replace", index=loopback, address=address, prefixlen=32)
    with inside(CLIENT) as ip:
        ip.route("replace", dst=str(_PUBLIC_HOSTS), gateway=SERVER_ADDRESS, **metrics)
    return addresses


def enable_ipv6(names: Sequence[str] = (), congestion_control: str | None = None) -> dict[str, str]:
    """Give client and server IPv6, and each host name an IPv6 address at the server; returns the addresses by name.

    The client has a default route, because browsers look for a route to a public address before they use IPv6. The
    kernel sends no router solicitations and tests no address for duplicates. `congestion_control` is as in `build`.

    Raises
    ------
    TestbedError
        If the kernel has no IPv6.
    """
    addresses = {name: str(_HOSTS6[1 + i]) for i, name in enumerate(names)}
    _enable_ipv6(CLIENT, CLIENT_ADDRESS6, SERVER, SERVER_ADDRESS6, congestion_control)
    _enable_ipv6(SERVER, SERVER_ADDRESS6, CLIENT, CLIENT_ADDRESS6, congestion_control)
    with inside(SERVER) as ip:
        loopback = index(ip, "lo")
        for address in set(addresses.values()) - _ipv6_addresses(ip, loopback):
            ip.addr("add", index=loopback, address=address, prefixlen=128, flags=_NO_DUPLICATE_TEST)
    return addresses


def _enable_ipv6(side: str, address: str, far: str, far_address: str, congestion_control: str | None) -> None:
    """Enable IPv6 at one end if it is not enabled yet."""
    metrics = {"metrics": {"cc_algo": congestion_control}} if congestion_control else {}
    with inside(side) as ip:
        device = index(ip, "eth0")
        if address in _ipv6_addresses(ip, device):
            return
        with namespaces.namespace(side):
            for name, value in _IPV6_SETTINGS.items():
                setting = Path("/proc/sys/net/ipv6/conf", name)
                if not setting.exists():
                    raise TestbedError(
                        "this kernel has no IPv6", where=str(setting), next_step="Use --clock virtual, or load ipv6."
                    )
                setting.write_text(value, encoding="ascii")
        ip.addr("add", index=device, address=address, prefixlen=128, flags=_NO_DUPLICATE_TEST)
        neighbour = {"ifindex": device, "dst": far_address, "lladdr": _MAC[far], "state": "permanent"}
        ip.neigh("add", family=socket.AF_INET6, **neighbour)
        ip.route("add", dst=f"{far_address}/128", oif=device, **metrics)
        if side == CLIENT:
            ip.route("add", dst="::/0", gateway=far_address, oif=device, **metrics)


def _ipv6_addresses(ip: IPRoute, device: int) -> set[str]:
    return {entry.get_attr("IFA_ADDRESS") for entry in ip.get_addr(family=socket.AF_INET6, index=device)}


def carrier_changes() -> int:
    """Number of carrier changes so far of all devices in the namespaces of client, link and server.

    The kernel counts them.
    """
    changes = 0
    for name in (CLIENT, LINK, SERVER):
        with NetNS(name) as inside:
            changes += sum(link.get_attr("IFLA_CARRIER_CHANGES") or 0 for link in inside.get_links())
    return changes


def wait_for_carrier(names: Iterable[str]) -> None:
    """Wait until every device of these namespaces that is administratively up is operational.

    The kernel enables a device's queue and a bridge's port only when a deferred task of the kernel has noticed the
    carrier (RFC 2863, `ifOperStatus`). That takes up to a second after the device was set to up. Packets sent before
    are lost. The function returns at a multiple of 0.1 s of the clock. So in virtual time the number of polls does not
    change the time of return.

    Raises
    ------
    TestbedError
        If a device is not operational after 10 s.
    """
    deadline = time.monotonic() + _CONNECT_S
    for name in names:
        with NetNS(name) as inside:
            while waiting := [
                link.get_attr("IFLA_IFNAME")
                for link in inside.get_links()
                if link["flags"] & _IFF_UP and link.get_attr("IFLA_OPERSTATE") not in _OPERATIONAL
            ]:
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"{', '.join(map(str, waiting))} is not operational after {_CONNECT_S:g} s",
                        where=f"network namespace {name}",
                        next_step="Run it again; if it happens each time, report it with `crosslayer doctor`.",
                    )
                time.sleep(_CARRIER_POLL_S)
    time.sleep(-time.time() % _CARRIER_RETURN_S)


def bridge(ip: IPRoute, name: str) -> None:
    """Create a bridge that forwards at once and sends no packets of its own."""
    ip.link("add", ifname=name, kind="bridge", br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0)
    _up(ip, name)


def index(ip: IPRoute, name: str) -> int:
    """Interface index of a device; `LookupError` if it does not exist."""
    indices = ip.link_lookup(ifname=name)
    if not indices:
        raise LookupError(name)
    return int(indices[0])


def _up(ip: IPRoute, name: str) -> None:
    ip.link("set", index=index(ip, name), state="up")


def _without_ipv6(side: str) -> None:
    with namespaces.namespace(side):
        for scope in ("all", "default"):
            setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            if setting.exists():
                setting.write_text("1", encoding="ascii")


def use_congestion_control(name: str, algorithm: str) -> None:
    """Set TCP's congestion control on every IPv4 route of a namespace; `TestbedError` if the kernel lacks it.

    A new namespace inherits the machine's default, which differs between machines (`bbr` on some). Without root the
    sysctl accepts only the algorithms that the machine allows to all users. A route accepts any algorithm.
    """
    with NetNS(name) as inside:
        for route in inside.get_routes(family=socket.AF_INET, table=_MAIN_TABLE):
            values = {key: route.get(key) for key in ("oif", "prefsrc", "gateway", "scope", "proto")}
            attributes = {key: value for key, value in values.items() if value is not None}
            destination = f"{route.get('dst')}/{route['dst_len']}"
            try:
                inside.route("replace", dst=destination, metrics={"cc_algo": algorithm}, **attributes)
            except NetlinkError as error:
                raise TestbedError(
                    f"TCP cannot use '{algorithm}' ({os.strerror(error.code)})",
                    where=f"namespace {name}",
                    next_step=f"As root: modprobe tcp_{algorithm}; or give another `congestion_control` in the plan.",
                ) from error


def congestion_control() -> str:
    """Congestion control of TCP connections across the link, from the kernel; two names if the two ends differ."""
    with namespaces.namespace(SERVER), socket.create_server((SERVER_ADDRESS, 0)) as listener:
        with namespaces.namespace(CLIENT):
            near = socket.create_connection(listener.getsockname(), timeout=_CONNECT_S)
        with near, listener.accept()[0] as far:
            algorithms = (end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for end in (near, far))
            return " and ".join(dict.fromkeys(algorithm.rstrip(b"\0").decode() for algorithm in algorithms))


_SIOCETHTOOL = 0x8946
_ETHTOOL_OFF = {"transmit checksum": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def real_packets(device: str) -> None:
    """Disable offloads of a device so that the link carries real packets.

    With offloads, the link would carry super-packets of 64 KB and packets with partial checksums.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _ETHTOOL_OFF.values():
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, request)
