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

    Verdicts: reproduced, direction only, not reproduced, not measured. Needs no namespaces, no browser and no root.

    Exits with 0 whatever the verdicts are: a claim that fails is a result.
    """
    from crosslayer.claims_command import run

    run(folder, out, click.echo)
