"""The store: a round is there whole or not at all, resume goes on, another plan is refused."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import export
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import FILE_NAME, Store
from crosslayer.campaign.tables import SCHEMA_VERSION
from crosslayer.testbed import namespaces

PLAN = Plan(study="coalescing", links=("fiber", "4g"), pages=("example.org",), rounds=2)
ROOT = Path(__file__).parents[2]
CELL = Cell("fiber", "example.org")


_FACTS = {
    "campaign": "c",
    "backend": "uml",
    "started": "2026-01-01T00:00:00+00:00",
    "host": {"cpu": "Example CPU", "cores": 2, "memory_bytes": 8, "kernel": "6.1.0", "os": "Debian 12"},
    "versions": {"crosslayer": "0.1.0", "python": "3.11"},
    "git": {"revision": "0" * 40, "clean": True},
}


def _rtt(number: int, link: str = "fiber", **more: object) -> dict[str, object]:
    row = {"campaign": "c", "round": number, "link": link, "study": "coalescing", "page": "example.org"}
    return row | {"position": 0, "started_s": 1.0, "rtt_ms": 14.8} | more


def test_a_finished_round_is_kept_and_known(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
    with Store(tmp_path, PLAN) as store:
        assert store.done() == {("fiber", "example.org", 0)}
        assert next(store.rows("tcp_rtts", "fiber"))["rtt_ms"] == 14.8


def test_a_round_with_a_bad_row_leaves_nothing(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        with pytest.raises(CampaignError):
            store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0), _rtt(0, campaign=None)]})
        assert list(store.rows("tcp_rtts", "fiber")) == []
        assert store.done() == set()
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        assert len(list(store.rows("tcp_rtts", "fiber"))) == 1


def test_a_round_cannot_be_written_twice(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        with pytest.raises(CampaignError):
            store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        assert len(list(store.rows("tcp_rtts", "fiber"))) == 1


def test_killed_in_the_middle_of_a_round_loses_only_that_round(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Store
plan = Plan(study="coalescing", links=("fiber", "4g"), pages=("example.org",), rounds=2)
store = Store(Path({str(tmp_path)!r}), plan)
row = {_rtt(0)!r}
store.add_round(Cell("fiber", "example.org"), 0, {{"tcp_rtts": [row]}})
def rows():
    yield dict(row, round=1)
    os.kill(os.getpid(), signal.SIGKILL)
store.add_round(Cell("fiber", "example.org"), 1, {{"tcp_rtts": rows()}})
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    with Store(tmp_path, PLAN) as store:
        assert store.done() == {("fiber", "example.org", 0)}
        assert [row["round"] for row in list(store.rows("tcp_rtts", "fiber"))] == [0]


def test_another_plan_is_refused_and_more_rounds_of_the_same_are_welcome(tmp_path: Path) -> None:
    Store(tmp_path, PLAN).close()
    with pytest.raises(CampaignError, match=r"another plan.*seed is 1 there and 2 now"):
        Store(tmp_path, PLAN.resized(seed=2))
    with Store(tmp_path, PLAN.resized(rounds=9)) as store:
        assert store.fact("plan")["rounds"] == 9


@dataclass(frozen=True)
class Options:
    clients: int = 4
    proxy: str = "ours"


def test_another_option_is_another_plan_and_a_younger_one_had_its_default(tmp_path: Path) -> None:
    plan = PLAN.resized(options=Options(clients=2))
    Store(tmp_path, plan).close()
    with pytest.raises(CampaignError, match=r"another plan \(clients is 2 there and 4 now\)"):
        Store(tmp_path, plan.resized(options=Options()))
    with Store(tmp_path, plan) as store:
        assert store.fact("options_changed") == {"clients": 2}
        store.set_fact("plan", plan.as_dict() | {"options": {"clients": 2}})
    with pytest.raises(CampaignError, match="proxy is ours there and theirs now"):
        Store(tmp_path, plan.resized(options=Options(clients=2, proxy="theirs")))
    Store(tmp_path, plan).close()


def test_a_campaign_is_exported_without_its_study(tmp_path: Path) -> None:
    """Options, of whatever study, are values by then."""
    with Store(tmp_path, PLAN.resized(options=Options(clients=2))) as store:
        for name, value in _FACTS.items():
            store.set_fact(name, value)
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
    with Store(tmp_path) as store:
        export(store, tmp_path)
    dataset = Dataset.open(tmp_path)
    assert dataset.campaign.plan["clients"] == 2
    assert "emulated by netem in User-Mode Linux. Options: clients = 2. Measured on" in dataset.caption


def test_a_store_of_an_older_version_is_left_alone(tmp_path: Path) -> None:
    """What could go on with it is named: the revision that began it."""
    with Store(tmp_path, PLAN) as store:
        store.set_fact("git", {"revision": "0123abc", "clean": True})
        store.set_fact("schema_version", SCHEMA_VERSION - 1)
        store.set_fact("plan", {"study": "coalescing", "aa_cell": True})
    for plan in (PLAN, None):
        with pytest.raises(CampaignError, match=r"tables of version 2; this one writes 3.*0123abc.*--out"):
            Store(tmp_path, plan)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        assert db.execute("SELECT value FROM facts WHERE name = 'plan'").fetchone() == (
            '{"study": "coalescing", "aa_cell": true}',
        )


@pytest.mark.slow
def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN), pytest.raises(CampaignError, match="Another run"):
        Store(tmp_path, PLAN)


def test_an_unwritable_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(CampaignError, match=r"cannot be written.*another folder"):
        Store(tmp_path / "file" / "folder", PLAN)


def test_a_full_disk_keeps_what_was_measured(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages}")  # the database's own "disk full"
        with pytest.raises(CampaignError, match=r"full.*Free disk space"):
            store.add_round(CELL, 1, {"tcp_rtts": [_rtt(1, error="x" * 100_000)]})
        assert store.done() == {("fiber", "example.org", 0)}


def test_export_writes_each_link_once_with_descriptions_and_units(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        for name, value in _FACTS.items():
            store.set_fact(name, value)
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        store.add_round(Cell("4g", "example.org"), 0, {"tcp_rtts": [_rtt(0, "4g", rtt_ms=None, error="refused")]})
        export(store, tmp_path)
        export(store, tmp_path)
    table = pq.read_table(tmp_path / "tcp_rtts" / "link=4g" / "part-0.parquet", partitioning=None)
    assert table.to_pylist()[0] | {"rtt_ms": None, "error": "refused"} == table.to_pylist()[0]
    assert table.schema.field("rtt_ms").metadata[b"unit"] == b"ms"
    assert b"SYN" in table.schema.field("rtt_ms").metadata[b"description"]
    campaign = json.loads((tmp_path / "campaign.json").read_text(encoding="utf-8"))
    assert campaign["plan"]["links"] == ["fiber", "4g"]
    assert campaign["rows"]["tcp_rtts"] == 2
    assert campaign["method"] == Dataset.open(tmp_path).campaign.method
    assert campaign["method"]["clock"] == "real time"
    crate = json.loads((tmp_path / "ro-crate-metadata.json").read_text(encoding="utf-8"))
    listed = {unquote(entity["@id"]) for entity in crate["@graph"]}
    assert {"campaign.json", "tcp_rtts/link=fiber/part-0.parquet", "tcp_rtts/link=4g/part-0.parquet"} <= listed


def measured(folder: Path, rounds: int = 1) -> Path:
    """A campaign with some rounds and its dataset."""
    with Store(folder, PLAN) as store:
        for name, value in _FACTS.items():
            store.set_fact(name, value)
        for number in range(rounds):
            store.add_round(CELL, number, {"tcp_rtts": [_rtt(number)]})
        export(store, folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kept", ["campaign.json", "tcp_rtts", "captures"])
def test_a_dataset_without_its_store_is_not_overwritten(tmp_path: Path, kept: str) -> None:
    folder = measured(tmp_path / "copy")
    (folder / "captures").mkdir()
    (folder / FILE_NAME).unlink()
    for path in set(folder.iterdir()) - {folder / kept}:
        path.unlink() if path.is_file() else shutil.rmtree(path)
    before = contents(folder)
    with pytest.raises(CampaignError, match=rf"holds {kept} and no campaign.sqlite: .* overwrite .*--out"):
        Store(folder, PLAN)
    assert contents(folder) == before
    assert set(folder.iterdir()) == {folder / kept}


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    """A table is called `resources`, as the folder of many a project."""
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources" / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CampaignError, match=r"holds resources and no campaign\.sqlite"):
        Store(tmp_path, PLAN)
    assert contents(tmp_path) == {"resources/mine.txt": b"mine"}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "holds 2 rows of tcp_rtts, and its campaign.sqlite only 0"),
        ("older", "holds 2 rows of tcp_rtts, and its campaign.sqlite only 1"),
        ("of another campaign", "holds the dataset of another campaign \\(c\\)"),
    ],
)
def test_a_dataset_with_more_than_its_store_is_not_overwritten(tmp_path: Path, kind: str, message: str) -> None:
    folder = measured(tmp_path / "whole", rounds=2)
    other = measured(tmp_path / "other", rounds=1 if kind == "older" else 3)
    (folder / FILE_NAME).write_bytes(b"" if kind == "empty" else (other / FILE_NAME).read_bytes())
    with Store(folder, PLAN) as store:
        store.set_fact("campaign", "c" if kind != "of another campaign" else "d")
        before = {name: file for name, file in contents(folder).items() if FILE_NAME not in name}
        with pytest.raises(CampaignError, match=f"{message}: an export would delete"):
            export(store, folder)
    assert {name: file for name, file in contents(folder).items() if FILE_NAME not in name} == before


def test_a_damaged_table_is_written_again(tmp_path: Path) -> None:
    folder = measured(tmp_path)
    part = folder / "tcp_rtts" / "link=fiber" / "part-0.parquet"
    part.write_bytes(part.read_bytes()[:50])
    with Store(folder) as store:
        export(store, folder)
    assert pq.read_metadata(part).num_rows == 1


def test_a_folder_that_is_removed_meanwhile_has_its_rounds_again(tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    with Store(folder, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        shutil.rmtree(folder)
        with pytest.raises(CampaignError, match=r"was removed while the campaign ran; its rounds are now in .*sqlite"):
            store.add_round(CELL, 1, {"tcp_rtts": [_rtt(1)]})
    with Store(folder, PLAN) as store:
        assert store.done() == {("fiber", "example.org", 0)}


def test_a_file_that_is_replaced_meanwhile_is_left_alone(tmp_path: Path) -> None:
    with Store(tmp_path / "a", PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        Store(tmp_path / "b", PLAN).close()
        others = (tmp_path / "b" / FILE_NAME).replace(tmp_path / "a" / FILE_NAME).read_bytes()
        with pytest.raises(CampaignError, match=r"its rounds are now in .*campaign-rescued.sqlite"):
            export(store, tmp_path / "a")
    assert (tmp_path / "a" / FILE_NAME).read_bytes() == others
    with contextlib.closing(sqlite3.connect(tmp_path / "a" / "campaign-rescued.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM tcp_rtts").fetchone() == (1,)


def test_a_folder_that_is_moved_meanwhile_is_named(tmp_path: Path) -> None:
    with Store(tmp_path / "a", PLAN) as store:
        (tmp_path / "a").rename(tmp_path / "b")
        with pytest.raises(CampaignError, match=rf"was moved while the campaign ran\. Its rounds are in {tmp_path}/b/"):
            store.set_fact("ended", "now")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_file_that_is_cut_off_meanwhile_is_reported(tmp_path: Path, suffix: str) -> None:
    with Store(tmp_path, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
        os.truncate(tmp_path / f"{FILE_NAME}{suffix}", 100)
        with pytest.raises(CampaignError, match=r"changed by another program .* rounds in it may be lost"):
            store.add_round(CELL, 1, {"tcp_rtts": [_rtt(1)]})


@pytest.mark.parametrize("kind", ["overwritten", "cut off", "overwritten inside"])
def test_a_damaged_store_is_not_called_safe(tmp_path: Path, kind: str) -> None:
    with Store(tmp_path, PLAN) as store:
        for number in range(200):
            store.add_round(CELL, number, {"tcp_rtts": [_rtt(number)]})
    file = tmp_path / FILE_NAME
    whole = file.read_bytes()
    damaged = {
        "overwritten": b"x" * len(whole),
        "cut off": whole[: len(whole) // 2],
        "overwritten inside": whole[:4096] + b"\xff" * (len(whole) - 4096),
    }
    file.write_bytes(damaged[kind])
    for plan in (PLAN, None):
        with pytest.raises(CampaignError, match="damaged, and rounds in it may be lost") as caught:
            Store(tmp_path, plan)
        assert "safe" not in str(caught.value)


def test_a_disk_that_is_still_full_is_named_again(tmp_path: Path) -> None:
    """SQLite calls it `disk I/O error` then. On a tmpfs of a mount namespace of its own."""
    script = f"""
import sys
from pathlib import Path
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.store import Store
from tests.unit.test_store import CELL, PLAN, _rtt
for _ in range(3):
    try:
        with Store(Path({str(tmp_path)!r}) / "campaign", PLAN) as store:
            for number in range(100_000):
                store.add_round(CELL, len(store.done()), {{"tcp_rtts": [_rtt(number, error="x" * 9_000)]}})
    except CampaignError as error:
        print(error)
"""
    mount = f'mount -t tmpfs -o size=1M tmpfs {tmp_path} && exec "$@"'
    command = [namespaces.tool("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine refuses mount namespaces")
    done = subprocess.run(
        [*command, sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    output = done.stdout.splitlines()
    assert len(output) == 3
    for line in output:
        assert re.search(r"the disk is full .*Free disk space and give the same command again", line), line


def test_exporting_a_folder_without_a_campaign_says_so(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="no campaign here"):
        Store(tmp_path)
    assert not (tmp_path / FILE_NAME).exists()
    sqlite3.connect(tmp_path / FILE_NAME).close()
    (tmp_path / FILE_NAME).touch()
    with pytest.raises(CampaignError, match="holds no plan"):
        Store(tmp_path)


def test_a_store_that_is_older_than_a_column_gets_it(tmp_path: Path) -> None:
    with Store(tmp_path, PLAN) as store:
        store.add_round(CELL, 0, {"tcp_rtts": [_rtt(0)]})
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        db.execute("ALTER TABLE dns_exchanges DROP COLUMN condition")
    with Store(tmp_path, PLAN) as store:
        assert store.done() == {("fiber", "example.org", 0)}
        assert list(store.rows("dns_exchanges", "fiber")) == []
