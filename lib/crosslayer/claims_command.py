"""`crosslayer claims`: the table of verdicts of a dataset, on the terminal and as files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from crosslayer import claims, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.errors import CrosslayerError

_STYLE = """\
<style>
body { font: 14px/1.4 "Liberation Sans", Arial, sans-serif; margin: 2em auto; max-width: 80em; color: #1a1a1a; }
table { border-collapse: collapse; } td, th { padding: .3em .6em; text-align: left; vertical-align: top; }
tr { border-bottom: 1px solid #dcdcdc; } thead tr { border-bottom: 2px solid #1a1a1a; }
tr.reproduced td:nth-child(6) { font-weight: bold; color: #00694e; }
tr.direction td:nth-child(6) { color: #00558a; }
tr.not-reproduced td:nth-child(6) { font-weight: bold; color: #a34700; }
tr.not-measured { color: #5a5a5a; }
</style>
"""


class ClaimsError(CrosslayerError):
    """The table of verdicts cannot be written."""


def verdicts_of(dataset: Dataset) -> pl.DataFrame:
    """Every published result held against a dataset; columns as `crosslayer.claims.check` gives them."""
    tables = ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks")
    frames = {name: dataset.table(name) for name in tables}
    return claims.check(**frames, claims=published.load().claims, study=dataset.campaign.study)


def write(verdicts: pl.DataFrame, dataset: Dataset, folder: Path) -> list[Path]:
    """Write `claims.parquet`, `claims.md` and `claims.html` beside the figures of the study.

    Parameters
    ----------
    verdicts
        From `verdicts_of`.
    dataset
        What was checked.
    folder
        E.g. `figures`; the table goes to a folder of the study in it, made where it is missing.

    Returns
    -------
    list of Path
        The files.

    Raises
    ------
    ClaimsError
        Where the folder cannot be written.
    """
    folder = folder / dataset.campaign.study
    caption = dataset.caption
    table, text, page = (folder / f"claims.{ending}" for ending in ("parquet", "md", "html"))
    html = f'<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Claims</title>\n{_STYLE}'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        verdicts.write_parquet(table)
        text.write_text(claims.to_markdown(verdicts, caption=caption), encoding="utf-8")
        page.write_text(
            f"{html}<h1>Claims</h1>\n{claims.to_html(verdicts, caption=caption)}</html>\n", encoding="utf-8"
        )
    except OSError as error:
        raise ClaimsError(
            f"cannot be written ({error.strerror})", where=str(folder), next_step="Choose another folder with --out."
        ) from error
    return [table, text, page]


def run(folder: Path, out: Path | None, say: Callable[[str], None]) -> None:
    """Check a dataset, say what came out, and write it where a folder is given.

    Parameters
    ----------
    folder
        A dataset.
    out
        Folder of the figures, e.g. `figures`; None writes nothing.
    say
        Takes one line at a time.
    """
    dataset = Dataset.open(folder)
    verdicts = verdicts_of(dataset)
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
        for path in write(verdicts, dataset, out):
            say(str(path))


def _span(identifiers: list[str]) -> str:
    """A few identifiers, or how many and between which."""
    if len(identifiers) <= 4:
        return ", ".join(identifiers)
    return f"{len(identifiers)} claims, {identifiers[0]} to {identifiers[-1]}"
