"""Chromium with valid and broken HTTPS records: the dataset of one round in virtual time."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.studies.https_records.records import KINDS
from tests.integration.conftest import CROSSLAYER

MEASURE = ["measure", "--study", "https-records", "--size", "smoke"]


@pytest.fixture(scope="module")
def loads(browser_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    folder: Path = tmp_path_factory.mktemp("records") / "data"
    done = subprocess.run(
        [*CROSSLAYER, *MEASURE, *virtual_clock, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Dataset.open(folder).table("page_loads").collect()


def of(loads: pl.DataFrame, kind: str) -> dict[str, object]:
    return loads.filter(condition=kind).row(0, named=True)


def test_every_kind_is_there_once(loads: pl.DataFrame) -> None:
    assert sorted(loads["condition"]) == sorted(KINDS)


def test_only_a_good_record_tells_of_http3(loads: pl.DataFrame) -> None:
    assert of(loads, "none")["document_protocol"] == "h2"
    for kind in ("whole", "whole-0-rtt", "ech", "ech-0-rtt"):
        assert (of(loads, kind)["document_protocol"], of(loads, kind)["error"]) == ("h3", None)


def test_malformed_records_are_ignored(loads: pl.DataFrame) -> None:
    for kind in ("cut-short", "keys-unordered", "key-twice", "no-default-alone", "protocol-unknown", "servfail"):
        assert (kind, of(loads, kind)["document_protocol"], of(loads, kind)["error"]) == (kind, "h2", None)


def test_hellos_are_encrypted_and_cost_neither_round_trip_nor_early_data(loads: pl.DataFrame) -> None:
    for plain, hidden in (("whole", "ech"), ("whole-0-rtt", "ech-0-rtt")):
        assert of(loads, hidden)["ech_accepted"] is True
        assert of(loads, plain)["ech_accepted"] is False
        assert of(loads, hidden)["early_data_accepted"] is (KINDS[hidden].h3 == "0-rtt")
        later_ms = float(of(loads, hidden)["response_start_ms"]) - float(of(loads, plain)["response_start_ms"])  # type: ignore[arg-type]
        assert abs(later_ms) < 9  # a tenth of the RTT
