"""Backends of the link: the same netem disciplines in the host's kernel or in a User-Mode Linux guest."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Protocol

from pyroute2 import IPRoute

from crosslayer import places
from crosslayer.links import Qdisc
from crosslayer.testbed import network, private
from crosslayer.testbed.errors import TestbedError


class Backend(Protocol):
    """What joins the two bridges."""

    name: str
    version: str
    """Kernel whose netem ran, for the campaign's record."""

    def apply(self, down: Qdisc | None, up: Qdisc | None) -> None:
        """Shape both directions anew; None takes a direction's discipline away."""

    def close(self) -> None:
        """Take the link down."""


class Netem:
    """netem of the host's kernel on a veth pair between the bridges."""

    name = "netem"

    def __init__(self) -> None:
        self.version = os.uname().release
        _join_bridges()

    def apply(self, down: Qdisc | None, up: Qdisc | None) -> None:
        # A discipline acts on what leaves a device: the downlink's on the server's side.
        for device, qdisc in (("wire-server", down), ("wire-client", up)):
            delete = private.command_in(network.LINK, ["tc", "qdisc", "del", "dev", device, "root"])
            subprocess.run(delete, capture_output=True, check=False)
            if qdisc is not None:
                add = ["tc", "qdisc", "add", "dev", device, "root", *qdisc.tc_arguments()]
                words = private.command_in(network.LINK, add)
                done = subprocess.run(words, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    raise TestbedError(
                        f"`{' '.join(words)}` failed: {done.stderr.strip()}",
                        where="netem backend",
                        next_step="Try --backend uml, or see `crosslayer doctor`.",
                    )

    def close(self) -> None:
        """Nothing to do: the devices go with their namespace."""


class Plain:
    """No emulation: a bare veth pair, for a profile that shapes nothing."""

    name = "none"

    def __init__(self) -> None:
        self.version = os.uname().release
        _join_bridges()

    def apply(self, down: Qdisc | None, up: Qdisc | None) -> None:
        if down is not None or up is not None:
            raise TestbedError("a bare wire cannot shape", where="plain backend", next_step="Use --backend auto.")

    def close(self) -> None:
        """Nothing to do: the devices go with their namespace."""


_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 3
_BUFFER_BYTES = 1 << 23


class Uml:
    """netem of a User-Mode Linux guest that bridges the client's and the server's side.

    The guest is an ordinary process: no root, no module in the host's kernel. Its init is `emulation/wire`.
    """

    name = "uml"

    def __init__(self) -> None:
        kernel, modules, init = find_uml()
        self.version = f"User-Mode Linux {modules.name}"
        folder = private.ROOT / "wire"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "modules").mkdir(parents=True)
        for place, module in enumerate(_load_order(modules, ("bridge", "sch_netem"))):
            shutil.copyfile(module, folder / "modules" / f"{place:02}-{module.name}")
        ports = [_port(side) for side in (network.CLIENT, network.SERVER)]
        self._guest = subprocess.Popen(
            [
                str(kernel), "mem=96M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=-1",
                f"init={init}", f"MODULES={folder / 'modules'}", f"IP={_tool('ip')}", f"TC={_tool('tc')}",
                "con=null", "con0=fd:0,fd:1", "con1=null", "ssl=null", f"uml_dir={folder}", "umid=guest",
                *(f"vec{i}:transport=fd,fd={port},vec=0" for i, port in enumerate(ports)),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=ports, text=True, bufsize=1, env={**os.environ, "TMPDIR": str(folder)},
        )  # fmt: skip
        for port in ports:
            os.close(port)
        self._read_until("READY")

    def apply(self, down: Qdisc | None, up: Qdisc | None) -> None:
        # vec0 leads to the client: what leaves it is the downlink.
        for device, qdisc in (("vec0", down), ("vec1", up)):
            self._tc(["qdisc", "del", "dev", device, "root"], may_fail=True)
            if qdisc is not None:
                self._tc(["qdisc", "add", "dev", device, "root", *qdisc.tc_arguments()])

    def close(self) -> None:
        if self._guest.stdin is not None:
            self._guest.stdin.close()
        try:
            self._guest.wait(5)
        except subprocess.TimeoutExpired:
            self._guest.kill()
            self._guest.wait()
        if self._guest.stdout is not None:
            self._guest.stdout.close()

    def _tc(self, words: list[str], *, may_fail: bool = False) -> None:
        assert self._guest.stdin is not None
        self._guest.stdin.write(" ".join(words) + "\n")
        answer = self._read_until("[rc=")
        if "[rc=0]" not in answer and not may_fail:
            raise TestbedError(
                f"`tc {' '.join(words)}` failed: {answer.strip()}",
                where="uml backend",
                next_step="Check the link profile; see `crosslayer doctor`.",
            )

    def _read_until(self, mark: str) -> str:
        assert self._guest.stdout is not None
        said: list[str] = []
        for line in self._guest.stdout:
            said.append(line)
            if mark in line:
                return "".join(said)
            if line.startswith("FAILED"):
                break
        self._guest.kill()
        raise TestbedError(
            f"the User-Mode Linux guest ended: {''.join(said[-5:]).strip() or 'it said nothing'}",
            where="uml backend",
            next_step="Run `crosslayer doctor`; a kernel with sch_netem does without it.",
        )


def open_backend(name: str) -> Backend:
    """The backend of that name; `auto` takes netem where the kernel has it, else uml; `plain` shapes nothing.

    Raises
    ------
    TestbedError
        Where none can run, saying what is missing and how to get it.
    """
    if name == "plain":
        return Plain()
    if name == "netem" or (name == "auto" and netem_works()):
        return Netem()
    return Uml()


def netem_works() -> bool:
    """True where this kernel has `sch_netem` (tried on the loopback device of the link's namespace, which is down)."""
    words = private.command_in(network.LINK, ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"])
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def find_uml() -> tuple[Path, Path, Path]:
    """Kernel, module folder and guest init of the `uml` backend.

    `CROSSLAYER_UML` names a kernel, `CROSSLAYER_UML_MODULES` its modules, `CROSSLAYER_WIRE` the init.

    Raises
    ------
    TestbedError, PlaceError
        Naming the part that is missing and the package that has it.
    """
    kernel = os.environ.get("CROSSLAYER_UML") or shutil.which("linux.uml") or shutil.which("linux")
    if kernel is None or not os.access(kernel, os.X_OK):
        raise TestbedError(
            "this kernel has no netem and there is no User-Mode Linux kernel to stand in for it",
            where=kernel or "linux.uml",
            next_step="Install user-mode-linux (`make setup`), use `nix develop .#uml`, or `modprobe sch_netem`.",
        )
    told = os.environ.get("CROSSLAYER_UML_MODULES")
    folders = sorted(Path(told or "/usr/lib/uml/modules").glob("*/modules.dep")) or sorted(
        Path(told or "/").glob("modules.dep")
    )
    if not folders:
        raise TestbedError(
            "the User-Mode Linux kernel has no modules beside it",
            where=told or "/usr/lib/uml/modules",
            next_step="Reinstall user-mode-linux, or set CROSSLAYER_UML_MODULES.",
        )
    return Path(kernel), folders[-1].parent, places.find("wire").path


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


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise TestbedError(f"there is no `{name}` on this machine", next_step="Install iproute2 (`make setup` does).")
    return os.path.realpath(found)


def _join_bridges() -> None:
    """A veth pair from bridge to bridge; a discipline on one of its ends acts on what leaves there."""
    with private.namespace(network.LINK), IPRoute() as ip:
        ip.link("add", ifname="wire-client", kind="veth", peer={"ifname": "wire-server"})
        for side in (network.CLIENT, network.SERVER):
            device = network.index(ip, f"wire-{side}")
            network.real_packets(f"wire-{side}")
            ip.link("set", index=device, master=network.index(ip, network.bridge_of(side)))
            ip.link("set", index=device, state="up")


def _port(side: str) -> int:
    """A packet socket that the guest reads and writes as its network card, plugged into the side's bridge.

    The socket is bound to one end of a veth pair whose other end is a port of the bridge. Unlike a TAP it needs no
    device file, which not every machine lets an ordinary user open. It must not hear what the guest itself sent.
    """
    inner = f"guest-{side}"
    with private.namespace(network.LINK), IPRoute() as ip:
        ip.link("add", ifname=f"wire-{side}", kind="veth", peer={"ifname": inner})
        for name in (f"wire-{side}", inner):
            network.real_packets(name)
        device = network.index(ip, f"wire-{side}")
        ip.link("set", index=device, master=network.index(ip, network.bridge_of(side)))
        for name in (f"wire-{side}", inner):
            ip.link("set", index=network.index(ip, name), state="up")
        port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # as far as the host's limit lets it
            port.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
        port.bind((inner, _ETH_P_ALL))
    port.setblocking(False)
    return port.detach()
