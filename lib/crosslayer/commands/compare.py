"""`crosslayer compare`: compare resolvers and transports from this machine."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import click

from crosslayer.commands.common import PATH, TEXT, FiniteRange, typed
from crosslayer.vocabulary import Protocol

_IDLE_OF_ALL = ("20s",)
"""Idle times of `--all`. A query after such a time shows whether server or network ended the idle connection."""
_TRANSPORTS = {protocol.value.lower(): protocol for protocol in Protocol}


@click.command("compare")
@click.argument("resolvers", metavar="[LIST|NAMES]...", nargs=-1)
@click.option(
    "--transport",
    "transports",
    multiple=True,
    type=click.Choice(list(_TRANSPORTS)),
    help="Only this transport; repeatable.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also measure DoTCP, resumed connections, early data, a query after 20 s without traffic (--idle 20s), and "
    "all addresses of each resolver instead of only the first. The command then sends two to six times as many queries "
    "as without --all.",
)
@click.option(
    "--idle",
    "idle_times",
    multiple=True,
    type=TEXT,
    metavar="TIME",
    help="Also send a query after the connection was idle for TIME, such as 20s; repeatable. The result says "
    "whether the network, e.g. a NAT, dropped the state of an idle UDP flow within TIME.",
)
@click.option(
    "--self-check",
    is_flag=True,
    help="Measure the first resolver twice, as if it were two resolvers (A/A). Their true difference is zero, so the "
    "reported difference is measurement error.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100_000),
    help="Number of rounds. Confidence intervals need at least 6.  [default: 6]",
)
@click.option("--every", type=TEXT, metavar="TIME", help="Begin a round every TIME: 90s, 15m, 2h, 1d.")
@click.option("--for", "duration", type=TEXT, metavar="TIME", help="With --every: duration, in place of --rounds.")
@click.option(
    "--everywhere",
    type=TEXT,
    metavar="[NAME=]HOST,...",
    help="Reach these machines by SSH and measure on them, not on this machine (docs/howto/cluster.md). With "
    "NAME=HOST, the vantage point HOST is called NAME in the dataset.  [default of NAME: host-1, host-2, ...]",
)
@click.option(
    "--mmdb",
    "databases",
    multiple=True,
    type=PATH,
    help="A MaxMind database of cities or autonomous systems, to locate resolvers; repeatable. Needs the Python "
    "package maxminddb.",
)
@click.option(
    "--at",
    multiple=True,
    type=TEXT,
    metavar="NAME=LAT,LON",
    help="Latitude and longitude of the vantage point NAME, for the map; repeatable.",
)
@click.option("--name", default="www.example.org", show_default=True, help="Name to query (its A record).")
@click.option(
    "--zone",
    default="",
    help="A zone of yours in which every name exists (wildcard). With this option, the command also queries "
    "new names in this zone, which no resolver has in its cache.",
)
@click.option("--timeout", type=FiniteRange(0.1, 60), default=5.0, show_default=True, help="Seconds per query.")
@click.option(
    "--rate",
    type=FiniteRange(0.001, 1000),
    default=1.0,
    show_default=True,
    help="Maximum queries per second to each operator. Values above 1 are allowed only if no query leaves this machine "
    "(loopback, `crosslayer box`).",
)
@click.option(
    "--per-day",
    type=click.IntRange(1, 10_000_000),
    default=5000,
    show_default=True,
    help="Maximum queries per day (UTC) to each operator, over all runs. Values above 5000 are allowed only if no "
    "query leaves this machine (loopback, `crosslayer box`).",
)
@click.option("--ca", type=PATH, help="PEM file of the CAs to trust.  [default: $CROSSLAYER_CA, else the system's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of the order of queries.  [default: random]")
@click.option(
    "--dataset",
    type=PATH,
    default=Path("compare"),
    show_default=True,
    help="Write the dataset to this folder. The dataset has a row for each query.",
)
@click.option("--resume", is_flag=True, help="Continue the comparison in the folder of --dataset.")
@click.option("--out", "report_file", type=PATH, metavar="FILE.html", help="Write the result to this file, HTML.")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Write the result to this file, JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.option(
    "--i-may-send-this",
    "consents",
    is_flag=True,
    help="For scripts: with this option, you consent to the printed queries, and the command does not ask for consent.",
)
def command(
    resolvers: tuple[str, ...],
    transports: tuple[str, ...],
    everything: bool,
    idle_times: tuple[str, ...],
    self_check: bool,
    rounds: int | None,
    every: str | None,
    duration: str | None,
    everywhere: str | None,
    databases: tuple[Path, ...],
    at: tuple[str, ...],
    name: str,
    zone: str,
    timeout: float,
    rate: float,
    per_day: int,
    ca: Path | None,
    seed: int | None,
    dataset: Path,
    resume: bool,
    report_file: Path | None,
    json_file: Path | None,
    dry_run: bool,
    consents: bool,
) -> None:
    """Compare resolvers and transports from this machine: times of a connection's first two queries, RTT of the path.

    LIST is a .toml file (docs/howto/internet.md), a .md list of DNS stamps, a file that `crosslayer discover --out`
    wrote, a stamp, or a URL such as tls://9.9.9.9#dns.quad9.net. NAMES are any of: cloudflare, quad9, google, adguard,
    mullvad. Without LIST and NAMES, the command uses the file that $CROSSLAYER_RESOLVERS names; `crosslayer box` sets
    this variable.

    The command prints what it will send and to whom. Before you consent, it sends nothing to an address outside this
    machine. Addresses and operators on the stop list get no queries (docs/howto/internet_rules.md).

    Exit status 0: complete. 75: the daily limit of an operator is reached; continue tomorrow with --resume. 130: you
    stopped the command.

    \b
    crosslayer compare cloudflare quad9 --dry-run
    crosslayer compare cloudflare quad9 mine.toml --transport doh --transport doq
    crosslayer compare quad9 mine.toml --every 2h --for 7d --everywhere oslo=me@one,lima=two
    crosslayer box emulation/boxes/five.toml -- crosslayer compare --name a.box.example --rate 50
    """
    from crosslayer.resolvers import run as comparing
    from crosslayer.resolvers.schedule import seconds

    if duration and (rounds or not every):
        raise click.UsageError("--for needs --every, and excludes --rounds.")
    every_s = seconds(every, "--every") if every else 0.0
    if duration:
        rounds = max(1, int(seconds(duration, "--for") // every_s))
    if not resolvers and (listed := os.environ.get("CROSSLAYER_RESOLVERS")):
        resolvers = (listed,)
    request = comparing.request(
        resolvers,
        protocols=[_TRANSPORTS[transport] for transport in transports],
        everything=everything,
        idle_s=[seconds(time, "--idle") for time in idle_times or (_IDLE_OF_ALL if everything else ())],
        self_check=self_check,
        name=name,
        zone=zone,
        rounds=rounds or 6,
        every_s=every_s,
        hosts=comparing.vantages(everywhere) if everywhere else None,
        databases=databases,
        at=at,
        seed=random.SystemRandom().getrandbits(32) if seed is None else seed,
        timeout_s=timeout,
        queries_per_s=rate,
        per_day=per_day,
        ca_file=ca or (Path(os.environ["CROSSLAYER_CA"]) if os.environ.get("CROSSLAYER_CA") else None),
        dataset=dataset,
        resume=resume,
        json_file=json_file,
        report_file=report_file,
    )
    comparing.announce(request, click.echo)
    if dry_run:
        return
    comparing.consent(request, given=consents, ask=typed)
    sys.exit(comparing.run(request, say=click.echo, tell=lambda line: click.echo(line, err=True)))
