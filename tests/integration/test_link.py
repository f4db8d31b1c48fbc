"""The command `crosslayer link`: RTT and loss of the link, exit status, and cleanup.

Each test with the fixture `crosslayer` runs twice, with the same tolerances: with this machine's link backend (usually
`uml`), and with `netem` in a guest in virtual time. In real time a guest takes minutes for these tests, so `make
test-long` runs them (tests/long/test_link_in_a_guest.py).
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from crosslayer.errors import CrosslayerError
from crosslayer.guest import Clock, find_kernel
from crosslayer.links import load_profiles
from tests.integration.commands import Commands
from tests.integration.conftest import CROSSLAYER, Run, run_here


@contextmanager
def in_a_guest(clock: Clock, folder: Path) -> Iterator[Run]:
    """Function that runs `crosslayer` commands in one guest; the test is skipped if there is no guest kernel."""
    try:
        find_kernel()
    except CrosslayerError as error:
        pytest.skip(f"{error.what}: {error.next_step}")
    with Commands(clock, folder) as commands:
        yield commands.run


@pytest.fixture(scope="module", params=["virtual", pytest.param("here", marks=pytest.mark.alone)])
def crosslayer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Function that runs the `crosslayer` command, here or in a guest in virtual time."""
    if request.param == "here":
        request.getfixturevalue("testbed_machine")
        yield run_here
        return
    with in_a_guest("virtual", tmp_path_factory.getbasetemp()) as run:
        yield run


@contextmanager
def awake_cores() -> Iterator[None]:
    """Keep each core busy with a loop of the scheduler's class `idle`, which gives way to every other process."""
    loops = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import os\nos.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: 0",
            ]
        )
        for _core in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _remains() -> list[str]:
    """Running processes of a testbed: the guest, the server, and any with the private folder in its arguments."""
    results = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "linux.uml" in command_line or "/run/crosslayer" in command_line:
            results.append(command_line.replace("\0", " "))
    return results


def _interfaces() -> set[str]:
    return {device.name for device in Path("/sys/class/net").iterdir()}


@pytest.mark.parametrize("name", ["fiber", "cable", "dsl", "4g", "4g-medium"])
def test_ping_takes_the_profiles_rtt(crosslayer: Run, name: str) -> None:
    profile = load_profiles()[name]
    done = crosslayer(
        "link", name, "--no-server", "--", "ping", "-q", "-i", "0.02", "-c", "40", "-s", "16", "$CROSSLAYER_SERVER"
    )
    assert done.returncode == 0, done.stderr
    summary = done.stdout.strip().splitlines()[-1]
    minimum, average = (float(value) for value in summary.split("=")[1].split("/")[:2])
    # A shared machine stalls now and then, so only the minimum is compared with the profile.
    assert minimum == pytest.approx(profile.rtt_ms, rel=0.03, abs=0.3)
    assert average >= minimum


def test_a_trace_begins_with_the_command(crosslayer: Run) -> None:
    """The command sees the first RTT of the trace, not the minimum, which applies during the check of the link."""
    trace = Path(__file__).parents[2] / "emulation" / "traces" / "leo.csv"
    rtt_ms = float(trace.read_text(encoding="ascii").splitlines()[1].split(",")[1])
    ping = ["ping", "-q", "-i", "0.05", "-c", "40", "-s", "16", "$CROSSLAYER_SERVER"]
    done = crosslayer("link", "fiber", "--trace", str(trace), "--no-server", "--", *ping)
    assert done.returncode == 0, done.stderr
    minimum = float(done.stdout.strip().splitlines()[-1].split("=")[1].split("/")[0])
    assert minimum == pytest.approx(rtt_ms, rel=0.03, abs=0.3)


def test_a_trace_that_is_none_is_one_line(crosslayer: Run) -> None:
    done = crosslayer("link", "fiber", "--trace", str(Path(__file__)), "--no-server", "--", "true")
    assert done.returncode == 1
    assert "test_link.py, line 1: is " in done.stderr
    assert "only the time of a delivery opportunity" in done.stderr


def test_exit_status_environment_and_resolver(crosslayer: Run) -> None:
    script = "cat /etc/resolv.conf; echo server $CROSSLAYER_SERVER; head -1 $CROSSLAYER_CA; exit 7"
    done = crosslayer("link", "local", "--", "sh", "-c", script)
    assert done.returncode == 7, done.stderr
    assert "nameserver 10.53.0.2" in done.stdout
    assert "server 10.53.0.2" in done.stdout
    assert "BEGIN CERTIFICATE" in done.stdout


def test_a_signal_shows_as_a_shell_shows_it(crosslayer: Run) -> None:
    assert crosslayer("link", "local", "--no-server", "--", "sh", "-c", "kill -TERM $$").returncode == 143


def test_an_unknown_command_or_profile_is_one_line(crosslayer: Run) -> None:
    done = crosslayer("link", "local", "--no-server", "--", "no-such-program")
    assert done.returncode == 127
    assert done.stderr.strip() == "crosslayer: no-such-program: command not found"
    done = crosslayer("link", "fibre", "--", "true")
    assert done.returncode == 1
    assert "no link profile 'fibre'" in done.stderr
    assert "fiber" in done.stderr


def test_an_independent_client_resolves_over_every_transport(crosslayer: Run) -> None:
    transports = ["+notcp", "+tcp", "+tls", "+https", "+quic"]
    script = f"for t in {' '.join(transports)}; do kdig $t @$CROSSLAYER_SERVER www.example.org A; echo '====' $?; done"
    done = crosslayer("link", "local", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    for transport, output in zip(transports, done.stdout.split("====")[:-1], strict=True):
        assert "status: NOERROR" in output, transport
        assert re.search(r"^www\.example\.org\.\s.*\sA\s+10\.53\.1\.", output, re.MULTILINE), transport
    assert [line for line in done.stdout.splitlines() if line.startswith("====")] == ["==== 0"] * len(transports)


def test_a_server_that_the_users_shell_expanded_to_nothing_is_filled_in(crosslayer: Run) -> None:
    done = crosslayer("link", "local", "--", "kdig", "+tcp", "@", "www.example.org", "A")
    assert "status: NOERROR" in done.stdout, done.stderr


def test_nothing_of_the_host_is_reachable(crosslayer: Run) -> None:
    done = crosslayer("link", "local", "--no-server", "--", "ping", "-c", "1", "-W", "1", "192.0.2.1")
    assert done.returncode != 0
    assert "unreachable" in (done.stdout + done.stderr).lower()


def test_kill_9_leaves_nothing_behind(testbed_machine: None) -> None:
    before = _interfaces()
    process = subprocess.Popen(
        [*CROSSLAYER, "link", "fiber", "--", "sh", "-c", "echo up; sleep 600"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert any("crosslayer-server" in command_line for command_line in _remains())
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while _remains() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _remains() == []
    assert _interfaces() == before
    assert not Path("/run/crosslayer").exists()


def test_rates_and_loss_are_the_profiles(crosslayer: Run, tmp_path: Path) -> None:
    """The testbed's own checks pass on a new link with loss, and ping measures this loss.

    In real time, the time to wake an idle core varies between calibration and check, so loops keep the cores awake.
    """
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        "[lossy]\nrtt_ms = 20\ndownload_mbit = 40\nupload_mbit = 5\nloss_percent = 10\n", encoding="utf-8"
    )
    script = tmp_path / "lost.py"
    script.write_text(
        "import subprocess, re\n"
        "words = ['ping', '-q', '-i', '0.004', '-c', '1500', '10.53.0.2']\n"
        "said = subprocess.run(words, capture_output=True, text=True).stdout\n"
        "print(re.search(r'(\\d+) received', said)[1])\n",
        encoding="utf-8",
    )
    with awake_cores() if crosslayer is run_here else nullcontext():
        done = crosslayer(
            "link", "lossy", "--no-server", "--", "python3", str(script),
            env=os.environ | {"CROSSLAYER_PROFILES": str(profiles)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not what its profile says" not in done.stderr
    came_back = int(done.stdout) / 1500
    assert statistics.NormalDist(0.81, (0.81 * 0.19 / 1500) ** 0.5).cdf(came_back) == pytest.approx(0.5, abs=0.4999)
