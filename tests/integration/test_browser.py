"""A Chromium or a ChromeDriver that is killed is one error, soon, and nothing of either is left.

Measured once, by this file run as a program in private namespaces, where Chromium reaches nobody.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from crosslayer.browser import Browser, BrowserError, find_browser
from crosslayer.browser.browser import _pids
from crosslayer.testbed import Testbed, private

VICTIMS = ("chromium", "chromedriver", "chromium under way", "chromedriver under way")


def killed(victim: str) -> dict[str, Any]:
    """What becomes of loads whose programs are killed, before the first or under way."""
    folder = Path(tempfile.mkdtemp())
    browser = Browser(find_browser(), folder=folder, addresses={}, spki="")
    program = victim.split(" ", maxsplit=1)[0]
    pids = _pids(folder / "profile") if program == "chromium" else [browser._driver.service.process.pid]

    def kill() -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    if victim == program:
        kill()
    else:
        threading.Timer(0.1, kill).start()
    errors: list[str] = []
    until = time.monotonic() + 1
    begin = time.monotonic()
    while time.monotonic() < until:  # names that nobody knows fail too, and quickly
        begin = time.monotonic()
        try:
            browser.load("www.example.org", prime_host="alias.example.org", close_connections=lambda: None)
        except BrowserError as error:
            errors.append(error.what)
    result = {"errors": errors, "load_s": time.monotonic() - begin}
    begin = time.monotonic()
    browser.close()
    return result | {"close_s": time.monotonic() - begin, "left": _pids(folder / "profile")}


@pytest.fixture(scope="module")
def results(browser_machine: None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.test_browser"],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_killed_program_is_an_error_and_leaves_nothing(results: dict[str, Any], victim: str) -> None:
    result = results[victim]
    assert result["errors"]
    assert all(error.startswith("failed in Chromium: ") for error in result["errors"])
    assert result["load_s"] < 20
    assert result["close_s"] < 5
    assert result["left"] == []


if __name__ == "__main__":
    private.enter([sys.executable, "-m", "tests.integration.test_browser"])
    with Testbed("plain"):
        print(json.dumps({victim: killed(victim) for victim in VICTIMS}))
