"""Each fault of a path blocks its packets and no others, and the check fails for a path that does not block.

This file is also the program that measures in a guest in virtual time; the tests read its output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from typing import Any

import pytest

from crosslayer.guest import run_attached
from crosslayer.links import load_profiles
from crosslayer.path_faults import parse_fault
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.backends import Middlebox
from crosslayer.testbed.fault_check import PROBES, verify
from crosslayer.testbed.testbed import Testbed
from tests.integration.conftest import CROSSLAYER

FAULTS = (
    "drop udp/443",
    "reject udp/443",
    "drop udp/53",
    "truncate udp/53",
    "drop tcp/443",
    "drop syn/443",
    "reject syn/443",
    "drop quic-initial",
    "drop quic-initial:1230",
    "drop quic-0rtt",
    "drop quic-version:0x6b3343cf",
    "drop ech",
    "drop ech:public.example",
    "reject ech",
    "drop udp/443@2s",
    "drop ipv6",
    "reject ipv6",
)
OVER_IPV6 = ("drop udp/443", "reject udp/443", "drop syn/443", "reject syn/443", "drop quic-initial:1230", "reject ech")
"""Faults that are also verified at an IPv6 address."""
RTT_MS = 91.85
"""RTT of the link 4g."""
SCOPED = network.SERVER_ADDRESS


class Broken(Middlebox):
    """A middlebox that ignores its faults and forwards everything."""

    def block(self, faults: Any, addresses: Any = ()) -> None:
        super().block([])


def measure() -> dict[str, Any]:
    """Checks of all faults, of a broken middlebox, and of a link whose profile has a fault."""
    link = load_profiles()["fiber"]
    with Testbed("netem") as testbed:
        testbed.set_link(link)
        network.enable_ipv6()
        network.enable_ipv6()  # a second call changes nothing
        middlebox = Middlebox()
        measured: dict[str, Any] = {
            text: asdict(verify(middlebox, [parse_fault(text)], link.rtt_ms)) for text in FAULTS
        }
        measured["scoped"] = asdict(verify(middlebox, [parse_fault("drop udp/443")], link.rtt_ms, addresses=[SCOPED]))
        measured["elsewhere"] = asdict(
            verify(middlebox, [parse_fault("drop udp/443")], link.rtt_ms, addresses=["10.53.1.1"])
        )
        for text in OVER_IPV6:
            counts = verify(middlebox, [parse_fault(text)], link.rtt_ms, network.SERVER_ADDRESS6)
            measured[f"{text} over IPv6"] = asdict(counts)
        middlebox.stop()
    with Testbed("netem") as testbed:
        testbed.set_link(link)
        broken = Broken()
        measured["broken"] = asdict(verify(broken, [parse_fault("drop udp/443")], link.rtt_ms))
        broken.stop()
    with Testbed("netem") as testbed:
        check = testbed.set_link(replace(link, name="blocked", faults=("drop udp/443", "reject udp/853", "drop ipv6")))
        measured["profile"] = asdict(check) | {"verdict": check.verdict}
    return measured


@pytest.fixture(scope="module")
def seen(virtual_clock: list[str]) -> dict[str, Any]:
    """Results of the program in a guest."""
    command = [sys.executable, "-m", __name__, "virtual"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


@pytest.mark.parametrize("text", [*FAULTS, *(f"{text} over IPv6" for text in OVER_IPV6)])
def test_a_fault_blocks_its_packets_and_no_others(seen: dict[str, Any], text: str) -> None:
    assert seen[text]["deviations"] == []
    assert seen[text]["probes"] == PROBES
    assert seen[text]["passed"] == 0


def test_a_fault_of_one_address_leaves_others_alone(seen: dict[str, Any]) -> None:
    assert seen["scoped"]["passed"] == 0
    assert seen["elsewhere"]["passed"] == PROBES


def test_the_check_fails_for_a_path_that_blocks_nothing(seen: dict[str, Any]) -> None:
    assert f"drop udp/443: {PROBES} of {PROBES} packets passed" in seen["broken"]["deviations"]


def test_a_link_with_faults_is_verified_like_every_link(seen: dict[str, Any]) -> None:
    assert seen["profile"]["verdict"] == "pass"
    assert seen["profile"]["fault_probes"] == 3 * PROBES
    assert seen["profile"]["fault_probes_passed"] == 0


CONNECTED = "%{remote_ip} %{time_connect}"


@pytest.mark.parametrize(
    ("fault", "address", "connected_ms"),
    [
        ("--drop=ipv6", "10.53.1.6", 2 * RTT_MS + 200),
        ("--reject=ipv6", "10.53.1.6", 2 * RTT_MS),
        ("--drop=ipv6@100s", "2001:db8:53:1::6", 2 * RTT_MS),
    ],
)
def test_curl_on_a_path_without_ipv6(virtual_clock: list[str], fault: str, address: str, connected_ms: float) -> None:
    """A lookup and a connect; the connect is 200 ms later if IPv6 is dropped without an answer."""
    curl = ["curl", "-sS", "-o", "/dev/null", "-w", CONNECTED, "--cacert", "$CROSSLAYER_CA", "https://www.example.org/"]
    command = [*CROSSLAYER, "link", "--clock", "virtual", "4g", fault, "--", *curl]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    remote, connected_s = done.stdout.split()
    assert remote == address
    assert float(connected_s) * 1e3 == pytest.approx(connected_ms, abs=1)


@pytest.mark.parametrize(("fault", "errors"), [("--drop=ipv6", ""), ("--reject=ipv6", " +1 errors,")])
def test_an_echo_request_over_ipv6_is_blocked(virtual_clock: list[str], fault: str, errors: str) -> None:
    ping = ["ping", "-6", "-n", "-c", "1", "-W", "2", network.SERVER_ADDRESS6]
    command = [*CROSSLAYER, "link", "--clock", "virtual", "4g", fault, "--", *ping]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert f"1 packets transmitted, 0 received,{errors} 100% packet loss" in done.stdout
    assert ("Destination unreachable: No route" in done.stdout) is bool(errors)


if __name__ == "__main__":
    program = [sys.executable, "-m", "tests.integration.test_path_faults"]
    if sys.argv[1] == "virtual":
        sys.exit(run_attached([*program, "here"], clock="virtual"))
    namespaces.enter([*program, "here"])
    print(json.dumps(measure()))
