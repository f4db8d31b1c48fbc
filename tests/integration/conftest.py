"""Fixtures of the integration tests: the `crosslayer` command, and checks that skip tests on unsuitable machines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import NoReturn

import pytest

from crosslayer import doctor
from crosslayer.browser import BrowserError, find_browser
from crosslayer.errors import CrosslayerError
from crosslayer.guest import find_kernel

CROSSLAYER = [sys.executable, "-m", "crosslayer"]

Run = Callable[..., subprocess.CompletedProcess[str]]


def unavailable(reason: str) -> NoReturn:
    """Skip a test that this machine cannot run, or fail if `crosslayer doctor` reported that the machine can measure.

    `make test` sets CROSSLAYER_CAN_MEASURE from the doctor's exit status.
    """
    if os.environ.get("CROSSLAYER_CAN_MEASURE"):
        pytest.fail(f"`crosslayer doctor` says that this machine can measure, but its tests would be skipped: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def testbed_machine() -> None:
    """Skip, with the doctor's reason, if this machine cannot provide the testbed."""
    findings = doctor.examine()
    missing = [f"{f.item}: {f.detail}" for f in findings if f.state == "missing" and f.needed_for == "measuring"]
    if missing:
        unavailable("; ".join(missing))


@pytest.fixture(scope="session")
def browser_machine(testbed_machine: None) -> None:
    """Skip, with the next step, if this machine has no testbed or no Chromium."""
    try:
        find_browser()
    except BrowserError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def firefox_machine(testbed_machine: None) -> None:
    """Skip, with the next step, if there is no Firefox."""
    try:
        find_browser("firefox")
    except BrowserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def virtual_clock() -> list[str]:
    """Options of `crosslayer measure` for virtual time; skip, with the next step, if there is no guest kernel."""
    try:
        find_kernel()
    except CrosslayerError as error:
        pytest.skip(f"{error.what}: {error.next_step}")
    return ["--clock", "virtual", "--jobs", "1"]


def run_here(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the `crosslayer` command, with a timeout of 10 minutes."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*CROSSLAYER, *arguments], capture_output=True, text=True, timeout=600, check=False, **options
    )


@pytest.fixture
def crosslayer(testbed_machine: None) -> Run:
    """Function that runs the `crosslayer` command; the test is skipped if this machine cannot provide the testbed."""
    return run_here
