"""The answer in a few sentences, with the numbers of the claims: on top of the page, and in the README."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.report.files import saved_claims, write
from crosslayer.studies import DEFAULT, STUDIES

_CLAIM = re.compile(r"\{(\w+)\}")
_BLOCK = re.compile(r"(<!-- answer -->\n).*?(\n<!-- /answer -->)", re.DOTALL)


def answer(dataset: Dataset, verdicts: pl.DataFrame | None, verdicts_of_figures: Sequence[str] = ()) -> list[str]:
    """What a dataset answers, and with what certainty.

    Parameters
    ----------
    dataset
        Whose answer it is.
    verdicts
        Of the dataset and of other studies beside it; None where no claim is checked.
    verdicts_of_figures
        What its figures answer: said where its study says nothing of claims.
    """
    study = STUDIES.get(dataset.campaign.study)
    measured = pl.DataFrame() if verdicts is None else verdicts.filter(pl.col("verdict") != Verdict.NOT_MEASURED)
    numbers = {row["claim_id"]: row for row in measured.iter_rows(named=True)}
    said = [_sentence(template, numbers) for template in (study.answer if study else ())]
    sentences = [text for text in said if text] or list(verdicts_of_figures)
    published = measured.filter(pl.col("paper") != claims.OURS) if measured.height else measured
    return [*sentences, _certainty(dataset, published)] if published.height else sentences


def _sentence(template: str, numbers: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence with its numbers; a clause, up to a semicolon, goes where one of its claims has none."""

    def said(claim: re.Match[str]) -> str:
        row = numbers[claim[1]]
        value, low, high = (f"{row[name]:#.3g}".rstrip(".") for name in ("ours", "low", "high"))
        return f"{value} {row['unit']} [{low}, {high}]"

    known = {claim for claim, row in numbers.items() if row["low"] is not None}
    clauses = [_CLAIM.sub(said, text) for text in template.split("; ") if known.issuperset(_CLAIM.findall(text))]
    text = "; ".join(clauses).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _certainty(dataset: Dataset, measured: pl.DataFrame) -> str:
    fewest, most = dataset.rounds_per_cell
    rounds = str(most) if fewest == most else f"{fewest} to {most}"
    counts = in_words({of: n for of, n in claims.counts(measured).items() if of != Verdict.NOT_MEASURED})
    return (
        f"In brackets: 95 % intervals, {rounds} rounds of each link and page resampled, links emulated on one machine; "
        f"of the {measured.height} published results that were measured again: {counts}."
    )


def in_words(counts: Mapping[str, int]) -> str:
    """How many claims have each verdict, as part of a sentence."""
    said = {claims.FOLLOWING: "that follow from another"}
    return ", ".join(f"{count} {said.get(verdict, verdict)}" for verdict, count in counts.items())


def renew_readme(dataset: Dataset, folder: Path) -> None:
    """Put the answer into the README of a checkout, where figures of its committed campaign were made in their place.

    Parameters
    ----------
    dataset, folder
        What was reported and where to; for any other than `data/raw/coalescing` and `figures` nothing is done.
    """
    root = folder.resolve().parent
    readme = root / "README.md"
    committed = (root / "figures", root / "data" / "raw" / DEFAULT)
    if (folder.resolve(), dataset.folder.resolve()) != committed or not readme.is_file():
        return
    text = readme.read_text(encoding="utf-8")
    sentences = as_paragraph(answer(dataset, saved_claims(dataset, folder)))
    write(readme, _BLOCK.sub(lambda block: f"{block[1]}{sentences}{block[2]}", text).encode())


def as_paragraph(sentences: Sequence[str]) -> str:
    """The sentences as they stand in the README."""
    return textwrap.fill(" ".join(sentences), 120, break_on_hyphens=False)
