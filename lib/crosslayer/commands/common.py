"""What several commands share: options, and the way into the private namespaces."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crosslayer.errors import CrosslayerError
from crosslayer.studies import DEFAULT

if TYPE_CHECKING:
    from crosslayer.report import Report

BACKEND = click.option(
    "--backend",
    type=click.Choice(["auto", "netem", "uml"]),
    default="auto",
    show_default=True,
    help="Where netem runs: in this kernel or in a User-Mode Linux guest. auto takes netem, else uml.",
)
DATASET = click.argument("folder", type=click.Path(path_type=Path), default=Path("data/raw") / DEFAULT)
FIGURES = click.option(
    "--out", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="Folder."
)


def renamed(new: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Callback of an option whose name has changed: whoever gives it is told the new one."""

    def callback(ctx: click.Context, option: click.Parameter, value: Any) -> None:
        if value is not None:
            raise CrosslayerError(f"{option.opts[0]} is now {new}")

    return callback


NOT_ALL_DRAWN = 4
"""Exit status where the page has a box in place of a figure; all else is drawn."""


def tell(written: Report) -> None:
    """Say where the page is; end with `NOT_ALL_DRAWN` where it has a box instead of a figure."""
    for error in written.failed.values():
        click.echo(f"{click.style('not drawn:', fg='red')} {error}", err=True)
    click.echo(str(written.page))
    if written.failed:
        sys.exit(NOT_ALL_DRAWN)


def enter() -> None:
    """Go on in private namespaces, by re-executing this very command."""
    from crosslayer.testbed import private

    private.enter([sys.executable, "-m", "crosslayer", *sys.argv[1:]])
