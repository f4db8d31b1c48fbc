"""`crosslayer import`: convert the raw data of a paper to a dataset."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import PATH


@click.command("import")
@click.argument("source", type=PATH)
@click.argument("out", type=PATH)
def command(source: Path, out: Path) -> None:
    """Convert SOURCE, the raw data of a paper, to the dataset OUT.

    For Sengupta et al. (TNSM 2024), SOURCE is the SQLite file that their program wrote. For Kosek et al. (IMC 2022),
    SOURCE is the folder with the extracted files of `single.query.response.times.zip`. SOURCE is not changed.

    \b
    crosslayer import web-performance.db data/local/theirs
    crosslayer import single.query.response.times data/local/imc22 && crosslayer claims data/local/imc22
    """
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.links import load_profiles
    from crosslayer.studies.coalescing.importer import import_database
    from crosslayer.studies.resolvers.importer import import_folder

    folder = import_folder(source, out) if source.is_dir() else import_database(source, out, load_profiles())
    dataset = Dataset.open(folder)
    for note in dataset.campaign.notes:
        click.echo(note, err=True)
    click.echo(str(out))
