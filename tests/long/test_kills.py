"""Plans that are killed at random moments and gone on with, against the same plans undisturbed.

Not of `make test`: `make test-long` runs it. Killed are the campaign itself (SIGINT, SIGTERM, SIGKILL) and every
program that takes part; the disk fills up, the clock is set.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
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

    words: tuple[str, ...]
    rounds: int
    """More than there are kills that let one end in between."""
    kills: dict[str, int]
    """How often each of `SIGNALS` goes to the campaign's number, and SIGKILL to each of `PROGRAMS`."""

    @property
    def command(self) -> list[str]:
        return [*CROSSLAYER, "measure", *self.words, "--rounds", str(self.rounds), "--seed", "1"]


_EACH = {"SIGINT": 3, "SIGTERM": 3}
SCENARIOS = {
    "loads": Scenario(
        ("--links", "fiber", "--pages", "example.org"),
        14,
        {**_EACH, "SIGKILL": 3, "Chromium": 3, "ChromeDriver": 3, "server": 3, "wire": 3},
    ),
    "stub": Scenario(
        ("--study", "web", "--links", "fiber", "--pages", "login-form"), 6, {"SIGKILL": 2, "stub": 4, "server": 2}
    ),
    "BIND": Scenario(("--study", "authoritative", "--size", "smoke"), 6, {"SIGKILL": 2, "BIND": 3, "stub": 2}),
    "virtual": Scenario(
        ("--study", "address-token", "--clock", "virtual", "--jobs", "2", "--links", "fiber", "--pages", "example.org"),
        10,
        {**_EACH, "SIGKILL": 4, "guest": 4},
    ),
}
"""Together 50 kills; by the virtual clock ten of the campaign itself."""

Alive = dict[int, tuple[str, list[str]]]
"""Start time and command line of processes."""


def _processes() -> tuple[Alive, dict[int, int]]:
    """Every process that has not ended, and the parent of each."""
    found: Alive = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            words = (entry / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
                found[int(entry.name)] = (fields[19], words)
    return found, parents


def _descendants(root: int) -> Alive:
    """Every process below `root` and itself, in whatever namespaces, by the numbers it has out here."""
    found, parents = _processes()
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: found[pid] for pid in below if pid in found}


def _victim(name: str, alive: Alive, draw: random.Random) -> int | None:
    """A process of that program; of a Chromium its first, which the others belong to. None where none runs."""
    pids = [
        pid
        for pid, (_, words) in alive.items()
        if Path(words[0]).name in PROGRAMS[name] and not any(word.startswith("--type=") for word in words)
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
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= {
                str((Path("/proc") / str(pid) / "ns" / kind).readlink()) for kind in ("net", "mnt", "pid", "user")
            }
    return found


def _left(alive: Alive, namespaces: set[str]) -> list[str]:
    """Those of the processes that have not ended, and whoever is in one of the namespaces."""
    now, _ = _processes()
    same = [pid for pid, known in now.items() if alive.get(pid) == known]
    return [
        " ".join(words)
        for pid, (_, words) in now.items()
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
            rows, expected = (some.drop("client", "number", "warming").unique() for some in (rows, expected))
            known = rows.columns
        assert rows.sort(known).equals(expected.sort(known)), table.table


def _same_times(killed: Path, plain: Path) -> None:
    """By the virtual clock both say the same of the network."""
    for column, table, least_ms in (
        ("total_ms", "dns_exchanges", 0.1),
        ("response_start_ms", "page_loads", 0.2),
        ("plt_ms", "page_loads", 1.0),
    ):
        if (plain / table).is_dir():
            keys = [c.name for c in TABLES[table].columns if c.key and c.name != "campaign"]
            both = [
                _table(folder, table).filter(pl.col("error").is_null()).group_by(keys).agg(pl.col(column).median())
                for folder in (killed, plain)
            ]
            joined = both[0].join(both[1], on=keys, nulls_equal=True)
            assert joined.height == both[1].height
            for now, then in joined.select(column, f"{column}_right").iter_rows():
                assert now == pytest.approx(then, rel=0.01, abs=least_ms), (table, column)


def _ended(process: subprocess.Popen[bytes], alive: Alive, namespaces: set[str], temporary: Path) -> None:
    """Nothing of a campaign that was killed is left."""
    deadline = time.monotonic() + 60
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
        before, said, by_us, hit = _rounds(killed), _log(killed).stat().st_size, False, False
        assert before < whole, f"the plan was over with {coming} still to be killed"
        resumed += 1
        process = _start(scenario, killed, temporary)
        while process.poll() is None and _log(killed).stat().st_size == said:  # until the progress bar, Python imports
            time.sleep(0.01)
        longest_s = first_s + round_s if before < whole - 2 else first_s / 2  # some are left for the end
        while coming and not by_us:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, longest_s))
                break
            alive = _descendants(process.pid)
            namespaces = _namespaces(alive) - ours
            if coming[0] in SIGNALS:
                number, by_us = signal.Signals[coming[0]], True
                process.send_signal(number)
                assert process.wait(60) in {-number, 128 + number}
                _ended(process, alive, namespaces, temporary)
            elif pid := _victim(coming[0], alive, draw):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                longest_s, hit = round_s, True
            else:  # it does not run yet, or not now
                longest_s = 1.0
                continue
            kills[coming.pop(0)] += 1
        # Before its first round and twice in one, it ends and says so, to be started again.
        said_last = _log(killed).read_text(encoding="utf-8")[-2000:]
        assert by_us or process.wait() in ({0, 1, 3} if hit else {0}), said_last
        assert "Traceback" not in said_last
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
