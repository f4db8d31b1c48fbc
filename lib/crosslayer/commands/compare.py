"""`crosslayer compare`: which resolver, over which transport, is fastest from here."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import click

from crosslayer.commands.common import PATH, FiniteRange
from crosslayer.vocabulary import Protocol

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
@click.option("--rounds", type=click.IntRange(1, 1000), default=6, show_default=True, help="6 or more give intervals.")
@click.option("--name", default="www.example.org", show_default=True, help="Name to query (its A record).")
@click.option("--timeout", type=FiniteRange(0.1, 60), default=5.0, show_default=True, help="Seconds per query.")
@click.option(
    "--rate",
    type=FiniteRange(0.001, 1000),
    default=1.0,
    show_default=True,
    help="Maximum queries per second to each operator; above 1 only on loopback and in private namespaces.",
)
@click.option("--ca", type=PATH, help="PEM file of trusted CAs.  [default: $CROSSLAYER_CA, else the system's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of the order in each round.  [default: random]")
@click.option(
    "--out", type=PATH, default=Path("compare.jsonl"), show_default=True, help="Write each visit to this file."
)
@click.option("--resume", is_flag=True, help="Continue the file of --out.")
@click.option("--json", "json_file", type=PATH, metavar="FILE", help="Write the result to this file, JSON.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
@click.option("--i-may-send-this", "consents", is_flag=True, help="Consent to the budget, for scripts.")
def command(
    resolvers: tuple[str, ...],
    transports: tuple[str, ...],
    rounds: int,
    name: str,
    timeout: float,
    rate: float,
    ca: Path | None,
    seed: int | None,
    out: Path,
    resume: bool,
    json_file: Path | None,
    dry_run: bool,
    consents: bool,
) -> None:
    """Compare resolvers over every transport from here: first, next and resumed query, and the RTT of the path.

    LIST is a .toml file (docs/howto/internet.md), a .md list of DNS stamps, a stamp, or a URL such as
    tls://9.9.9.9#dns.quad9.net. NAMES are cloudflare, quad9, google, adguard, mullvad. The default is the file in
    $CROSSLAYER_RESOLVERS, which `crosslayer box` sets.

    It prints what it will send and to whom. Nothing is sent to an address outside this machine before you consent.

    \b
    crosslayer compare cloudflare quad9 --dry-run
    crosslayer compare cloudflare quad9 mine.toml --transport doh --transport doq
    crosslayer box emulation/boxes/five.toml -- crosslayer compare --name a.box.example --rate 50
    """
    from crosslayer.resolvers import run as comparing

    if not resolvers and (listed := os.environ.get("CROSSLAYER_RESOLVERS")):
        resolvers = (listed,)
    request = comparing.request(
        resolvers,
        protocols=[_TRANSPORTS[transport] for transport in transports],
        name=name,
        rounds=rounds,
        seed=random.SystemRandom().getrandbits(32) if seed is None else seed,
        timeout_s=timeout,
        queries_per_s=rate,
        ca_file=ca or (Path(os.environ["CROSSLAYER_CA"]) if os.environ.get("CROSSLAYER_CA") else None),
        out=out,
        resume=resume,
        json_file=json_file,
    )
    comparing.announce(request, click.echo)
    if dry_run:
        return
    comparing.consent(request, given=consents, ask=_ask)
    whole = comparing.run(request, say=click.echo, tell=lambda line: click.echo(line, err=True))
    sys.exit(0 if whole else 130)


def _ask(question: str) -> str:
    """What the user types; empty at the end of input."""
    try:
        return str(click.prompt(question, default="", show_default=False, err=True))
    except click.Abort:
        return ""
