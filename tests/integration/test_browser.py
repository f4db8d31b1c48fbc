"""If a browser or a ChromeDriver is killed, an error is raised soon, and no process remains.

Also: a Chromium with few processes, as in virtual time, loads no pages by itself.

This file is also the program that runs the browsers, in private namespaces without an outside network.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import websocket

from crosslayer.browser import BrowserError, find_browser, launch
from crosslayer.testbed import namespaces
from crosslayer.testbed.certificates import make_certificates
from crosslayer.testbed.testbed import Testbed

pytestmark = pytest.mark.alone

VICTIMS = ("chromium", "chromedriver", "chromium under way", "chromedriver under way")
FIREFOX = ("firefox", "firefox under way")
OF_ITS_OWN_ACCORD_S = 3.0
"""Waiting time, s; longer than Chromium needs to load its own pages in a new window."""


def started(folder: Path) -> list[tuple[int, list[str]]]:
    """PIDs and command lines of the processes whose HOME is in this folder.

    Chromium's crash handlers are excluded, because they outlive it for a moment.
    """
    home, results = f"HOME={folder / 'home'}\0".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that has ended meanwhile
            if home in (entry / "environ").read_bytes():
                results.append((int(entry.name), (entry / "cmdline").read_bytes().decode().split("\0")))
    return [(pid, command_line) for pid, command_line in results if "crashpad" not in command_line[0]]


def killed(victim: str) -> dict[str, Any]:
    """Errors and durations of loads whose browser or driver is killed, before the first load or during it."""
    folder = Path(tempfile.mkdtemp())
    program = victim.split(" ", maxsplit=1)[0]
    programs = find_browser("firefox" if victim in FIREFOX else "chromium")
    browser = launch(programs, folder=folder, addresses={}, certificates=make_certificates(folder, ["a.example"], []))
    pids = [
        pid
        for pid, command_line in started(folder)
        if ("chromedriver" in command_line[0]) is (program == "chromedriver")
    ]

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
    while time.monotonic() < until:  # before the kill, loads fail quickly because the names do not exist
        begin = time.monotonic()
        try:
            browser.load("www.example.org", prime_host="alias.example.org", close_connections=lambda: None)
        except BrowserError as error:
            errors.append(error.what)
    result = {"errors": errors, "load_s": time.monotonic() - begin}
    begin = time.monotonic()
    browser.close()
    return result | {"close_s": time.monotonic() - begin, "left": started(folder)}


def loaded() -> list[str]:
    """URLs of all targets, including its own pages, of a Chromium with few processes and an empty page."""
    folder = Path(tempfile.mkdtemp())
    certificates = make_certificates(folder, ["a.example"], [])
    with (
        launch(
            find_browser("chromium"), folder=folder, addresses={}, certificates=certificates, few_processes=True
        ) as browser,
        browser.asking(),
    ):
        time.sleep(OF_ITS_OWN_ACCORD_S)
        port, path = (folder / "profile" / "DevToolsActivePort").read_text(encoding="ascii").split()
        devtools = websocket.create_connection(f"ws://127.0.0.1:{port}{path}", suppress_origin=True)
        everything: list[dict[str, str]] = [{}]
        devtools.send(json.dumps({"id": 1, "method": "Target.getTargets", "params": {"filter": everything}}))
        targets = json.loads(devtools.recv())["result"]["targetInfos"]
        devtools.close()
    return [target["url"] for target in targets]


def results(*what: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.test_browser", *what],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def of_chromium(browser_machine: None) -> dict[str, Any]:
    return results("loaded", *VICTIMS)


@pytest.fixture(scope="module")
def of_firefox(firefox_machine: None) -> dict[str, Any]:
    return results(*FIREFOX)


@pytest.mark.parametrize(
    ("title", "victim"),
    [*(("Chromium", victim) for victim in VICTIMS), *(("Firefox", victim) for victim in FIREFOX)],
)
def test_a_killed_program_is_an_error_and_leaves_nothing(
    request: pytest.FixtureRequest, title: str, victim: str
) -> None:
    result = request.getfixturevalue(f"of_{title.lower()}")[victim]
    assert result["errors"]
    assert all(error.startswith(f"failed in {title}: ") for error in result["errors"])
    assert result["load_s"] < 20
    assert result["close_s"] < 5
    assert result["left"] == []


def test_a_chromium_with_few_processes_loads_no_page_of_its_own(of_chromium: dict[str, Any]) -> None:
    assert set(of_chromium["loaded"]) == {"about:blank"}


if __name__ == "__main__":
    namespaces.enter([sys.executable, "-m", "tests.integration.test_browser", *sys.argv[1:]])
    with Testbed("plain"):
        of_its_own = {"loaded": loaded()} if "loaded" in sys.argv[1:] else {}
        victims = [what for what in sys.argv[1:] if what != "loaded"]
        # Each thread has its own browser and mostly waits for the timeout of a BiDi command.
        with ThreadPoolExecutor() as pool:
            print(json.dumps(of_its_own | dict(zip(victims, pool.map(killed, victims), strict=True))))
