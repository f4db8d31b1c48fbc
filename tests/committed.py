"""The committed campaigns: those in `data/raw` that `.gitignore` names as exceptions."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import polars as pl

from crosslayer import report
from crosslayer.campaign.dataset import Dataset

ROOT: Final = Path(__file__).parents[1]

CAMPAIGNS: Final = {
    name: ROOT / "data" / "raw" / name
    for name in re.findall(r"^!/data/raw/([\w-]+)/$", (ROOT / ".gitignore").read_text(encoding="utf-8"), re.MULTILINE)
}
"""Folders of the committed campaigns, by name."""


@cache
def verdicts(campaign: str) -> pl.DataFrame:
    """Claims of a committed campaign with their verdicts (`report.check_claims`), computed once per process."""
    return report.check_claims(Dataset.open(CAMPAIGNS[campaign]))
