"""`crosslayer servers`: how DNS servers of several makes behave over six transports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import BACKEND, CLOCK, PATH, enter

if TYPE_CHECKING:
    from crosslayer.guest import Clock


@click.command("servers")
@click.argument("names", metavar="[SERVERS]...", nargs=-1)
@click.option("--link", default="4g", show_default=True, help="The link between, one of `crosslayer link`.")
@click.option(
    "--rounds", type=click.IntRange(1), default=5, show_default=True, help="Exchanges of which the median is shown."
)
@click.option("--out", type=PATH, default=Path("build/servers"), show_default=True, help="Folder for files.")
@click.option("--json", "as_json", is_flag=True, help="Print what servers.json has instead of the table.")
@CLOCK
@BACKEND
def command(
    names: tuple[str, ...], link: str, rounds: int, out: Path, as_json: bool, clock: Clock, backend: str
) -> None:
    """Look at DNS servers of several makes: transports, resumption, early data, padding, amplification, RFC 9250.

    SERVERS are some of coalesce (ours), coredns (the same program by its own listeners), dnsproxy, knot (Knot DNS),
    knot-resolver, unbound, dnsdist, bind9; without any, all. Each runs at the far end of one link, as its defaults are,
    with one name to answer for. What is not installed is a row that says how to get it. Takes about five minutes.

    \b
    crosslayer servers                             all of them, on 4g
    crosslayer servers dnsproxy coalesce --link fiber --rounds 20
    crosslayer servers --clock virtual             times that do not depend on this machine

    The table is printed, and written to the folder --out: servers.csv, servers.parquet, servers.html to look at, and
    servers.json as quic-interop-runner writes its results.
    """
    from crosslayer.discover import servers
    from crosslayer.links import choose, load_profiles

    request = servers.request(
        names, link=choose(load_profiles(), link), backend=backend, rounds=rounds, out=out.absolute()
    )
    enter(clock, [request.out])
    servers.run(request, as_json=as_json, say=click.echo, tell=lambda line: click.echo(line, err=True))
