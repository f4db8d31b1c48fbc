"""The `crosslayer` command: nothing but calls into the rooms, and their errors as one message each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from crosslayer import __version__
from crosslayer.errors import CrosslayerError

CANNOT_MEASURE = 3
"""Exit status of `measure` and `link` on a machine that cannot provide the testbed."""

_BACKEND = click.option(
    "--backend",
    type=click.Choice(["auto", "netem", "uml"]),
    default="auto",
    show_default=True,
    help="Where netem runs: in this kernel or in a User-Mode Linux guest. auto takes netem, else uml.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """What does encrypted DNS cost a web user, and what does sharing QUIC between DNS and HTTP/3 give back?

    \b
    crosslayer doctor                              what this machine can do
    crosslayer link 4g -- kdig +quic www.example.org   any client on an emulated link
    crosslayer measure --profile smoke             a small campaign, about a minute
    crosslayer report data/raw/coalescing-smoke    its figures and claims on one page
    """


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine can do, what is missing, and how to get it.

    Exits with 1 where measuring is not possible. Analysing a dataset needs only the Python packages.
    """
    from dataclasses import asdict

    from crosslayer import doctor as examination

    findings = examination.examine()
    able = examination.can_measure(findings)
    if as_json:
        click.echo(json.dumps({"can_measure": able, "findings": [asdict(f) for f in findings]}, indent=2))
    else:
        sign = {
            "ok": click.style("ok     ", fg="green"),
            "note": click.style("note   ", fg="yellow"),
            "missing": click.style("MISSING", fg="red"),
        }
        for f in findings:
            click.echo(f"{sign[f.state]}  {f.item:<18} {f.detail}")
            if f.way_out and f.state != "ok":
                click.echo(f"{'':<29}{f.way_out}")
        click.echo(
            "\nThis machine can measure."
            if able
            else "\nThis machine cannot measure yet; it can analyse data/raw/coalescing."
        )
    sys.exit(0 if able else 1)


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("profile")
@_BACKEND
@click.option("--no-server", is_flag=True, help="Leave the far end empty: no DNS and web server, only the link.")
@click.option("--retry", is_flag=True, help="Make the server validate addresses with QUIC Retry (one more round-trip).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def link(profile: str, backend: str, no_server: bool, retry: bool, command: tuple[str, ...]) -> None:
    """Run COMMAND as a client on the link PROFILE, with the server at the far end.

    COMMAND runs in the client's namespace. Its environment has CROSSLAYER_SERVER (the server's address, also its
    resolver in /etc/resolv.conf) and CROSSLAYER_CA (the CA certificate made for this run); `$CROSSLAYER_SERVER` and
    `$CROSSLAYER_CA` inside COMMAND's words are replaced too. The exit status is COMMAND's.

    \b
    crosslayer link fiber -- ping -c 3 '$CROSSLAYER_SERVER'
    crosslayer link 4g -- kdig +quic '@$CROSSLAYER_SERVER' www.example.org A
    crosslayer link dsl --no-server -- bash
    """
    from crosslayer.links import choose, load_profiles

    chosen = choose(load_profiles(), profile)
    words = list(command[1:] if command[0] == "--" else command)
    if not words:
        raise click.UsageError("There is no COMMAND after --.")
    _enter()
    from crosslayer.link import run_on_link

    sys.exit(run_on_link(chosen, words, backend=backend, with_server=not no_server, retry=retry))


@cli.command()
@click.option(
    "--profile",
    default="quick",
    show_default=True,
    help="Size: smoke (1 min), quick (under 15 min; web 25), paper (full sample size).",
)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    help="A TOML file whose keys are the plan's, instead of --study and --profile.",
)
@click.option(
    "--study",
    default="coalescing",
    show_default=True,
    help="coalescing, single-query, web, authoritative, or an open question: serialisation, early-data, key-share.",
)
@click.option("--links", help="Link profiles, separated by commas.")
@click.option("--pages", help="Pages, separated by commas.")
@click.option("--rounds", type=int, help="Repetitions of every cell.")
@click.option("--seed", type=int, help="Draws every random order.")
@_BACKEND
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the dataset.  [default: data/raw/STUDY-SIZE]")
def measure(
    profile: str,
    plan_file: Path | None,
    study: str,
    links: str | None,
    pages: str | None,
    rounds: int | None,
    seed: int | None,
    backend: str,
    out: Path | None,
) -> None:
    """Measure a campaign on this machine, or go on with one that was interrupted.

    Every finished round is safe in OUT/campaign.sqlite: stop it any way you like and give the same command again.
    The last line of output is the dataset's folder.
    """
    from crosslayer.campaign.plan import changed, check_names
    from crosslayer.pages import find_spec_dir, load_pages
    from crosslayer.studies import STUDIES, load_plan, sized

    given: dict[str, Any] = {"rounds": rounds, "seed": seed}
    given |= {"links": links.split(",") if links else None, "pages": pages.split(",") if pages else None}
    plan = changed(
        load_plan(plan_file) if plan_file else sized(study, profile),
        {k: v for k, v in given.items() if v is not None},
        where="options",
    )
    # A wrong name is told on any machine, also on one that cannot measure.
    chosen = STUDIES[plan.study]
    profiles, specs = chosen.profiles(plan), load_pages(find_spec_dir())
    check_names(plan, links=profiles, pages=specs, primes_alias=chosen.primes_alias)
    folder = out or Path("data/raw") / f"{plan.study}-{plan_file.stem if plan_file else profile}"
    _enter()
    from crosslayer.campaign.run import measure as run

    try:
        run(plan, folder, chosen.measurer, profiles, backend=backend, say=lambda line: click.echo(line, err=True))
    except KeyboardInterrupt:
        click.echo(f"\nStopped. Finished rounds are in {folder}; the same command goes on from there.", err=True)
        sys.exit(130)
    click.echo(str(folder))


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
def export(folder: Path) -> None:
    """Write the Parquet tables and campaign.json of the (finished or interrupted) campaign in FOLDER again."""
    from crosslayer.campaign.export import export as run
    from crosslayer.campaign.store import Store

    with Store(folder) as store:
        run(store, folder)
    click.echo(str(folder))


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("data/raw/coalescing"))
@click.option("--out", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="Folder.")
def figures(folder: Path, out: Path) -> None:
    """Draw every figure of the dataset in FOLDER: SVG, PNG, Vega-Lite and CSV in OUT/STUDY.

    The page OUT/index.html is renewed: it shows the figures and claims that OUT has of this campaign. `crosslayer
    report` makes both. Needs no namespaces, no browser and no root. Without FOLDER: data/raw/coalescing.
    """
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.report import write_figures

    click.echo(str(write_figures(Dataset.open(folder), out)))


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("data/raw/coalescing"))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Also write OUT/STUDY/claims.parquet and .md, and renew OUT/index.html.",
)
def claims(folder: Path, out: Path | None) -> None:
    """Hold every published result against the dataset in FOLDER, claim by claim.

    Verdicts: reproduced, direction only, not reproduced, not measured. Needs no namespaces, no browser and no root.

    Exits with 0 whatever the verdicts are: a claim that fails is a result.
    """
    from crosslayer.claims_command import run

    run(folder, out, click.echo)


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("data/raw/coalescing"))
@click.option("--out", type=click.Path(path_type=Path), default=Path("figures"), show_default=True, help="Folder.")
@click.option("--pdf", is_flag=True, help="Also print the page to OUT/report.pdf (A4) with the environment's Chromium.")
def report(folder: Path, out: Path, pdf: bool) -> None:
    """Make the report of the dataset in FOLDER: its figures, its claims, and the page that joins them.

    What `crosslayer figures` and `crosslayer claims --out` make goes to OUT/STUDY. OUT/index.html is one file that
    needs no network: summary, claims with their verdicts, figures with tooltips, provenance.

    Needs no namespaces, no root and, without --pdf, no browser. FOLDER is data/raw/coalescing unless told otherwise.

    \b
    crosslayer report                                  the committed campaign, into figures/
    crosslayer report data/raw/mine --out mine --pdf   another one, also on paper
    """
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.report import write_report

    if pdf:
        from crosslayer.browser import find_browser
        from crosslayer.report.pdf import write_pdf

        find_browser()  # a missing one is told before the figures are drawn
    page = write_report(Dataset.open(folder), out)
    click.echo(str(page))
    if pdf:
        click.echo(str(write_pdf(page, out / "report.pdf")))


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--precision", default="1%", show_default=True, help="Half-width of the 95 % interval of the median PLT.")
def plan(folder: Path, precision: str) -> None:
    """Say how many rounds each cell needs, from the variance in the pilot campaign in FOLDER."""
    from crosslayer.plan_command import run

    run(folder, precision, click.echo)


@cli.command("import")
@click.argument("database", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
def import_(database: Path, out: Path) -> None:
    """Make the dataset OUT from DATABASE, the SQLite file of the harness of Sengupta et al. (TNSM 2024)."""
    from crosslayer.campaign.dataset import Dataset
    from crosslayer.links import load_profiles
    from crosslayer.studies.coalescing.importer import import_database

    dataset = Dataset.open(import_database(database, out, load_profiles()))
    for note in dataset.campaign.notes:
        click.echo(note, err=True)
    click.echo(str(out))


@cli.command()
@click.argument("targets", nargs=-1)
@click.option("--file", type=click.Path(path_type=Path), help="A file of more targets, one a line; # begins a comment.")
@click.option("--rate", default=20.0, show_default=True, help="Packets sent per second, at most, over all targets.")
@click.option("--timeout", default=3.0, show_default=True, help="Seconds to wait for a probe, a connection, an answer.")
@click.option("--name", default="www.example.org", show_default=True, help="The name to ask for (its A record).")
@click.option("--json", "as_json", is_flag=True, help="Print the matrix as JSON.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the matrix to this .parquet or .csv file.")
@click.option(
    "--outside",
    is_flag=True,
    help="Leave the testbed: probe hosts of the real network from this machine. What that does is your responsibility: "
    "probe only what you run or have leave to probe, and keep to your network's rules and your institution's ethics "
    "review. Operators may take probes for an attack: keep the rate low, ask for a name under which they find who you "
    "are (--name), and stop when somebody asks you to.",
)
def discover(
    targets: tuple[str, ...],
    file: Path | None,
    rate: float,
    timeout: float,
    name: str,
    as_json: bool,
    out: Path | None,
    outside: bool,
) -> None:
    """Find out which DNS transports TARGETS speak: DoUDP, DoTCP, DoT, DoH, DoH3, DoQ.

    As in Kosek et al. (IMC 2022): a QUIC packet of an unknown version to the UDP ports 784, 853 and 8853 (and 443),
    then, where Version Negotiation came back, DoQ and its drafts by ALPN; every other transport is tried at its port.

    TARGETS are addresses and host names, never networks. They are looked for inside the testbed, where resolvers of
    several kinds wait: CoreDNS, BIND 9, Knot Resolver. Without TARGETS all of them are looked at.

    \b
    crosslayer discover                            every emulated resolver
    crosslayer discover bind9 10.53.0.200          one of them, and an address where nobody is
    crosslayer link 4g -- crosslayer discover      the same on a link, also $CROSSLAYER_SERVER
    """
    from crosslayer import discover_command

    request = discover_command.request(
        targets, file=file, outside=outside, packets_per_s=rate, timeout_s=timeout, name=name, out=out
    )
    if not outside and not discover_command.in_testbed():
        _enter()
    whole = discover_command.run(request, as_json=as_json, say=click.echo, tell=lambda line: click.echo(line, err=True))
    sys.exit(0 if whole else 130)


@cli.command()
@click.option(
    "--upstream", required=True, metavar="URL", help="Forward to udp, tcp, tls, https, h3 or quic://HOST[:PORT]."
)
@click.option("--listen", default="127.0.0.1:53", show_default=True, metavar="ADDRESS:PORT", help="Answer here.")
@click.option("--ca", type=click.Path(path_type=Path), help="PEM file of the upstream's CA, instead of the system's.")
@click.option("--server-name", default="", help="Name in the upstream's certificate, where it is not HOST.")
@click.option(
    "--resumption",
    type=click.Choice(["none", "ticket", "early-data"]),
    help="What a new connection may use of an earlier one.  [default: ticket; none over udp and tcp]",
)
@click.option("--timeout", default=5.0, show_default=True, help="Seconds until a query is given up (SERVFAIL).")
@click.option("--idle-timeout", default=30.0, show_default=True, help="Seconds until an idle connection is closed.")
@click.option(
    "--udp-retransmit", default=1.0, show_default=True, help="Seconds until udp asks again; doubles each time."
)
@click.option("--metrics", type=click.Path(path_type=Path), help="Append the metrics here, not to standard output.")
@click.option("--control", type=click.Path(path_type=Path), help="Take commands on a Unix socket here (JSON lines).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def stub(
    upstream: str,
    listen: str,
    ca: Path | None,
    server_name: str,
    resumption: str | None,
    timeout: float,
    idle_timeout: float,
    udp_retransmit: float,
    metrics: Path | None,
    control: Path | None,
    command: tuple[str, ...],
) -> None:
    """Forward DNS queries from a local address to one upstream over any transport, and tell what each cost.

    One connection is kept; queries that come while it is set up wait for it. After a reset the next query resumes
    with the ticket and token of the last connection, as early data where --resumption says so. Nothing is cached. One
    JSON line per query: handshake_ms, query_ms, total_ms, new_connection, resumed, early_data, rcode, error and more.

    Runs until it is stopped or, where there is a COMMAND, for as long as that runs, with COMMAND's exit status.
    The control socket takes {"command": "..."}: ready, reset-sessions (keeps tickets), forget (tickets too), stats.

    \b
    crosslayer stub --upstream quic://192.0.2.1 --listen 127.0.0.1:5353
    crosslayer link 4g -- crosslayer stub --upstream 'quic://$CROSSLAYER_SERVER' --ca '$CROSSLAYER_CA' \\
        --server-name www.example.org -- kdig @127.0.0.1 www.example.org
    """
    from crosslayer import stub_command
    from crosslayer.dns import Resumption
    from crosslayer.stub import Settings

    settings = Settings(
        upstream,
        listen=listen,
        ca_file=ca,
        server_name=server_name,
        resumption=Resumption(resumption) if resumption else None,
        timeout_s=timeout,
        idle_timeout_s=idle_timeout,
        udp_retransmit_s=udp_retransmit,
    )
    if not command:
        stub_command.run_forever(settings, metrics=metrics, control=control)
    if control is not None:
        raise click.UsageError("--control is for a stub that runs until it is stopped: leave it or COMMAND out.")
    sys.exit(stub_command.run_command(settings, list(command), metrics=metrics))


def _enter() -> None:
    """Go on in private namespaces, by re-executing this very command."""
    from crosslayer.testbed import private

    private.enter([sys.executable, "-m", "crosslayer", *sys.argv[1:]])


def main() -> None:
    """Entry point: foreseeable faults end as one message with the next step, never as a traceback."""
    from crosslayer.testbed.errors import TestbedError

    # Debian gives ordinary users no path to tc, named and kresd.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    try:
        cli.main(prog_name="crosslayer")
    except CrosslayerError as error:
        if os.environ.get("CROSSLAYER_DEBUG"):
            traceback.print_exc()
        click.echo(f"{click.style('crosslayer:', fg='red')} {error}", err=True)
        sys.exit(CANNOT_MEASURE if isinstance(error, TestbedError) else 1)
    except subprocess.CalledProcessError as error:
        click.echo(f"crosslayer: {' '.join(map(str, error.cmd))} ended with {error.returncode}", err=True)
        sys.exit(1)
