"""Backends of the link: the same queueing disciplines in the host's kernel or in a User-Mode Linux guest."""

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

from crosslayer import places
from crosslayer.links import Stage
from crosslayer.process import Process, ProcessDied
from crosslayer.testbed import network, private
from crosslayer.testbed.errors import TestbedError


class Backend:
    """What joins the two bridges; here what all do whose link is made by the host's kernel."""

    name: str
    version: str
    """Kernel whose netem ran, for the campaign's record."""

    _hops: list[tuple[str, str]]
    """The devices between the bridges, from client to server: what leaves the first of a pair goes to the client, what
    leaves the second to the server."""

    def apply(self, down: Sequence[Stage], up: Sequence[Stage]) -> None:
        """Shape both directions anew, stage by stage in the order packets meet them; none takes them away.

        A path has as many hops as the link with most stages had; those that a link does not need pass packets on.
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
                for words in stage.tc_commands():
                    self._tc(["qdisc", "add", "dev", device, *words])

    def _add_hop(self) -> None:
        """One more pair of devices, before the server's bridge."""
        raise NotImplementedError

    def _tc(self, words: list[str], *, may_fail: bool = False) -> None:
        """Run `tc` where the link is; `TestbedError` where it refuses."""
        raise NotImplementedError

    def raise_if_dead(self) -> None:
        """Raise `ProcessDied` where a program that makes the link has ended; the kernel has none."""

    def close(self) -> None:
        """Take the link down; the kernel's devices go with their namespace."""


class Netem(Backend):
    """netem of the host's kernel on a veth pair between the bridges."""

    name = "netem"

    def __init__(self) -> None:
        self.version = os.uname().release
        self._hops = []
        self._add_hop()

    def _add_hop(self) -> None:
        """A veth pair to the server's bridge, from the client's or from a new one that the last pair then ends at."""
        number = len(self._hops)
        client, server = f"wire-client{number or ''}", f"wire-server{number or ''}"
        with private.namespace(network.LINK), IPRoute() as ip:
            near = network.bridge_of(network.CLIENT)
            if self._hops:
                near = network.bridge_of(f"path{number}")
                network.bridge(ip, near)
                last = network.index(ip, self._hops[-1][0])
                ip.link("set", index=last, master=network.index(ip, near))
            _veth(ip, client, server, {client: near, server: network.bridge_of(network.SERVER)})
        self._hops.append((server, client))

    def _tc(self, words: list[str], *, may_fail: bool = False) -> None:
        command = private.command_in(network.LINK, [private.tool("tc"), *words])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 and not may_fail:
            raise TestbedError(
                f"`{' '.join(command)}` failed: {done.stderr.strip()}",
                where="netem backend",
                next_step="Try --backend uml, or see `crosslayer doctor`.",
            )


class Plain(Netem):
    """No emulation: a bare veth pair, for a profile that shapes nothing."""

    name = "none"

    def apply(self, down: Sequence[Stage], up: Sequence[Stage]) -> None:
        if down or up:
            raise TestbedError("a bare wire cannot shape", where="plain backend", next_step="Use --backend auto.")


_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 3
_BUFFER_BYTES = 1 << 23
_LOOK_S = 0.1
_POWER_OFF_S = 5.0
_PLAYED = "br-trace"
_PLAYER = Path(__file__).with_name("player.py")
_HEARTBEAT = Path(__file__).with_name("heartbeat.py")
_MODULES = ("bridge", "veth", "sch_netem", "sch_tbf", "sch_fq_codel", "sch_cake")


class Uml(Backend):
    """netem of a User-Mode Linux guest that bridges the client's and the server's side.

    The guest is an ordinary process: no root, no module in the host's kernel. Its init is `emulation/wire`.
    """

    name = "uml"

    def __init__(self) -> None:
        kernel, version, modules, init = find_uml()
        self.version = f"User-Mode Linux {version}"
        self._hops = [("vec0", "vec1")]
        folder = private.ROOT / "wire"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "modules").mkdir(parents=True)
        for place, module in enumerate(modules):
            shutil.copyfile(module, folder / "modules" / f"{place:02}-{module.name}")
        ports = [
            _port(f"wire-{side}", f"guest-{side}", network.bridge_of(side)) for side in (network.CLIENT, network.SERVER)
        ]
        words = [
            str(kernel), "mem=96M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=-1",
            f"init={init}", f"MODULES={folder / 'modules'}", f"IP={_real('ip')}", f"TC={_real('tc')}",
            "con=null", "con0=fd:0,fd:1", "con1=null", "ssl=null", f"uml_dir={folder}", "umid=guest",
            *(f"vec{i}:transport=fd,fd={port},vec=0" for i, port in enumerate(ports)),
        ]  # fmt: skip
        self._guest = _Guest(words, folder / "guest.log", pass_fds=ports, env={**os.environ, "TMPDIR": str(folder)})
        for port in ports:
            os.close(port)
        try:
            self._guest.read_until("READY")
        except ProcessDied as died:
            self._guest.stop()
            way = "Run `crosslayer doctor`; a kernel with sch_netem does without it."
            raise TestbedError(died.what, where="uml backend", next_step=f"{died.next_step} {way}") from died
        self._heartbeat = _Heartbeat(self._guest.pid)

    def _add_hop(self) -> None:
        number = len(self._hops)
        client, server = f"path{number}-client", f"path{number}-server"
        device, last = self._hops[-1]  # whose second end is always the card that leads to the server
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

    def _tc(self, words: list[str], *, may_fail: bool = False) -> None:
        self._guest.run(["tc", *words], may_fail=may_fail)

    def raise_if_dead(self) -> None:
        self._guest.raise_if_dead()
        self._heartbeat.raise_if_dead()

    def close(self) -> None:
        self._heartbeat.stop()
        self._guest.stop()


class _Guest(Process):
    """The User-Mode Linux kernel, told on its console what to do."""

    name = "the User-Mode Linux guest"
    fault = TestbedError
    ready_timeout_s = 60.0

    def __init__(self, words: list[str], log: Path, **options: Any) -> None:
        self._console, console = os.pipe()
        self._said = ""
        try:
            super().__init__(subprocess.Popen, words, log, stdin=subprocess.PIPE, stdout=console, **options)
        finally:
            os.close(console)

    def run(self, words: list[str], *, may_fail: bool = False) -> None:
        """Run `tc` or `ip` in the guest; `ProcessDied` where that has ended, `TestbedError` where they refuse."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write((" ".join(words) + "\n").encode())
            self._process.stdin.flush()
        answer = self.read_until("[rc=")
        if "[rc=0]" not in answer and not may_fail:
            raise TestbedError(
                f"`{' '.join(words)}` failed: {answer.strip()}",
                where="uml backend",
                next_step="Check the link profile; see `crosslayer doctor`.",
            )

    def read_until(self, mark: str) -> str:
        """What it says up to the line with a mark; `ProcessDied` where it has ended, `TestbedError` if it is slow."""
        self._said = ""
        deadline = time.monotonic() + self.ready_timeout_s
        while not (self._said.endswith("\n") and mark in self._said.splitlines()[-1]):
            ready, _, _ = select.select([self._console], [], [], _LOOK_S)
            if ready and (part := os.read(self._console, 65536)):
                self._said += part.decode(errors="replace")
            elif ready:
                self._process.wait(_POWER_OFF_S)  # its console is closed a moment before it has ended
            self.raise_if_dead()
            if time.monotonic() > deadline:
                raise self.failure(f"{self.name} does not answer")
        return self._said

    def output(self) -> list[str]:
        """What it said last on its console."""
        return self._said.splitlines()

    def stop(self) -> None:
        """End its input, upon which it powers off, and wait for its end."""
        if not self._stopped:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POWER_OFF_S)
            os.close(self._console)
        super().stop()


class _Heartbeat(Process):
    """Wakes the guest every millisecond, so that no packet waits for it longer."""

    name = "the heartbeat of the wire"
    fault = TestbedError

    def __init__(self, guest: int) -> None:
        pidfd = os.pidfd_open(guest)
        words = [sys.executable, "-I", str(_HEARTBEAT), str(pidfd)]
        super().__init__(subprocess.Popen, words, private.ROOT / "heartbeat.log", pass_fds=[pidfd])
        os.close(pidfd)


class Player(Process):
    """The player of traces between the client's cable and the client's bridge, over any backend.

    It is the same program for both, and outside of either: a packet's time to leave is set by the trace alone, which no
    discipline of the kernel does. netem gives a packet its time when it comes, at the rate of then; a token bucket is
    filled anew at each change.
    """

    name = "the player of traces"
    fault = TestbedError

    def __init__(self) -> None:
        with private.namespace(network.LINK), IPRoute() as ip:
            network.bridge(ip, _PLAYED)
        client = network.bridge_of(network.CLIENT)
        ports = [_port("trace-near", "player-near", _PLAYED), _port("trace-far", "player-far", client)]
        for device in ("trace-near", "trace-far"):  # or bridges would send after a cable that is elsewhere by now
            words = [private.tool("ip"), "link", "set", device, "type", "bridge_slave", "learning", "off"]
            subprocess.run(private.command_in(network.LINK, words), check=True)
        control, theirs = socket.socketpair()
        words = [sys.executable, "-I", str(_PLAYER), *map(str, ports)]
        super().__init__(subprocess.Popen, words, private.ROOT / "player.log", stdin=theirs, pass_fds=ports)
        self._control = control
        theirs.close()
        for port in ports:
            os.close(port)
        self._plugged = client

    def load(self, course: dict[str, Any]) -> None:
        """What it is to play from now on."""
        self._tell(course=course)

    def play(self, epoch_ns: int) -> None:
        """Have the trace begin then, ns since the Unix epoch, and the client's packets go through here."""
        self._tell(play=epoch_ns)
        self._plug_in(_PLAYED)

    def stand_aside(self) -> None:
        """Have the client's packets pass by, so that the link is as it is without a trace."""
        self._plug_in(network.bridge_of(network.CLIENT))

    def _plug_in(self, bridge: str) -> None:
        if bridge != self._plugged:
            with private.namespace(network.LINK), IPRoute() as ip:
                ip.link("set", index=network.index(ip, f"to-{network.CLIENT}"), master=network.index(ip, bridge))
            self._plugged = bridge

    def _tell(self, **words: Any) -> None:
        assert self._control is not None
        answer = b""
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(words).encode() + b"\n")
            answer = self._control.recv(16)
        if not answer:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_POWER_OFF_S)
            self.raise_if_dead()
            raise self.failure(f"{self.name} does not answer")


def open_backend(name: str) -> Backend:
    """The backend of that name; `auto` takes netem where the kernel has it, else uml; `plain` shapes nothing.

    `TestbedError` where none can run, saying what is missing and how to get it.
    """
    if name == "plain":
        return Plain()
    if name == "netem" or (name == "auto" and netem_works()):
        return Netem()
    return Uml()


def netem_works() -> bool:
    """True where this kernel has `sch_netem` (tried on the loopback device of the link's namespace, which is down)."""
    words = [private.tool("tc"), "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    words = private.command_in(network.LINK, words)
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def find_uml() -> tuple[Path, str, list[Path], Path]:
    """Kernel, its version, the modules to load in this order, and guest init of the `uml` backend.

    `CROSSLAYER_UML` names a kernel, `CROSSLAYER_UML_MODULES` its modules, `CROSSLAYER_WIRE` the init. Where there is no
    other kernel, or Debian's dies (on a processor with AMX), that of `make guest` stands in; it has all built in. The
    part that is missing is named in the `TestbedError` or `PlaceError`, with the package that has it.
    """
    init = places.find("wire").path
    told = os.environ.get("CROSSLAYER_UML")
    kernel = told or places.find_program("linux.uml") or places.find_program("linux")
    if not told and (kernel is None or " amx_tile" in Path("/proc/cpuinfo").read_text(encoding="utf-8")):
        with contextlib.suppress(places.PlaceError):
            return places.find("kernel").path, "of the guest", [], init
    if kernel is None or not os.access(kernel, os.X_OK):
        raise TestbedError(
            "this kernel has no netem and there is no User-Mode Linux kernel to stand in for it",
            where=kernel or "linux.uml",
            next_step="Install user-mode-linux (`make setup`), use `nix develop .#uml`, or `modprobe sch_netem`.",
        )
    modules_told = os.environ.get("CROSSLAYER_UML_MODULES")
    folders = sorted(Path(modules_told or "/usr/lib/uml/modules").glob("*/modules.dep")) or sorted(
        Path(modules_told or "/").glob("modules.dep")
    )
    if not folders:
        raise TestbedError(
            "the User-Mode Linux kernel has no modules beside it",
            where=modules_told or "/usr/lib/uml/modules",
            next_step="Reinstall user-mode-linux, or set CROSSLAYER_UML_MODULES.",
        )
    modules = folders[-1].parent
    return Path(kernel), modules.name, _load_order(modules, _MODULES), init


def _load_order(modules: Path, names: tuple[str, ...]) -> list[Path]:
    """Files of the modules and of all they depend on, in the order they must be loaded in."""
    needs: dict[str, tuple[Path, list[str]]] = {}
    for line in (modules / "modules.dep").read_text(encoding="utf-8").splitlines():
        file, _, others = line.partition(":")
        needs[Path(file).stem] = (modules / file, [Path(other).stem for other in others.split()])
    order: list[Path] = []

    def visit(name: str) -> None:
        if name not in needs:
            return  # built in
        file, others = needs[name]
        for other in others:
            visit(other)
        if file not in order:
            order.append(file)

    for name in names:
        visit(name)
    return order


def _real(name: str) -> str:
    """The file that a tool's path leads to: the guest has no link of the host's /run."""
    return os.path.realpath(private.tool(name))


def _veth(ip: IPRoute, one: str, other: str, plugged: Mapping[str, str]) -> None:
    """A veth pair that is up, its ends plugged into bridges."""
    ip.link("add", ifname=one, kind="veth", peer={"ifname": other})
    for end in (one, other):
        network.real_packets(end)
        device = network.index(ip, end)
        if end in plugged:
            ip.link("set", index=device, master=network.index(ip, plugged[end]))
        ip.link("set", index=device, state="up")


def _port(outer: str, inner: str, bridge: str) -> int:
    """A packet socket that a program reads and writes as its network card, plugged into a bridge.

    The socket is bound to one end of a veth pair whose other end is a port of the bridge. Unlike a TAP it needs no
    device file, which not every machine lets an ordinary user open. It must not hear what the program itself sent.
    """
    with private.namespace(network.LINK), IPRoute() as ip:
        _veth(ip, outer, inner, {outer: bridge})
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # as far as the host's limit lets it
            port.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
        port.bind((inner, _ETH_P_ALL))
    port.setblocking(False)
    return port.detach()
