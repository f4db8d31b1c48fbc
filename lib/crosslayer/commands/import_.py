"""`crosslayer import`: a dataset from the database of the harness of TNSM24."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import PATH


@click.command("import")
@click.argument("database", type=PATH)
@click.argument("out", type=PATH)
def command(database: Path, out: Path) -> None:
    """Convert DATABASE, the SQLite file of the harness of Sengupta et al. (TNSM 2024), to the dataset OUT."""
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.links import load_profiles
    from crosslayer.studies.coalescing.importer import import_database

    dataset = Dataset.open(import_database(database, out, load_profiles()))
    for note in dataset.campaign.notes:
        click.echo(note, err=True)
    click.echo(str(out))
