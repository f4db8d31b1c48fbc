"""The way between the client and one machine at the far end, which forgets as a NAT does, or ends elsewhere.

What is dropped, the link's own namespace drops silently, in both directions, by the client's port; connections are told
apart by whether they were set up before or after. Everything else on the link is left alone.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import Self

from pyroute2 import NetlinkError

from crosslayer.testbed import network, private
from crosslayer.testbed.errors import TestbedError

_PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS = (0x4000, 0x8000)
"""Where each half of the client's ports begins: new connections take one half, until those are forgotten."""
_HALF = 0x4000
_INGRESS, _EGRESS = 0xFFFFFFF2, 0xFFFFFFF3
"""Of the queueing discipline `clsact`."""
_SOURCE_PORT, _DESTINATION_PORT = 20, 22
"""Places in an IPv4 packet without options, bytes."""
_ETH_P_IP = 0x0800


class Passage:
    """The way to a machine of `network.machine`; a context manager that leaves it as it was.

    Raises
    ------
    TestbedError
        Where this kernel cannot drop packets by their port.
    """

    def __init__(self, machine: str, address: str, congestion_control: str | None = None) -> None:
        self._machine, self._address, self._congestion_control = machine, address, congestion_control
        self._half = 0
        self._elsewhere = 0
        with private.namespace(network.CLIENT):
            self._before = _PORT_RANGE.read_text(encoding="ascii")
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
        self._use_ports(self._before)

    def restore(self) -> None:
        """Let everything pass, and give the client an address towards the machine that it can leave."""
        self._pass()
        self._take_half()
        self.move()

    def forget(self) -> None:
        """From now on, drop the packets of all connections there are; those set up later pass."""
        self._drop()
        self._half = 1 - self._half
        self._take_half()

    def move(self) -> None:
        """Give the client another address towards the machine; the one before is gone."""
        self._elsewhere = 1 - self._elsewhere
        network.lodge(self._machine, self._address, self._elsewhere, self._congestion_control)

    def _drop(self) -> None:
        begin = f"0x{_PORTS[self._half] >> 8:02x}000000/0xc0000000"
        with network.inside(network.LINK) as ip:
            device = network.index(ip, f"to-{self._machine}")
            ip.tc("add", "clsact", device)
            for parent, place in ((_EGRESS, _SOURCE_PORT), (_INGRESS, _DESTINATION_PORT)):
                ip.tc(
                    "add-filter",
                    "u32",
                    device,
                    parent=parent,
                    prio=1,
                    protocol=_ETH_P_IP,
                    target=0,
                    keys=[f"{begin}+{place}"],
                    action="drop",
                )

    def _pass(self) -> None:
        with network.inside(network.LINK) as ip, contextlib.suppress(NetlinkError):  # nothing is dropped
            ip.tc("del", "clsact", network.index(ip, f"to-{self._machine}"))

    def _take_half(self) -> None:
        begin = _PORTS[self._half]
        self._use_ports(f"{begin} {begin + _HALF - 1}")

    def _use_ports(self, told: str) -> None:
        with private.namespace(network.CLIENT):
            _PORT_RANGE.write_text(told, encoding="ascii")
