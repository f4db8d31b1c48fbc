"""The guest: commands behave as on the host, its clock stands still while it computes, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from crosslayer.guest import find_kernel
from crosslayer.links import load_profiles
from tests.integration import test_link
from tests.integration.conftest import CROSSLAYER, Run

REFUSING = [
    "unshare", "--user", "--map-root-user", "--mount", "--propagation", "private",
    sys.executable, str(Path(__file__).with_name("refusing.py")),
]  # fmt: skip
"""Command prefix with the restrictions of a container: no namespaces, no mounts, no TUN, /dev/shm noexec."""


@pytest.fixture(scope="module", autouse=True)
def _kernel(virtual_clock: list[str]) -> None:
    """All tests of this file need a guest kernel."""


def run(*arguments: str, before: tuple[str, ...] = (), **options: object) -> subprocess.CompletedProcess[str]:
    """Run the `crosslayer` command, with a timeout of 10 minutes."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*before, *CROSSLAYER, *arguments], capture_output=True, text=True, timeout=600, check=False, **options
    )


def virtual(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command in virtual time."""
    return run(arguments[0], "--clock", "virtual", *arguments[1:], **options)


def refused(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command where namespaces are refused, so that it uses a guest in real time."""
    return run(*arguments, before=tuple(REFUSING), **options)


def _needs_the_filter() -> None:
    trial = subprocess.run([*REFUSING, "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"no filter to try it under: {trial.stderr.strip()}")


@pytest.fixture(params=[virtual, pytest.param(refused, marks=pytest.mark.alone)], ids=["virtual", "refused"])
def in_guest(request: pytest.FixtureRequest) -> Run:
    """Both ways into a guest; the second is skipped if the test itself may not install the restrictions."""
    if request.param is refused:
        _needs_the_filter()
    run_in_guest: Run = request.param
    return run_in_guest


def test_what_a_container_refuses_is_refused() -> None:
    """The restrictions work; otherwise the tests below would use this machine's namespaces and pass."""
    script = """
import fcntl, os, pathlib, shutil, subprocess
for words in (["unshare", "--user", "true"], ["unshare", "--net", "true"], ["mount", "-t", "tmpfs", "none", "/mnt"]):
    print(subprocess.run(words, capture_output=True).returncode != 0)
copy = pathlib.Path("/dev/shm/true")
shutil.copy("/bin/true", copy)
try:
    subprocess.run([copy])
    print("run")
except PermissionError:
    print(True)
try:
    with open("/dev/net/tun", "r+b", buffering=0) as tun:
        fcntl.ioctl(tun, 0x400454CA, b"crosslayer".ljust(16, bytes(1)) + bytes([2, 0]) + bytes(22))
    print("a device")
except OSError:
    print(True)
"""
    _needs_the_filter()
    done = subprocess.run([*REFUSING, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * 5, done.stderr
    done = refused("link", "local", "--no-server", "--", "sh", "-c", "echo $CROSSLAYER_INSIDE_GUEST")
    assert done.stdout == "wall\n", done.stderr


def test_the_link_is_as_on_the_host(in_guest: Run) -> None:
    """`test_link` has all other tests of the link and runs in a guest too."""
    test_link.test_exit_status_environment_and_resolver(in_guest)


def test_virtual_time_contains_the_link_alone() -> None:
    """Under any load, ping's minimum and maximum RTT are exact, and an hour of sleep takes seconds."""
    script = "ping -q -i 0.1 -c 20 $CROSSLAYER_SERVER; date +%s; sleep 3600; date +%s"
    begin = time.monotonic()
    done = virtual("link", "fiber", "--no-server", "--", "sh", "-c", script)
    assert time.monotonic() - begin < 300
    assert done.returncode == 0, done.stderr
    match = re.search(r"= ([\d.]+)/[\d.]+/([\d.]+)/", done.stdout)
    assert match is not None, done.stdout
    least, most = map(float, match.groups())
    assert least == pytest.approx(load_profiles()["fiber"].rtt_ms, abs=0.05)
    assert most - least < 0.02
    before, after = done.stdout.split()[-2:]
    assert int(after) - int(before) in (3600, 3601)


@pytest.mark.parametrize("wait_ms", [100, 1000, 4000])
def test_a_wait_of_epoll_ends_by_a_thousandth_too_late(wait_ms: int) -> None:
    """The cause is timer slack of Linux (`fs/select.c`), if nothing else wakes the guest."""
    program = (
        "import os, select, time; poll = select.epoll(); poll.register(os.pipe()[0]); begin = time.monotonic_ns(); "
        f"poll.poll({wait_ms / 1e3}); print((time.monotonic_ns() - begin) / 1e6)"
    )
    done = virtual("link", "fiber", "--no-server", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(wait_ms * 1.001, abs=0.05)


def test_files_are_the_hosts_and_only_named_folders_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("of the host\n", encoding="utf-8")
    named = tmp_path / "named"
    named.mkdir()
    script = (
        f"cat {tmp_path}/given; echo result > {named}/result; echo gone > {tmp_path}/gone; echo x > /usr/x || echo no"
    )
    done = virtual("link", "local", "--writable", str(named), "--no-server", "--", "sh", "-c", script)
    assert done.stdout == "of the host\nno\n", done.stderr
    assert (named / "result").read_text(encoding="utf-8") == "result\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "named"]
    assert not Path("/usr/x").exists()


def test_a_file_of_standard_input_is_there_from_the_start(in_guest: Run, tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"left out\n" + b"line\n" * 1000)
    command = ["link", "local", "--no-server", "--", "sh", "-c", "wc -l"]
    with file.open("rb", buffering=0) as source:
        source.read(len(b"left out\n"))
        done = in_guest(*command, stdin=source)
    assert (done.returncode, done.stdout.strip()) == (0, "1000")
    assert in_guest(*command, stdin=subprocess.DEVNULL).stdout.strip() == "0"


def test_standard_input_output_and_errors_are_three(in_guest: Run) -> None:
    sent = "".join(f"line {number}\n" for number in range(5000))
    done = in_guest("link", "local", "--no-server", "--", "sh", "-c", "wc -l; echo fault >&2", input=sent)
    assert (done.returncode, done.stdout.strip()) == (0, "5000")
    assert done.stderr.endswith("fault\n")


def _terminal(*arguments: str, keys: bytes) -> tuple[str, int]:
    """Run the command on a terminal and send `keys` when it prints "ready"; returns its output and exit status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(CROSSLAYER[0], [*CROSSLAYER, *arguments])
    output, deadline = b"", time.monotonic() + 300
    while time.monotonic() < deadline and select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if b"ready" in part and b"ready" not in output:
            os.write(terminal, keys)
        output += part
    os.close(terminal)
    return output.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_terminal_is_one_and_its_keys_arrive() -> None:
    script = "tty; stty size; echo ready; read word; echo got $word; exit 5"
    arguments = ("link", "--clock", "virtual", "local", "--no-server", "--", "sh", "-c", script)
    output, status = _terminal(*arguments, keys=b"hello\r")
    assert status == 5
    assert "/dev/pts/" in output
    assert "got hello" in output


def test_control_c_is_for_the_command() -> None:
    script = "trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 0.2; done"
    arguments = ("link", "--clock", "virtual", "local", "--no-server", "--", "sh", "-c", script)
    output, status = _terminal(*arguments, keys=b"\x03")
    assert "interrupted" in output
    assert status in (1, 6, 130)  # `crosslayer` is interrupted with it, as on the host


@pytest.fixture
def memory() -> Iterator[Path]:
    """Folder for the memory of a command's guests, by which a test recognises these guests."""
    with _memory() as folder:
        yield folder


@contextlib.contextmanager
def _memory() -> Iterator[Path]:
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as name:
        yield Path(name)


def _kernels(memory: Path) -> list[str]:
    """PIDs of the guests whose memory is in a folder; other tests may run guests at the same time."""
    kernel, mark = str(find_kernel().path).encode(), f"TMPDIR={memory}".encode()
    results = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if kernel in (entry / "cmdline").read_bytes().split(b"\0")[:1] and mark in (
                entry / "environ"
            ).read_bytes().split(b"\0"):
                results.append(entry.name)
        except OSError:
            continue
    return results


@pytest.fixture
def up(memory: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A guest with a long-running command: the process of the command, and the PID of the guest's kernel."""
    command = [*CROSSLAYER, "link", "--clock", "virtual", "local", "--no-server", "--"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [*command, "sh", "-c", "echo up; read forever"],
        text=True,
        env=os.environ | {"TMPDIR": str(memory)},
        **pipes,  # type: ignore[call-overload]
    ) as process:
        assert process.stdout.readline() == "up\n"
        (kernel,) = _kernels(memory)
        yield process, kernel
        process.kill()


def _all_gone(memory: Path) -> bool:
    """Whether all guests with memory in a folder end within 10 s."""
    deadline = time.monotonic() + 10
    while _kernels(memory):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_kill_9_of_the_command_ends_the_guest(up: tuple[subprocess.Popen[str], str], memory: Path) -> None:
    process, _kernel = up
    process.kill()
    assert _all_gone(memory)


def test_kill_9_of_the_guest_is_one_message(up: tuple[subprocess.Popen[str], str]) -> None:
    process, kernel = up
    os.kill(int(kernel), signal.SIGKILL)
    _output, errors = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "the guest ended with status -9" in errors
    assert "Traceback" not in errors


def _measure_until(
    sign: str, folder: Path, kill: Callable[[subprocess.Popen[str], list[str]], None]
) -> tuple[int, str]:
    """Measure with two guests and call `kill` when the output contains `sign`; returns exit status and output."""
    command = [
        *CROSSLAYER,
        "measure",
        "--clock",
        "virtual",
        "--jobs",
        "2",
        "--links",
        "fiber,4g",
        "--pages",
        "example.org",
    ]
    output = ""
    with (
        _memory() as memory,
        subprocess.Popen(
            [*command, "--rounds", "2", "--out", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(memory)},
        ) as process,
    ):
        assert process.stderr is not None
        while sign not in output and (part := process.stderr.read(1)):
            output += part
        kill(process, sorted(_kernels(memory)))
        output += process.communicate(timeout=1200)[1]
        assert _all_gone(memory)
    return process.returncode, output


def test_a_program_that_has_all_mappings_ends_the_guest_with_a_message() -> None:
    """User-Mode Linux needs a mapping of the host for every other page of memory, and would retry without end."""
    allowed = int(Path("/proc/sys/vm/max_map_count").read_text())
    size = min(3 << 30, 16384 * allowed)
    if size < 8192 * allowed:
        pytest.skip(f"this machine allows a process {allowed} mappings: a guest has not got the memory to use them up")
    pieces = f"import mmap\nm = mmap.mmap(-1, {size})\nfor i in range(0, {size}, 8192): m[i] = 1"
    process = virtual("link", "fiber", "--", sys.executable, "-c", pieces)
    assert process.returncode == 3
    assert f"has {allowed} mappings" in process.stderr
    assert "vm.max_map_count" in process.stderr


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small campaign with two guests: killed after the first stored round, resumed, and then one guest is killed."""
    folder = tmp_path_factory.mktemp("virtual") / "campaign"
    status, output = _measure_until(" 1/", folder, lambda process, _kernels: process.kill())
    assert status == -signal.SIGKILL, output
    status, output = _measure_until(" 1/", folder, lambda _process, kernels: os.kill(int(kernels[0]), signal.SIGKILL))
    assert status == 0, output
    return folder


def _rows(folder: Path, table: str) -> pl.DataFrame:
    return pl.read_parquet(folder / table / "**/*.parquet", hive_partitioning=False)


def test_guests_share_a_campaign_and_one_that_dies_costs_its_round_in_flight(campaign: Path) -> None:
    rows = _rows(campaign, "page_loads").filter(condition="main", role="measured")
    assert rows["error"].is_null().all()
    each = rows.group_by("link", "page", "round", "h3").len()
    assert (each.height, each["len"].max()) == (8, 1)
    about = json.loads((campaign / "campaign.json").read_text(encoding="utf-8"))
    assert about["plan"]["clock"] == "virtual"
    assert about["backend"] == "netem"
    assert about["versions"]["guest_kernel"] == find_kernel().version
    assert set(rows["clock"]) == {"virtual"}


def test_an_exchange_takes_its_round_trips(campaign: Path) -> None:
    """Durations are within narrow limits, independent of the machine and its load."""
    limits = {
        "fiber": {"DoUDP": 1.005, "DoQ": 2.03, "DoH": 3.03},
        "4g": {"DoUDP": 1.002, "DoQ": 2.02, "DoH": 3.012},
    }
    rows = _rows(campaign, "dns_exchanges").filter(pl.col("error").is_null())
    for (link, protocol), some in rows.group_by("link", "protocol"):
        rtts = some["total_ms"] / load_profiles()[str(link)].rtt_ms
        most = limits[str(link)][str(protocol)]
        assert int(most) <= rtts.median() <= most, (link, protocol)  # type: ignore[operator]
        assert rtts.max() - rtts.min() < 0.005, (link, protocol)  # type: ignore[operator]


def test_early_data_saves_a_round_trip_of_the_response(campaign: Path) -> None:
    rows = _rows(campaign, "page_loads").filter(condition="main", role="measured")
    full, early = (rows.filter(h3=kind).sort("link", "round") for kind in ("1-rtt", "0-rtt"))
    saved = full["response_start_ms"] - early["response_start_ms"]
    for link, some in zip(full["link"], saved, strict=True):
        assert 0.99 <= some / load_profiles()[link].rtt_ms <= 1.05, link


def test_the_same_plan_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """One guest on an idle machine gives the same as two guests of a cluster on busy cores with another environment."""
    arguments = ("measure", "--links", "fiber,4g", "--pages", "example.org", "--rounds", "1")
    quiet, busy = tmp_path / "quiet", tmp_path / "busy"
    done = virtual(*arguments, "--jobs", "1", "--out", str(quiet))
    assert done.returncode == 0, done.stderr
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        done = virtual(
            *arguments,
            "--cluster",
            "local",
            "--jobs",
            "2",
            "--out",
            str(busy),
            env=os.environ | {"OLDPWD": "/somewhere/else"},
        )
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert done.returncode == 0, done.stderr
    loads = [_rows(folder, "page_loads").filter(condition="main", role="measured") for folder in (quiet, busy)]
    for some in loads:
        assert sorted(some.select("link", "h3").rows()) == list(product(("4g", "fiber"), ("0-rtt", "1-rtt")))
    for name, most in (("response_start_ms", {"abs": 0.2}), ("plt_ms", {"rel": 0.01, "abs": 1.0})):
        one_ms, other_ms = (some.sort("link", "h3")[name].to_list() for some in loads)
        assert other_ms == pytest.approx(one_ms, **most), name
    if not find_kernel().patch_sha256:
        pytest.skip("the guest's kernel is built without the patch: it draws other random numbers each time")
    for table in ("dns_exchanges", "page_loads", "link_checks", "tcp_rtts", "host_load"):
        one, other = (_rows(folder, table).drop("campaign", "host") for folder in (quiet, busy))
        assert one.height
        assert_frame_equal(one, other, check_exact=True)


def test_memory_and_job_may_lie_where_the_path_has_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    done = virtual("link", "fiber", "--", "/bin/echo", "up", env=os.environ | {"TMPDIR": str(folder)})
    assert (done.returncode, done.stdout) == (0, "up\n"), done.stderr
    assert list(folder.iterdir()) == []


def test_the_same_plan_by_the_other_clock_is_another_campaign(campaign: Path) -> None:
    arguments = ("--links", "fiber,4g", "--pages", "example.org", "--rounds", "2", "--out", str(campaign))
    done = run("measure", *arguments)
    assert done.returncode == 1
    assert "clock is virtual there and wall now" in done.stderr


def test_jobs_are_for_the_virtual_clock() -> None:
    done = run("measure", "--jobs", "2")
    assert done.returncode == 2
    assert "would disturb each other" in done.stderr


def test_a_guest_that_panics_reports_the_panic() -> None:
    """The kernel panics when its init ends. Its messages are longer than the lines that an error quotes."""
    done = virtual("link", "fiber", "--", "true", env={**os.environ, "CROSSLAYER_GUEST": "/bin/true"})
    assert done.returncode == 3
    assert "Kernel panic - not syncing: Attempted to kill init" in done.stderr
    assert done.stderr.count("\n") == 1
