"""`crosslayer doctor`: report what this machine can measure, and what is missing."""

from __future__ import annotations

import json
import sys

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> None:
    """Print what this machine can do, what is missing, and how to get what is missing.

    Exit status 1: this machine cannot measure. It can still analyse datasets if the Python packages are installed.
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
        click.echo(f"\n{examination.verdict(findings)}")
    sys.exit(0 if able else 1)
