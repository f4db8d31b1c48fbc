"""Stopping a program: what ends by itself, what ends when asked, what has to be killed."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from crosslayer.testbed import programs

DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
WILLING = "import signal; print(flush=True); signal.pause()"


@pytest.mark.parametrize(("body", "status"), [(WILLING, -signal.SIGTERM), (DEAF, -signal.SIGKILL), ("print()", 0)])
def test_a_stopped_program_has_ended(body: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_STOP_TIMEOUT_S", 0.2)
    with subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # its handler is set
        if status == 0:
            process.wait()
        programs.stop_program(process)
        assert process.returncode == status
        programs.stop_program(process)
        assert process.returncode == status
