"""Measuring from a notebook: `crosslayer measure` as a child, with its progress, and what is shown where it cannot."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import DisplayHandle, Pretty, display

from crosslayer.notebooks.errors import NotebookError

CANNOT_MEASURE = 3
"""Exit status of `crosslayer measure` on a machine that cannot provide the testbed."""

_PROGRESS_EVERY_S = 5.0
_LINE_EVERY_S = 30.0
_STOP_TIMEOUT_S = 15.0


def measured_or_committed(study: str, size: str, root: Path) -> tuple[Path, str]:
    """Measure a campaign, or take the committed one if this machine cannot measure.

    Returns
    -------
    tuple
        Dataset folder, and a notice that says so where it is the committed one.

    Raises
    ------
    NotebookError
        If measuring failed: a failed campaign is never replaced by another.
    """
    folder, why_not = measure(study, size, root)
    if folder is not None:
        return folder, ""
    return committed(study, root), f"This machine cannot measure, so the committed campaign is shown. {why_not}"


def committed(study: str, root: Path) -> Path:
    """The committed campaign of a study."""
    return root / "data" / "raw" / study


def measure(study: str, size: str, root: Path) -> tuple[Path | None, str]:
    """Measure a campaign by the clock that CROSSLAYER_CLOCK names, or go on with it.

    Returns
    -------
    tuple
        Dataset folder, or None and why this machine cannot measure.

    Raises
    ------
    NotebookError
        If measuring failed; finished rounds are stored, and running again resumes.
    """
    if sys.platform != "linux":
        return None, "Measuring needs Linux."
    command = [sys.executable, "-m", "crosslayer", "measure"]
    options = ["--study", study, "--size", size]
    progress = _Progress()
    with subprocess.Popen(
        [*command, *options],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_die_with_parent(),
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        reader = threading.Thread(target=progress.follow, args=(child.stderr,), daemon=True)
        reader.start()
        try:
            output = child.stdout.read().decode(errors="replace")
            status = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        reader.join()
    progress.close()
    if status == CANNOT_MEASURE:
        return None, progress.last_line
    folders = output.strip().splitlines()
    if status != 0 or not folders:
        raise NotebookError(
            progress.last_line or f"crosslayer measure ended with status {status}",
            where=f"crosslayer measure {' '.join(options)}",
            next_step="Finished rounds are stored: correct the fault and run the notebook again to resume.",
        )
    return root / folders[-1], ""


def _die_with_parent() -> Callable[[], None]:
    """For the child to run: a kernel that is killed takes its measurement with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_death_signal, parent = 1, os.getpid()

    def before_exec() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died in between
            os._exit(1)

    return before_exec


class _Progress:
    """Shows the progress of a measurement: lines stay, a progress bar (a line ending in a carriage return) is replaced.

    A notebook shows the bar in one output that is updated. Whoever reads only the printed text, as `make reproduce`
    does, gets the bar as a line every half minute.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._bar: DisplayHandle | None = None
        self._updated_at = 0.0
        self._printed_at = time.monotonic()

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else ""

    def follow(self, stream: IO[bytes]) -> None:
        """Read until the other end closes."""
        pending = b""
        while chunk := os.read(stream.fileno(), 65536):
            *parts, pending = (pending + chunk).replace(b"\n", b"\n\0").replace(b"\r", b"\r\0").split(b"\0")
            for part in parts:
                self._take(part.decode(errors="replace"))
        if pending:
            self._take(pending.decode(errors="replace") + "\n")

    def _take(self, part: str) -> None:
        text = part.strip()
        if not text:
            return
        if part.endswith("\n"):
            self.lines.append(text)
            print(text, flush=True)
            return
        now = time.monotonic()
        if now - self._printed_at >= _LINE_EVERY_S:
            self._printed_at = now
            print(text, flush=True)
        if InteractiveShell.initialized() and now - self._updated_at >= _PROGRESS_EVERY_S:
            self._updated_at = now
            self._update(Pretty(text))

    def _update(self, bar: Pretty) -> None:
        if self._bar is not None:
            self._bar.update(bar)
        else:
            self._bar = display(bar, display_id=True)

    def close(self) -> None:
        """Remove the bar; the lines stay."""
        if self._bar is not None:
            self._bar.update(Pretty(""))
