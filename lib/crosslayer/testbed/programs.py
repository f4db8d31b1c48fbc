"""Where this project's own programs are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from crosslayer.testbed.errors import TestbedError


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
