"""Options that several commands share, and the entry into private namespaces."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crosslayer.errors import CrosslayerError
from crosslayer.resources import find_program

if TYPE_CHECKING:
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.guest import Clock
    from crosslayer.report import Report


class FilePath(click.Path):
    """A path. An empty one is refused, because Python interprets it as the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("It is empty. Name a file, or leave the option out.", param, ctx)
        return super().convert(value, param, ctx)


class _Text(click.types.StringParamType):
    """Text. An empty one is refused, because it would mean the same as no option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("It is empty. Leave the option out, or give it a value.", param, ctx)
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """A number in a range. NaN is refused, which `click.FloatRange` accepts."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail("It is not a number. Write it in digits.", param, ctx)
        return number


PATH = FilePath(path_type=Path)
TEXT = _Text()

BACKEND = click.option(
    "--backend",
    type=click.Choice(["auto", "netem", "uml"]),
    default="auto",
    show_default=True,
    help="Program that emulates the link: netem of this machine's kernel (netem), or netem of a User-Mode Linux guest "
    "(uml). auto: uml only if this machine's kernel has no netem.",
)
CLOCK = click.option(
    "--clock",
    type=click.Choice(["wall", "virtual"]),
    default="wall",
    show_default=True,
    help="Real time (wall) or virtual time (virtual). In virtual time computing takes no time, so times hardly depend "
    "on the machine. Before the first use of virtual time, run `make guest`.",
)


def _default_dataset() -> Path:
    from crosslayer.studies import DEFAULT

    return Path("data/raw") / DEFAULT


DATASET = click.argument("folder", type=PATH, default=_default_dataset)
FIGURES = click.option("--out", type=PATH, default=Path("build/figures"), show_default=True, help="Folder to write to.")


COMPARE = click.option(
    "--compare",
    type=PATH,
    multiple=True,
    help="Dataset of another campaign of the same study, to compare with that in FOLDER; repeatable.  [default: for a "
    "campaign in real time, all campaigns in virtual time in folders FOLDER-virtual*]",
)


def others(dataset: Dataset, named: Iterable[Path]) -> list[Dataset]:
    """The named campaigns; if none is named, those in virtual time next to the dataset (`paired_campaigns`).

    Raises
    ------
    CrosslayerError
        For a campaign of another study.
    """
    from crosslayer.campaign.dataset import Dataset, paired_campaigns

    given = [Dataset.open(path) for path in named]
    for other in given:
        if other.campaign.study != dataset.campaign.study:
            raise CrosslayerError(
                f"is of the study {other.campaign.study}, not of {dataset.campaign.study}",
                where=str(other.folder),
                next_step="Name a campaign of the same study.",
            )
    return given or paired_campaigns(dataset)


NOT_ALL_DRAWN = 4
"""Exit status if a figure could not be drawn; all other figures are drawn."""


def tell(written: Report) -> None:
    """Print the path of the page; exit with `NOT_ALL_DRAWN` if a figure could not be drawn."""
    for error in written.failed.values():
        click.echo(f"{click.style('not drawn:', fg='red')} {error}", err=True)
    click.echo(str(written.page))
    if written.failed:
        sys.exit(NOT_ALL_DRAWN)


def guest_clock(clock: Clock) -> Clock | None:
    """Clock of the guest in which a command has to run; None if it needs no guest.

    Raises
    ------
    CrosslayerError
        If virtual time is requested inside a guest in real time.
    """
    from crosslayer.guest import find_kernel, inside
    from crosslayer.testbed import namespaces

    if around := inside():
        if clock == "virtual" != around:
            raise CrosslayerError(
                "this guest runs in real time",
                where="--clock virtual",
                next_step="Give --clock to the outer command.",
            )
        return None
    if clock == "virtual":
        find_kernel()
        return clock
    unshare = find_program("unshare")
    if not namespaces.inside() and unshare and namespaces.refused(unshare):
        with contextlib.suppress(CrosslayerError):  # without a guest, the refused namespaces are the error to report
            find_kernel()
            return clock
    return None


def enter(
    clock: Clock = "wall", writable: Iterable[Path] = (), *, seed: int | None = None, settable_clock: bool = False
) -> None:
    """Execute this command again in private namespaces, on this machine or in a guest, and exit with its status.

    Parameters
    ----------
    clock
        Clock of the command.
    writable
        Folders to which it may write in a guest.
    seed
        Seed of all random numbers of a guest in virtual time; None for those of the host.
    settable_clock
        Whether the time of day of the guest can be set, see `crosslayer.guest.Guest`.
    """
    from crosslayer.guest import run_attached
    from crosslayer.testbed import namespaces

    command = [sys.executable, "-m", "crosslayer", *sys.argv[1:]]
    if of_guest := guest_clock(clock):
        sys.exit(run_attached(command, clock=of_guest, writable=writable, seed=seed, settable_clock=settable_clock))
    namespaces.enter(command)


def typed(question: str) -> str:
    """Answer of the user to a question; empty at the end of input."""
    try:
        return str(click.prompt(question, default="", show_default=False, err=True))
    except click.Abort:
        return ""
