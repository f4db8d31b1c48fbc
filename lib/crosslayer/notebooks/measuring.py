"""Measure from a notebook with `crosslayer measure` as a child process, or use the committed campaign instead."""

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
    """Measure a campaign, or use the committed one if this machine cannot measure.

    Returns
    -------
    tuple
        Dataset folder and notice. The notice is empty if the campaign was measured; otherwise it explains that the
        committed campaign is used.

    Raises
    ------
    NotebookError
        If measuring fails; a failed campaign is never replaced by the committed one.
    """
    folder, why_not = measure(study, size, root)
    if folder is not None:
        return folder, ""
    return committed(study, root), f"This machine cannot measure, so the committed campaign is shown. {why_not}"


def committed(study: str, root: Path) -> Path:
    """Dataset folder of the committed campaign of a study."""
    return root / "data" / "raw" / study


def measure(study: str, size: str, root: Path) -> tuple[Path | None, str]:
    """Measure a campaign, or continue an unfinished one.

    The environment variable CROSSLAYER_CLOCK names the clock: `wall` or `virtual`.

    Returns
    -------
    tuple
        Dataset folder and an empty text, or None and the reason why this machine cannot measure.

    Raises
    ------
    NotebookError
        If measuring fails; finished rounds are stored, and a further call resumes.
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
    """Make a function that the child runs before exec, so that the kernel kills the child when this process dies."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_death_signal, parent = 1, os.getpid()

    def before_exec() -> None:
        libc.prctl(set_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call of prctl
            os._exit(1)

    return before_exec


class _Progress:
    """Shows the progress of a measurement: the lines of text that it writes, and its progress bar.

    Text that ends in a carriage return is the bar. A notebook shows the bar in one output, which is updated. The bar is
    also printed as a line every 30 s, for programs that read only printed text, such as `make reproduce`.
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
        """Read the stream until its end and show what it contains."""
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
