"""Private namespaces for every measurement, entered by re-executing the command.

They are user, network, mount and PID namespaces, which need no root. No packet leaves the network namespaces. Without
`own_network`, `enter` creates no network namespace. When the process ends for any reason, the kernel removes every
namespace, interface and child process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from crosslayer.resources import find_program
from crosslayer.testbed.errors import TestbedError

MARK = "CROSSLAYER_PRIVATE"
"""Environment variable that marks a process in private namespaces."""

_MOUNTS = ("--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private")
UNSHARE = ("--user", "--map-root-user", "--net", *_MOUNTS)
"""Options of `unshare`; `crosslayer doctor` tries exactly these."""

ROOT = Path("/run/crosslayer")
"""Private temporary folder: a tmpfs that only these namespaces contain."""

_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}
_FILES = 1024
"""Number of files that a process must be able to open: Chromium and the server each open a few hundred."""
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
Socket = tuple[str, int]
"""Transport protocol of a socket, `tcp` or `udp`, and its local port."""

_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_MS_BIND = 4096


def inside() -> bool:
    """Whether this process runs in private namespaces."""
    return MARK in os.environ


def enter(command: list[str], *, own_network: bool = True) -> None:
    """Replace this process by `command` in private namespaces.

    `command` must call this function again. That second call returns; the first one does not.

    Without `own_network`, the command keeps the current network and the current user. Its changes to /etc/resolv.conf
    stay private nevertheless.

    Raises
    ------
    TestbedError
        If the machine lacks `unshare`, refuses user namespaces or lets a process open too few files.
    """
    if inside():
        _set_up_mounts()
        return
    _allow_files()
    unshare, options = tool("unshare"), list(UNSHARE)
    if not own_network:
        options = [*([] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]), *_MOUNTS]
    if (reason := refused(unshare, options)) is not None:
        raise TestbedError(
            f"this machine refuses private namespaces ({reason})",
            next_step="Run `crosslayer doctor`: it prints what to allow. Analysis needs no namespaces.",
        )
    os.environ[MARK] = "1"
    supervisor = [sys.executable, "-I", str(_SUPERVISOR)]
    os.execv(sys.executable, [*supervisor, "outside", unshare, *options, "--", *supervisor, "inside", *command])


def _allow_files() -> None:
    """Raise this process's limit of open files to `_FILES`; `TestbedError` if the hard limit is lower."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < _FILES:
        raise TestbedError(
            f"a process may open {most} files here, but measuring needs {_FILES}",
            next_step=f"Raise the limit of the shell that starts it: `ulimit -n {_FILES}` or more.",
        )
    if now != resource.RLIM_INFINITY and now < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, most))


def tool(name: str) -> str:
    """Path of a system program that the testbed needs.

    Raises
    ------
    TestbedError
        If it is not installed.
    """
    if (program := find_program(name)) is None:
        raise TestbedError(
            f"there is no `{name}` on this machine",
            next_step=f"Install {_PACKAGES[name]} (`make setup` does); see `crosslayer doctor`.",
        )
    return program


def refused(unshare: str, options: Sequence[str] = UNSHARE) -> str | None:
    """Error message of `unshare` if the kernel refuses private namespaces, otherwise None."""
    trial = subprocess.run([unshare, *options, "--", "true"], capture_output=True, text=True, check=False)
    return None if trial.returncode == 0 else (trial.stderr.strip() or f"exit status {trial.returncode}")


def _set_up_mounts() -> None:
    """Mount a private tmpfs on /run and one on /dev/shm, and store temporary files below /run.

    The kernel removes both mounts with the mount namespace.
    """
    if ROOT.exists() and os.path.ismount("/run"):
        return
    # On NixOS this symbolic link leads to the system's commands. Its target is outside /run.
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
    """Call mount(2), because the mount program may be missing or not permitted; `TestbedError` on failure."""
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode() if kind else None, _MS_BIND if bind else 0, None
    )
    if result != 0:
        raise TestbedError(
            f"cannot mount: {os.strerror(ctypes.get_errno())}", where=target, next_step="Run `crosslayer doctor`."
        )


def use_resolver(address: str) -> None:
    """Set `address` as the resolver in resolv.conf and nsswitch.conf of this mount namespace."""
    _replace_etc_file("resolv.conf", f"nameserver {address}\noptions timeout:2 attempts:2\n")
    _replace_etc_file("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")


def use_hosts(addresses: Mapping[str, str]) -> None:
    """Replace the hosts file of this mount namespace by one with these host names, so that they need no resolver."""
    hosts = {"localhost": "127.0.0.1", **addresses}
    _replace_etc_file("hosts", "".join(f"{address} {host}\n" for host, address in hosts.items()))


def _replace_etc_file(name: str, text: str) -> None:
    """Replace a file of /etc in this mount namespace."""
    replacement, original = ROOT / name, Path("/etc", name)
    mounted = replacement.exists()
    replacement.write_text(text, encoding="utf-8")
    if mounted:
        return
    if original.is_symlink() and not original.exists():
        # The file is often a symbolic link into /run, which is private and empty: create the link's target.
        real = Path(os.path.realpath(original))
        real.parent.mkdir(parents=True, exist_ok=True)
        real.touch()
    if original.exists():
        mount(str(replacement), str(original), bind=True)


def set_namespace(name: str) -> None:
    """Move the calling thread into the named network namespace."""
    with Path("/run/netns", name).open("rb") as handle:
        if _libc.setns(handle.fileno(), _CLONE_NEWNET) != 0:
            raise TestbedError(f"cannot enter namespace: {os.strerror(ctypes.get_errno())}", where=name)


def return_to(handle: int) -> None:
    """Move the calling thread back into the network namespace to which an open file refers, and close the file."""
    _libc.setns(handle, _CLONE_NEWNET)
    os.close(handle)


def in_namespace(name: str) -> bool:
    """Whether the calling thread is in the named network namespace of a testbed."""
    try:
        named, current = Path("/run/netns", name).stat(), Path("/proc/thread-self/ns/net").stat()
    except OSError:
        return False
    return ROOT.is_dir() and (named.st_dev, named.st_ino) == (current.st_dev, current.st_ino)


def in_any_namespace() -> bool:
    """Whether the calling thread is in a named network namespace of a testbed, from which no packet leaves."""
    folder = Path("/run/netns")
    return folder.is_dir() and any(in_namespace(entry.name) for entry in folder.iterdir())


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
    """Command line that runs `arguments` in the named network namespace."""
    return [tool("nsenter"), f"--net=/run/netns/{name}", "--", *arguments]


def listening(name: str) -> set[Socket]:
    """Sockets of a namespace that wait for clients: TCP listeners and unconnected UDP sockets."""
    with namespace(name):
        tables = {
            protocol: [Path(f"/proc/thread-self/net/{protocol}{family}") for family in ("", "6")]
            for protocol in ("tcp", "udp")
        }
        return {
            (protocol, port)
            for protocol, paths in tables.items()
            for path in paths
            if path.exists()
            for port in bound_ports(path.read_text(encoding="ascii"))
        }


def bound_ports(table: str) -> set[int]:
    """Local ports of the sockets that wait for clients, from the text of /proc/net/tcp, udp, tcp6 or udp6 (proc(5))."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] in (_TCP_LISTEN, _UDP_UNCONNECTED)}
