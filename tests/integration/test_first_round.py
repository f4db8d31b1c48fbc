"""A server that is killed before the first round of a campaign is replaced, as in later rounds.

This file is also the program that measures in private namespaces; its argument is the number of kills.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.rounds import Job, local_executor
from crosslayer.errors import CrosslayerError
from crosslayer.links import Profile
from crosslayer.studies.serialisation.measure import MEASURER
from crosslayer.testbed import namespaces

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.integration.test_first_round"]
LINK = Profile("short", 4.0)


class Dying(MEASURER):  # type: ignore[misc, valid-type]
    """Kills the server during the first `deaths` warm-ups."""

    deaths = 0

    def warm_up(self) -> None:
        super().warm_up()
        if Dying.deaths:
            Dying.deaths -= 1
            os.kill(self.context.server.pid, signal.SIGKILL)


def measure(deaths: int) -> dict[str, Any]:
    Dying.deaths = deaths
    plan = Plan(study="serialisation", links=(LINK.name,), pages=("example.org",), rounds=1)
    job = Job(plan, "c", [(0, Cell(LINK.name, "example.org"))], Dying, {LINK.name: LINK}, "auto")
    messages: list[str] = []
    try:
        rounds = [part.number for part in local_executor(job, messages.append) if part.cell]
    except CrosslayerError as error:
        return {"messages": messages, "fault": str(error)}
    return {"messages": messages, "rounds": rounds}


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_server_that_is_killed_before_the_first_round(browser_machine: None, deaths: int) -> None:
    done = subprocess.run([*COMMAND, str(deaths)], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    again = [line for line in results["messages"] if "The testbed is made anew" in line]
    assert len(again) == 1
    assert "the server ended with status -9" in again[0]
    if deaths == 1:
        assert results["rounds"] == [0]
    else:  # the server is replaced only once
        assert "the server ended with status -9" in results["fault"]


if __name__ == "__main__":
    namespaces.enter([*COMMAND, *sys.argv[1:]])
    print(json.dumps(measure(int(sys.argv[1]))))
