"""The verdicts in `docs/findings/claims.md`: `python -m tests.claims_document` renews them."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from crosslayer import claims, report
from crosslayer.campaign.dataset import Dataset, paired_campaigns
from crosslayer.studies import STUDIES

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "findings" / "claims.md"
_ROW = re.compile(r"^\| ([A-Z]+\d+) \| (.*) \| ([^|]*) \|$", re.MULTILINE)


def verdicts() -> dict[str, str]:
    """Verdict of every claim in the committed campaign of its study, and in virtual time where it is another one."""
    found: dict[str, str] = {}
    for name, study in STUDIES.items():
        if study.claims:
            dataset = Dataset.open(ROOT / "data" / "raw" / name)
            table = report.check_claims(dataset)
            of_study = table.filter(pl.col("claim_id").is_in(list(study.claims.checks)))
            found.update(of_study.select("claim_id", "verdict").iter_rows())
            for virtual in paired_campaigns(dataset)[:1]:
                other = report.check_claims(virtual).filter(pl.col("claim_id").is_in(list(study.claims.checks)))
                for claim, verdict in other.select("claim_id", "verdict").iter_rows():
                    if verdict not in (found[claim], claims.Verdict.NOT_MEASURED):
                        found[claim] += f"; in virtual time {verdict}"
    return found


def rows() -> list[tuple[str, str, str]]:
    """Claim, what was done, and verdict of every row of the document."""
    return _ROW.findall(DOCUMENT.read_text(encoding="utf-8"))


def renew() -> None:
    """Write the verdicts into the document."""
    now = verdicts()
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(_ROW.sub(lambda row: f"| {row[1]} | {row[2]} | {now[row[1]]} |", text), encoding="utf-8")


if __name__ == "__main__":
    renew()
