"""Settings of all tests. The helpers in this folder, e.g. `synthetic`, are importable from every test."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# No deadlines, because the duration of an example varies on shared machines.
hypothesis.settings.register_profile(
    "shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], derandomize=True
)
hypothesis.settings.load_profile("shared")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append name and reason of a skipped test to the file that the variable CROSSLAYER_SKIPS names.

    At its end, `make test` prints the number of skipped tests for each reason.
    """
    if report.skipped and not hasattr(report, "wasxfail") and (path := os.environ.get("CROSSLAYER_SKIPS")):
        assert isinstance(report.longrepr, tuple)
        reason = report.longrepr[2].removeprefix("Skipped: ").splitlines()[0]
        with Path(path).open("a", encoding="utf-8") as file:  # one write per line, because several runs append
            file.write(f"{reason}\t{report.nodeid}\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Append a test's duration and processor time, in s, to the file that the variable CROSSLAYER_DURATIONS names.

    The processor time is that of this process and its ended child processes. A fixture counts for its first test.
    """
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    result = yield
    if path := os.environ.get("CROSSLAYER_DURATIONS"):
        wall, cpu = time.perf_counter() - wall, sum(os.times()[:4]) - cpu
        with Path(path).open("a", encoding="utf-8") as file:  # one write per line, because several runs append
            file.write(f"{wall:.2f}\t{cpu:.2f}\t{item.nodeid}\n")
    return result
