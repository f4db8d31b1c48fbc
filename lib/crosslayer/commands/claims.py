"""`crosslayer claims`: the published results against a dataset."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import DATASET


@click.command("claims")
@DATASET
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Also write OUT/STUDY/claims.parquet and .md, and renew OUT/index.html.",
)
def command(folder: Path, out: Path | None) -> None:
    """Hold every published result against the dataset in FOLDER, claim by claim.

    Verdicts: reproduced, direction only, inconclusive, not reproduced, not measured. Needs no namespaces, no browser
    and no root.

    Exits with 0 whatever the verdicts are: a claim that fails is a result.
    """
    import polars as pl

    from crosslayer import claims, report
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.claims import Verdict

    dataset = Dataset.open(folder)
    verdicts = report.check_claims(dataset)
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
        for path in (*report.save_claims(verdicts, dataset, out), report.write_index(dataset, out)):
            click.echo(str(path))


def _span(identifiers: list[str]) -> str:
    """A few identifiers, or how many and between which."""
    if len(identifiers) <= 4:
        return ", ".join(identifiers)
    return f"{len(identifiers)} claims, {identifiers[0]} to {identifiers[-1]}"
