"""`crosslayer measure`: a campaign on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from crosslayer.commands.common import BACKEND, enter, renamed
from crosslayer.studies import DEFAULT, STUDIES, load_plan, sized

_STUDIES = "\n".join(["\b", "Studies:", *(f"  {study.name:<15}{study.lead}" for study in STUDIES.values())])


@click.command("measure", epilog=_STUDIES)
@click.option(
    "--study",
    default=DEFAULT,
    show_default=True,
    help="What to measure, see below.",
)
@click.option(
    "--size",
    default="quick",
    show_default=True,
    help="smoke takes about a minute, quick a quarter of an hour, paper has the paper's sample size.",
)
@click.option("--profile", hidden=True, callback=renamed("--size"), expose_value=False)
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(path_type=Path),
    help="A TOML file whose keys are the plan's, instead of --study and --size.",
)
@click.option("--links", help="Link profiles, separated by commas.")
@click.option("--pages", help="Pages, separated by commas.")
@click.option("--rounds", type=int, help="Repetitions of every cell.")
@click.option("--seed", type=int, help="Draws every random order.")
@BACKEND
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the dataset.  [default: data/raw/STUDY-SIZE]")
def command(
    study: str,
    size: str,
    plan_file: Path | None,
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

    given: dict[str, Any] = {"rounds": rounds, "seed": seed}
    given |= {"links": links.split(",") if links else None, "pages": pages.split(",") if pages else None}
    plan = changed(
        load_plan(plan_file) if plan_file else sized(study, size),
        {k: v for k, v in given.items() if v is not None},
        where="options",
    )
    # A wrong name is told on any machine, also on one that cannot measure.
    chosen = STUDIES[plan.study]
    profiles, specs = chosen.profiles(plan), load_pages(find_spec_dir())
    check_names(plan, links=profiles, pages=specs, primes_alias=chosen.primes_alias)
    folder = out or Path("data/raw") / f"{plan.study}-{plan_file.stem if plan_file else size}"
    enter()
    from crosslayer.campaign.run import measure as run

    try:
        run(plan, folder, chosen.measurer, profiles, backend=backend, say=lambda line: click.echo(line, err=True))
    except KeyboardInterrupt:
        click.echo(f"\nStopped. Finished rounds are in {folder}; the same command goes on from there.", err=True)
        sys.exit(130)
    click.echo(str(folder))
