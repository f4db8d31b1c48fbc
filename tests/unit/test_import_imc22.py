"""The importer of IMC 2022: a file with the columns that the authors' notebook reads becomes a dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from crosslayer import report
from crosslayer.campaign.dataset import EMULATED, Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.cli import cli
from crosslayer.studies.resolvers.importer import FILE, import_folder

REGIONS = {"EU-CENTRAL-1": 90.0, "US-WEST-1": 161.0, "AP-NORTHEAST-3": 173.0, "AF-SOUTH-1": 213.0, "SA-EAST-1": 237.0,
           "AP-SOUTHEAST-3": 251.0}  # fmt: skip
NS = 1e6
"""Durations are Go's: nanoseconds."""
Row = dict[str, Any]


def rows(rounds: int = 6, resolvers: int = 3) -> list[Row]:
    made = []
    for region, rtt in REGIONS.items():
        for number in range(resolvers):
            for protocol, port in (("udp", 53), ("tcp", 53), ("tls", 853), ("https", 443), ("quic", 8853)):
                for round_ in range(rounds):
                    path = (rtt + number + round_ / 10) * NS
                    row: Row = {"ip": f"9.9.9.{number + 1}", "port": port, "protocol": protocol, "vp": region}
                    row |= {
                        "r_code": 0.0,
                        "error": None,
                        "query_time": path,
                        "q_ui_c_version": None,
                        "tls_version": 772.0,
                    }
                    row |= dict.fromkeys(("q_ui_c", "tcp", "tls"))
                    handshake = {"tcp": {"tcp": path}, "quic": {"q_ui_c": path}}.get(protocol, {})
                    handshake = {"tcp": path, "tls": path} if protocol in ("tls", "https") else handshake
                    for name in ("q_ui_c", "tcp", "tls"):
                        row[f"{name}_handshake_duration"] = handshake.get(name)
                        del row[name]
                    row["total_time"] = path + sum(handshake.values())
                    made.append(row)
    return made


def write(folder: Path, content: list[Row], below: str = "") -> Path:
    (folder / below).mkdir(parents=True, exist_ok=True)
    pl.DataFrame(content, infer_schema_length=None).write_parquet(folder / below / FILE)
    return folder


def test_a_folder_of_the_authors_becomes_a_dataset_that_is_judged(tmp_path: Path) -> None:
    source = write(tmp_path / "theirs", rows(), "single.query.response.times")
    dataset = Dataset.open(import_folder(source, tmp_path / "out"))
    assert dataset.campaign.links == ("eu", "na", "as", "af", "sa", "oc")
    assert any("no times of day" in note for note in dataset.campaign.notes)
    assert EMULATED not in dataset.caption
    table = dataset.table("resolver_queries").collect()
    assert table.height == len(rows())
    quic = table.filter(protocol="DoQ", link="eu", address="9.9.9.1", round=0).row(0, named=True)
    assert (quic["handshake_ms"], quic["query_ms"], quic["total_ms"]) == pytest.approx((90.0, 90.0, 180.0))
    assert (quic["state"], quic["port"], quic["session_resumed"]) == ("resumed", 8853, None)
    tls = table.filter(protocol="DoT", link="eu", address="9.9.9.1", round=0).row(0, named=True)
    assert (tls["handshake_ms"], tls["rtt_ms"]) == pytest.approx((180.0, 90.0))
    verdicts = {row["claim_id"]: row for row in report.check_claims(dataset).iter_rows(named=True)}
    for claim in ("I006", "I091", "I093", "I097", "I104"):
        assert verdicts[claim]["verdict"] != "not measured", verdicts[claim]["why"]
    assert verdicts["I006"]["ours"] == pytest.approx(100 / 3, abs=0.5)
    assert verdicts["I048"]["verdict"] == "not measured"


def test_failures_are_rows_by_the_rules_of_the_authors(tmp_path: Path) -> None:
    content = rows()
    content[0] |= {"error": "timeout", "r_code": None}
    content[1] |= {"r_code": None}
    content[2] |= {"total_time": 5e9}
    content[3] |= {"total_time": None}
    content[4] |= {"query_time": None}
    table = Dataset.open(import_folder(write(tmp_path / "theirs", content), tmp_path / "out")).table("resolver_queries")
    failed = table.filter(pl.col("error").is_not_null()).sort("round").collect()
    expected = ["timeout", "no answer recorded", "took 5 s or more", "no total time recorded", "a duration is missing"]
    assert failed["error"].to_list() == expected
    assert failed["total_ms"].null_count() == 5


def test_times_of_day_order_the_rounds_and_queries_that_fill_caches_are_left_out(tmp_path: Path) -> None:
    content = [row | {"created": 1_650_300_000 - number, "cache_warming": False} for number, row in enumerate(rows())]
    content += [row | {"cache_warming": True} for row in content[:10]]
    dataset = Dataset.open(import_folder(write(tmp_path / "theirs", content), tmp_path / "out"))
    table = dataset.table("resolver_queries").collect()
    assert table.height == len(rows())
    assert "left out: 10 queries that filled the resolver's cache" in dataset.campaign.notes
    cell = table.filter(link="eu", address="9.9.9.1", protocol="DoUDP").sort("round")
    assert cell["started_s"].is_sorted()
    assert cell["query_ms"].is_sorted(descending=True)  # they were written in the reverse order


def drop(column: str) -> Callable[[Path], object]:
    return lambda folder: write(folder, [{k: v for k, v in row.items() if k != column} for row in rows()])


def change(**values: Any) -> Callable[[Path], object]:
    return lambda folder: write(folder, [row | (values if number == 0 else {}) for number, row in enumerate(rows())])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder.mkdir(), f"has no file {FILE}"),
        (lambda folder: (folder.mkdir(), (folder / FILE).write_text("no Parquet")), "cannot be read as a Parquet file"),
        (lambda folder: write(folder, rows(rounds=0) or [rows()[0]][:0]), "lacks the columns"),
        (drop("query_time"), "lacks the columns query_time"),
        (change(protocol="sctp"), "has sctp in the column protocol"),
        (change(vp="MOON-1"), "has MOON-1 in the column vp"),
        (change(ip="example.org"), "has 'example.org' in place of an IP address"),
        (change(query_time=-1.0), "has 1 rows with a negative duration"),
    ],
)
def test_another_file_is_refused_with_a_next_step(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "theirs")
    with pytest.raises(CampaignError) as refused:
        import_folder(tmp_path / "theirs", tmp_path / "out")
    assert message in str(refused.value)
    assert refused.value.next_step
    assert not (tmp_path / "out").exists()


def test_the_command_takes_a_folder_and_an_existing_dataset_is_never_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "theirs", rows())
    done = CliRunner().invoke(cli, ["import", str(tmp_path / "theirs"), str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    again = CliRunner().invoke(cli, ["import", str(tmp_path / "theirs"), str(tmp_path / "out")])
    assert again.exit_code != 0
