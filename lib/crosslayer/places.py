"""Where this project's own things are: programs, pages, links, published values. One order for all of them.

1. what an environment variable of the user names;
2. the checkout: the working folder or one above it, else where this package is checked out;
3. the packaged files (`CROSSLAYER_SHARE`, set by Nix): a folder laid out like a checkout;
4. for programs, the PATH and the system's folders.

So in a checkout its own build counts, also in `nix develop`. Programs of others are located here too (`find_program`),
whatever calls the library. Nothing is read, started or imported here.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from crosslayer.errors import CrosslayerError


class PlaceError(CrosslayerError):
    """One of the project's own things is nowhere."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thing is, and what says so."""

    path: Path
    told_by: str
    """The variable that names it, `this checkout`, `the package` or `the PATH`."""


class _Thing(NamedTuple):
    variable: str
    in_checkout: str
    """Path in a checkout, and in the packaged files; empty for what is not this project's own."""
    program: str
    """Name on the PATH; empty for files."""
    next_step: str


_BUILD = "Run `make setup`, or work in `nix develop`."
_KERNEL = "`make guest` builds it, or work in `nix develop .#guest`."
_FILES = "Work in a checkout."
_PACKAGE = "Install {}: `make setup`, or work in `nix develop`."

_SYSTEM_FOLDERS: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Debian has `tc`, `named` and `kresd` there, and leaves these folders out of an ordinary user's PATH."""

THINGS: Final = {
    "server": _Thing("CROSSLAYER_SERVER_BIN", "build/crosslayer-server", "crosslayer-server", _BUILD),
    "stub": _Thing("CROSSLAYER_STUB_BIN", "build/crosslayer-stub", "crosslayer-stub", _BUILD),
    "wire": _Thing("CROSSLAYER_WIRE", "build/crosslayer-wire", "crosslayer-wire", _BUILD),
    "guest": _Thing("CROSSLAYER_GUEST", "build/crosslayer-guest", "crosslayer-guest", _BUILD),
    "kernel": _Thing("CROSSLAYER_KERNEL", "build/crosslayer-linux", "crosslayer-linux", _KERNEL),
    "sites": _Thing("CROSSLAYER_SITES", "sites", "", _FILES),
    "profiles": _Thing("CROSSLAYER_PROFILES", "emulation/profiles.toml", "", _FILES),
    "published": _Thing("CROSSLAYER_PUBLISHED", "data/published", "", _FILES),
    "named": _Thing("CROSSLAYER_NAMED", "", "named", _PACKAGE.format("bind9")),
    "kresd": _Thing("CROSSLAYER_KRESD", "", "kresd", _PACKAGE.format("knot-resolver")),
    "unbound": _Thing("CROSSLAYER_UNBOUND", "", "unbound", _PACKAGE.format("unbound")),
    "dnsdist": _Thing("CROSSLAYER_DNSDIST", "", "dnsdist", _PACKAGE.format("dnsdist")),
    "knotd": _Thing("CROSSLAYER_KNOTD", "", "knotd", "Install knot, 3.3 or newer for DoQ, or work in `nix develop`."),
    "dnsproxy": _Thing(
        "CROSSLAYER_DNSPROXY", "build/dnsproxy", "dnsproxy", "`make servers` builds it, or work in `nix develop`."
    ),
}
"""Every thing that is looked for, by the name `find` takes."""


def checkout() -> Path | None:
    """The checkout: the working folder or one above it, else where this package is checked out, else None."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if _is_checkout(folder):
            return folder
    return home()


def home() -> Path | None:
    """The checkout this package itself is from; None where it is installed."""
    folder = Path(__file__).resolve().parents[2]
    return folder if _is_checkout(folder) else None


def find(name: str) -> Place:
    """Where one of `THINGS` is.

    Parameters
    ----------
    name
        A key of `THINGS`.

    Raises
    ------
    PlaceError
        Naming the way to it. What a variable of the user names is taken or refused, never passed over.
    """
    thing = THINGS[name]
    if told := os.environ.get(thing.variable):
        if _fits(Path(told), thing):
            return Place(Path(told), thing.variable)
        raise PlaceError(
            f"cannot be read{' or run' if thing.program else ''}, and {thing.variable} names it",
            where=told,
            next_step=f"Unset {thing.variable}. {thing.next_step}",
        )
    if thing.in_checkout:
        share = os.environ.get("CROSSLAYER_SHARE")
        for folder, told_by in ((checkout(), "this checkout"), (share and Path(share), "the package")):
            if folder and _fits(path := folder / thing.in_checkout, thing):
                return Place(path, told_by)
    if thing.program and (program := find_program(thing.program)):
        return Place(Path(program), "the PATH")
    raise PlaceError(
        f"`{thing.program or thing.in_checkout}` is nowhere to be found",
        next_step=thing.next_step,
    )


def search_path() -> str:
    """The folders in which programs are searched, as the variable PATH has them: those of PATH, then the system's."""
    named = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*named, *(folder for folder in _SYSTEM_FOLDERS if folder not in named)])


def find_program(name: str) -> str | None:
    """Path of a program of this machine, by its name or path; None where it is not installed.

    The only search for programs in the library, so that a notebook, a worker of a cluster and the command line find the
    same ones.
    """
    return shutil.which(name, path=search_path())


def _is_checkout(folder: Path) -> bool:
    return (folder / "emulation" / "profiles.toml").is_file() and (folder / "lib" / "crosslayer").is_dir()


def _fits(path: Path, thing: _Thing) -> bool:
    return path.is_file() and os.access(path, os.X_OK) if thing.program else path.exists()
