"""`crosslayer claims`: the published results against a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import DATASET, PATH, TEXT, others

if TYPE_CHECKING:
    import polars as pl

    from crosslayer.campaign.dataset import Dataset


@click.command("claims")
@DATASET
@click.option(
    "--out",
    type=PATH,
    help="Also write OUT/STUDY/claims.parquet and claims.md, and OUT/index.html again.",
)
@click.option(
    "--compare",
    type=PATH,
    help="Another campaign of the same study: print only the verdicts that differ, and how many.",
)
@click.option(
    "--rows",
    type=TEXT,
    metavar="CLAIM",
    help="Print the rows on which the verdict of this claim rests, and the filter that selects them.",
)
def command(folder: Path, out: Path | None, compare: Path | None, rows: str | None) -> None:
    """Compare each published result with the dataset in FOLDER, and print its verdict.

    Verdicts: reproduced, direction only, inconclusive, not reproduced, follows, not measured. Needs no namespaces, no
    browser and no root. The default FOLDER is data/raw/coalescing.

    The exit status does not depend on the verdicts: a claim that is not reproduced is a result.

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
    from crosslayer import claims, report  # which import a chart library; a missing dataset is reported before
    from crosslayer.claims import Verdict

    verdicts = report.check_claims(dataset)
    if compare is not None:
        [other] = others(dataset, [compare])
        _print_changed(claims.compared(verdicts, report.check_claims(other)), dataset.caption, other.caption)
        return
    measured = pl.col("verdict") != Verdict.NOT_MEASURED
    for row in verdicts.filter(measured).iter_rows(named=True):
        what = ", ".join(row[name] for name in ("quantity", "scope") if row[name])
        click.echo(f"{row['claim_id']:<5} {row['verdict']:<15} {what}: {row['published']}")
        click.echo(f"{'':<21} {row['why']}")
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
    """The filter of each table that the claim needs, how many rows it has, and its first rows."""
    from crosslayer.notebooks.campaign_view import observations

    for part in observations(dataset, claim):
        frame = part.frame.collect()
        click.echo(part.code)
        click.echo(f"{frame.height} rows")
        click.echo(frame.head().write_csv(separator="\t"))


def _print_changed(both: pl.DataFrame, caption: str, other_caption: str) -> None:
    """The claims whose verdicts differ between two campaigns, and how many do."""
    from crosslayer.claims import interval, ours

    changed = both.filter("changed")
    for row in changed.iter_rows(named=True):
        other = row | {name: row[f"{name}_other"] for name in ("ours", "low", "high")}
        what = ", ".join(row[name] for name in ("quantity", "scope") if row[name])
        click.echo(f"{row['claim_id']:<5} {row['verdict']:<15} {ours(row)} {interval(row)}: {what}")
        click.echo(f"{'':<5} {row['verdict_other']:<15} {ours(other)} {interval(other)}")
    click.echo(f"{changed.height} of {both.height} verdicts differ.")
    if both.is_empty():
        click.echo("No claim has a verdict in both: one of them has other links or pages, or too few of them.")
    click.echo(caption)
    click.echo(other_caption)


def _span(identifiers: list[str]) -> str:
    """A few identifiers, or how many and between which."""
    if len(identifiers) <= 4:
        return ", ".join(identifiers)
    return f"{len(identifiers)} claims, {identifiers[0]} to {identifiers[-1]}"
