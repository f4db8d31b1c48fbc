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
    """Option type: a path. It refuses an empty path, which Python would interpret as the working folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("It is empty. Name a file, or leave the option out.", param, ctx)
        return super().convert(value, param, ctx)


class _Text(click.types.StringParamType):
    """Option type: text. It refuses an empty or blank text, which a command would treat like a missing option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).strip():
            self.fail("It is empty. Leave the option out, or give it a value.", param, ctx)
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """Option type: a number in a range. It refuses NaN, which `click.FloatRange` accepts."""

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
    help="Kernel that emulates the link with its netem. netem: this machine's kernel. uml: the kernel of a User-Mode "
    "Linux guest. auto: uml only if this machine's kernel has no netem.",
)
CLOCK = click.option(
    "--clock",
    type=click.Choice(["wall", "virtual"]),
    default="wall",
    show_default=True,
    help="Real time (wall) or virtual time (virtual). In virtual time, the clock stands still while programs compute, "
    "so measured times hardly depend on the machine's speed. Virtual time needs a kernel that `make guest` builds.",
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
    help="Dataset of another campaign of the same study, to compare with the dataset in FOLDER; repeatable.  [default: "
    "if the campaign in FOLDER was measured in real time, all campaigns measured in virtual time whose folders are "
    "named FOLDER-virtual*; otherwise none]",
)


def others(dataset: Dataset, named: Iterable[Path]) -> list[Dataset]:
    """Open the datasets with which a dataset is compared.

    These are the datasets in the folders `named`. If `named` is empty, they are those of `paired_campaigns`: campaigns
    in virtual time in folders next to the dataset's folder.

    Raises
    ------
    CrosslayerError
        If a named dataset is of another study than `dataset`.
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
"""Exit status if some figures could not be drawn. The command has drawn all other figures."""


def tell(written: Report) -> None:
    """Print the path of a written report. If figures could not be drawn, print why and exit with `NOT_ALL_DRAWN`."""
    for error in written.failed.values():
        click.echo(f"{click.style('not drawn:', fg='red')} {error}", err=True)
    click.echo(str(written.page))
    if written.failed:
        sys.exit(NOT_ALL_DRAWN)


def guest_clock(clock: Clock) -> Clock | None:
    """Clock of the guest that has to be started for a command; None if the command runs without a new guest.

    A command in virtual time needs a guest. A command in real time gets a guest if this machine refuses private
    namespaces and there is a guest's kernel. Inside a guest the result is always None.

    Raises
    ------
    CrosslayerError
        If virtual time is requested inside a guest in real time, or without a guest's kernel.
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
        with contextlib.suppress(CrosslayerError):  # without a kernel, `enter` reports the refused namespaces
            find_kernel()
            return clock
    return None


def enter(
    clock: Clock = "wall", writable: Iterable[Path] = (), *, seed: int | None = None, settable_clock: bool = False
) -> None:
    """Execute this command again in private namespaces, on this machine or in a guest.

    In the first execution, this function does not return: the process exits with the status of the second execution. In
    the second execution, inside the namespaces, it returns.

    Parameters
    ----------
    clock
        Clock of the command.
    writable
        Folders to which the command may write in a guest.
    seed
        Seed of all random numbers of a guest in virtual time. None: random numbers of the host.
    settable_clock
        Whether the command can set the guest's time of day, see `crosslayer.guest.Guest`.
    """
    from crosslayer.guest import run_attached
    from crosslayer.testbed import namespaces

    command = [sys.executable, "-m", "crosslayer", *sys.argv[1:]]
    if of_guest := guest_clock(clock):
        sys.exit(run_attached(command, clock=of_guest, writable=writable, seed=seed, settable_clock=settable_clock))
    namespaces.enter(command)


def typed(question: str) -> str:
    """Ask the user a question and return the answer; an empty text at the end of input or after Ctrl-C."""
    try:
        return str(click.prompt(question, default="", show_default=False, err=True))
    except click.Abort:
        return ""
