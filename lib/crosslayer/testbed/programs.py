"""The programs of a run: how any of them is started and stopped; `places` knows where they are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

Spawn = Callable[..., "subprocess.Popen[Any]"]
"""Starts a program where it belongs: `spawn(arguments, **options of subprocess.Popen)`."""

_STOP_TIMEOUT_S = 5.0


def stop_program(process: subprocess.Popen[Any]) -> None:
    """Ask it to end, kill it if it does not within 5 s, and wait for its end; nothing to do where it has ended."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
