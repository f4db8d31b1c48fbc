"""`crosslayer discover`: find out which DNS transports servers support."""

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
@click.option("--file", type=PATH, help="A file of more targets, one per line; # begins a comment.")
@click.option("--rate", default=20.0, show_default=True, help="Maximum packets per second, over all targets.")
@click.option(
    "--timeout",
    default=3.0,
    show_default=True,
    help="Seconds to wait for a connection, an answer, or the reply to a probe.",
)
@click.option("--name", default="www.example.org", show_default=True, help="Name to query (its A record).")
@click.option("--json", "as_json", is_flag=True, help="Print the table of results as JSON.")
@click.option("--out", type=PATH, help="Also write the table of results to this .parquet or .csv file.")
@CLOCK
@click.option(
    "--allow-external",
    is_flag=True,
    help="Probe hosts of the real network instead of hosts of the testbed. You are responsible for the probes. Probe "
    "only hosts that you run or have permission to probe. Obey the rules of your network and of your institution's "
    "ethics review. Operators may mistake probes for an attack: keep the rate low, query a name that identifies you "
    "(--name), and stop on request.",
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

    The method is that of Kosek et al. (IMC 2022). The command sends a QUIC packet of an unknown version to the UDP
    ports 443, 784, 853 and 8853. If port 443 answers with Version Negotiation, the command tries DoH3 there. If port
    784, 853 or 8853 answers with Version Negotiation, the command tries DoQ there, with the ALPN values of RFC 9250 and
    of its drafts. The command always tries DoUDP, DoTCP, DoT and DoH, on their default ports.

    TARGETS are addresses in the testbed or names of its servers, such as bind9. With --allow-external, they are instead
    addresses or names of real hosts. Address ranges such as 192.0.2.0/24 are refused. The testbed always runs
    CoreDNS, and crosslayer's server in several configurations. It runs dnsproxy, BIND 9, Knot DNS, Knot Resolver,
    Unbound and dnsdist only if they are installed. If you give neither TARGETS nor --file, the command probes all
    servers of the testbed. With --allow-external, give TARGETS, --file or both.

    \b
    crosslayer discover                            every server of the testbed
    crosslayer discover bind9 10.53.0.200          bind9, and the unused address 10.53.0.200
    crosslayer link 4g -- crosslayer discover      every server, over the link 4g
    """
    from crosslayer.discover import run as discovery

    if allow_external and clock == "virtual":
        raise click.UsageError("Hosts of the real network answer in real time: leave --clock or --allow-external out.")
    request = discovery.request(
        targets, file=file, outside=allow_external, packets_per_s=rate, timeout_s=timeout, name=name, out=out
    )
    if not allow_external and not discovery.in_testbed():
        enter(clock, [out.absolute().parent] if out else [])
    whole = discovery.run(request, as_json=as_json, say=click.echo, tell=lambda line: click.echo(line, err=True))
    sys.exit(0 if whole else 130)
