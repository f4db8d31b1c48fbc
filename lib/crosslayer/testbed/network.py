"""The fixed part of the network: three namespaces, two bridges, addresses, neighbours.

    client --veth-- client bridge ... link ... server bridge --veth-- server

Both bridges stand in the namespace `link`; a backend joins them there.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from pyroute2 import IPRoute, NetNS, netns

from crosslayer.testbed import private

CLIENT = "client"
LINK = "link"
SERVER = "server"
CLIENT_ADDRESS = "10.53.0.1"
SERVER_ADDRESS = "10.53.0.2"
_HOSTS = ipaddress.ip_network("10.53.1.0/24")
_MAC = {CLIENT: "02:00:00:00:00:01", SERVER: "02:00:00:00:00:02"}


def bridge_of(side: str) -> str:
    """Name of the bridge of `client` or `server`."""
    return f"br-{side}"


def build() -> None:
    """Make both namespaces with their bridges, addresses, routes and permanent neighbours."""
    netns.create(LINK)
    with NetNS(LINK) as ip:
        for side, address in ((CLIENT, CLIENT_ADDRESS), (SERVER, SERVER_ADDRESS)):
            netns.create(side)
            _without_ipv6(side)
            ip.link(
                "add", ifname=bridge_of(side), kind="bridge", br_stp_state=0, br_forward_delay=0, br_mcast_snooping=0
            )
            # The far end carries the side's name inside its namespace, where nothing else is called so.
            ip.link("add", ifname=f"to-{side}", kind="veth", peer={"ifname": "eth0", "net_ns_fd": side})
            ip.link("set", index=index(ip, f"to-{side}"), master=index(ip, bridge_of(side)))
            with private.namespace(LINK):
                real_packets(f"to-{side}")
            _up(ip, f"to-{side}")
            _up(ip, bridge_of(side))
            with private.namespace(side):
                real_packets("eth0")
            with NetNS(side) as inside:
                _up(inside, "lo")
                device = index(inside, "eth0")
                inside.link("set", index=device, address=_MAC[side])
                _up(inside, "eth0")
                inside.addr("add", index=device, address=address, prefixlen=24)
                far = SERVER if side == CLIENT else CLIENT
                far_address = SERVER_ADDRESS if side == CLIENT else CLIENT_ADDRESS
                # ARP would cross the link too and double the first packet's delay.
                inside.neigh("add", ifindex=device, dst=far_address, lladdr=_MAC[far], state="permanent")
                if side == CLIENT:
                    inside.route("add", dst=str(_HOSTS), gateway=SERVER_ADDRESS)


def add_hosts(names: list[str]) -> dict[str, str]:
    """Give every host name an address of its own at the server, and return them.

    Chromium pools connections of hosts that share an address and a certificate; with an address each, every
    host has a connection of its own.
    """
    addresses = {name: str(_HOSTS[1 + i]) for i, name in enumerate(names)}
    with NetNS(SERVER) as inside:
        loopback = index(inside, "lo")
        for address in addresses.values():
            inside.addr("add", index=loopback, address=address, prefixlen=32)
    return addresses


def index(ip: IPRoute, name: str) -> int:
    """Interface index of a device that must exist."""
    found = ip.link_lookup(ifname=name)
    if not found:
        raise LookupError(name)
    return int(found[0])


def _up(ip: IPRoute, name: str) -> None:
    ip.link("set", index=index(ip, name), state="up")


def _without_ipv6(side: str) -> None:
    with private.namespace(side):
        for scope in ("all", "default"):
            setting = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
            if setting.exists():
                setting.write_text("1", encoding="ascii")


_SIOCETHTOOL = 0x8946
_ETHTOOL_OFF = {"transmit checksum": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}


def real_packets(device: str) -> None:
    """Switch the offloads off, so that the link sees whole packets: no 64 KB super-packets, no open checksums."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in _ETHTOOL_OFF.values():
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
            fcntl.ioctl(control, _SIOCETHTOOL, request)
