"""A link that is deliberately broken during a round: the checks flag this round and no other.

This file is also the program that measures once in a guest in virtual time, where other load cannot disturb the link;
the tests read its output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crosslayer.campaign import rounds
from crosslayer.campaign.captures import Captures
from crosslayer.campaign.plan import Cell
from crosslayer.guest import inside, run_attached
from crosslayer.links import Profile
from crosslayer.studies import sized
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.testbed import Testbed

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.integration.test_link_honesty"]
LINK = Profile("honest", rtt_ms=20, download_mbit=50, upload_mbit=20)
WHOLE = {"wire-server": "limit 1100 delay 10ms rate 50mbit", "wire-client": "limit 1100 delay 10ms rate 20mbit"}
"""netem parameters of the unbroken link, by device."""
BREAKS = {
    "nothing": [],
    "delay": [("delay 10ms", "delay 11ms")],
    "rate down": [("rate 50mbit", "rate 25mbit")],
    "rate up": [("rate 20mbit", "rate 10mbit")],
    "loss": [("limit 1100", "limit 1100 loss 1%")],
    "cable": "out and in again",
}
VERDICTS = {
    "delay": r"idle RTT 2[12]\.\d\d ms, profile 20\.00 ms",
    "rate down": r"downlink 2\d\.\d\d Mbit/s, profile 50\.00 Mbit/s",
    "rate up": r"uplink 1\d\.\d\d Mbit/s, profile 20\.00 Mbit/s",
    # In 1 of 60 such rounds, the trains lose too few packets. Then the probes show the loss, except in 1 of 160 rounds.
    "loss": r"(down|up)link lost \d\.\d% of a train|4\d of 50 probes came back",
    "cable": r"an interface was down meanwhile",
}


def spoil(kind: str) -> None:
    """Break the link without notifying the testbed."""
    ip, tc = namespaces.tool("ip"), namespaces.tool("tc")
    commands = [[ip, "link", "set", "to-server", state] for state in ("down", "up")] if kind == "cable" else []
    if kind != "cable" and BREAKS[kind]:
        for device, netem in WHOLE.items():
            for was, becomes in BREAKS[kind]:
                netem = netem.replace(was, becomes)
            commands.append([tc, "qdisc", "replace", "dev", device, "root", "netem", *netem.split()])
    for command in commands:
        subprocess.run(namespaces.command_in(network.LINK, command), check=True)


class Measuring:
    """A measurer that measures nothing and breaks the link in its second round."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def occasional_conditions(self, cell: Cell, number: int) -> list[str]:
        return []

    def conditions(self, cell: Cell) -> list[str]:
        return ["all"]

    def measure(self, condition: str, cell: Cell, number: int, position: int) -> dict[str, list[dict[str, Any]]]:
        if number == 1:
            spoil(self._kind)
        return {"tcp_rtts": [{"error": None}]}

    def failed(self, condition: str, cell: Cell, number: int, position: int, why: str) -> dict[str, list[Any]]:
        return {"tcp_rtts": [{"error": why}]}


def measure() -> dict[str, list[str | None]]:
    """Errors of three rounds, by kind of break; the link is broken in the second."""
    job: Any = SimpleNamespace(plan=sized("coalescing", "smoke"), campaign="c", profiles={LINK.name: LINK})
    captures = Captures(job.plan, namespaces.ROOT)
    cell, errors = Cell(LINK.name, "example.org"), {}
    with Testbed() as testbed:
        testbed.set_link(LINK)
        for kind in BREAKS:
            measuring: Any = Measuring(kind)
            rounds_rows = [rounds._round(job, testbed, measuring, captures, number, cell)[0] for number in range(3)]
            errors[kind] = [rows["tcp_rtts"][0]["error"] for rows in rounds_rows]
    return errors


@pytest.fixture(scope="module")
def errors(virtual_clock: list[str]) -> dict[str, list[str | None]]:
    done = subprocess.run(COMMAND, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, list[str | None]] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("kind", BREAKS)
def test_the_round_in_which_a_link_breaks_is_flagged_and_no_other(
    errors: dict[str, list[str | None]], kind: str
) -> None:
    before, broken, after = errors[kind]
    assert before is after is None
    if kind == "nothing":
        assert broken is None
    else:
        assert broken is not None
        assert re.search(VERDICTS[kind], broken), broken


if __name__ == "__main__":
    if inside():
        namespaces.enter(COMMAND)
        print(json.dumps(measure()))
    else:
        sys.exit(run_attached(COMMAND, clock="virtual"))
