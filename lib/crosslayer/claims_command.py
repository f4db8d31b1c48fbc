"""`crosslayer claims`: the table of verdicts of a dataset, on the terminal and as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from crosslayer import claims, report
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict


def run(folder: Path, out: Path | None, say: Callable[[str], None]) -> None:
    """Check a dataset, say what came out, and write it where a folder is given.

    Parameters
    ----------
    folder
        A dataset.
    out
        Folder of the figures, e.g. `figures`, whose page is renewed too; None writes nothing.
    say
        Takes one line at a time.
    """
    dataset = Dataset.open(folder)
    verdicts = report.check_claims(dataset)
    measured = pl.col("verdict") != Verdict.NOT_MEASURED
    for row in verdicts.filter(measured).iter_rows(named=True):
        what = ", ".join(row[name] for name in ("quantity", "scope") if row[name])
        say(f"{row['claim_id']:<5} {row['verdict']:<15} {what}: {row['published']}")
        say(f"{'':<21} {row['why']}")
    say("")
    for (why,), group in verdicts.filter(~measured).group_by(["why"], maintain_order=True):
        say(f"not measured: {_span(group['claim_id'].to_list())}: {why}")
    say("")
    for verdict, count in claims.counts(verdicts).items():
        say(f"{count:>5}  {verdict}")
    say(dataset.caption)
    if out is not None:
        for path in (*report.save_claims(verdicts, dataset, out), report.write_index(dataset, out)):
            say(str(path))


def _span(identifiers: list[str]) -> str:
    """A few identifiers, or how many and between which."""
    if len(identifiers) <= 4:
        return ", ".join(identifiers)
    return f"{len(identifiers)} claims, {identifiers[0]} to {identifiers[-1]}"
