"""`crosslayer claims`: compare the published results with a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crosslayer.commands.common import DATASET, PATH, TEXT, others

if TYPE_CHECKING:
    import polars as pl

    from crosslayer.campaign.dataset import Dataset

_CELL = 40
"""Maximum number of characters that are printed of a value. A value of the column `navigation` has thousands."""


@click.command("claims")
@DATASET
@click.option(
    "--out",
    type=PATH,
    help="Folder: also write OUT/STUDY/claims.parquet and OUT/STUDY/claims.md, and update OUT/index.html.",
)
@click.option(
    "--compare",
    type=PATH,
    help="Dataset of another campaign of the same study. Print only the claims whose verdicts differ between the two "
    "campaigns, and the number of these claims.",
)
@click.option(
    "--rows",
    type=TEXT,
    metavar="CLAIM",
    help="Print CLAIM (e.g. T123) with its verdict. Then print, for each table that the verdict uses, Python code that "
    "reads the verdict's rows, the number of these rows, and the first five of these rows.",
)
def command(folder: Path, out: Path | None, compare: Path | None, rows: str | None) -> None:
    """Check each claim against the dataset in FOLDER, and print its verdict: whether the dataset reproduces it.

    A claim is a result of a paper, or a conclusion of a study. A verdict is one of: "reproduced", "direction only",
    "inconclusive", "not reproduced", "follows" (already determined by another claim or the configuration),
    "not measured". docs/reference/glossary.md defines them. The command needs no namespaces, no browser and no root.
    The default FOLDER is data/raw/coalescing.

    The exit status does not depend on the verdicts: a claim that is not reproduced is a result, not an error.

    \b
    crosslayer claims data/local/mine
    crosslayer claims data/local/mine --compare data/raw/coalescing
    crosslayer claims data/raw/coalescing --rows T123
    """
    import polars as pl

    from crosslayer.campaign.dataset import Dataset

    dataset = Dataset.open(folder)
    if rows is not None:
        _print_rows(dataset, rows)
        return
    from crosslayer import claims, report  # imported late, because they import a chart library
    from crosslayer.claims import Verdict

    verdicts = report.check_claims(dataset)
    if compare is not None:
        [other] = others(dataset, [compare])
        other_verdicts = report.check_claims(other)
        _print_changed(claims.compared(verdicts, other_verdicts), (dataset, verdicts), (other, other_verdicts))
        return
    measured = pl.col("verdict") != Verdict.NOT_MEASURED
    for row in verdicts.filter(measured).iter_rows(named=True):
        click.echo(f"{row['claim_id']:<5} {row['verdict']:<15} {_what(row)}: {row['published']}")
        for text in (row["why"], f"Cause: {row['cause']}" if row["cause"] else "", row["would_decide"]):
            if text:
                click.echo(f"{'':<21} {text}")
    click.echo("")
    for (why,), group in verdicts.filter(~measured).group_by(["why"], maintain_order=True):
        click.echo(f"not measured: {_span(group['claim_id'].to_list())}: {why}")
    click.echo("")
    for verdict, count in claims.counts(verdicts).items():
        click.echo(f"{count:>5}  {verdict}")
    click.echo(dataset.caption)
    if out is not None:
        tables = report.save_claims(verdicts, dataset, out)
        report.save_answer(dataset, verdicts, out)
        for path in (*tables, report.write_index(dataset, out)):
            click.echo(str(path))


def _print_rows(dataset: Dataset, claim: str) -> None:
    """Print the rows from which the verdict of a claim is computed.

    This function first prints the claim and its verdict. Then it prints, for each table, Python code that reads the
    rows, the number of rows, and the first five rows.
    """
    from crosslayer import claims, report
    from crosslayer.notebooks.campaign_view import observations

    parts = observations(dataset, claim)
    [judged] = report.check_claims(dataset, claim).iter_rows(named=True)
    where = f" ({judged['section_or_figure']})" if judged["section_or_figure"] else ""
    published = f": {judged['published']}" if judged["published"] else ""
    click.echo(f"{claim}{where} {_what(judged)}{published}")
    click.echo(f"{judged['verdict']}: {claims.ours(judged)} {claims.interval(judged)}".rstrip())
    for part in parts:
        frame = part.frame.collect()
        click.echo(part.code)
        click.echo(f"{frame.height} rows")
        for row in (frame.columns, *frame.head().rows()):
            click.echo("\t".join(_shortened(value) for value in row))


def _what(row: Mapping[str, Any]) -> str:
    """What a claim is about, from its row of the verdicts."""
    return ", ".join(row[name] for name in ("quantity", "scope") if row[name])


def _shortened(value: object) -> str:
    """A value of any type, also a list, as text with at most `_CELL` characters; empty for None."""
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _print_changed(both: pl.DataFrame, *campaigns: tuple[Dataset, pl.DataFrame]) -> None:
    """Print the claims whose verdicts differ between two campaigns, with the reasons, and the number of these claims.

    Parameters
    ----------
    both
        Result of `crosslayer.claims.compared`.
    campaigns
        Two pairs of a dataset and its frame from `crosslayer.claims.check`. Columns of `both` without the suffix
        `_other` belong to the first pair.
    """
    from crosslayer.claims import interval, ours
    from crosslayer.metrics import MIN_ROUNDS

    reasons = [dict(verdicts.select("claim_id", "why").iter_rows()) for _, verdicts in campaigns]
    changed = both.filter("changed")
    for row in changed.iter_rows(named=True):
        click.echo(f"{row['claim_id']}  {_what(row)}")
        for number, suffix in enumerate(("", "_other")):
            values = row | {name: row[name + suffix] for name in ("ours", "low", "high")}
            verdict = row["verdict" + suffix]
            click.echo(f"  [{number + 1}] {verdict:<15} {ours(values)} {interval(values)}".rstrip())
            click.echo(f"      {reasons[number][row['claim_id']]}")
    click.echo(f"{changed.height} of {both.height} verdicts differ.")
    if both.is_empty():
        click.echo("No claim has a verdict in both: one of them has other links or pages, or too few of them.")
    for number, (dataset, _) in enumerate(campaigns):
        click.echo(f"[{number + 1}] {dataset.caption}")
        if (rounds := max(dataset.rounds_per_cell)) < MIN_ROUNDS:
            click.echo(
                f"    It has at most {rounds} {'round' if rounds == 1 else 'rounds'} of a link and page. An interval "
                f"needs {MIN_ROUNDS} rounds, so claims that need an interval are inconclusive."
            )


def _span(identifiers: list[str]) -> str:
    """List up to four claim identifiers. For more than four, give their number, the first and the last."""
    if len(identifiers) <= 4:
        return ", ".join(identifiers)
    return f"{len(identifiers)} claims, {identifiers[0]} to {identifiers[-1]}"
