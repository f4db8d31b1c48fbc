"""The programs of a run: where this project's own are, and how any of them is started and stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crosslayer.testbed.errors import TestbedError

Spawn = Callable[..., "subprocess.Popen[Any]"]
"""Starts a program where it belongs: `spawn(arguments, **options of subprocess.Popen)`."""

_STOP_TIMEOUT_S = 5.0


def find_program(name: str, variable: str) -> Path:
    """A program built from `emulation/`: told by the environment variable, in `build/` of the checkout, or on the PATH.

    Raises
    ------
    TestbedError
        Naming the command that builds it.
    """
    built = Path(__file__).parents[3] / "build" / name
    for candidate in (os.environ.get(variable), str(built), shutil.which(name)):
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise TestbedError(
        f"`{name}` is not built",
        where=os.environ.get(variable, str(built)),
        next_step="Run `make setup`, or work in `nix develop`.",
    )


def stop_program(process: subprocess.Popen[Any]) -> None:
    """Ask it to end, kill it if it does not within 5 s, and wait for its end; nothing to do where it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
