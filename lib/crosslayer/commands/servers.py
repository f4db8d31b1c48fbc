"""`crosslayer servers`: test DNS servers of several vendors over six transports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import BACKEND, CLOCK, PATH, enter

if TYPE_CHECKING:
    from crosslayer.guest import Clock


@click.command("servers")
@click.argument("names", metavar="[SERVERS]...", nargs=-1)
@click.option("--link", default="4g", show_default=True, help="Link to the servers.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Number of DNS exchanges of each kind (e.g. resumed) over each transport. The table shows the median of their "
    "times.",
)
@click.option("--out", type=PATH, default=Path("build/servers"), show_default=True, help="Folder to write to.")
@click.option("--json", "as_json", is_flag=True, help="Print servers.json instead of the table.")
@CLOCK
@BACKEND
def command(
    names: tuple[str, ...], link: str, rounds: int, out: Path, as_json: bool, clock: Clock, backend: str
) -> None:
    """Test which transports and features DNS servers support, and whether they follow the rules of RFC 9250 (DoQ).

    Features: session resumption, early data, padding. The command also tests the amplification limit.

    SERVERS are any of: coalesce (crosslayer's server: CoreDNS with a plugin), coredns (without this plugin),
    dnsproxy, knot (Knot DNS), knot-resolver, unbound, dnsdist, bind9. The default is all. All run at the far end of
    one link, with their default settings, and answer queries for one name. If a server is not installed, its row of the
    table says how to install the server. Testing all servers takes about five minutes.

    \b
    crosslayer servers                             all servers, over the link 4g
    crosslayer servers dnsproxy coalesce --link fiber --rounds 20      only these two servers
    crosslayer servers --clock virtual             times that hardly depend on this machine

    The command prints a table and writes four files to the folder of --out: servers.csv, servers.parquet, servers.html,
    and servers.json (in the format of quic-interop-runner).
    """
    from crosslayer.discover import servers
    from crosslayer.links import choose, load_profiles

    request = servers.request(
        names, link=choose(load_profiles(), link), backend=backend, rounds=rounds, out=out.absolute()
    )
    enter(clock, [request.out])
    servers.run(request, as_json=as_json, say=click.echo, tell=lambda line: click.echo(line, err=True))
