"""Machine, code and program versions of a measurement."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import re
import ssl
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from crosslayer import resources
from crosslayer.campaign.errors import CampaignError

_PACKAGES = (
    "aioquic",
    "altair",
    "cryptography",
    "dnspython",
    "h2",
    "papermill",
    "polars",
    "pyarrow",
    "pyroute2",
    "selenium",
)


_CODE = ("emulation", "lib", "nix", "setup", "sites")
"""Folders of a checkout whose files change what is measured."""


@dataclass(frozen=True, slots=True)
class MeasuringHost:
    """A machine that measures."""

    mark: str
    """Hash that distinguishes the machine from others of the campaign without revealing its identity."""
    name: str
    """Name of the machine from the environment variable CROSSLAYER_HOST.

    If it is empty, the campaign gives the machine a name with a number, such as `host-1`.
    """
    machine: dict[str, Any]
    """Hardware and operating system, from the function `host`."""
    code: dict[str, str] = field(default_factory=dict)
    """Revision and hash of crosslayer's code, from the function `code`; empty if unknown."""


def this_host(campaign: str) -> MeasuringHost:
    """The machine on which this process runs.

    Its mark is a hash, so that datasets reveal neither the machine's name nor its identifier.

    Raises
    ------
    CampaignError
        If CROSSLAYER_HOST is not a valid name.
    """
    name = os.environ.get("CROSSLAYER_HOST", "")
    if not re.fullmatch(r"[\w.-]{0,40}", name, re.ASCII):
        raise CampaignError(
            f"cannot be the name of a host: {name!r}",
            where="CROSSLAYER_HOST",
            next_step="Use at most 40 letters, digits, '.', '-' and '_'.",
        )
    identifier = Path("/etc/machine-id")
    known = identifier.read_text(encoding="ascii").strip() if identifier.is_file() else ""
    given = "/".join((campaign, name or f"{known}/{platform.node()}"))
    return MeasuringHost(hashlib.sha256(given.encode()).hexdigest()[:16], name, host(), code())


def code() -> dict[str, str]:
    """Identify the code of this process: `commit` (empty if unknown) and `code`, the hash of its modules."""
    return {"commit": str(revision()["revision"] or ""), "code": code_sha256()}


@cache
def code_sha256() -> str:
    """SHA-256 of this package's modules; it includes uncommitted changes and needs no checkout."""
    root = Path(__file__).parents[1]
    files = sorted(root.rglob("*.py"))
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(root)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def host() -> dict[str, Any]:
    """CPU, cores, memory, kernel and operating system of this machine, without its name and address."""
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "os": release.get("PRETTY_NAME", platform.system()),
    }


def packages() -> dict[str, str]:
    """Versions of Python, crosslayer, the packages in `_PACKAGES`, and the OpenSSL of Python, by name.

    The clients for DoT and DoH use this OpenSSL.
    """
    versions = {"python": platform.python_version(), "crosslayer": importlib.metadata.version("crosslayer")}
    versions["openssl"] = ssl.OPENSSL_VERSION
    return versions | {name: importlib.metadata.version(name) for name in _PACKAGES}


def server_version(program: Path) -> str:
    """Versions of CoreDNS and Go, as the server program prints them for `-version`, in one line."""
    output = subprocess.run([str(program), "-version"], capture_output=True, text=True, check=False).stdout
    return " ".join(output.replace(",", " ").split())


def quic_go_version(program: Path) -> str:
    """Version of quic-go in one of our Go programs, from the program's build information.

    Empty if the program does not contain quic-go.
    """
    versions = re.search(rb"dep\tgithub\.com/quic-go/quic-go\t(v[0-9][\w.+-]*)", program.read_bytes())
    return versions[1].decode() if versions else ""


def revision() -> dict[str, Any]:
    """Git revision of this package's checkout (`revision`), and whether its code has no uncommitted change (`clean`).

    New files outside the folders of code do not count. Without a checkout, both values come from the environment
    variable CROSSLAYER_REVISION; `clean` is False if the text of the variable contains "dirty". Values that cannot be
    determined are None.
    """
    root = resources.home()
    if root is None:
        given = os.environ.get("CROSSLAYER_REVISION")
        return {"revision": given, "clean": None if given is None else "dirty" not in given}
    if (program := resources.find_program("git")) is None:
        return {"revision": None, "clean": None}
    return dict(_checked_out(program, root))


@cache
def _checked_out(program: str, root: Path) -> dict[str, Any]:
    """Git revision of a checkout, and whether its code has no uncommitted change, as in `revision`.

    A new file counts as a change only in the folders of code (`_CODE`), since users put their own links, pages and
    traces into other folders. The result is cached: later changes of the checkout do not change the code that this
    process runs.
    """
    git = [program, "-C", str(root), "-c", f"safe.directory={root}"]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    changes = (
        [*git, "status", "--porcelain", "--untracked-files=no"],
        [*git, "status", "--porcelain", "--untracked-files=normal", "--", *_CODE],
    )
    changed = [subprocess.run(command, capture_output=True, text=True, check=False).stdout for command in changes]
    if head.returncode != 0:
        return {"revision": None, "clean": None}
    return {"revision": head.stdout.strip(), "clean": not "".join(changed).strip()}


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
