"""`server_cost.ipynb`: the figure of the server benchmark."""

from __future__ import annotations

import json

from IPython.display import display

from crosslayer import figures as figures_room
from crosslayer import report
from crosslayer.figures import server_cost as server_cost_figure
from crosslayer.notebooks import figure_view, session
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.paths import existing, fresh

_COSTS = ("cpu_s_per_10000", "rss_mb", "peak_mb", "median_response_ms", "held")


def server_cost(*, results: str, figures: str) -> None:
    """Draw the benchmark's results, save the figure in `figures/server-cost`, and show it with its numbers.

    Parameters
    ----------
    results
        JSON file that `python -m tests.benchmarks.bench_server_cost --write` wrote.
    figures
        Folder for the figures.

    Raises
    ------
    NotebookError
        For an unknown parameter, or results that cannot be read.
    """
    session.begin()
    path = existing(results)
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
        measured, host = whole["result"], whole["host"]["cpu"]
        note = (
            f"{measured['queries']:,} queries at each rate over one kept connection of the stub, on loopback; "
            f"{measured['bind']}; {host}. Measured "
            f"{str(whole['when'])[:10]}, git {str(whole['git']['revision'])[:7]}."
        )
        drawing = figures_room.draw(server_cost_figure.FIGURE, measured["transports"], note)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotebookError(
            f"cannot be read ({type(error).__name__}: {error})",
            where=str(path),
            next_step="Measure them: python -m tests.benchmarks.bench_server_cost --write",
        ) from error
    paths = report.save(drawing, fresh(figures) / "server-cost")
    figure_view.show_saved(paths["png"], drawing.figure)
    display(
        figure_view.table(
            drawing.rows.select("server", transport="series", rate="rate", **{name: name for name in _COSTS})
        )
    )
