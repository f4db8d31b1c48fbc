"""A campaign on a Dask cluster: who measures, what is kept, what is said; the testbed sleeps instead of measuring."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests import sleeping

from crosslayer.campaign import cluster, run
from crosslayer.campaign.cluster import batches, dask_executor, ending_together
from crosslayer.campaign.dask_worker import WorkerHooks
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.rounds import Job
from crosslayer.cli import cli
from crosslayer.links import load_profiles
from crosslayer.testbed.errors import TestbedError

distributed = pytest.importorskip("distributed")
worker_files = pytest.importorskip("crosslayer.campaign.worker_files")

# On a machine without a route to anywhere, Dask says that it takes the host's name for its address.
pytestmark = pytest.mark.filterwarnings("ignore:Couldn't detect a suitable IP address:RuntimeWarning")

PLAN = Plan(study="coalescing", links=("fiber", "4g"), pages=("example.org",), rounds=9, clock="virtual")


@pytest.fixture(scope="module")
def lent() -> Iterator[Any]:
    """A client of two workers in this process."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", resources={"testbed": 1}
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


def campaign(folder: Path, client: Any, plan: Plan = PLAN, **more: Any) -> list[str]:
    """Measure it; what was said."""
    messages: list[str] = []
    source = dask_executor(client, clock=plan.clock, hooks=sleeping.HOOKS, **more)
    run.measure(plan, folder, Any, load_profiles(), say=messages.append, source=source)  # type: ignore[arg-type]
    return messages


def loads(folder: Path) -> pl.DataFrame:
    columns = ["link", "page", "round", "condition", "position"]
    return pl.read_parquet(folder / "page_loads/**/*.parquet", hive_partitioning=False).select(columns).sort(columns)


def test_batches_are_rounds_of_one_cell_in_the_order_of_their_first() -> None:
    one, other = Cell("fiber", "a"), Cell("4g", "a")
    todo = [(number, cell) for number in range(5) for cell in (one, other)]
    assert list(batches(todo, 2)) == [
        [(0, one), (1, one)],
        [(0, other), (1, other)],
        [(2, one), (3, one)],
        [(2, other), (3, other)],
        [(4, one)],
        [(4, other)],
    ]


@pytest.mark.parametrize(("cells", "testbeds", "sizes"), [(3, 2, [8, 8, 4, 4]), (2, 2, [8, 8]), (1, 3, [3, 3, 2])])
def test_no_testbed_waits_long_for_the_last_batch(cells: int, testbeds: int, sizes: list[int]) -> None:
    todo = [(number, Cell("fiber", f"page-{cell}")) for number in range(8) for cell in range(cells)]
    work = list(batches(todo, 8))
    spread = ending_together(work, testbeds)
    assert [len(batch) for batch in spread] == sizes
    assert [entry for batch in spread for entry in batch] == [entry for batch in work for entry in batch]


@pytest.mark.slow
def test_every_round_is_there_once_with_its_host(lent: Any, tmp_path: Path) -> None:
    output = campaign(tmp_path, lent, batch=2)
    rows = loads(tmp_path)
    assert rows.height == rows.unique().height == 2 * 9 * 2
    about = json.loads((tmp_path / "campaign.json").read_text())
    assert list(about["hosts"]) == ["host-1"]
    assert set(pl.read_parquet(tmp_path / "page_loads/**/*.parquet", hive_partitioning=False)["host"]) == {"host-1"}
    checks = pl.read_parquet(tmp_path / "link_checks/**/*.parquet", hive_partitioning=False)
    assert checks.filter(pl.col("round") == -1).height == 2, "one check of each link, not of each task"
    assert any(line.startswith("Measuring on a cluster of 2 testbeds: 10 tasks") for line in output)


def test_what_was_interrupted_goes_on(lent: Any, tmp_path: Path) -> None:
    campaign(tmp_path / "whole", lent)
    source = dask_executor(lent, clock="virtual", batch=2, hooks=sleeping.HOOKS)

    def dying(*arguments: Any) -> Iterator[Any]:
        parts = source(*arguments)
        yield from (next(parts) for _ in range(8))
        parts.close()
        raise RuntimeError("the starter dies")

    nobody: Any = None
    with pytest.raises(RuntimeError, match="the starter dies"):
        run.measure(PLAN, tmp_path / "cut", nobody, load_profiles(), say=lambda _: None, source=dying)
    campaign(tmp_path / "cut", lent, batch=2)
    assert loads(tmp_path / "cut").equals(loads(tmp_path / "whole"))


def test_a_cluster_that_cannot_measure_reports_the_reason(
    lent: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(sleeping.UNABLE, "there is no browser")
    with pytest.raises(TestbedError, match="no worker of the cluster can measure: there is no browser"):
        campaign(tmp_path, lent)


def test_who_was_left_out_of_a_campaign_is_asked_again_by_the_next(lent: Any, tmp_path: Path) -> None:
    [one, _] = lent.scheduler_info()["workers"]
    lent.run_on_scheduler(lambda dask_scheduler: dask_scheduler.add_resources(one, {"testbed": 0}))
    assert sum(worker["resources"]["testbed"] for worker in lent.scheduler_info()["workers"].values()) == 1
    output = campaign(tmp_path, lent)
    assert any(line.startswith("Measuring on a cluster of 2 testbeds") for line in output)


def test_the_error_without_a_testbed_shows_how_to_start_workers(tmp_path: Path) -> None:
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as made,
        distributed.Client(made) as client,
        pytest.raises(CampaignError, match=r"offers a testbed.*--resources testbed=1"),
    ):
        campaign(tmp_path, client)


def test_pages_and_traces_of_ones_own_come_along(lent: Any, tmp_path: Path) -> None:
    page, trace, profiles = tmp_path / "mine", tmp_path / "walk.csv", tmp_path / "walk.toml"
    page.mkdir()
    (page / "page.toml").write_text(
        'title = "Mine"\nhost = "www.mine.test"\n[[resource]]\npath = "/"\nsource = "a.html"\nwire_bytes = 400\n',
        encoding="utf-8",
    )
    (page / "a.html").write_text("<!doctype html><p>mine", encoding="utf-8")
    (page / "diary.txt").write_text("not named by the page", encoding="utf-8")
    trace.write_text("duration_ms,rtt_ms\n100,20\n100,30\n", encoding="utf-8")
    profiles.write_text('[walk.trace]\nsteps = "walk.csv"\n', encoding="utf-8")
    plan = replace(PLAN, pages=("mine",), links=("walk",), rounds=2)
    source = dask_executor(
        lent, clock="virtual", batch=1, hooks=WorkerHooks(sleeping.examine, sleeping.reporting_files)
    )
    own: dict[str, Any] = {"profiles": load_profiles(profiles), "own_pages": (page,)}
    run.measure(plan, tmp_path / "out", Any, say=lambda _: None, source=source, **own)  # type: ignore[arg-type]
    versions = json.loads((tmp_path / "out" / "campaign.json").read_text())["versions"]
    assert versions["document"] == "<!doctype html><p>mine"
    assert versions["trace"] == trace.read_text(encoding="utf-8")
    assert versions["least RTT"] == "20.0"
    for name in ("document", "trace"):
        path = Path(versions[f"path of the {name}"])
        assert not path.is_relative_to(tmp_path)
        assert not list(path.parent.glob("diary*"))


def test_files_that_did_not_come_are_one_sentence(lent: Any) -> None:
    def asked() -> str:
        try:
            worker_files.localise(Job(PLAN, "", [], Any, {}, ""), "crosslayer-lost")  # type: ignore[arg-type]
        except TestbedError as error:
            return str(error)
        return "nothing"

    assert "are missing" in lent.submit(asked, pure=False).result()


def test_the_starter_prints_no_traceback_of_dask(lent: Any) -> None:
    """Each of these logs one when the scheduler dies; which of them does depends on what was being sent."""
    names = ("distributed.batched", "distributed.client", "distributed.core", "tornado.application")
    loggers = [logging.getLogger(name) for name in names]
    with cluster.connected(lent.scheduler.address, None):
        assert not [logger for logger in loggers if logger.isEnabledFor(logging.CRITICAL)]
    assert all(logger.isEnabledFor(logging.ERROR) for logger in loggers)


def test_without_dask_there_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(CampaignError, match=r"pip install 'crosslayer\[cluster\]'"), cluster.connected(None, "local"):
        pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scheduler", "tcp://192.0.2.1:8786", "--cluster", "local"], "--scheduler and --cluster exclude"),
        (["--allow-mixed-versions"], "need a cluster"),
    ],
)
def test_what_a_command_says_of_a_cluster_fits_together(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["measure", *arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
