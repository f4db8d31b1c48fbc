"""One plan, killed 50 times at random moments and gone on with each time, against the same plan undisturbed.

Not of `make test`: `make test-long` runs it. Killed are the campaign itself (SIGINT, SIGTERM, SIGKILL), Chromium,
ChromeDriver, the server and, where the link is in one, the wire's guest.
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
from pathlib import Path

import polars as pl

from tests.integration.conftest import CROSSLAYER

KILLS = 50
ROUNDS = 20
PLAN = ["measure", "--links", "fiber", "--pages", "example.org", "--rounds", str(ROUNDS), "--seed", "1"]
KEYS = {
    "page_loads": ["link", "page", "round", "h3", "variant", "position"],
    "dns_exchanges": ["link", "page", "round", "protocol", "resumption", "warming", "position"],
}
"""What says which observation a row is."""

VICTIMS = {"Chromium": "chrom", "ChromeDriver": "chromedriver", "server": "crosslayer-server", "wire": "linux.uml"}
"""By the name of the program. Of Chromium the first process, which the others belong to."""

Alive = dict[int, tuple[str, list[str]]]
"""Start time and command line of processes."""


def _descendants(root: int) -> Alive:
    """Every process below `root` and itself, in whatever namespaces, by the numbers it has out here."""
    parents: dict[int, int] = {}
    found: Alive = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            words = (entry / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
                found[int(entry.name)] = (fields[19], words)
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid: found[pid] for pid in below if pid in found}


def _still_there(before: Alive) -> list[str]:
    """Those of the processes that have not ended."""
    left = []
    for pid, (started, words) in before.items():
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")[2].split()
            if fields[19] == started and fields[0] != "Z":
                left.append(" ".join(words))
    return left


def _victims(alive: Alive) -> dict[str, int]:
    """The programs that can be killed now."""
    found = {}
    for name, program in VICTIMS.items():
        pids = [
            pid
            for pid, (_, words) in alive.items()
            if Path(words[0]).name.startswith(program) and not any(word.startswith("--type=") for word in words)
            and (name != "Chromium" or not Path(words[0]).name.startswith("chromedriver"))
        ]  # fmt: skip
        if pids:
            found[name] = min(pids)
    return found


def _machine() -> tuple[list[str], set[str]]:
    """What a campaign could leave on the host beside processes and files."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    return mounts, {device.name for device in Path("/sys/class/net").iterdir()}


def _log(folder: Path) -> Path:
    return folder.with_suffix(".log")


def _start(folder: Path, temporary: Path) -> subprocess.Popen[bytes]:
    command = [*CROSSLAYER, *PLAN, "--out", str(folder)]
    with _log(folder).open("ab") as log:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=log, env=os.environ | {"TMPDIR": str(temporary)}
        )


def _rounds(folder: Path) -> int:
    """How many rounds are safe; only while nobody measures, who has the store to himself."""
    file = folder / "campaign.sqlite"
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(file)) as db:
        return int(db.execute("SELECT count(*) FROM rounds").fetchone()[0])
    return 0  # there is no folder yet, or no table


def _undisturbed(folder: Path, temporary: Path) -> tuple[float, float]:
    """Measure the whole plan; seconds until its first round was safe, and those of a round."""
    begin = time.monotonic()
    process = _start(folder, temporary)
    while process.poll() is None and f" 1/{ROUNDS} " not in _log(folder).read_text(encoding="utf-8"):
        time.sleep(0.1)
    first_s = time.monotonic() - begin
    assert process.wait() == 0
    return first_s, (time.monotonic() - begin - first_s) / (ROUNDS - 1)


def _keys(folder: Path, table: str) -> pl.DataFrame:
    return pl.read_parquet(folder / table / "**/*.parquet", hive_partitioning=False).select(KEYS[table])


def test_nothing_is_lost_twice_or_left_over(testbed_machine: None, tmp_path: Path) -> None:
    temporary, plain, killed = tmp_path / "temporary", tmp_path / "plain", tmp_path / "killed"
    temporary.mkdir()
    machine = _machine()
    begin = time.monotonic()
    first_s, round_s = _undisturbed(plain, temporary)
    draw = random.Random(1)
    _log(killed).touch()
    kills: Counter[str] = Counter()
    lost = 0
    while kills.total() < KILLS:
        before, said, by_us, hit = _rounds(killed), _log(killed).stat().st_size, False, False
        process = _start(killed, temporary)
        while process.poll() is None and _log(killed).stat().st_size == said:  # until the progress bar, Python imports
            time.sleep(0.01)
        ending = before > ROUNDS - 6  # some are left for the end
        longest_s = first_s / 2 if ending else first_s + round_s
        while not by_us and kills.total() < KILLS:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0, longest_s))
                break
            alive = _descendants(process.pid)
            victims = {} if ending else _victims(alive)
            name, longest_s = draw.choice(["campaign"] * (len(victims) or 1) + list(victims)), round_s
            if name != "campaign":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims[name], signal.SIGKILL)
                    kills[name] += 1
                    hit = True
                continue
            number, by_us = draw.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL]), True
            process.send_signal(number)
            kills[f"campaign by {number.name}"] += 1
            assert process.wait(60) in {-number, 128 + number}
            deadline = time.monotonic() + 60
            while _still_there(alive) and time.monotonic() < deadline:
                time.sleep(0.1)
            assert _still_there(alive) == []
            assert list(temporary.iterdir()) == []
        # Before its first round and twice in one, it ends and says so, to be started again.
        assert process.wait() in ({0, 1, 3} if hit else {0}) or by_us, _log(killed).read_text(encoding="utf-8")
        assert _machine() == machine
        lost += max(0, before - _rounds(killed))
        assert process.returncode != 0 or kills.total() == KILLS, f"the plan was over after {kills.total()} kills"
    assert _start(killed, temporary).wait() == 0
    counts = ", ".join(f"{number} {name}" for name, number in sorted(kills.items()))
    failed = pl.read_parquet(killed / "page_loads/**/*.parquet", hive_partitioning=False)["error"].count()
    print(
        f"\n{kills.total()} kills ({counts}) of a plan of {ROUNDS} rounds, {time.monotonic() - begin:.0f} s: "
        f"{lost} rounds lost, {failed} page loads failed and say so"
    )
    assert lost == 0
    for table, keys in KEYS.items():
        rows, expected = _keys(killed, table), _keys(plain, table)
        assert rows.height == rows.unique().height
        assert rows.sort(keys).equals(expected.sort(keys))
    assert list(temporary.iterdir()) == []
