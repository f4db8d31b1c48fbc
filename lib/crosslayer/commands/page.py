"""`crosslayer page`: pages of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import BACKEND, CLOCK, enter

if TYPE_CHECKING:
    from crosslayer.pages import FromHar


@click.group("page")
def command() -> None:
    """Make a page to measure from a recording of your own, and see how like it is.

    \b
    crosslayer page from-har site.har --out pages/mine
    crosslayer page from-warc site.warc.gz --out pages/mine
    crosslayer page from-folder saved --out pages/mine
    crosslayer page check pages/mine
    """


_OUT = click.option(
    "--out", required=True, type=click.Path(path_type=Path), help="Folder of the page; its name is the page's."
)
_MADE = click.option(
    "--made", is_flag=True, help="Make documents, style sheets and scripts anew, also where they are there."
)


@command.command("from-har")
@click.argument("har", type=click.Path(path_type=Path))
@_OUT
@_MADE
def from_har(har: Path, out: Path, made: bool) -> None:
    """Make a page from HAR, a recording that a browser exported.

    The page asks for the same resources from the same hosts in the same order of discovery with the same bytes. Bodies
    are the HAR's where it has them, else made of the right type and weight. Cookies, credentials and the values in
    URLs are left out; what else is left out is said.

    In Chromium: developer tools, Network, "Export HAR". Record with an empty cache.
    """
    from crosslayer import pages

    _say(pages.from_har(har, out, made=made))


@command.command("from-warc")
@click.argument("warc", type=click.Path(path_type=Path))
@_OUT
@_MADE
def from_warc(warc: Path, out: Path, made: bool) -> None:
    """Make a page from WARC, a web archive of one page.

    As from-har. An archive says what was fetched, from where and on whose account, but not when a browser would have
    asked for it: `wget --page-requisites --span-hosts --warc-file site https://www.example.org/` makes one.
    """
    from crosslayer import pages

    _say(pages.from_warc(warc, out, made=made))


@command.command("from-folder")
@click.argument("saved", type=click.Path(path_type=Path))
@_OUT
@_MADE
@click.option("--host", default="", metavar="NAME", help="The page's host, where the document does not say it.")
def from_folder(saved: Path, out: Path, made: bool, host: str) -> None:
    """Make a page from SAVED, a folder in which a browser saved one with all its files.

    As from-har, but all from one host and uncompressed: what was saved does not say what went over the network. Save
    the document into the folder as well.
    """
    from crosslayer import pages

    _say(pages.from_folder(saved, out, host=host, made=made))


def _say(what: FromHar) -> None:
    click.echo(str(what))
    click.echo(f"How like the recorded page it is: crosslayer page check {what.folder}", err=True)


@command.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--link", "profile", default="fiber", show_default=True, help="Link profile it is loaded over.")
@CLOCK
@BACKEND
def check(folder: Path, profile: str, clock: str, backend: str) -> None:
    """Load the page of FOLDER in Chromium and say how far its requests, bytes and waterfall are from the recorded ones.

    Exit status 1 where it asks for other things than were recorded, or weighs other than within 1 percent.
    """
    from crosslayer.browser.recorded import compare, read_recorded
    from crosslayer.links import choose, load_profiles

    chosen, recorded = choose(load_profiles(), profile), read_recorded(folder)
    enter(clock)  # type: ignore[arg-type]
    likeness = compare(folder, recorded, chosen, backend=backend)
    click.echo(str(likeness))
    raise SystemExit(0 if likeness.like else 1)
