"""A NAT on the path between the client and one far host: its mappings expire, and the client can migrate.

The link's namespace silently drops the packets of expired mappings in both directions. It recognises them by the
client's port: connections set up before and after an expiry have ports of different ranges. All other traffic on the
link is unaffected.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

from pyroute2 import NetlinkError

from crosslayer.testbed import namespaces, network
from crosslayer.testbed.errors import TestbedError

_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS = (0x4000, 0x8000)
"""First port of each half of the client's port range.

New connections use one half until the mappings expire, then the other half.
"""
_HALF = 0x4000
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
"""Handles of the queueing discipline `clsact` for filters of arriving and of departing packets, in this order."""
_SOURCE_PORT, _DESTINATION_PORT = 20, 22
"""Offsets of the ports in an IPv4 packet without options, bytes."""
_ETH_P_IP = 0x0800


class Nat:
    """The NAT in front of a host of `network.far_host`. A context manager that restores the path.

    Raises
    ------
    TestbedError
        If this kernel cannot drop packets by their port.
    """

    def __init__(self, host: str, address: str, congestion_control: str | None = None) -> None:
        self._host, self._address, self._congestion_control = host, address, congestion_control
        self._half = 0
        self._client_number = 0
        with namespaces.namespace(network.CLIENT):
            self._previous_range = _PORT_RANGE.read_text(encoding="ascii")
        try:
            self._drop()
        except NetlinkError as error:
            raise TestbedError(
                "this kernel cannot drop packets by their port (cls_u32, act_gact, clsact)",
                where="tc",
                next_step="Measure in a guest, whose kernel can: --clock virtual.",
            ) from error

    def __enter__(self) -> Self:
        self.restore()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pass()
        self._use_ports(self._previous_range)

    def restore(self) -> None:
        """Let all packets pass, and give the client a new address towards the far host, as `migrate_client` does."""
        self._pass()
        self._take_half()
        self.migrate_client()

    def expire_mappings(self) -> None:
        """Expire all mappings: drop the packets of all existing connections. Connections set up later pass."""
        self._drop()
        self._half = 1 - self._half
        self._take_half()

    def migrate_client(self) -> None:
        """Give the client another address towards the far host and remove the current one."""
        self._client_number = 1 - self._client_number
        network.assign_client_address(self._host, self._address, self._client_number, self._congestion_control)

    def _drop(self) -> None:
        begin = f"0x{_PORTS[self._half] >> 8:02x}000000/0xc0000000"
        with network.inside(network.LINK) as ip:
            device = network.index(ip, f"to-{self._host}")
            ip.tc("add", "clsact", device)
            for parent, offset in ((_EGRESS, _SOURCE_PORT), (_INGRESS, _DESTINATION_PORT)):
                ip.tc(
                    "add-filter",
                    "u32",
                    device,
                    parent=parent,
                    prio=1,
                    protocol=_ETH_P_IP,
                    target=0,
                    keys=[f"{begin}+{offset}"],
                    action="drop",
                )

    def _pass(self) -> None:
        with network.inside(network.LINK) as ip, contextlib.suppress(NetlinkError):  # no filter exists
            ip.tc("del", "clsact", network.index(ip, f"to-{self._host}"))

    def _take_half(self) -> None:
        begin = _PORTS[self._half]
        self._use_ports(f"{begin} {begin + _HALF - 1}")

    def _use_ports(self, port_range: str) -> None:
        with namespaces.namespace(network.CLIENT):
            _PORT_RANGE.write_text(port_range, encoding="ascii")
