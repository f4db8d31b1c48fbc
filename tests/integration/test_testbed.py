"""A program of a testbed that dies is noticed at once, and a further testbed can be opened.

This file is also the program that measures once in private namespaces; the tests read its output.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crosslayer import pages
from crosslayer.links import load_profiles
from crosslayer.process import ProcessDied
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.testbed import Testbed
from tests.integration.conftest import CROSSLAYER

pytestmark = pytest.mark.alone


def died(call: Callable[[], object]) -> dict[str, Any]:
    """Program and status of a `ProcessDied` that a call raises, and the time until then; empty if it raises none."""
    begin = time.monotonic()
    try:
        call()
    except ProcessDied as error:
        return {"program": error.program, "status": error.status, "elapsed_s": time.monotonic() - begin}
    return {}


def measure() -> dict[str, Any]:
    specs, fiber = pages.load_pages(pages.find_spec_dir()), load_profiles()["fiber"]
    results: dict[str, Any] = {"checks": []}
    for victim in ("guest", "heartbeat", "server", None):
        with Testbed() as testbed, testbed.serve(specs) as (server, _):
            results["backend"] = testbed.backend.name
            results["checks"].append(testbed.set_link(fiber).verdict)
            if victim == "guest" and results["backend"] == "uml":
                os.kill(testbed.backend._guest.pid, signal.SIGKILL)  # type: ignore[attr-defined]
                time.sleep(0.1)
                results["guest, check"] = died(testbed.check_link)
                results["guest, set"] = died(lambda: testbed.set_link(load_profiles()["dsl"]))
            if victim == "heartbeat" and results["backend"] == "uml":
                os.kill(testbed.backend._heartbeat.pid, signal.SIGKILL)  # type: ignore[attr-defined]
                time.sleep(0.1)
                results["heartbeat, check"] = died(testbed.check_link)
            if victim == "server":
                os.kill(server.pid, signal.SIGKILL)
                results["server, command"] = died(lambda: server.close_connections("h3"))
                results["server, check"] = died(testbed.check_link)
    results["congestion control"] = congestion_control()
    return results


def congestion_control() -> dict[str, str]:
    """Algorithm in use for each configured algorithm, and the error for an unknown one."""
    results = {}
    for algorithm in ("reno", "cubic"):
        with Testbed("plain", congestion_control=algorithm), network.far_host(0, algorithm):
            results[algorithm] = network.congestion_control()
    with Testbed("plain"):
        results["the machine's own"] = network.congestion_control()
    try:
        Testbed("plain", congestion_control="nonesuch")
    except TestbedError as error:
        results["nonesuch"] = str(error)
    return results


@pytest.fixture(scope="module")
def results(testbed_machine: None) -> dict[str, Any]:
    """Results of the program, run with the PATH of an ordinary Debian user, which lacks `tc`."""
    path = os.pathsep.join(folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.endswith("sbin"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.test_testbed"], env=os.environ | {"PATH": path},
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_tcp_uses_what_is_configured_at_both_ends(results: dict[str, Any]) -> None:
    actual = results["congestion control"]
    assert (actual["reno"], actual["cubic"]) == ("reno", "cubic")
    assert actual["the machine's own"] == Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    assert "TCP cannot use 'nonesuch'" in actual["nonesuch"]
    assert "modprobe tcp_nonesuch" in actual["nonesuch"]


@pytest.mark.parametrize("call", ["guest, check", "guest, set", "heartbeat, check", "server, command", "server, check"])
def test_a_killed_program_is_noticed_at_once(results: dict[str, Any], call: str) -> None:
    victim = call.partition(",")[0]
    if victim != "server" and results["backend"] != "uml":
        pytest.skip("the link is this kernel's own here")
    names = {"guest": "the User-Mode Linux guest", "heartbeat": "the heartbeat of the link", "server": "the server"}
    program = names[victim]
    assert (results[call]["program"], results[call]["status"]) == (program, -signal.SIGKILL)
    assert results[call]["elapsed_s"] < 1


def test_a_testbed_can_be_opened_after_another(results: dict[str, Any]) -> None:
    assert results["checks"] == ["pass"] * 4


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_campaign(testbed_machine: None, tmp_path: Path, number: signal.Signals, status: int) -> None:
    process = subprocess.Popen(
        [*CROSSLAYER, "measure", "--study", "single-query", "--rounds", "50", "--out", str(tmp_path / "campaign")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    output = b""
    while b"round" not in output:  # the progress bar has appeared
        piece = process.stderr.read1()  # type: ignore[attr-defined]
        assert piece, output
        output += piece
    begin = time.monotonic()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == status, output + stderr
    assert time.monotonic() - begin < 2
    assert b"Traceback" not in stderr


if __name__ == "__main__":
    namespaces.enter([sys.executable, "-m", "tests.integration.test_testbed"])
    print(json.dumps(measure()))
