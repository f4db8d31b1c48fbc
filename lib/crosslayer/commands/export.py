"""`crosslayer export`: write the tables of a store as a dataset."""

from __future__ import annotations

from pathlib import Path

import click

from crosslayer.commands.common import PATH


@click.command("export")
@click.argument("folder", type=PATH)
def command(folder: Path) -> None:
    """Write the Parquet tables and campaign.json of the campaign in FOLDER again, from the campaign's SQLite store.

    The campaign may be finished or interrupted."""
    from crosslayer.campaign.export import export as run
    from crosslayer.campaign.store import Store

    with Store(folder) as store:
        run(store, folder)
    click.echo(str(folder))
