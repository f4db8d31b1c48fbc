"""Run several commands in one guest: `python -m tests.integration.commands CLOCK FOLDER`.

Commands and results are lines of JSON. One guest serves several tests, because its start takes seconds and a test of
the link less. FOLDER is writable in the guest.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

from crosslayer.guest import Clock, run_attached
from crosslayer.guest.guest import MARK

ROOT = Path(__file__).parents[2]


class Commands:
    """A guest that runs `crosslayer` commands; a context manager that ends the guest."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, clock, str(folder)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __enter__(self) -> Commands:
        return self

    def __exit__(self, *_fault: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command like `subprocess.run`, with the options `env` and `input`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = [sys.executable, "-m", "crosslayer", *arguments]
        self._process.stdin.write(
            json.dumps({"args": command} | {k: dict(v) if k == "env" else v for k, v in options.items()})
        )
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the guest ended with status {self._process.wait()}"
        return subprocess.CompletedProcess(command, **json.loads(answer))


def obey() -> None:
    """In the guest: run each command from standard input and print its result."""
    for line in sys.stdin:
        call = json.loads(line)
        if "env" in call:  # keep the guest's own TMPDIR and mark
            call["env"] = {k: v for k, v in call["env"].items() if k != "TMPDIR"} | {MARK: os.environ[MARK]}
        done = subprocess.run(**call, capture_output=True, text=True, check=False)
        print(json.dumps({key: getattr(done, key) for key in ("returncode", "stdout", "stderr")}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        obey()
    else:
        COMMAND = [sys.executable, "-m", "tests.integration.commands"]
        sys.exit(run_attached(COMMAND, clock=cast(Clock, sys.argv[1]), writable=[Path(sys.argv[2])]))
