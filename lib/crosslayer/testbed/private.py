"""One private set of namespaces for every measurement, entered by re-executing the command.

User, network, mount and PID namespaces of its own: no root needed, no packet leaves, and when the
process dies, however it dies, the kernel removes every namespace, interface and child with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from crosslayer.places import find_program
from crosslayer.testbed.errors import TestbedError

MARK = "CROSSLAYER_PRIVATE"
"""Environment variable that says a process runs in private namespaces already."""

UNSHARE = (
    "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
    "--propagation", "private",
)  # fmt: skip
"""What `unshare` is asked for; `crosslayer doctor` tries exactly this."""

ROOT = Path("/run/crosslayer")
"""The private temporary folder: a tmpfs that only this set of namespaces sees."""

_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
_INIT = Path(__file__).with_name("init.py")
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_MS_BIND = 4096


def inside() -> bool:
    """True in a process that runs in private namespaces."""
    return MARK in os.environ


def enter(command: list[str]) -> None:
    """Re-execute `command` in private namespaces; returns only inside them, where it is called a second time.

    Raises
    ------
    TestbedError
        Where the machine has no `unshare` or refuses user namespaces.
    """
    if inside():
        _settle()
        return
    unshare = tool("unshare")
    if (refusal := refused(unshare)) is not None:
        raise TestbedError(
            f"this machine refuses private namespaces ({refusal})",
            next_step="Run `crosslayer doctor`: it says what to allow. Analysing data/raw/coalescing works without.",
        )
    os.environ[MARK] = "1"
    init = [sys.executable, "-I", str(_INIT)]
    os.execv(sys.executable, [*init, "outside", unshare, *UNSHARE, "--", *init, "inside", *command])


def tool(name: str) -> str:
    """Path of a program of the system that the testbed is made with.

    Raises
    ------
    TestbedError
        Where it is not installed.
    """
    if (program := find_program(name)) is None:
        raise TestbedError(
            f"there is no `{name}` on this machine",
            next_step=f"Install {_PACKAGES[name]} (`make setup` does); see `crosslayer doctor`.",
        )
    return program


def refused(unshare: str) -> str | None:
    """The kernel's own words where it refuses private namespaces, None where it grants them."""
    trial = subprocess.run([unshare, *UNSHARE, "--", "true"], capture_output=True, text=True, check=False)
    return None if trial.returncode == 0 else (trial.stderr.strip() or f"exit status {trial.returncode}")


def _settle() -> None:
    """Make the mount namespace ours: temporary files on a tmpfs that goes with it."""
    if ROOT.exists() and os.path.ismount("/run"):
        return
    # NixOS has the commands of the system there, through a link; its target stays.
    system = Path("/run/current-system")
    system_at = system.readlink() if system.is_symlink() else None
    for target in ("/run", "/dev/shm"):
        mount("tmpfs", target, "tmpfs")
    if system_at is not None:
        system.symlink_to(system_at)
    for folder in (ROOT, ROOT / "tmp", ROOT / "home", Path("/run/netns"), Path("/run/lock")):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(ROOT / "tmp")


def mount(source: str, target: str, kind: str | None = None, *, bind: bool = False) -> None:
    """mount(2), since the mount program is not always there or not always ours to run; `TestbedError` if refused."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, _MS_BIND if bind else 0, None
    )
    if result != 0:
        raise TestbedError(
            f"cannot mount: {os.strerror(ctypes.get_errno())}", where=target, next_step="Run `crosslayer doctor`."
        )


def use_resolver(address: str) -> None:
    """Point this mount namespace's resolv.conf and name-service switch at `address`."""
    _instead("resolv.conf", f"nameserver {address}\noptions timeout:2 attempts:2\n")
    _instead("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")


def use_hosts(addresses: Mapping[str, str]) -> None:
    """Give this mount namespace names that its resolver need not be asked for, in the place of those it had."""
    told = {"localhost": "127.0.0.1", **addresses}
    _instead("hosts", "".join(f"{address} {host}\n" for host, address in told.items()))


def _instead(name: str, text: str) -> None:
    """Put a file of ours over one of /etc."""
    ours, theirs = ROOT / name, Path("/etc", name)
    there = ours.exists()
    ours.write_text(text, encoding="utf-8")
    if there:
        return
    if theirs.is_symlink() and not theirs.exists():
        # Often a link into /run, which is private and empty here: give it something to point at.
        real = Path(os.path.realpath(theirs))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.touch()
    if theirs.exists():
        mount(str(ours), str(theirs), bind=True)


def set_namespace(name: str) -> None:
    """Move the calling thread into the named network namespace."""
    with Path("/run/netns", name).open("rb") as handle:
        if _libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
            raise TestbedError(f"cannot enter namespace: {os.strerror(ctypes.get_errno())}", where=name)


def return_to(handle: int) -> None:
    """Move the calling thread back into the network namespace of an open file, and close that."""
    _libc.setns(handle, _CLONE_NEWNET)
    os.close(handle)


def in_namespace(name: str) -> bool:
    """True where the calling thread is in the named network namespace of a testbed."""
    try:
        there, here = Path("/run/netns", name).stat(), Path("/proc/thread-self/ns/net").stat()
    except OSError:
        return False
    return ROOT.is_dir() and (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


@contextlib.contextmanager
def namespace(name: str) -> Iterator[None]:
    """Run the block in the named network namespace; sockets opened in it stay there."""
    with Path("/proc/thread-self/ns/net").open("rb") as before:
        set_namespace(name)
        try:
            yield
        finally:
            _libc.setns(before.fileno(), _CLONE_NEWNET)


def command_in(name: str, arguments: list[str]) -> list[str]:
    """The command line that runs `arguments` in the named network namespace."""
    return [tool("nsenter"), f"--net=/run/netns/{name}", "--", *arguments]
