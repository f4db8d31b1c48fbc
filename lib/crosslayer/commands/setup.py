"""`crosslayer setup`: build the Go programs of an installed crosslayer."""

from __future__ import annotations

import click


@click.command("setup")
def command() -> None:
    """Build crosslayer's Go programs (server, stub, guest programs) for this user, from the sources in the package.

    The command needs Go, and network access to download Go modules. It takes one to five minutes. In a checkout, run
    `make setup` instead.
    """
    from crosslayer import programs

    click.echo("Building crosslayer's Go programs: one to five minutes.")
    folder = programs.build()
    click.echo(f"Built {', '.join(sorted(path.name for path in folder.iterdir()))} in {folder}")
