"""Helpers of the tests (`synthetic`) are importable from every test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# These machines are shared: how long an example takes says nothing.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.load_profile("shared")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append the reason of a skipped test to the file CROSSLAYER_SKIPS names; `make test` prints them at its end."""
    if report.skipped and not hasattr(report, "wasxfail") and (path := os.environ.get("CROSSLAYER_SKIPS")):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ").splitlines()[0]
        with Path(path).open("a", encoding="utf-8") as file:  # one write of one line: several runs append to it
            file.write(f"{reason}\t{report.nodeid}\n")
