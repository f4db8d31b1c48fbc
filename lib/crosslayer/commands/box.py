"""`crosslayer box`: run a command in an emulated Internet with known properties."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import CLOCK, PATH, FilePath, enter

if TYPE_CHECKING:
    from crosslayer.guest import Clock


@click.command("box", context_settings={"ignore_unknown_options": True})
@click.argument("box_file", metavar="BOX.toml", type=PATH)
@CLOCK
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of random choices.")
@click.option(
    "--truth",
    type=PATH,
    metavar="FILE",
    help="Write the hosts and events of the box to this new file, as JSON Lines. Events are e.g. answers of its "
    "servers and packets that its router dropped (full list: docs/reference/box.md).",
)
@click.option("--packets", is_flag=True, help="Only with --truth: write one row for each packet to FILE, too.")
@click.option("--resolvers-out", type=PATH, metavar="FILE", help="Write the list of resolvers to this TOML file.")
@click.option(
    "--writable",
    multiple=True,
    type=FilePath(path_type=Path, exists=True, file_okay=False),
    help="Folder that COMMAND may write to if it runs in a guest (User-Mode Linux); repeatable. In virtual time, "
    "COMMAND always runs in a guest. In a guest, COMMAND can also write to the folders of output files. It can write "
    "to /tmp, /run and /dev/shm too, but files in these three folders are lost at the end. All other folders of this "
    "machine are read-only.",
)
@click.option("--list", "list_only", is_flag=True, help="Print what the box contains, and run nothing.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def command(
    box_file: Path,
    clock: Clock,
    seed: int,
    truth: Path | None,
    packets: bool,
    resolvers_out: Path | None,
    writable: tuple[Path, ...],
    list_only: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND on the client host of the emulated Internet that BOX.toml describes.

    COMMAND runs in the client's namespace. There, /etc/resolv.conf has the address of one resolver of the box. The
    environment variable CROSSLAYER_RESOLVERS is the path of a TOML file that lists the resolvers. CROSSLAYER_CA is the
    path of the CA certificate with which COMMAND can verify the resolvers' certificates. The exit status is COMMAND's.
    No packet leaves the box.

    \b
    crosslayer box emulation/boxes/five.toml --list
    crosslayer box emulation/boxes/five.toml --truth truth.jsonl -- kdig +quic @198.18.1.53 a.box.example
    crosslayer box emulation/boxes/five.toml --clock virtual -- kdig @198.18.1.53 a.box.example
    """
    from crosslayer.box.description import load_box

    description = load_box(box_file)
    if list_only:
        from crosslayer.box.listing import listing

        click.echo(listing(description))
        return
    program = list(command[1:] if command[:1] == ("--",) else command)
    if not program:
        raise click.UsageError("There is no COMMAND after --.")
    from crosslayer.box.run_command import check_files, run_in_box

    check_files(truth, resolvers_out)
    written = [file.absolute().parent for file in (truth, resolvers_out) if file is not None]
    enter(
        clock,
        (*writable, *written),
        seed=seed if clock == "virtual" else None,
        settable_clock=bool(description.clock_step),
    )
    os.environ.pop("SSLKEYLOGFILE", None)  # a value from the user's shell is for COMMAND, not for the servers
    sys.exit(run_in_box(description, program, seed=seed, truth=truth, packets=packets, resolvers_out=resolvers_out))
