"""`crosslayer measure`: measure a campaign on this machine or a cluster."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crosslayer.commands.common import BACKEND, PATH, TEXT, enter, guest_clock, typed
from crosslayer.errors import CrosslayerError
from crosslayer.studies import DEFAULT, STUDIES, load_plan, sized
from crosslayer.vocabulary import BROWSERS

if TYPE_CHECKING:
    from crosslayer.campaign.plan import Plan


class _Measure(click.Command):
    """The command `measure`, whose help ends with lists of studies, links and pages."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from crosslayer.links import MADE, load_profiles
        from crosslayer.pages import find_spec_dir, load_pages

        with formatter.section("Studies (`crosslayer studies` has their links and pages)"):
            formatter.write_dl([(study.name, study.lead) for study in STUDIES.values() if not study.measured_by])
        with contextlib.suppress(CrosslayerError):  # without link profiles or pages, these lists are omitted
            for title, names in (
                ("Links", ", ".join(load_profiles()) + MADE),
                ("Pages", ", ".join(load_pages(find_spec_dir()))),
            ):
                with formatter.section(title):
                    width, indent = formatter.width, " " * formatter.current_indent
                    lines = textwrap.wrap(
                        names, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
                    )
                    formatter.write("\n".join(lines) + "\n")


@click.command("measure", cls=_Measure)
@click.option(
    "--study",
    type=TEXT,
    default=DEFAULT,
    show_default=True,
    help="Study to measure; listed below.",
)
@click.option(
    "--size",
    type=TEXT,
    default="quick",
    show_default=True,
    help="Size of the campaign: smoke (about a minute), quick (about 15 minutes) or paper (the most rounds). "
    "With --size paper, each of the studies coalescing, single-query and authoritative makes about as many "
    "observations as the publication that it reproduces. `crosslayer studies` lists the rounds of each size.",
)
@click.option(
    "--plan",
    "plan_file",
    type=PATH,
    help="Plan file (docs/reference/plan.md), instead of --study and --size.",
)
@click.option(
    "--links",
    type=TEXT,
    help="Links, separated by commas; FILE.toml: all links in this file.  [default: those of --plan or of the study]",
)
@click.option(
    "--pages",
    type=TEXT,
    help="Pages, separated by commas. Each is a name, a folder that `crosslayer page` made, or a folder that contains "
    "such folders.  [default: those of --plan or of the study]",
)
@click.option("--rounds", type=int, help="Rounds of each cell (link and page).")
@click.option("--seed", type=int, help="Seed of the random orders.")
@click.option(
    "--browser",
    type=click.Choice([*BROWSERS]),
    help="Browser that loads the pages.  [default: that of --plan, else chromium]",
)
@click.option(
    "--clock",
    envvar="CROSSLAYER_CLOCK",
    type=click.Choice(["wall", "virtual"]),
    help="Real time (wall) or virtual time (virtual). In virtual time, the clock stands still while programs compute, "
    "so measured times hardly depend on the machine's speed. Virtual time needs a kernel that `make guest` builds.  "
    "[default: $CROSSLAYER_CLOCK, else that of --plan, else wall]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Number of parallel testbeds on this machine, if the campaign uses no cluster or --cluster local (in real "
    "time, always one). With --cluster ssh: number of parallel testbeds on each machine. With --cluster slurm: number "
    "of SLURM jobs. With --scheduler, this option has no effect.  [default: in virtual time on this machine, one per "
    "core; otherwise one]",
)
@click.option(
    "--scheduler",
    type=TEXT,
    envvar="CROSSLAYER_SCHEDULER",
    metavar="ADDRESS",
    help="Measure on the workers of this Dask scheduler: tcp://HOST:8786, tls://HOST:8786, or a scheduler file.  "
    "[default: $CROSSLAYER_SCHEDULER, else no cluster]",
)
@click.option(
    "--cluster",
    type=click.Choice(["local", "ssh", "slurm"]),
    help="Start a Dask cluster for this campaign and measure on its workers. local: workers on this machine. ssh: on "
    "the machines of --hosts. slurm: as SLURM jobs.",
)
@click.option(
    "--hosts",
    type=TEXT,
    help="For --cluster ssh: machines, separated by commas. The first machine also runs the scheduler.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Maximum number of rounds in a task. On a cluster, a worker gets all rounds of a task at once.  [default: "
    "20, in virtual time 8]",
)
@click.option(
    "--capture",
    type=TEXT,
    metavar="pcap,qlog,netlog",
    help="Capture the loads of the first round of each link and page. pcap: packets, and the TLS keys that decrypt "
    "them. qlog: qlog of client and server. netlog: netlog of Chromium. The files are in OUT/captures; `crosslayer "
    "show OUT` lists the loads.",
)
@click.option(
    "--capture-rounds",
    type=click.IntRange(min=1),
    help="Number of rounds of each link and page that --capture captures.  [default: 1]",
)
@click.option(
    "--allow-mixed-versions",
    is_flag=True,
    help="On a cluster, also use workers whose commit or code of crosslayer differs from this machine's. Also use "
    "workers that have another version of a program or of the kernel than most workers. campaign.json records the "
    "differences.",
)
@click.option(
    "--server",
    type=TEXT,
    metavar="ADDRESS|LIST",
    help="For --study authoritative: query a server of yours over the real network. Give its ADDRESS to query it over "
    "all transports. Give a LIST (as for `crosslayer compare`) to query it only over the transports that LIST names.",
)
@click.option("--name", type=TEXT, help="For --server: name whose A record is queried.")
@click.option(
    "--sites",
    type=PATH,
    metavar="FILE",
    help="For --study web: file with one URL per line. These pages are loaded over the real network, in place of the "
    "testbed's pages.",
)
@click.option(
    "--resolver",
    "named_resolvers",
    type=TEXT,
    multiple=True,
    metavar="NAME|LIST",
    help="For --sites: resolvers for the pages' host names. Give a NAME or a LIST as for `crosslayer compare`; repeat "
    "the option for more resolvers.  [default: the file that $CROSSLAYER_RESOLVERS names]",
)
@click.option(
    "--ca",
    type=PATH,
    help="For --server and --sites: PEM file of the CAs to trust.  [default: $CROSSLAYER_CA, else the system's]",
)
@click.option("--dry-run", is_flag=True, help="For --server and --sites: print what would be sent, and send nothing.")
@click.option(
    "--i-may-send-this",
    "consents",
    is_flag=True,
    help="For --server and --sites, in scripts: with this option, you consent to the printed queries and loads, and "
    "the command does not ask for consent.",
)
@BACKEND
@click.option("--out", type=PATH, help="Folder of the dataset.  [default: data/local/STUDY-SIZE[-virtual]]")
def command(
    study: str,
    size: str,
    plan_file: Path | None,
    links: str | None,
    pages: str | None,
    rounds: int | None,
    seed: int | None,
    browser: str | None,
    clock: str | None,
    jobs: int | None,
    scheduler: str | None,
    cluster: str | None,
    hosts: str | None,
    batch: int | None,
    capture: str | None,
    capture_rounds: int | None,
    allow_mixed_versions: bool,
    server: str | None,
    name: str | None,
    sites: Path | None,
    named_resolvers: tuple[str, ...],
    ca: Path | None,
    dry_run: bool,
    consents: bool,
    backend: str,
    out: Path | None,
) -> None:
    """Measure a campaign on this machine or on a cluster.

    Each finished round is stored in OUT/campaign.sqlite. You can stop the command at any time, even by `kill -9`. To
    resume an interrupted campaign, repeat the command. The last line of output is the dataset's folder.

    \b
    crosslayer measure --size smoke                       the default study, in about a minute
    crosslayer measure --study loss --links 4g,4g-loss-2 --pages wikipedia.org --rounds 20
    crosslayer report data/local/loss-quick               figures and claims of the study loss, size quick
    """
    from crosslayer.campaign.plan import OWN_CAMPAIGNS, changed, check_names
    from crosslayer.links import Profile, own_profiles
    from crosslayer.pages import find_spec_dir, load_pages, own_pages

    own_links: dict[str, Profile] = {}
    own_folders: tuple[Path, ...] = ()
    named: dict[str, list[str]] = {"links": [], "pages": []}
    for name in links.split(",") if links else ():
        more = own_profiles(Path(name)) if name.endswith(".toml") else {}
        own_links |= more
        named["links"] += more or [name]
    for name in pages.split(",") if pages else ():
        folders = own_pages(Path(name)) if Path(name).is_dir() else ()
        own_folders += folders
        named["pages"] += [folder.name for folder in folders] or [name]
    given: dict[str, Any] = {"rounds": rounds, "seed": seed, "browser": browser, "clock": clock}
    given |= {"capture": capture.split(",") if capture else None, "capture_rounds": capture_rounds}
    given |= {key: names or None for key, names in named.items()}
    plan = changed(
        load_plan(plan_file) if plan_file else sized(study, size),
        {k: v for k, v in given.items() if v is not None},
        where="options",
    )
    ca = ca or (Path(os.environ["CROSSLAYER_CA"]) if os.environ.get("CROSSLAYER_CA") else None)
    if sites or named_resolvers or getattr(plan.options, "live_resolvers", ()):
        folder = out or OWN_CAMPAIGNS / f"{plan.study}-sites"
        _measure_sites(plan, sites, named_resolvers, ca, folder, dry_run=dry_run, consents=consents)
        return
    server, name = server or getattr(plan.options, "server", None), name or getattr(plan.options, "name", None)
    if server or any(_is_given(option) for option in ("name", "ca", "dry_run", "consents")):
        folder = out or OWN_CAMPAIGNS / f"{plan.study}-server"
        _measure_server(plan, server, name, ca, folder, dry_run=dry_run, consents=consents)
        return
    if capture_rounds and not plan.capture:
        raise click.UsageError("--capture-rounds needs --capture: give both, or neither.")
    if plan_file and any(_is_given(option) for option in ("study", "size")):
        raise click.UsageError("--plan determines study and size: leave --study and --size out.")
    # Names are checked first, so a wrong one is reported even on a machine that cannot measure.
    chosen = STUDIES[plan.study]
    measurer = chosen.measurer
    profiles, specs = {**chosen.profiles(plan), **own_links}, load_pages(find_spec_dir(), *own_folders)
    check_names(
        plan,
        links=profiles,
        pages=specs,
        primes_alias=chosen.primes_alias,
        one_host=chosen.one_host,
        browsers=chosen.browsers,
    )
    size = plan_file.stem if plan_file else size
    virtual = "-virtual" if plan.clock == "virtual" else ""
    folder = out or OWN_CAMPAIGNS / f"{plan.study}-{size}{virtual}"
    on_cluster = bool(scheduler or cluster)
    if scheduler and cluster:
        raise click.UsageError("--scheduler and --cluster exclude each other: leave one out.")
    if (hosts or batch or allow_mixed_versions) and not on_cluster:
        raise click.UsageError(
            "--hosts, --batch and --allow-mixed-versions need a cluster: add --scheduler or --cluster."
        )
    if hosts and cluster != "ssh":
        raise click.UsageError("--hosts needs --cluster ssh.")
    if jobs and plan.clock == "wall" and not on_cluster:
        raise click.UsageError("In real time parallel rounds would disturb each other: leave --jobs out.")
    if on_cluster:
        of_guest = None
    elif (of_guest := guest_clock(plan.clock)) is None:
        enter()
    from crosslayer.campaign.guests import guest_executor
    from crosslayer.campaign.rounds import local_executor
    from crosslayer.campaign.run import measure as run

    guests = 1 if plan.clock == "wall" else jobs or len(os.sched_getaffinity(0))
    say = partial(click.echo, err=True)
    with contextlib.ExitStack() as around:
        source = guest_executor(of_guest, guests) if of_guest else local_executor
        if on_cluster:
            from crosslayer.campaign.cluster import connected, dask_executor

            client = around.enter_context(connected(scheduler, cluster, workers=jobs, hosts=hosts, clock=plan.clock))
            source = dask_executor(client, clock=plan.clock, batch=batch, allow_mixed_versions=allow_mixed_versions)
        try:
            run(
                plan,
                folder,
                measurer,
                profiles,
                backend=backend,
                say=say,
                source=source,
                own_pages=own_folders,
            )
        except KeyboardInterrupt:
            click.echo(f"\nStopped. Finished rounds are in {folder}; the same command resumes.", err=True)
            sys.exit(130)
    if on_cluster and plan.clock == "virtual":
        from crosslayer import metrics
        from crosslayer.campaign.dataset import Dataset

        if disagreement := metrics.disagreement(Dataset.open(folder).table("page_loads")):
            say(disagreement)
    click.echo(str(folder))


def _measure_server(
    plan: Plan,
    server: str | None,
    name: str | None,
    ca: Path | None,
    folder: Path,
    *,
    dry_run: bool,
    consents: bool,
) -> None:
    """Measure the server that the user gave with --server, over the real network."""
    real_server = STUDIES[plan.study].real_server
    if real_server is None:
        able = " or ".join(name for name, study in STUDIES.items() if study.real_server)
        raise click.UsageError(f"--server, --name, --ca, --dry-run and --i-may-send-this need --study {able}.")
    if not server or not name:
        raise click.UsageError("--server and --name belong together: give both.")
    asked = real_server.real_server(plan, server, name, ca)
    _measure_outside(real_server, asked, folder, dry_run=dry_run, consents=consents)


def _measure_sites(
    plan: Plan,
    sites: Path | None,
    named_resolvers: tuple[str, ...],
    ca: Path | None,
    folder: Path,
    *,
    dry_run: bool,
    consents: bool,
) -> None:
    """Load the pages that the user listed with --sites, over the real network."""
    from crosslayer.testbed import namespaces

    live_pages = STUDIES[plan.study].live_pages
    if live_pages is None:
        able = " or ".join(name for name, study in STUDIES.items() if study.live_pages)
        raise click.UsageError(f"--sites and --resolver need --study {able}.")
    named = named_resolvers or tuple(filter(None, [os.environ.get("CROSSLAYER_RESOLVERS")]))
    if sites is None or not named:
        raise click.UsageError("--sites and --resolver belong together: give both.")
    asked = live_pages.live_pages(plan, sites, named, ca)
    if not dry_run:
        namespaces.enter([sys.executable, "-m", "crosslayer", *sys.argv[1:]], own_network=False)
    _measure_outside(live_pages, asked, folder, dry_run=dry_run, consents=consents)


def _measure_outside(measurer: Any, asked: Any, folder: Path, *, dry_run: bool, consents: bool) -> None:
    """Measure over the real network with the user's consent, and print a summary.

    The function first prints the budget of `asked`: the number of queries or page loads. With `dry_run`, nothing else
    happens.
    """
    click.echo(asked.budget)
    if dry_run:
        return
    measurer.consent(asked, given=consents, ask=typed)
    try:
        measurer.run(asked, folder, partial(click.echo, err=True))
    except KeyboardInterrupt:
        click.echo(f"\nStopped. Finished rounds are in {folder}; the same command resumes.", err=True)
        sys.exit(130)
    click.echo(measurer.summary(folder))
    click.echo(str(folder))


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not None and source is not click.core.ParameterSource.DEFAULT
