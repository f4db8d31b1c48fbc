"""What else the machine did is counted from /proc and kept with each round; a round that had too little is left out."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import synthetic
from crosslayer import published
from crosslayer.browser import browser
from crosslayer.campaign.dataset import BUSY_PERCENT, Dataset, busy
from crosslayer.campaign.export import write_part
from crosslayer.campaign.tables import TABLES
from crosslayer.cpu_load import Meter, ticks_used
from crosslayer.figures import Inputs
from crosslayer.testbed import namespaces


def proc(folder: Path, *, user: int, steal: int, processes: dict[int, tuple[int, int]], waited_us: int | None) -> Path:
    """A /proc with these ticks; of a process its own and those of its children that have ended."""
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"cpu  {user} 1 2 1000 50 60 70 {steal} 0 0\ncpu0 0\n", encoding="ascii")
    for number, (own, children) in processes.items():
        (folder / str(number)).mkdir(exist_ok=True)
        text = f"{number} (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 {own} 0 {children} 0 20 0\n"
        (folder / str(number) / "stat").write_text(text, encoding="ascii")
    if waited_us is not None:
        (folder / "pressure").mkdir(exist_ok=True)
        lines = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\nfull avg10=0.00 total=9\n"
        (folder / "pressure" / "cpu").write_text(lines, encoding="ascii")
    return folder


def test_ours_others_steal_and_pressure_are_distinguished(tmp_path: Path) -> None:
    meter = Meter(proc(tmp_path, user=100, steal=5, processes={1: (10, 0), 2: (20, 0)}, waited_us=1000))
    shutil.rmtree(tmp_path / "2")
    # 2 has ended after 25 ticks, and 1 has waited for it; something else took 15.
    proc(tmp_path, user=122, steal=12, processes={1: (12, 25)}, waited_us=4000)
    result = meter.usage()
    assert (result.own_cpu_ms, result.others_ms, result.steal_ms, result.pressure_ms) == (70, 150, 70, 3)


def test_a_kernel_without_pressure_leaves_it_open(tmp_path: Path) -> None:
    meter = Meter(proc(tmp_path, user=100, steal=0, processes={1: (10, 0)}, waited_us=None))
    result = meter.usage()
    assert (result.pressure_ms, result.others_ms) == (None, 0)


_INSIDE = """
from crosslayer.cpu_load import Meter
meter = Meter()
print("measuring", flush=True)
input()
print(meter.usage().own_cpu_ms, meter.usage().others_ms)
"""


def test_what_runs_outside_of_the_namespaces_counts_as_others() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or namespaces.refused(unshare):
        pytest.skip("this machine refuses private namespaces")
    command = [unshare, *namespaces.UNSHARE, "--", sys.executable, "-c", _INSIDE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as inside:
        assert inside.stdin
        assert inside.stdout
        assert inside.stdout.readline() == "measuring\n"
        until = time.process_time() + 0.5
        while time.process_time() < until:
            pass
        own_cpu_ms, others_ms = map(float, inside.communicate("\n")[0].split())
    assert others_ms >= 450  # ours, of which it knows nothing
    assert own_cpu_ms < others_ms


def test_a_browser_that_never_rests_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10_000, 5))
    monkeypatch.setattr(browser, "_SETTLE_WINDOW_S", 0.001)
    monkeypatch.setattr(browser, "_SETTLE_MOST_S", 0.02)
    monkeypatch.setattr(browser, "ticks_used", lambda: next(ticks))
    assert browser._settle() is False
    monkeypatch.setattr(browser, "ticks_used", lambda: 7)
    assert browser._settle() is True
    assert ticks_used() > 0


# Rounds that are left out


def usage(number: int, others_ms: float, steal_ms: float = 0.0, clock: str = "wall") -> dict[str, Any]:
    known = {"campaign": "synthetic", "round": number, "link": "fiber", "study": "coalescing", "clock": clock}
    return known | {
        "page": "example.org", "started_s": 1.0, "duration_ms": 1000.0, "cores": 2, "own_cpu_ms": 900.0,
        "others_ms": others_ms, "steal_ms": steal_ms, "pressure_ms": None,
    }  # fmt: skip


def test_a_round_is_left_out_above_the_limit_and_by_the_wall_clock_only() -> None:
    limit_ms = 2 * 1000 * BUSY_PERCENT / 100
    rows = [
        usage(0, limit_ms),
        usage(1, limit_ms + 1),
        usage(2, limit_ms / 2, limit_ms),
        usage(3, 2000, clock="virtual"),
    ]
    frame = pl.LazyFrame(rows, schema=TABLES["host_load"].polars_schema())
    assert busy(frame).collect()["round"].to_list() == [1, 2]


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pages; in round 2 of the one the machine was busy with something else."""
    pages = ["example.org", "wikipedia.org"]
    folder = synthetic.write(tmp_path_factory.mktemp("starved"), links=["fiber"], pages=pages, rounds=4)
    rows = [usage(number, 1500.0 if number == 2 else 10.0) for number in range(4)]
    write_part([pa.Table.from_pylist(rows, schema=TABLES["host_load"].arrow_schema())], folder / "host_load", "fiber")
    return folder


def test_its_observations_are_left_out_and_counted(starved: Path) -> None:
    dataset = Dataset.open(starved)
    loads = dataset.table("page_loads").filter(role="measured").collect()
    rounds = {page: sorted(of["round"].unique()) for (page,), of in loads.group_by("page")}
    assert rounds == {"example.org": [0, 1, 3], "wikipedia.org": [0, 1, 2, 3]}
    assert dataset.table("host_load").collect().height == 4
    assert "In 1 round the machine was busy with other work; figures leave it out." in dataset.caption
    failed = Inputs.of(dataset, published.load()).failures.filter(condition="round").row(0, named=True)
    assert (failed["attempted"], failed["failed"]) == (4, 1)
    assert "busy" in failed["reason"]


def test_no_round_is_left_out_where_most_were_disturbed_or_all_are_asked_for(starved: Path, tmp_path: Path) -> None:
    every = Dataset.open(starved, every_round=True)
    assert 2 in every.table("page_loads").filter(pl.col("page") == "example.org").collect()["round"].to_list()
    folder = shutil.copytree(starved, tmp_path / "most")
    shutil.rmtree(folder / "host_load")
    rows = [usage(number, 1500.0 if number else 10.0) for number in range(4)]
    write_part([pa.Table.from_pylist(rows, schema=TABLES["host_load"].arrow_schema())], folder / "host_load", "fiber")
    most = Dataset.open(folder)
    assert most.table("page_loads").collect().equals(every.table("page_loads").collect())
    assert "In 3 rounds the machine was busy with other work; none is left out." in most.caption


def test_with_one_page_it_is_left_out_whatever_the_rows_call_it(starved: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(starved, tmp_path / "one")
    content = json.loads((folder / "campaign.json").read_text())
    content["plan"]["pages"] = ["example.org"]
    (folder / "campaign.json").write_text(json.dumps(content))
    loads = Dataset.open(folder).table("page_loads").collect()
    assert 2 not in loads["round"].to_list()


def test_a_dataset_without_the_table_leaves_nothing_out(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, links=["fiber"], pages=["example.org"], rounds=2)
    dataset = Dataset.open(folder)
    assert dataset.busy.is_empty()
    assert "busy" not in dataset.caption
    assert "round" not in Inputs.of(dataset, published.load()).failures["condition"].to_list()
