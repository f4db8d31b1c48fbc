"""Plans that are killed at random moments and gone on with, against the same plans undisturbed.

Not of `make test`: `make test-long` runs it. Killed are the campaign itself (SIGINT, SIGTERM, SIGKILL) and every
program that takes part; the disk fills up, the clock is set.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.tables import TABLES
from crosslayer.errors import CrosslayerError
from crosslayer.guest import find_kernel
from tests.integration.conftest import CROSSLAYER

SIGNALS = ("SIGINT", "SIGTERM", "SIGKILL")
PROGRAMS = {
    "Chromium": ("chromium", "chrome"),
    "ChromeDriver": ("chromedriver",),
    "server": ("crosslayer-server",),
    "stub": ("crosslayer-stub",),
    "BIND": ("named",),
    "wire": ("linux.uml", "linux", "crosslayer-linux"),
    "guest": ("crosslayer-linux",),
}
"""How the victims' programs are called. Of several that run, a kill takes one."""


@dataclass(frozen=True)
class Scenario:
    """A plan, and what is killed while it is measured."""

    options: tuple[str, ...]
    rounds: int
    """More than there are kills that let one end in between."""
    kills: dict[str, int]
    """How often each of `SIGNALS` goes to the campaign's number, and SIGKILL to each of `PROGRAMS`."""

    @property
    def command(self) -> list[str]:
        return [*CROSSLAYER, "measure", *self.options, "--rounds", str(self.rounds), "--seed", "1"]


_EACH = {"SIGINT": 3, "SIGTERM": 3}
SCENARIOS = {
    "exchanges": Scenario(
        ("--study", "serialisation", "--links", "dsl"), 40, {**_EACH, "SIGKILL": 4, "server": 3, "wire": 3}
    ),
    "loads": Scenario(
        ("--study", "address-token", "--links", "fiber", "--pages", "example.org"),
        12,
        {"Chromium": 3, "ChromeDriver": 2},
    ),
    "stub": Scenario(
        ("--study", "web", "--links", "fiber", "--pages", "login-form"), 18, {"SIGKILL": 2, "stub": 4, "server": 2}
    ),
    "BIND": Scenario(
        ("--study", "authoritative", "--size", "smoke", "--links", "twente-local"),
        16,
        {"SIGKILL": 2, "BIND": 3, "stub": 2},
    ),
    "virtual": Scenario(
        ("--study", "serialisation", "--clock", "virtual", "--jobs", "2", "--links", "dsl"),
        80,
        {**_EACH, "SIGKILL": 4, "guest": 4},
    ),
}
"""Together 50 kills; by the virtual clock ten of the campaign itself."""

Alive = dict[int, tuple[str, list[str]]]
"""Start time and command line of processes."""


def _processes() -> tuple[Alive, dict[int, int]]:
    """Every process that has not ended, and the parent of each."""
    results: Alive = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            command_line = (entry / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
                results[int(entry.name)] = (fields[19], command_line)
    return results, parents


def _descendants(root: int) -> Alive:
    """Every process below `root` and itself, in whatever namespaces, by the numbers it has out here."""
    alive, parents = _processes()
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: alive[pid] for pid in below if pid in alive}


def _victim(name: str, alive: Alive, draw: random.Random) -> int | None:
    """A process of that program; of a Chromium its first, which the others belong to. None where none runs."""
    pids = [
        pid
        for pid, (_, command_line) in alive.items()
        if Path(command_line[0]).name in PROGRAMS[name] and not any(word.startswith("--type=") for word in command_line)
    ]
    if name == "guest":
        return draw.choice(sorted(pids)) if pids else None
    return min(pids, default=None)


def needs_the_guest() -> None:
    """Skip where there is no kernel for a guest."""
    try:
        find_kernel()
    except CrosslayerError as error:
        pytest.skip(f"{error.what}: {error.next_step}")


def _namespaces(pids: Iterable[int]) -> set[str]:
    """Namespaces that these processes are in."""
    names = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            names |= {
                str((Path("/proc") / str(pid) / "ns" / kind).readlink()) for kind in ("net", "mnt", "pid", "user")
            }
    return names


def _left(alive: Alive, namespaces: set[str]) -> list[str]:
    """Those of the processes that have not ended, and whoever is in one of the namespaces."""
    now, _ = _processes()
    same = [pid for pid, known in now.items() if alive.get(pid) == known]
    return [
        " ".join(command_line)
        for pid, (_, command_line) in now.items()
        if pid in same or (namespaces and _namespaces([pid]) & namespaces)
    ]


def _machine() -> tuple[list[str], set[str], set[str]]:
    """What a campaign could leave on the host beside processes and files: mounts, interfaces, named sockets of ours."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    named = {line.split()[-1] for line in Path("/proc/net/unix").read_text(encoding="utf-8").splitlines()}
    ours = {name for name in named if "crosslayer" in name or "test_kills" in name}
    return mounts, {device.name for device in Path("/sys/class/net").iterdir()}, ours


def _log(folder: Path) -> Path:
    return folder.with_suffix(".log")


def _start(scenario: Scenario, folder: Path, temporary: Path) -> subprocess.Popen[bytes]:
    with _log(folder).open("ab") as log:
        return subprocess.Popen(
            [*scenario.command, "--out", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env=os.environ | {"TMPDIR": str(temporary)},
        )


def _rounds(folder: Path) -> int:
    """How many rounds are safe; only while nobody measures, who has the store to himself."""
    file = folder / "campaign.sqlite"
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(file)) as db:
        return int(db.execute("SELECT count(*) FROM rounds").fetchone()[0])
    return 0  # there is no folder yet, or no table


def _undisturbed(scenario: Scenario, folder: Path, temporary: Path) -> tuple[float, float]:
    """Measure the whole plan; seconds until its first round was safe, and those of a round."""
    begin = time.monotonic()
    process = _start(scenario, folder, temporary)
    while process.poll() is None and "| 1/" not in _log(folder).read_text(encoding="utf-8"):
        time.sleep(0.1)
    first_s = time.monotonic() - begin
    assert process.wait() == 0, _log(folder).read_text(encoding="utf-8")
    rounds = _rounds(folder)
    return first_s, (time.monotonic() - begin - first_s) / max(1, rounds - 1)


def _wait(process: subprocess.Popen[bytes], log: Path, since: int, rounds: int, longest_s: float) -> None:
    """Wait for so many rounds, then a while, but not for another round; a process that ends is not waited for."""
    deadline = None
    while process.poll() is None and (done := _done(log, since)) <= rounds:
        if done == rounds:
            deadline = deadline or time.monotonic() + longest_s
            if time.monotonic() > deadline:
                return
        time.sleep(0.02)


def _done(log: Path, since: int) -> int:
    """The rounds that the progress bar has counted since the log was so long."""
    counts = re.findall(rb"\| (\d+)/", log.read_bytes()[since:])
    return int(counts[-1]) if counts else 0


def _table(folder: Path, table: str) -> pl.DataFrame:
    return pl.read_parquet(folder / table / "**/*.parquet", hive_partitioning=False)


def _same_rows(killed: Path, plain: Path) -> None:
    """The rows of both are of the same observations, none twice and none missing."""
    for table in (table for table in TABLES.values() if table.observed and (plain / table.table).is_dir()):
        known = [column.name for column in table.columns if column.key and column.name != "campaign"] + ["round"]
        rows, expected = _table(killed, table.table).select(known), _table(plain, table.table).select(known)
        if table.table != "tcp_rtts":  # those of a round are told apart by their time alone
            assert rows.height == rows.unique().height, table.table
        if table.table == "paced_queries":  # where the link's check failed, one row tells it of each connection
            rows, expected = (some.drop("client", "number", "role").unique() for some in (rows, expected))
            known = rows.columns
        assert rows.sort(known).equals(expected.sort(known)), table.table


def _same_times(killed: Path, plain: Path) -> None:
    """By the virtual clock both say the same of the network."""
    keys = [column.name for column in TABLES["dns_exchanges"].columns if column.key and column.name != "campaign"]
    medians = [
        _table(folder, "dns_exchanges").group_by(keys).agg(pl.col("total_ms").median()).sort(keys)
        for folder in (killed, plain)
    ]
    assert medians[0].drop("total_ms").equals(medians[1].drop("total_ms"))
    assert medians[0]["total_ms"].to_list() == pytest.approx(medians[1]["total_ms"].to_list(), abs=0.1)


def _ended(process: subprocess.Popen[bytes], alive: Alive, namespaces: set[str], temporary: Path) -> None:
    """Nothing of a campaign that was killed is left."""
    deadline = time.monotonic() + 600
    while (_left(alive, namespaces) or list(temporary.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _left(alive, namespaces) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_twice_or_left_over(testbed_machine: None, tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    if name == "virtual":
        needs_the_guest()
    temporary, plain, killed = tmp_path / "temporary", tmp_path / "plain", tmp_path / "killed"
    temporary.mkdir()
    machine, ours = _machine(), _namespaces([os.getpid()])
    begin = time.monotonic()
    first_s, round_s = _undisturbed(scenario, plain, temporary)
    whole = _rounds(plain)
    draw = random.Random(name)
    coming = [victim for victim, times in scenario.kills.items() for _ in range(times)]
    draw.shuffle(coming)
    _log(killed).touch()
    kills: Counter[str] = Counter()
    lost = resumed = 0
    while coming:
        before, log_bytes, by_us, hit = _rounds(killed), _log(killed).stat().st_size, False, False
        assert before < whole, f"the plan was over with {coming} still to be killed"
        resumed += 1
        process = _start(scenario, killed, temporary)
        while (
            process.poll() is None and _log(killed).stat().st_size == log_bytes
        ):  # until the progress bar, Python imports
            time.sleep(0.01)
        longest_s = first_s
        while coming and not by_us:
            rounds = _done(_log(killed), log_bytes) + draw.randrange(2)
            _wait(process, _log(killed), log_bytes, rounds, draw.uniform(0, longest_s if rounds == 0 else round_s))
            if process.poll() is not None:
                break
            alive = _descendants(process.pid)
            namespaces = _namespaces(alive) - ours
            if coming[0] in SIGNALS:
                number, by_us = signal.Signals[coming[0]], True
                process.send_signal(number)
                assert process.wait(600) in {-number, 128 + number}
                _ended(process, alive, namespaces, temporary)
            elif pid := _victim(coming[0], alive, draw):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                hit = True
            else:  # it does not run yet, or not now
                longest_s = 1.0
                continue
            kills[coming.pop(0)] += 1
        # Before its first round and twice in one, it ends and says so, to be started again.
        last_log = _log(killed).read_text(encoding="utf-8")[-2000:]
        assert by_us or process.wait() in ({0, 1, 3} if hit else {0}), last_log
        assert "Traceback" not in last_log
        assert _machine() == machine
        lost += max(0, before - _rounds(killed))
    assert _start(scenario, killed, temporary).wait() == 0
    counts = ", ".join(f"{number} {victim}" for victim, number in sorted(kills.items()))
    tables = [
        _table(killed, table.table) for table in TABLES.values() if table.observed and (killed / table.table).is_dir()
    ]
    failed = sum(table["error"].count() for table in tables)
    print(
        f"\n{name}: {kills.total()} kills ({counts}), {resumed} times gone on with a plan of {whole} rounds, "
        f"{time.monotonic() - begin:.0f} s: {lost} rounds lost, {failed} rows failed and say so"
    )
    assert lost == 0
    _same_rows(killed, plain)
    if name == "virtual":
        _same_times(killed, plain)
    assert {path.name for path in killed.glob("campaign.sqlite*")} == {"campaign.sqlite"}
    assert list(temporary.iterdir()) == []


ROUNDS = 40
MEASURE = ["measure", "--study", "serialisation", "--clock", "virtual", "--links", "dsl", "--rounds", str(ROUNDS)]
DISK_BYTES = 64 << 20
_COUNT = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM rounds').fetchone()[0])"


def test_a_disk_that_fills_up_keeps_what_was_measured(testbed_machine: None, tmp_path: Path) -> None:
    """Three times in a plan, on a tmpfs of a mount namespace of its own."""
    needs_the_guest()
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size={DISK_BYTES} tmpfs {disk} && echo ready && exec sleep 86400"
    command = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", "sh", "-c", mount]
    folder, filler = disk / "campaign", disk / "filler"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder, contextlib.ExitStack() as end:
        end.callback(holder.kill)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        there = ["nsenter", "--user", "--mount", "--preserve-credentials", "--target", str(holder.pid), "--"]
        measure = [*CROSSLAYER, *MEASURE]
        counted = [0]
        for _ in range(3):
            process = subprocess.Popen(
                [*there, *measure, "--out", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            assert process.stderr is not None
            output = ""
            while "| 1/" not in output and (more := process.stderr.read(1)):
                output += more
            subprocess.run([*there, "sh", "-c", f"cat /dev/zero > {filler}"], capture_output=True, check=False)
            output += process.communicate()[1]
            subprocess.run([*there, "rm", str(filler)], check=True)
            assert process.returncode == 1, output
            assert "Free disk space" in output
            assert "Traceback" not in output
            count = [*there, sys.executable, "-c", _COUNT, str(folder / "campaign.sqlite")]
            counted.append(int(subprocess.run(count, capture_output=True, text=True, check=True).stdout))
            assert counted[-1] > counted[-2]
        done = subprocess.run([*there, *measure, "--out", str(folder)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        read = [*there, "cat", str(folder / "dns_exchanges/link=dsl/part-0.parquet")]
        file = io.BytesIO(subprocess.run(read, capture_output=True, check=True).stdout)
    keys = ["protocol", "condition", "round"]
    rows = pl.read_parquet(file).select(keys)
    assert rows.height == rows.unique().height
    assert set(rows.group_by("protocol", "condition").len()["len"]) == {ROUNDS}
    print(f"\nfull disk: 3 times, with {counted[1:]} of {ROUNDS} rounds safe; none lost, none twice")


SET_EVERY_S = 20


def test_a_clock_that_is_set_costs_rounds_in_flight_alone(tmp_path: Path) -> None:
    """An hour on and back again, by the root of a guest: nobody is to set the clock of this machine."""
    needs_the_guest()
    if os.geteuid() != 0:
        pytest.skip("only root is root in a guest, and may set its clock")
    outputs = {}
    for name, setting in (
        ("plain", ""),
        ("set", f"while sleep {SET_EVERY_S}; do date -s '+1 hour'; sleep {SET_EVERY_S}; date -s '-1 hour'; done & "),
    ):
        script = f"({setting}exec {shlex.join([*CROSSLAYER, *MEASURE, '--out', str(tmp_path / name)])})"
        program = (
            "import pathlib, sys; from crosslayer.guest import run_attached; writable = [pathlib.Path(sys.argv[2])]; "
            "sys.exit(run_attached(['/bin/sh', '-c', sys.argv[1]], clock='virtual', writable=writable))"
        )
        command = [sys.executable, "-c", program, script, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        outputs[name] = done.stderr.count("clock was set by")
    assert outputs["plain"] == 0 < outputs["set"]
    _same_rows(tmp_path / "set", tmp_path / "plain")
    _same_times(tmp_path / "set", tmp_path / "plain")
    sizes = ["query_sent_bytes", "handshake_sent_bytes"]  # packets are told apart by their times
    plain, other = (_table(tmp_path / name, "dns_exchanges") for name in ("plain", "set"))
    assert other["error"].null_count() == other.height
    keys = ["protocol", "condition"]
    ranges = [rows.group_by(keys).agg(pl.col(sizes).median()).sort(keys) for rows in (plain, other)]
    assert ranges[0].equals(ranges[1])
    assert other.select(sizes).null_count().sum_horizontal().item() == 0
    print(f"\nclock: set {outputs['set']} times while a round was measured; each of those was measured again")
