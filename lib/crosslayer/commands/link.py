"""`crosslayer link`: run a command of the user on an emulated link, with the server at the far end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import BACKEND, CLOCK, PATH, TEXT, FilePath, enter

if TYPE_CHECKING:
    from crosslayer.guest import Clock


@click.command("link", context_settings={"ignore_unknown_options": True})
@click.argument("profile")
@click.option(
    "--links",
    "links_file",
    type=PATH,
    help="A TOML file of your own links, in addition to the built-in ones (docs/howto/links.md).",
)
@click.option(
    "--loss",
    type=TEXT,
    metavar="1%[,3]",
    help="Share of packets lost in each direction. 1%,3: 1 % of the packets are lost, in bursts of 3 packets "
    "on average.",
)
@click.option(
    "--jitter",
    type=TEXT,
    metavar="5ms[,normal][,ordered]",
    help="Jitter in each direction. 5ms: uniform within plus or minus 5 ms. 5ms,normal: normally distributed with a "
    "standard deviation of 5 ms. If the value ends in ',ordered' (e.g. 5ms,ordered), packets keep their order.",
)
@click.option(
    "--queue",
    type=TEXT,
    metavar="10bdp|100|fifo|fq_codel|cake",
    help="Queue at the bottleneck. 10bdp: a FIFO of 10 bandwidth-delay products. 100: a FIFO of 100 packets. fifo: a "
    "FIFO of the length in PROFILE. fq_codel, cake: the queueing discipline of Linux with this name.",
)
@click.option(
    "--trace",
    type=TEXT,
    metavar="FILE.down[,FILE.up]|FILE.csv",
    help="Vary the link over time as in a trace. Mahimahi files (downlink, uplink) give the rates; a CSV file gives "
    "rates and RTTs. The trace starts together with COMMAND.",
)
@click.option(
    "--cross-traffic",
    "cross",
    type=TEXT,
    metavar="bulk|paced[:20][,up]",
    help="Send other traffic through the queue that COMMAND's packets pass. bulk: one TCP flow. paced: UDP at half of "
    "the link's rate. paced:20: UDP at 20 Mbit/s. By default, this traffic flows to the client; ',up' at the end "
    "of the value (e.g. bulk,up) makes it flow from the client.",
)
@click.option(
    "--drop",
    type=TEXT,
    multiple=True,
    metavar="udp/443[@2s]",
    help="Packets that the path drops: udp/PORT, tcp/PORT, syn/PORT, quic-initial[:BYTES], quic-0rtt, "
    "quic-version:NUMBER, ech[:NAME], ipv6 (docs/howto/faults.md). With @2s, the drops begin 2 s after the start of "
    "COMMAND. Repeatable.",
)
@click.option(
    "--reject",
    type=TEXT,
    multiple=True,
    metavar="udp/443[@2s]",
    help="Packets that the path rejects, written as for --drop. The path answers UDP with ICMP port unreachable, and "
    "TCP with a reset. For the selector ipv6, the path answers UDP and TCP alike with ICMPv6 no route.",
)
@click.option(
    "--resolver-like",
    "like",
    type=TEXT,
    metavar="DATASET:RESOLVER[@VANTAGE]",
    help="Emulate a resolver for COMMAND, with the path RTT and response times of RESOLVER in DATASET. DATASET is a "
    "folder that `crosslayer compare` wrote (docs/howto/internet.md). If DATASET has several vantage points, append "
    "one with @. compare:quad9@eu: resolver quad9, as measured from the vantage point eu, in the folder compare.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=1,
    show_default=True,
    help="Seed of the random times of --resolver-like.",
)
@CLOCK
@click.option(
    "--writable",
    multiple=True,
    type=FilePath(path_type=Path, exists=True, file_okay=False),
    help="Folder that COMMAND may write to if it runs in a guest (User-Mode Linux); repeatable. In virtual time, "
    "COMMAND always runs in a guest. In a guest, COMMAND can also write to the folders of output files. It can write "
    "to /tmp, /run and /dev/shm too, but files in these three folders are lost at the end. All other folders of this "
    "machine are read-only.",
)
@click.option(
    "--capture",
    type=PATH,
    help="Write COMMAND's packets and TLS keys to this .pcapng file; `crosslayer show FILE` draws the packets.",
)
@BACKEND
@click.option("--no-server", is_flag=True, help="Start only the link, without a DNS and web server.")
@click.option("--retry", is_flag=True, help="Make the server validate addresses with QUIC Retry (one more round-trip).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def command(
    profile: str,
    links_file: Path | None,
    loss: str | None,
    jitter: str | None,
    queue: str | None,
    trace: str | None,
    cross: str | None,
    drop: tuple[str, ...],
    reject: tuple[str, ...],
    like: str | None,
    seed: int,
    clock: Clock,
    writable: tuple[Path, ...],
    capture: Path | None,
    backend: str,
    no_server: bool,
    retry: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND as a client on the link PROFILE, with crosslayer's DNS and web server at the far end.

    COMMAND runs in the client's namespace. The environment variable CROSSLAYER_SERVER is the server's address;
    CROSSLAYER_CA is the path of the CA certificate of this run. /etc/resolv.conf names the server as the resolver.
    With --resolver-like, /etc/resolv.conf names the emulated resolver, and CROSSLAYER_RESOLVER is its address. In
    COMMAND's arguments, `$CROSSLAYER_SERVER`, `$CROSSLAYER_CA` and `$CROSSLAYER_RESOLVER` are replaced by the values of
    these variables. The exit status is COMMAND's.

    `crosslayer measure --help` lists the links. `--resolver-like compare:quad9` emulates the resolver `quad9` with the
    times in the dataset `compare`, the folder to which `crosslayer compare` writes by default.

    \b
    crosslayer link fiber -- ping -c 3 '$CROSSLAYER_SERVER'
    crosslayer link 4g -- kdig +quic '@$CROSSLAYER_SERVER' www.example.org A
    crosslayer link dsl --no-server -- bash
    crosslayer link 4g --loss 1% --queue 10bdp --cross-traffic bulk -- ping -c 20 '$CROSSLAYER_SERVER'
    crosslayer link 4g --trace emulation/traces/leo.csv -- curl --compressed --cacert '$CROSSLAYER_CA' https://www.example.org/
    crosslayer link 4g --drop udp/443 -- curl --compressed --cacert '$CROSSLAYER_CA' https://www.example.org/
    crosslayer link --clock virtual 4g -- kdig +quic '@$CROSSLAYER_SERVER' www.example.org A
    crosslayer link --clock virtual rtt-10 --resolver-like compare:quad9 -- kdig '@$CROSSLAYER_RESOLVER' example.org
    """
    from crosslayer.links import choose, load_profiles, own_profiles, varied

    known = load_profiles() | (own_profiles(links_file) if links_file else {})
    faults = [*(f"drop {selector}" for selector in drop), *(f"reject {selector}" for selector in reject)]
    chosen = varied(
        choose(known, profile), loss=loss, jitter=jitter, queue=queue, cross=cross, trace=trace, faults=faults
    )
    program = list(command[1:] if command[0] == "--" else command)
    if not program:
        raise click.UsageError("COMMAND is missing after --.")
    if capture is not None and capture.suffix != ".pcapng":
        raise click.UsageError("--capture takes a file whose name ends in .pcapng.")
    if capture is not None and not capture.exists() and capture.with_suffix(".json").exists():
        raise click.UsageError(f"--capture would overwrite {capture.with_suffix('.json')}: name another file.")
    if no_server and retry:
        raise click.UsageError(
            "--retry configures the server, which --no-server does not start: leave one of them out."
        )
    times = None
    if like is not None:
        if no_server:
            raise click.UsageError("--resolver-like needs the server, which --no-server does not start.")
        from crosslayer.resolvers.like import measured_times

        times = measured_times(like, "--resolver-like")
        times.check_link(chosen.name, chosen.rtt_ms)
    enter(clock, writable if capture is None else (*writable, capture.absolute().parent))
    from crosslayer.guest import inside
    from crosslayer.testbed.run_command import run_on_link

    status = run_on_link(
        chosen,
        program,
        backend=backend,
        with_server=not no_server,
        retry=retry,
        clock=inside() or "wall",
        capture=capture,
        like=times,
        seed=seed,
    )
    sys.exit(status)
