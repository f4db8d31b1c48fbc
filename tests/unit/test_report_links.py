"""A referee takes twenty claims by chance and asks the page, and nothing else, what each rests on."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from tests import committed

from crosslayer import report
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims.tolerances import RULES, VERSION
from crosslayer.studies import STUDIES

RAW = Path(__file__).parents[2] / "data" / "raw"
SEEDS = (1, 2, 3)
CLAIMS = 20


class Rows(HTMLParser):
    """The rows of the page's table of claims: cells as text, by claim."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: dict[str, list[str]] = {}
        self._row: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag == "tr" and named.get("id") and "data-counted" in named:
            self._row = self.rows.setdefault(str(named["id"]), [])
        elif tag == "td" and self._row is not None:
            self._row.append("")
        elif self._row:
            self._row[-1] += " "

    def handle_data(self, data: str) -> None:
        if self._row:
            self._row[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "tr":
            self._row = None


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("figures")
    datasets = {name: Dataset.open(RAW / name) for name, study in STUDIES.items() if study.claims}
    for name, dataset in datasets.items():
        report.save_claims(committed.verdicts(name), dataset, folder)
    index = report.write_index(datasets["coalescing"], folder)
    return index.with_name("claims.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_twenty_claims_lead_from_the_page_to_their_rows(page: str, seed: int) -> None:
    published = claims_of_papers()
    rows = {identifier: row for identifier, row in Rows(page).rows.items() if identifier in published}
    measured = {json.loads((RAW / name / "campaign.json").read_text())["campaign"]: RAW / name for name in STUDIES}
    date, _, summary = RULES[VERSION].partition(". ")
    assert f'<dt id="rule-{VERSION}">Version {VERSION}, {date}</dt>' in page
    assert " ".join(summary.split())[:60] in page
    for identifier in random.Random(seed).sample(sorted(rows), CLAIMS):
        _, where, what, value, ours, interval, judged, why = (" ".join(cell.split()) for cell in rows[identifier])
        assert where == " ".join(published[identifier]["section_or_figure"].split())
        assert published[identifier]["quantity"].split()[0] in what
        assert value
        if judged.startswith("not measured"):
            assert why
            continue
        assert re.search(r"\d", ours), identifier
        given = re.search(r"\d, .*\d", interval) or interval == "narrower than its last digit"
        assert given or "no interval" in why, identifier
        assert re.fullmatch(r"[a-z ]+", judged), identifier
        assert re.search(rf"Rule {VERSION}: \S", why), identifier
        reached = re.search(r"From (\d+) observations in (\d+) rounds: ([a-z_, ]+) of campaign (\S+?)\.(?=\s|$)", why)
        assert reached, identifier
        folder, tables = measured[reached[4]], reached[3].split(", ")
        assert max(rows_of(folder, name) for name in tables) >= int(reached[1]) > 0, identifier
        if judged == "not reproduced":
            assert "Cause:" in why, identifier


def test_no_result_that_is_not_reproduced_is_without_a_cause(page: str) -> None:
    """The cause has numbers of the campaign, or calls itself a guess: `claims.checks.by_id` refuses others."""
    without = [
        name for name, cells in Rows(page).rows.items() if cells[6].startswith("not rep") and "Cause:" not in cells[7]
    ]
    assert without == []


@cache
def rows_of(folder: Path, table: str) -> int:
    """How many rows a table has."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob(f"{table}/*/*.parquet"))


def claims_of_papers() -> dict[str, dict[str, str]]:
    """As printed, by identifier."""
    table = pl.read_csv(RAW.parent / "published" / "claims.csv", infer_schema=False).fill_null("")
    return {row["claim_id"]: row for row in table.iter_rows(named=True)}
