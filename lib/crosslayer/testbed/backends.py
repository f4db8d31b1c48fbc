"""Link backends: the same queueing disciplines, in the host's kernel or in a User-Mode Linux guest."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from crosslayer import resources
from crosslayer.links import Stage
from crosslayer.path_faults import PathFault
from crosslayer.process import Process, ProcessDied
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.errors import TestbedError


class Backend:
    """A link backend: connects the client's and the server's bridge, and shapes both directions."""

    name: str
    version: str
    """Version of the kernel whose netem runs, for the campaign's record."""

    _hops: list[tuple[str, str]]
    """Pairs of devices between the bridges, ordered from client to server.

    The first device of a pair sends towards the client, the second towards the server.
    """

    def apply(self, down: Sequence[Stage], up: Sequence[Stage]) -> None:
        """Replace the shaping of both directions; a direction without stages is not shaped.

        Stages are in the order in which packets pass them. Each stage needs a hop, i.e. a pair of network devices.
        Missing hops are added and stay for later links. A hop without a stage forwards packets unchanged.
        """
        while len(self._hops) < max(len(down), len(up)):
            self._add_hop()
        for devices, stages in (
            ([hop[0] for hop in reversed(self._hops)], down),
            ([hop[1] for hop in self._hops], up),
        ):
            for device in devices:
                self._tc(["qdisc", "del", "dev", device, "root"], may_fail=True)
            for device, stage in zip(devices, stages, strict=False):
                for arguments in stage.tc_commands():
                    self._tc(["qdisc", "add", "dev", device, *arguments])

    def _add_hop(self) -> None:
        """Add a pair of devices in front of the server's bridge."""
        raise NotImplementedError

    def _tc(self, arguments: list[str], *, may_fail: bool = False) -> None:
        """Run `tc` in the link's namespace or guest; `TestbedError` if it fails, unless `may_fail`."""
        raise NotImplementedError

    def raise_if_dead(self) -> None:
        """Raise `ProcessDied` if a program of the link has ended. netem in the host's kernel has no program."""

    def close(self) -> None:
        """Remove the link; devices of the host's kernel disappear with their namespace."""


class Netem(Backend):
    """netem of the host's kernel, on a veth pair between the bridges."""

    name = "netem"

    def __init__(self) -> None:
        self.version = os.uname().release
        self._hops = []
        self._add_hop()

    def _add_hop(self) -> None:
        """Add a veth pair that ends at the server's bridge.

        The first pair starts at the client's bridge. For each further pair, a new bridge is made: the previous pair now
        ends there, and the new pair starts there.
        """
        number = len(self._hops)
        client, server = f"wire-client{number or ''}", f"wire-server{number or ''}"
        with namespaces.namespace(network.LINK), IPRoute() as ip:
            near = network.bridge_of(network.CLIENT)
            if self._hops:
                near = network.bridge_of(f"path{number}")
                network.bridge(ip, near)
                last = network.index(ip, self._hops[-1][0])
                ip.link("set", index=last, master=network.index(ip, near))
            _veth(ip, client, server, {client: near, server: network.bridge_of(network.SERVER)})
        self._hops.append((server, client))

    def _tc(self, arguments: list[str], *, may_fail: bool = False) -> None:
        command = namespaces.command_in(network.LINK, [namespaces.tool("tc"), *arguments])
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0 and not may_fail:
            raise TestbedError(
                f"`{' '.join(command)}` failed: {result.stderr.strip()}",
                where="netem backend",
                next_step="Try --backend uml, or see `crosslayer doctor`.",
            )


class Plain(Netem):
    """A bare veth pair without emulation, for a profile that shapes nothing."""

    name = "none"

    def apply(self, down: Sequence[Stage], up: Sequence[Stage]) -> None:
        if down or up:
            raise TestbedError(
                "a veth pair without netem cannot limit the rate",
                where="plain backend",
                next_step="Use --backend auto.",
            )


_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 3
_BUFFER_BYTES = 1 << 23
_POLL_S = 0.1
_POWER_OFF_S = 5.0
_HEARTBEAT = Path(__file__).with_name("heartbeat.py")
_MODULES = ("bridge", "veth", "sch_netem", "sch_tbf", "sch_fq_codel", "sch_cake")


class Uml(Backend):
    """netem of a User-Mode Linux guest, which connects the client's and the server's bridge.

    The guest is an unprivileged process and needs no module of the host's kernel. Its init is
    `emulation/cmd/crosslayer-uml-link`.
    """

    name = "uml"

    def __init__(self) -> None:
        kernel, version, modules, init = find_uml()
        self.version = f"User-Mode Linux {version}"
        self._hops = [("vec0", "vec1")]
        folder = namespaces.ROOT / "wire"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "modules").mkdir(parents=True)
        for index, module in enumerate(modules):
            shutil.copyfile(module, folder / "modules" / f"{index:02}-{module.name}")
        ports = [
            packet_port(f"wire-{side}", f"guest-{side}", network.bridge_of(side))
            for side in (network.CLIENT, network.SERVER)
        ]
        command = [
            str(kernel), "mem=96M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=-1",
            f"init={init}", f"MODULES={folder / 'modules'}", f"IP={_real('ip')}", f"TC={_real('tc')}",
            "con=null", "con0=fd:0,fd:1", "con1=null", "ssl=null", f"uml_dir={folder}", "umid=guest",
            *(f"vec{i}:transport=fd,fd={port},vec=0" for i, port in enumerate(ports)),
        ]  # fmt: skip
        environment = {**os.environ, "TMPDIR": str(folder)}
        self._guest = _UmlKernel(command, folder / "guest.log", pass_fds=ports, env=environment)
        for port in ports:
            os.close(port)
        try:
            self._guest.read_until("READY")
        except ProcessDied as died:
            self._guest.stop()
            alternative = "Run `crosslayer doctor`; a kernel with sch_netem does without it."
            raise TestbedError(died.what, where="uml backend", next_step=f"{died.next_step} {alternative}") from died
        self._heartbeat = _Heartbeat(self._guest.pid)

    def _add_hop(self) -> None:
        number = len(self._hops)
        client, server = f"path{number}-client", f"path{number}-server"
        device, last = self._hops[-1]  # the last device is always the guest's network card towards the server
        for line in (
            f"link add br{number} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            f"link add {client} type veth peer name {server}",
            f"link set {client} master br{number - 1} txqueuelen 10000 up",
            f"link set {server} master br{number} txqueuelen 10000 up",
            f"link set {last} master br{number}",
            f"link set br{number} up",
        ):
            self._guest.run(["ip", *line.split()])
        self._hops[-1:] = [(device, client), (server, last)]

    def _tc(self, arguments: list[str], *, may_fail: bool = False) -> None:
        self._guest.run(["tc", *arguments], may_fail=may_fail)

    def raise_if_dead(self) -> None:
        self._guest.raise_if_dead()
        self._heartbeat.raise_if_dead()

    def close(self) -> None:
        self._heartbeat.stop()
        self._guest.stop()


class _UmlKernel(Process):
    """The User-Mode Linux kernel, controlled by commands on its console."""

    name = "the User-Mode Linux guest"
    fault = TestbedError
    ready_timeout_s = 60.0

    def __init__(self, command: list[str], log: Path, **options: Any) -> None:
        self._console, console = os.pipe()
        self._output = ""
        try:
            super().__init__(subprocess.Popen, command, log, stdin=subprocess.PIPE, stdout=console, **options)
        finally:
            os.close(console)

    def run(self, command: list[str], *, may_fail: bool = False) -> None:
        """Run `tc` or `ip` in the guest; `ProcessDied` if the guest has ended, `TestbedError` if the command fails."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((" ".join(command) + "\n").encode())
            self._process.stdin.flush()
        output = self.read_until("[rc=")
        if "[rc=0]" not in output and not may_fail:
            raise TestbedError(
                f"`{' '.join(command)}` failed: {output.strip()}",
                where="uml backend",
                next_step="Check the link profile; see `crosslayer doctor`.",
            )

    def read_until(self, mark: str) -> str:
        """Return the console output up to the line that contains `mark`.

        Raises `ProcessDied` if the guest has ended, `TestbedError` after `ready_timeout_s`.
        """
        self._output = ""
        deadline = time.monotonic() + self.ready_timeout_s
        while not (self._output.endswith("\n") and mark in self._output.splitlines()[-1]):
            ready, _, _ = select.select([self._console], [], [], _POLL_S)
            if ready and (received := os.read(self._console, 65536)):
                self._output += received.decode(errors="replace")
            elif ready:
                self._process.wait(_POWER_OFF_S)  # the guest's console closes shortly before its process ends
            self.raise_if_dead()
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} does not answer")
        return self._output

    def output(self) -> list[str]:
        """Lines of console output since the last command."""
        return self._output.splitlines()

    def stop(self) -> None:
        """Close the guest's input, which makes it power off, and wait until it has ended."""
        if not self._stopped:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POWER_OFF_S)
            os.close(self._console)
        super().stop()


class _Heartbeat(Process):
    """The program `heartbeat.py`: wakes the guest every millisecond, so that a packet waits about 1 ms at most."""

    name = "the heartbeat of the link"
    fault = TestbedError

    def __init__(self, guest: int) -> None:
        pidfd = os.pidfd_open(guest)
        command = [sys.executable, "-I", str(_HEARTBEAT), str(pidfd)]
        super().__init__(subprocess.Popen, command, namespaces.ROOT / "heartbeat.log", pass_fds=[pidfd])
        os.close(pidfd)


class InlineProgram(Process):
    """A program that forwards packets between the client's veth pair and the client's bridge.

    It works with every backend. Packets pass through the program after a call of `engage`, until `bypass` is called.
    """

    fault = TestbedError
    program: Path
    """File of the program, which gets two packet sockets and a control socket."""
    short_name: str
    """Prefix of the names of the program's network devices, at most six letters."""

    def __init__(self) -> None:
        name = self.short_name
        self._own_bridge, self._bridge = f"br-{name}", network.bridge_of(network.CLIENT)
        with namespaces.namespace(network.LINK), IPRoute() as ip:
            network.bridge(ip, self._own_bridge)
        devices = [f"{name}-near", f"{name}-far"]
        ports = [
            packet_port(device, f"in-{device}", bridge)
            for device, bridge in zip(devices, (self._own_bridge, self._bridge), strict=True)
        ]
        for device in devices:  # bridges learn no addresses, because the client's cable moves between them
            command = [namespaces.tool("ip"), "link", "set", device, "type", "bridge_slave", "learning", "off"]
            subprocess.run(namespaces.command_in(network.LINK, command), check=True)
        control, program_end = socket.socketpair()
        command = [sys.executable, "-I", str(self.program), *map(str, ports)]
        log = namespaces.ROOT / f"{name}.log"
        super().__init__(subprocess.Popen, command, log, stdin=program_end, pass_fds=ports)
        self._control = control
        program_end.close()
        for port in ports:
            os.close(port)

    def engage(self) -> None:
        """Route the client's packets through this program."""
        self._plug_in(self._own_bridge)

    def bypass(self) -> None:
        """Route the client's packets past this program."""
        self._plug_in(network.bridge_of(network.CLIENT))

    def _plug_in(self, bridge: str) -> None:
        if bridge != self._bridge:
            with namespaces.namespace(network.LINK), IPRoute() as ip:
                ip.link("set", index=network.index(ip, f"to-{network.CLIENT}"), master=network.index(ip, bridge))
            self._bridge = bridge

    def _send(self, **command: Any) -> bytes:
        """Send a command and return the program's answer, a line."""
        assert self._control is not None
        answer = b""
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(command).encode() + b"\n")
            while not answer.endswith(b"\n") and (part := self._control.recv(4096)):
                answer += part
        if not answer:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POWER_OFF_S)
            self.raise_if_dead()
            raise self.failure(f"{self.name} does not answer")
        return answer


class TraceReplay(InlineProgram):
    """The program that replays a trace; it is the same for both backends.

    No queueing discipline of the kernel can replay a trace exactly. netem computes a packet's departure when the packet
    arrives, from the rate at that moment. A token bucket is refilled by every change of its rate.
    """

    name = "the trace replay"
    program = Path(__file__).with_name("trace_replay.py")
    short_name = "trace"

    def load(self, course: dict[str, Any]) -> None:
        """Give the program the trace that it will replay."""
        self._send(course=course)

    def play(self, epoch_ns: int) -> None:
        """Start the trace at a time, ns since the Unix epoch, and route the client's packets through this program."""
        self._send(play=epoch_ns)
        self.engage()


class Middlebox(InlineProgram):
    """The program that drops, rejects or answers packets according to the faults of a path.

    It works in real and in virtual time.
    """

    name = "the middlebox"
    program = Path(__file__).with_name("middlebox.py")
    short_name = "block"

    def block(self, faults: Sequence[PathFault], addresses: Sequence[str] = ()) -> None:
        """Set the faults of the path.

        They apply to packets from and to `addresses` at the server's end, or to all packets if `addresses` is empty.
        """
        self._send(rules=[fault.command(addresses) for fault in faults])

    def begin(self, epoch_ns: int) -> None:
        """Set the time from which `PathFault.after_s` of the faults is counted, ns since the Unix epoch.

        Also route the client's packets through this program.
        """
        self._send(begin=epoch_ns)
        self.engage()

    def matched(self) -> list[int]:
        """Number of packets that each fault has matched since it was set."""
        counts: list[int] = json.loads(self._send(count=True))
        return counts


def open_backend(name: str) -> Backend:
    """Open a link backend by its name: `netem`, `uml`, `auto` or `plain`.

    `auto` is `netem` if the host's kernel has it, otherwise `uml`. `plain` shapes nothing.

    If the guest of `uml` cannot run, `TestbedError` or `ResourceError` names the missing part. `netem` is not tested
    here: without netem in the kernel, `Backend.apply` raises `TestbedError`.
    """
    if name == "plain":
        return Plain()
    if name == "netem" or (name == "auto" and netem_works()):
        return Netem()
    return Uml()


def netem_works() -> bool:
    """Whether this kernel has netem. The test adds netem to the unused loopback device of the link's namespace."""
    tc = [namespaces.tool("tc"), "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    command = namespaces.command_in(network.LINK, tc)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def find_uml() -> tuple[Path, str, list[Path], Path]:
    """Find the files of the `uml` backend; returns kernel, its version, modules in load order, and the guest's init.

    `CROSSLAYER_UML` names a kernel, `CROSSLAYER_UML_MODULES` its modules, `CROSSLAYER_UML_LINK` the init. Without
    `CROSSLAYER_UML`, an installed kernel is used, except in two cases: no kernel is installed, or the processor has
    AMX, with which Debian's kernel crashes. In these cases, the kernel of `make guest` is used if it was built; it
    needs no modules. `TestbedError` or `ResourceError` names the missing part and its package.
    """
    init = resources.locate("uml-link").path
    kernel_setting = os.environ.get("CROSSLAYER_UML")
    kernel = kernel_setting or resources.find_program("linux.uml") or resources.find_program("linux")
    if not kernel_setting and (kernel is None or " amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8")):
        with contextlib.suppress(resources.ResourceError):
            return resources.locate("kernel").path, "of the guest", [], init
    if kernel is None or not os.access(kernel, os.X_OK):
        raise TestbedError(
            "this kernel has no netem, and no User-Mode Linux kernel is installed",
            where=kernel or "linux.uml",
            next_step="Install user-mode-linux (`make setup`), use `nix develop .#uml`, or `modprobe sch_netem`.",
        )
    modules_setting = os.environ.get("CROSSLAYER_UML_MODULES")
    folders = sorted(Path(modules_setting or "/usr/lib/uml/modules").glob("*/modules.dep")) or sorted(
        Path(modules_setting or "/").glob("modules.dep")
    )
    if not folders:
        raise TestbedError(
            "the User-Mode Linux kernel has no modules",
            where=modules_setting or "/usr/lib/uml/modules",
            next_step="Reinstall user-mode-linux, or set CROSSLAYER_UML_MODULES.",
        )
    modules = folders[-1].parent
    return Path(kernel), modules.name, _load_order(modules, _MODULES), init


def _load_order(modules: Path, names: tuple[str, ...]) -> list[Path]:
    """Files of the modules and of their dependencies, in load order."""
    needs: dict[str, tuple[Path, list[str]]] = {}
    for line in (modules / "modules.dep").read_text(encoding="utf-8").splitlines():
        file, _, others = line.partition(":")
        needs[Path(file).stem] = (modules / file, [Path(other).stem for other in others.split()])
    order: list[Path] = []

    def visit(name: str) -> None:
        if name not in needs:
            return  # built into the kernel
        file, others = needs[name]
        for other in others:
            visit(other)
        if file not in order:
            order.append(file)

    for name in names:
        visit(name)
    return order


def _real(name: str) -> str:
    """Path of a tool with symbolic links resolved: links through the host's /run do not exist in the guest."""
    return os.path.realpath(namespaces.tool(name))


def _veth(ip: IPRoute, first: str, second: str, bridges: Mapping[str, str]) -> None:
    """Create a veth pair, attach each end that has a bridge in `bridges` to this bridge, and set both ends to up."""
    ip.link("add", ifname=first, kind="veth", peer={"ifname": second})
    for end in (first, second):
        network.real_packets(end)
        device = network.index(ip, end)
        if end in bridges:
            ip.link("set", index=device, master=network.index(ip, bridges[end]))
        ip.link("set", index=device, state="up")


def packet_port(outer: str, inner: str, bridge: str) -> int:
    """Open a packet socket at a bridge, for use as a program's network card; returns its file descriptor.

    The socket is bound to one end of a veth pair; the other end is a port of the bridge. A TAP device would need a
    device file, and some machines do not let ordinary users open it. The socket does not receive packets that the
    program itself sends.
    """
    with namespaces.namespace(network.LINK), IPRoute() as ip:
        _veth(ip, outer, inner, {outer: bridge})
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # limited by the host
            port.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
        port.bind((inner, _ETH_P_ALL))
    port.setblocking(False)
    return port.detach()
