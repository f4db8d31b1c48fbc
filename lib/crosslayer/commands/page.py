"""`crosslayer page`: make pages from the user's own recordings."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import BACKEND, CLOCK, PATH, enter

if TYPE_CHECKING:
    from crosslayer.pages import FromHar

_CANNOT_MEASURE = 3
"""Exit status of `page check` if there is no testbed."""


@click.group("page")
def command() -> None:
    """Convert your own recording of a web page to a page for measurements, and check that it loads as recorded.

    \b
    crosslayer page from-har site.har --out pages/mine
    crosslayer page from-warc site.warc.gz --out pages/mine
    crosslayer page from-folder saved --out pages/mine
    crosslayer page check pages/mine
    """


_OUT = click.option(
    "--out", required=True, type=PATH, help="New folder for the page. The folder's name becomes the page's name."
)
_SYNTHESISE = click.option(
    "--synthesise",
    is_flag=True,
    help="Replace the page's documents, style sheets and scripts by generated ones of the same size.",
)
_CHECK = click.option(
    "--check/--no-check",
    "checked",
    default=True,
    help="Check the page as `page check` does. If the check fails, the command makes the page again with --synthesise "
    "and checks it again. If this check fails too, the command deletes the page. If this machine cannot measure "
    "(`crosslayer doctor` says why), the command keeps the page without a check.  [default: --check]",
)


@command.command("from-har")
@click.argument("har", type=PATH)
@_OUT
@_SYNTHESISE
@_CHECK
@click.option(
    "--page",
    default=1,
    show_default=True,
    help="If the recording has several pages: number of the page to use. 1 is the page whose load began first. "
    "Pages without a document do not count.",
)
def from_har(har: Path, out: Path, synthesise: bool, checked: bool, page: int) -> None:
    """Make a page from HAR, a recording that a browser, a proxy or a test tool exported.

    The page requests the resources that the HAR records, from the recorded hosts and in the recorded order of
    discovery. Each resource has its recorded size. Bodies come from the HAR. If the HAR lacks a body, the command
    generates a body of the recorded type and size. Cookies, credentials and query strings of URLs are removed. The
    command reports what else it omits, and which studies can use the page.

    To record a HAR in Chromium, open the tab Network of the developer tools. Then load the page with an empty cache,
    and choose "Export HAR".
    """
    from crosslayer import pages

    _make(lambda all_code: pages.from_har(har, out, synthesise=all_code, page=page), synthesise, checked)


@command.command("from-warc")
@click.argument("warc", type=PATH)
@_OUT
@_SYNTHESISE
@_CHECK
def from_warc(warc: Path, out: Path, synthesise: bool, checked: bool) -> None:
    """Make a page from WARC, a web archive of a single page in the WARC format.

    The command makes the page as `page from-har` does. An archive records no times, so `page check` compares only
    requests and bytes. To make an archive:
    `wget --page-requisites --span-hosts --warc-file site https://www.example.org/`
    """
    from crosslayer import pages

    _make(lambda all_code: pages.from_warc(warc, out, synthesise=all_code), synthesise, checked)


@command.command("from-folder")
@click.argument("saved", type=PATH)
@_OUT
@_SYNTHESISE
@_CHECK
@click.option(
    "--host",
    default="",
    metavar="NAME",
    help="Host name of the page.  [default: host of the page's URL, which the browser wrote into the saved document]",
)
def from_folder(saved: Path, out: Path, synthesise: bool, checked: bool, host: str) -> None:
    """Make a page from SAVED, a folder into which a browser saved a page with all its files.

    SAVED contains the HTML document and, next to it, the folder with its files, e.g. shop.html and shop_files. The
    command makes the page as `page from-har` does, with one exception: a folder records neither hosts nor transferred
    bytes, so one host serves all files, uncompressed.
    """
    from crosslayer import pages

    _make(lambda all_code: pages.from_folder(saved, out, host=host, synthesise=all_code), synthesise, checked)


def _make(make: Callable[[bool], FromHar], synthesise: bool, checked: bool) -> None:
    """Make a page, check that it loads as recorded, and print a report.

    If the page does not load as recorded, it is made again with generated code instead of the recorded code
    (--synthesise). If the new page does not load as recorded either, it is deleted.

    Parameters
    ----------
    make
        Function that makes the page; its argument determines whether all code is generated.
    synthesise
        Whether generated code replaces the recorded code already in the first attempt.
    checked
        Whether to load the page. Without a testbed, the page is kept unchecked.

    Raises
    ------
    PageError
        If the page that was made last does not load as recorded.
    """
    from crosslayer.pages import PageError, find_spec_dir, load_pages
    from crosslayer.studies import refusals

    page = make(synthesise)
    try:
        inside = page.folder.resolve().parent == find_spec_dir().resolve()
        spec = load_pages(find_spec_dir(), *(() if inside else (page.folder,)))[page.folder.name]
        status, likeness = _load(page.folder) if checked else (_CANNOT_MEASURE, "--no-check")
        if status not in (0, _CANNOT_MEASURE) and not page.synthesised:
            click.echo(f"The recorded code does not load as recorded, so it is synthesised:\n{likeness}", err=True)
            shutil.rmtree(page.folder)
            page = replace(make(True), code="synthesised, since the recorded code does not load as recorded")
            status, likeness = _load(page.folder)
        if status not in (0, _CANNOT_MEASURE):
            raise PageError(
                f"the page does not load as recorded, so it is not kept:\n{likeness}",
                where=str(page.folder),
                next_step="Record it again with an empty cache, or keep the page with --no-check.",
            )
    except BaseException:
        shutil.rmtree(page.folder, ignore_errors=True)
        raise
    click.echo(str(page))
    fits, unfit = refusals(spec)
    click.echo(f"  studies that can use it: {', '.join(fits)}")
    for reason, names in unfit.items():
        click.echo(f"  not {', '.join(names)}: {reason}")
    if status == 0:
        click.echo(likeness)
    else:
        click.echo(f"Not loaded ({likeness}). To compare it with its recording: crosslayer page check {page.folder}")


def _load(folder: Path) -> tuple[int, str]:
    """Run `crosslayer page check` on a page; returns its exit status and output."""
    command = [sys.executable, "-m", "crosslayer", "page", "check", str(folder)]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    return check.returncode, (check.stdout or check.stderr).strip()


@command.command("check")
@click.argument("folder", type=PATH)
@click.option("--link", "profile", default="fiber", show_default=True, help="Link over which the page is loaded.")
@CLOCK
@BACKEND
def check(folder: Path, profile: str, clock: str, backend: str) -> None:
    """Load the page of FOLDER in Chromium and report how its requests, bytes and waterfall differ from the recording.

    Exit status 1: the requested resources are not those of the recording, a request fails, or the server sends over 1 %
    more or fewer bytes than were recorded.
    """
    from crosslayer.browser.recorded import compare, read_recorded
    from crosslayer.links import choose, load_profiles

    chosen, recorded = choose(load_profiles(), profile), read_recorded(folder)
    enter(clock)  # type: ignore[arg-type]
    likeness = compare(folder, recorded, chosen, backend=backend)
    click.echo(str(likeness))
    raise SystemExit(0 if likeness.like else 1)
