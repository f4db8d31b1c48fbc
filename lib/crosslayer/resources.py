"""Locate this project's own programs and files: pages, link profiles, published values. The first match is used:

1. an environment variable of the user;
2. a checkout: the one that contains the working folder; if there is none, the one that this package is imported from;
3. the package: the folder `CROSSLAYER_SHARE` (set by Nix), or the one in the wheel, laid out like a checkout;
4. for programs, those that `crosslayer setup` built from the wheel's sources, then the PATH and the system's folders.

So a checkout's own build has priority, even in `nix develop`. Third-party programs are also located here
(`find_program`), for the whole library. This module starts no programs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal, NamedTuple

from crosslayer.errors import CrosslayerError


class ResourceError(CrosslayerError):
    """A program or file of this project is missing."""


@dataclass(frozen=True, slots=True)
class Location:
    """The path of a program or file, and its origin."""

    path: Path
    source: str
    """The environment variable, `this checkout`, `the package`, `crosslayer setup` or `the PATH`."""


class _Resource(NamedTuple):
    variable: str
    in_checkout: str
    """Path in a checkout and in the package; empty for most third-party programs."""
    program: str
    """Name on the PATH; empty for files."""
    next_step: str


_BUILD = "Run `make setup` in a checkout and `crosslayer setup` elsewhere, or work in `nix develop`."
_KERNEL = (
    "`make guest` builds it in a checkout (CROSSLAYER_KERNEL names one elsewhere), or work in `nix develop .#guest`."
)
_FILES = "The wheel has it: install crosslayer again, or work in a checkout."
_PACKAGE = "Install {}: `make setup`, or work in `nix develop`."

_SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders in which Debian installs `tc`, `named` and `kresd`; the PATH of ordinary users lacks them."""

RESOURCES: Final = {
    "server": _Resource("CROSSLAYER_SERVER_BIN", "build/crosslayer-server", "crosslayer-server", _BUILD),
    "stub": _Resource("CROSSLAYER_STUB_BIN", "build/crosslayer-stub", "crosslayer-stub", _BUILD),
    "uml-link": _Resource("CROSSLAYER_UML_LINK", "build/crosslayer-uml-link", "crosslayer-uml-link", _BUILD),
    "guest": _Resource("CROSSLAYER_GUEST", "build/crosslayer-guest", "crosslayer-guest", _BUILD),
    "kernel": _Resource("CROSSLAYER_KERNEL", "build/crosslayer-linux", "crosslayer-linux", _KERNEL),
    "sites": _Resource("CROSSLAYER_SITES", "sites", "", _FILES),
    "profiles": _Resource("CROSSLAYER_PROFILES", "emulation/profiles.toml", "", _FILES),
    "published": _Resource("CROSSLAYER_PUBLISHED", "data/published", "", _FILES),
    "named": _Resource("CROSSLAYER_NAMED", "", "named", _PACKAGE.format("bind9")),
    "kresd": _Resource("CROSSLAYER_KRESD", "", "kresd", _PACKAGE.format("knot-resolver")),
    "unbound": _Resource("CROSSLAYER_UNBOUND", "", "unbound", _PACKAGE.format("unbound")),
    "dnsdist": _Resource("CROSSLAYER_DNSDIST", "", "dnsdist", _PACKAGE.format("dnsdist")),
    "knotd": _Resource(
        "CROSSLAYER_KNOTD", "", "knotd", "Install knot, 3.3 or newer for DoQ, or work in `nix develop`."
    ),
    "dnsproxy": _Resource(
        "CROSSLAYER_DNSPROXY", "build/dnsproxy", "dnsproxy", "`make servers` builds it, or work in `nix develop`."
    ),
}
"""Every program and file that `locate` finds, by name."""


def checkout() -> Path | None:
    """Root of the checkout that contains the working folder; without such a checkout, the result of `home`."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if _is_checkout(folder):
            return folder
    return home()


def home() -> Path | None:
    """Root of the checkout that this package is imported from; None if the package is not in a checkout."""
    folder = Path(__file__).resolve().parents[2]
    return folder if _is_checkout(folder) else None


def wheel() -> Path | None:
    """Folder of the project's files in the installed wheel (setup/wheel.py); None in a checkout."""
    folder = Path(__file__).resolve().parent / "share"
    return folder if folder.is_dir() else None


def built() -> Path | None:
    """The user's folder for programs built from the wheel's Go sources; None if there is no wheel.

    The folder's name is a digest of these sources, so each version of crosslayer has its own folder.
    """
    share = wheel()
    if share is None:
        return None
    return user_folder("cache") / _digest(share / "emulation")


def user_folder(kind: Literal["cache", "config", "state"]) -> Path:
    """Folder of crosslayer's cache, configuration or state for the user (XDG Base Directory Specification).

    The folder may not exist.
    """
    configured = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
    default = {"cache": ".cache", "config": ".config", "state": ".local/state"}[kind]
    return (Path(configured) if configured.startswith("/") else Path.home() / default) / "crosslayer"


@cache
def _digest(sources: Path) -> str:
    """First 16 hexadecimal digits of the SHA-256 of the Go sources."""
    digest = hashlib.sha256()
    for path in sorted((*sources.glob("go.*"), *sources.rglob("*.go"))):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(sources)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def locate(name: str) -> Location:
    """Locate one of `RESOURCES`.

    Parameters
    ----------
    name
        A key of `RESOURCES`.

    Raises
    ------
    ResourceError
        If the resource is missing, or its environment variable names a file that cannot be read or run.
    """
    resource = RESOURCES[name]
    if named := os.environ.get(resource.variable):
        if _fits(Path(named), resource):
            return Location(Path(named), resource.variable)
        raise ResourceError(
            f"cannot be read{' or run' if resource.program else ''}, and {resource.variable} names it",
            where=named,
            next_step=f"Unset {resource.variable}. {resource.next_step}",
        )
    if resource.in_checkout:
        share = os.environ.get("CROSSLAYER_SHARE")
        packaged = (share and Path(share), "the package"), (wheel(), "the package")
        for folder, source in ((checkout(), "this checkout"), *packaged):
            if folder and _fits(path := folder / resource.in_checkout, resource):
                return Location(path, source)
    if resource.program:
        if (folder := built()) and _fits(path := folder / resource.program, resource):
            return Location(path, "crosslayer setup")
        if on_path := find_program(resource.program):
            return Location(Path(on_path), "the PATH")
    raise ResourceError(
        f"`{resource.program or resource.in_checkout}` was not found",
        next_step=resource.next_step,
    )


def search_path() -> str:
    """Folders to search for programs, in the format of PATH: those of PATH, then `_SYSTEM_FOLDERS`."""
    named = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*named, *(folder for folder in _SYSTEM_FOLDERS if folder not in named)])


def find_program(name: str) -> str | None:
    """Path of a program on this machine, given by name or path; None if it is not installed.

    The whole library uses this function, so notebooks, cluster workers and the command line find the same programs.
    """
    return shutil.which(name, path=search_path())


def _is_checkout(folder: Path) -> bool:
    return (folder / "emulation" / "profiles.toml").is_file() and (folder / "lib" / "crosslayer").is_dir()


def _fits(path: Path, resource: _Resource) -> bool:
    return path.is_file() and os.access(path, os.X_OK) if resource.program else path.exists()
