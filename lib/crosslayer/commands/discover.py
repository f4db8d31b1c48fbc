"""`crosslayer discover`: which DNS transports somebody speaks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import CLOCK, PATH, enter

if TYPE_CHECKING:
    from crosslayer.guest import Clock


@click.command("discover")
@click.argument("targets", nargs=-1)
@click.option("--file", type=PATH, help="A file of more targets, one a line; # begins a comment.")
@click.option("--rate", default=20.0, show_default=True, help="Packets sent per second, at most, over all targets.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for a probe, a connection, an answer.")
@click.option("--name", default="www.example.org", show_default=True, help="The name to ask for (its A record).")
@click.option("--json", "as_json", is_flag=True, help="Print the matrix as JSON.")
@click.option("--out", type=PATH, help="Also write the matrix to this .parquet or .csv file.")
@CLOCK
@click.option(
    "--allow-external",
    is_flag=True,
    help="Leave the testbed: probe hosts of the real network from this machine. What that does is your responsibility: "
    "probe only what you run or have leave to probe, and keep to your network's rules and your institution's ethics "
    "review. Operators may take probes for an attack: keep the rate low, ask for a name under which they find who you "
    "are (--name), and stop when somebody asks you to.",
)
def command(
    targets: tuple[str, ...],
    file: Path | None,
    rate: float,
    timeout: float,
    name: str,
    as_json: bool,
    out: Path | None,
    clock: Clock,
    allow_external: bool,
) -> None:
    """Find out which DNS transports TARGETS speak: DoUDP, DoTCP, DoT, DoH, DoH3, DoQ.

    As in Kosek et al. (IMC 2022): a QUIC packet of an unknown version to the UDP ports 784, 853 and 8853 (and 443),
    then, where Version Negotiation came back, DoQ and its drafts by ALPN; every other transport is tried at its port.

    TARGETS are addresses and host names, never networks. They are looked for inside the testbed, where resolvers of
    several kinds wait: CoreDNS, BIND 9, Knot, Unbound, dnsdist. Without TARGETS all are looked at.

    \b
    crosslayer discover                            every emulated resolver
    crosslayer discover bind9 10.53.0.200          one of them, and an address where nobody is
    crosslayer link 4g -- crosslayer discover      the same on a link, also $CROSSLAYER_SERVER
    """
    from crosslayer.discover import run as discovery

    if allow_external and clock == "virtual":
        raise click.UsageError(
            "Hosts of the real network answer by the wall clock: leave --clock or --allow-external out."
        )
    request = discovery.request(
        targets, file=file, outside=allow_external, packets_per_s=rate, timeout_s=timeout, name=name, out=out
    )
    if not allow_external and not discovery.in_testbed():
        enter(clock, [out.absolute().parent] if out else [])
    whole = discovery.run(request, as_json=as_json, say=click.echo, tell=lambda line: click.echo(line, err=True))
    sys.exit(0 if whole else 130)
