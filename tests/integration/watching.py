"""Watch the effects of a program on the host: packets, sockets, devices, and access to browser profiles."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import socket
import struct
import threading
from pathlib import Path
from typing import Self

from crosslayer.testbed import network

PROFILES = (".config/chromium/Default", ".config/google-chrome/Default", ".mozilla/firefox", ".pki/nssdb")
"""Profile folders of browsers in a home folder."""
_ETH_P_ALL = 3
_IN_ACCESS, _IN_OPEN = 1, 32
_EVENT = struct.Struct("iIII")
_INTERVAL_S = 0.05


class Watch:
    """Watches this machine and the processes that this process starts, from construction to `stop`.

    Parameters
    ----------
    home
        Folder in which browser profiles are created; use it as HOME of the watched program.
    """

    def __init__(self, home: Path) -> None:
        self.bound: set[str] = set()
        """Lines of the host's /proc/net whose sockets belong to a descendant of this process."""
        self.devices: set[str] = set()
        """New network devices of the host."""
        self.touched: list[str] = []
        """Files of a profile that were opened or read."""
        self.escaped: list[bytes] = []
        """Packets of the testbed's network on a device of the host."""
        self.captured = False
        """Whether packets were captured, which requires root."""
        self._before = _devices()
        self._socket: socket.socket | None = None
        with contextlib.suppress(PermissionError):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            self._socket.setblocking(False)
            self.captured = True
        self._inotify = _libc.inotify_init1(os.O_NONBLOCK)
        for name in PROFILES:
            folder = home / name
            folder.mkdir(parents=True)
            (folder / "Preferences").write_text("{}", encoding="utf-8")
            _libc.inotify_add_watch(self._inotify, os.fsencode(folder), _IN_ACCESS | _IN_OPEN)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> Self:
        """Check a last time and stop watching."""
        self._ended.set()
        self._thread.join()
        if self._socket is not None:
            self._socket.close()
        os.close(self._inotify)
        return self

    def _watch(self) -> None:
        last = False
        while not last:
            last = self._ended.wait(_INTERVAL_S)
            self.devices |= _devices() - self._before
            self.bound |= _bound()
            with contextlib.suppress(BlockingIOError):
                events = os.read(self._inotify, 1 << 16)
                while events:
                    _watch, _mask, _cookie, length = _EVENT.unpack_from(events)
                    self.touched.append(os.fsdecode(events[_EVENT.size : _EVENT.size + length].rstrip(b"\0")))
                    events = events[_EVENT.size + length :]
            while self._socket is not None and select.select([self._socket], [], [], 0)[0]:
                packet = self._socket.recv(2048)
                if _ours(packet):
                    self.escaped.append(packet)


_libc = ctypes.CDLL(None, use_errno=True)


def _devices() -> set[str]:
    return {device.name for device in Path("/sys/class/net").iterdir()}


def _ours(packet: bytes) -> bool:
    """Whether a frame belongs to the testbed, by its IP addresses or the MAC addresses of the link's ends."""
    addresses = [packet[26:30], packet[30:34]] if packet[12:14] == b"\x08\x00" else []
    inside = any(int.from_bytes(some) >> 16 == int(network.NETWORK.network_address) >> 16 for some in addresses)
    return inside or any(packet[at : at + 4] == b"\x02\x00\x00\x00" for at in (0, 6))


def _bound() -> set[str]:
    """Lines of /proc/net for the host's Internet and packet sockets that descendants of this process have open."""
    mine = Path("/proc/self/ns/net").readlink()
    sockets = set()
    for pid in _below(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/ns/net").readlink() == mine:
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    if match := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                        sockets.add(match[1])
    lines = set()
    for table in ("tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                if sockets & set(line.split()):
                    lines.add(f"{table}: {line}")
    return lines


def _below(root: int) -> set[int]:
    """All descendants of a process."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(entry.name)] = int((entry / "stat").read_text(errors="replace").rpartition(") ")[2].split()[1])
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {root}
