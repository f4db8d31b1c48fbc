"""Whether rounds that were measured again give a campaign's durations."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from crosslayer.campaign.dataset import Dataset
from crosslayer.cli import cli
from crosslayer.metrics import Drift, drift
from crosslayer.report.confirmations import confirmations
from crosslayer.report.files import ReportError

COMMITTED = Path("data/raw/key-share-virtual")


@pytest.fixture(scope="module")
def committed() -> Dataset:
    return Dataset.open(COMMITTED)


def shifted(dataset: Dataset, ms: pl.Expr | float, rounds: int = 20) -> pl.DataFrame:
    """The result where all exchanges of DoQ took longer by `ms` in the first `rounds`, which are all again."""

    def table(name: str) -> pl.LazyFrame:
        rows = dataset.table(name).filter(pl.col("round") < rounds)
        more = pl.when(pl.col("protocol").cast(pl.String) == "DoQ").then(ms).otherwise(0.0)
        return rows.with_columns(pl.col("total_ms") + more) if name == "dns_exchanges" else rows

    return drift(dataset.table, table)


def test_the_same_rounds_are_confirmed(committed: Dataset) -> None:
    frame = drift(committed.table, committed.table)
    assert frame.height == 60  # five links, four conditions, three durations
    assert set(frame["verdict"]) == {Drift.CONFIRMED}
    assert set(frame["rounds"]) == {20}
    assert frame["difference_ms"].abs().max() == 0


def test_rows_of_no_page_are_compared() -> None:
    paced = Dataset.open(Path("data/raw/authoritative-virtual"))
    frame = drift(paced.table, paced.table)
    assert frame.height > 0
    assert set(frame["verdict"]) == {Drift.CONFIRMED}


def test_a_key_that_older_campaigns_lack_distinguishes_nothing() -> None:
    older = Dataset.open(Path("data/raw/early-data-virtual"))
    assert older.table("page_loads").select(pl.col("browser").is_null().all()).collect().item()

    def newer(name: str) -> pl.LazyFrame:
        rows = older.table(name)
        return rows.with_columns(browser=pl.lit("chromium")) if name == "page_loads" else rows

    frame = drift(older.table, newer)
    assert frame.height > 0
    assert set(frame["verdict"]) == {Drift.CONFIRMED}


def test_the_limit_is_a_tenth_of_a_millisecond_or_three_in_a_thousand(committed: Dataset) -> None:
    frame = drift(committed.table, committed.table)
    assert frame["limit_ms"].to_list() == [max(0.1, 0.003 * value) for value in frame["committed_ms"]]


def test_a_shift_beyond_the_limit_has_drifted_and_one_within_it_has_not(committed: Dataset) -> None:
    doq = pl.col("condition").str.starts_with("DoQ") & (pl.col("measure") == "total_ms")
    limit = drift(committed.table, committed.table).filter(doq)["limit_ms"].max()
    assert isinstance(limit, float)
    large = shifted(committed, 1.1 * limit)
    assert set(large.filter(doq)["verdict"]) == {Drift.DRIFTED}
    assert set(large.filter(~doq)["verdict"]) == {Drift.CONFIRMED}
    assert set(shifted(committed, 0.09).filter(doq)["verdict"]) == {Drift.CONFIRMED}


def test_few_rounds_show_no_drift(committed: Dataset) -> None:
    doq = pl.col("condition").str.starts_with("DoQ") & (pl.col("measure") == "total_ms")
    frame = shifted(committed, 5.0, rounds=5)
    assert set(frame.filter(doq)["verdict"]) == {Drift.UNDECIDED}
    assert set(frame.filter(~doq)["verdict"]) == {Drift.CONFIRMED}


def test_rounds_that_disagree_leave_it_undecided(committed: Dataset) -> None:
    doq = pl.col("condition").str.starts_with("DoQ") & (pl.col("measure") == "total_ms")
    scattered = shifted(committed, pl.when(pl.col("round") % 2 == 0).then(5.0).otherwise(-5.0))
    assert set(scattered.filter(doq)["verdict"]) == {Drift.UNDECIDED}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data/raw/key-share"], "was measured in real time"),
        ([str(COMMITTED), "--links", "fibre"], "--links: the campaign has no 'fibre'. Choose from fiber, cable"),
        ([str(COMMITTED), "--pages", "example.com"], "--pages: the campaign has no 'example.com'"),
        (["data/raw/nothing"], "there is no such dataset folder"),
        ([], "Missing argument 'FOLDER'"),
    ],
)
def test_what_cannot_be_measured_again_is_refused(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["drift", *arguments])
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_the_report_gives_the_last_confirmation_of_each_campaign_of_a_study(tmp_path: Path) -> None:
    result = {
        "study": "loss",
        "measured": "2026-11-27T23:10:00+00:00",
        "revision": "0123456789abcdef",
        "clean": True,
        "rounds": 6,
        "counts": {"confirmed": 58, "drifted": 0, "undecided": 2},
    }
    (tmp_path / "loss.json").write_text(json.dumps(result))
    (tmp_path / "loss-again.json").write_text(json.dumps(result | {"rounds": 1, "clean": False}))
    assert confirmations("loss", tmp_path) == {
        "loss": "2026-11-27, revision 0123456: the first 6 rounds measured again, 60 medians compared: "
        "58 confirmed, 2 undecided.",
        "loss-again": "2026-11-27, revision 0123456 (with uncommitted changes): the first round measured again, "
        "60 medians compared: 58 confirmed, 2 undecided.",
    }
    assert confirmations("web", tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"is not JSON: .*crosslayer drift data/raw/loss --out"),
        ("{}", r"key 'study': is missing"),
        ("[1]", r"must be an object, is \[1\]"),
        ('{"study": "loss", "measured": 1}', r"key 'measured': must be a string, is 1"),
    ],
)
def test_a_damaged_result_names_the_file_the_fault_and_the_next_step(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "loss.json").write_text(text)
    with pytest.raises(ReportError, match=rf"loss\.json(: |, ){message}") as caught:
        confirmations("loss", tmp_path)
    assert caught.value.next_step
