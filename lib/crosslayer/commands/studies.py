"""`crosslayer studies`: every study with its question, links, pages and rounds."""

from __future__ import annotations

import textwrap

import click


@click.command("studies")
def command() -> None:
    """List the studies, each with its question or paper, links, pages and browsers.

    For each size of a campaign (smoke, quick, paper), the list also has the number of rounds of each link and page.

    The listed links and pages are those of campaigns with --size quick. docs/reference/studies.md also lists each
    study's transports, and its campaigns in data/raw.

    \b
    crosslayer studies
    crosslayer measure --study key-share --size smoke
    """
    from crosslayer.studies import STUDIES
    from crosslayer.study import SIZES

    for study in STUDIES.values():
        plan = study.sizes["quick"]
        rounds = ", ".join(f"{size} {study.sizes[size].rounds}" for size in SIZES)
        lines = {
            "question": study.paper.citation if study.paper else study.sections[-1].lead,
            "links": ", ".join(plan.links),
            "pages": ", ".join(plan.pages),
            "browser": ", ".join(study.browsers),
            "rounds": rounds,
        }
        click.echo(click.style(study.name, bold=True))
        for name, content in lines.items():
            click.echo(textwrap.fill(content, 110, initial_indent=f"  {name:10}", subsequent_indent=" " * 12))
