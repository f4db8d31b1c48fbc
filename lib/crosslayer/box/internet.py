"""The network of a box: its namespaces and its router.

    client --veth-- bridge -- router program -- bridge --veth-- host, host, ...

Every host is a namespace. Both bridges are in the namespace `link`, and only the router program connects them. So a box
needs no queueing discipline and no packet filter of the kernel.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyroute2 import IPRoute, netns

from crosslayer.box.description import Description
from crosslayer.box.errors import BoxStartError
from crosslayer.box.hosts import (
    CLIENT_ADDRESSES,
    CLIENT_MAC,
    GATEWAYS,
    INSIDE_ADDRESS,
    ROUTER_MAC,
    HostPlan,
    control_address,
    vantages,
)
from crosslayer.process import Process
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.backends import packet_port

_ROUTER: Final = Path(__file__).with_name("router.py")


class Internet:
    """The running network of a box: namespaces, their connections and the router. `close` removes them.

    The constructor moves the calling thread into the client's namespace.
    """

    def __init__(
        self, description: Description, plan: HostPlan, *, seed: int, truth: Path, packets: bool, folder: Path
    ) -> None:
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._names = [network.LINK]
        netns.create(network.LINK)
        with network.inside(network.LINK) as link:
            for side in (network.CLIENT, network.SERVER):
                network.bridge(link, network.bridge_of(side))
            inside = CLIENT_ADDRESSES[4] if description.network.nat is None else INSIDE_ADDRESS
            self._plug_in(link, network.CLIENT, network.CLIENT, CLIENT_MAC, (inside, CLIENT_ADDRESSES[6]))
            for vantage in vantages(description):
                self._plug_in(link, vantage.namespace, network.CLIENT, vantage.mac, vantage.addresses)
            if description.vantage:
                self._connect_clients(link, [network.CLIENT, *(one.namespace for one in vantages(description))])
            for host in plan.hosts:
                self._plug_in(link, host.namespace, network.SERVER, host.mac, host.addresses, host.egress)
        ports = [
            packet_port(f"box-{side}", f"port-{side}", network.bridge_of(side))
            for side in (network.CLIENT, network.SERVER)
        ]
        network.wait_for_carrier(self._names)
        config = folder / "router.json"
        config.write_text(
            json.dumps(plan.router(description, seed=seed, truth=str(truth), packets=packets)), encoding="utf-8"
        )
        self.router = _Router(config, ports, folder / "router.log")
        for port in ports:
            os.close(port)
        namespaces.set_namespace(network.CLIENT)

    def close(self) -> None:
        """Make the router write its remaining rows, stop it, and remove the namespaces."""
        with contextlib.suppress(BoxStartError, OSError):  # the router has ended already
            self.router.send(flush=True)
        self.router.stop()
        namespaces.return_to(self._before)
        for name in reversed(self._names):
            netns.remove(name)

    def _connect_clients(self, link: IPRoute, clients: list[str]) -> None:
        """Connect the clients by a further network, whose delay is zero. Over it, one client can control the others."""
        network.bridge(link, _CONTROL)
        for number, client in enumerate(clients):
            port, device = f"{_CONTROL}-{number}", "eth1"
            link.link("add", ifname=port, kind="veth", peer={"ifname": device, "net_ns_fd": client})
            link.link("set", index=network.index(link, port), master=network.index(link, _CONTROL))
            link.link("set", index=network.index(link, port), state="up")
            with namespaces.namespace(client):
                ip = IPRoute()
            with ip:
                at = network.index(ip, device)
                ip.link("set", index=at, state="up")
                ip.addr("add", index=at, address=control_address(number), prefixlen=24)

    def _plug_in(
        self, link: IPRoute, name: str, side: str, mac: str, addresses: tuple[str, ...], egress: str = ""
    ) -> None:
        """Create a namespace, connect it to a bridge (client's or server's side), and route all packets to the router.

        `egress` is the source address of IPv4 connections that the namespace starts, by default one of `addresses`.
        """
        netns.create(name)
        self._names.append(name)
        link.link("add", ifname=f"to-{name}", kind="veth", peer={"ifname": "eth0", "net_ns_fd": name})
        link.link("set", index=network.index(link, f"to-{name}"), master=network.index(link, network.bridge_of(side)))
        with namespaces.namespace(network.LINK):
            network.real_packets(f"to-{name}")
        link.link("set", index=network.index(link, f"to-{name}"), state="up")
        with namespaces.namespace(name):
            network.real_packets("eth0")
            for scope in ("all", "default"):  # no duplicate address detection and no router solicitation
                for setting in ("accept_dad", "accept_ra", "router_solicitations"):
                    file = Path(f"/proc/sys/net/ipv6/conf/{scope}/{setting}")
                    if file.exists():
                        file.write_text("0", encoding="ascii")
            ip = IPRoute()
        with ip:
            ip.link("set", index=network.index(ip, "lo"), state="up")
            device = network.index(ip, "eth0")
            ip.link("set", index=device, address=_mac(mac))
            ip.link("set", index=device, state="up")
            for address in (*addresses, *([egress] if egress else [])):
                family = 6 if ":" in address else 4
                length = 128 if family == 6 else 32
                flags = {"flags": _NO_DAD} if family == 6 else {}
                ip.addr("add", index=device, address=address, prefixlen=length, **flags)
            for family in sorted({6 if ":" in address else 4 for address in addresses}):
                number = socket.AF_INET6 if family == 6 else socket.AF_INET
                gateway = GATEWAYS[family]
                ip.neigh("add", ifindex=device, dst=gateway, lladdr=_mac(ROUTER_MAC), state="permanent", family=number)
                source = {"prefsrc": egress} if egress and family == 4 else {}
                ip.route("add", dst="default", gateway=gateway, oif=device, family=number, flags=_ON_LINK, **source)


_CONTROL: Final = "control"
_NO_DAD, _ON_LINK = 0x02, 0x04
"""Flags of Linux.

IFA_F_NODAD: no duplicate address detection. RTNH_F_ONLINK: the gateway is on the link, even if no route covers it.
"""


class _Router(Process):
    """The running router program (`router.py`)."""

    name = "the router of the box"
    fault = BoxStartError

    def __init__(self, config: Path, ports: list[int], log: Path) -> None:
        control, program_end = socket.socketpair()
        command = [sys.executable, "-I", str(_ROUTER), str(config), *map(str, ports)]
        super().__init__(subprocess.Popen, command, log, stdin=program_end, pass_fds=ports)
        self._control = control
        program_end.close()

    def send(self, **command: Any) -> None:
        """Send a command to the router and wait until the router has executed it."""
        assert self._control is not None
        self._control.sendall(json.dumps(command).encode() + b"\n")
        if not self._control.recv(16):
            raise self.failure("the router of the box ended")


def _mac(digits: str) -> str:
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))
