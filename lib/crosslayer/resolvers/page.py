"""The HTML report of a comparison: one file that needs no network and no script."""

from __future__ import annotations

import importlib.metadata

import jinja2

from crosslayer.figures import draw
from crosslayer.resolvers.analysis import LEGEND, ResolverComparison, failures, times_of
from crosslayer.resolvers.frames import FIGURE
from crosslayer.resolvers.plan import ComparePlan


def page(comparison: ResolverComparison, plan: ComparePlan) -> str:
    """The report: advice, figure, table, flags and failures."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("crosslayer.resolvers"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    timed = [line for line in comparison.lines if "first_ms" in line.times]
    return environment.get_template("compare.html").render(
        comparison=comparison,
        plan=plan,
        timed=timed,
        measures={key: name for key, name in times_of(plan).items() if any(key in line.times for line in timed)},
        failures=failures(comparison, plan),
        legend=LEGEND,
        svg=draw(FIGURE, comparison.lines, "").svg(),
        version=importlib.metadata.version("crosslayer"),
    )
