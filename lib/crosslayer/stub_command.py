"""`crosslayer stub`: the stub in the foreground, or for as long as a command of the user's own runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from crosslayer import process
from crosslayer.stub import Stub, StubSettings, find_stub_binary


def run_forever(settings: StubSettings, *, metrics: Path | None, control: Path | None) -> NoReturn:
    """Become the stub: it ends with a signal, and tells what is wrong itself.

    Parameters
    ----------
    settings
        What to forward, and where to.
    metrics
        File the metrics are appended to; None for standard output.
    control
        Path of the control socket; None for none.
    """
    binary = str(find_stub_binary())
    words = [binary, *settings.words(), "--metrics", str(metrics or "-")]
    if control is not None:
        words += ["--control", str(control)]
    os.execv(binary, words)


def run_command(settings: StubSettings, command: list[str], *, metrics: Path | None) -> int:
    """Run a command while the stub answers, and return its exit status (128 + signal where one ended it).

    The metrics go to standard output after the command's own, unless a file is given.

    Raises
    ------
    StubError
        Where the stub does not start.
    """
    with tempfile.TemporaryDirectory(prefix="crosslayer-stub-") as name:
        folder = Path(name)
        with Stub.start(subprocess.Popen, settings, folder, metrics_file=metrics) as stub:
            status = process.run_command(command)
        if metrics is None:
            sys.stdout.write(stub.metrics_file.read_text(encoding="utf-8"))
    return status
