"""Set up the calling notebook: check its parameters, and set how it displays errors and charts.

papermill only warns of a parameter that a notebook does not have. It writes the given parameters into a new cell after
the notebook's own cell of parameters. The kernel's history has both cells, so a function called from the notebook can
compare them.
"""

from __future__ import annotations

import ast
import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import vl_convert
from IPython.core.interactiveshell import InteractiveShell

from crosslayer.errors import CrosslayerError
from crosslayer.figures.figure import vegalite_version
from crosslayer.notebooks.errors import NotebookError

_INJECTED = "# Parameters\n"
"""First line of the cell into which papermill writes the given parameters."""


def begin() -> None:
    """Set how the notebook displays errors and charts, and check its parameters. Outside notebooks, do nothing.

    Raises
    ------
    NotebookError
        For a parameter that the notebook does not have.
    """
    if not InteractiveShell.initialized():
        return
    shell = InteractiveShell.instance()
    _quiet_errors(shell)
    alt.renderers.register("crosslayer", show_chart)
    alt.renderers.enable("crosslayer")
    check_parameters(shell.user_ns.get("In", []))


def check_parameters(cells: Sequence[str]) -> None:
    """Refuse parameters from papermill that the notebook does not have.

    Parameters
    ----------
    cells
        Source of the executed cells, in order.

    Raises
    ------
    NotebookError
        For an unknown parameter; the error names this parameter and the known parameters.
    """
    for declared, injected in pairwise(cells):
        known = _assigned(declared)
        if not injected.startswith(_INJECTED) or not known:
            continue
        if unknown := sorted(_assigned(injected) - known):
            raise NotebookError(
                f"unknown parameter {', '.join(unknown)}",
                where="parameters",
                next_step=f"Parameters are: {', '.join(sorted(known))}.",
            )


def _assigned(cell: str) -> set[str]:
    """Names to which a cell assigns; empty if the cell also contains other statements."""
    try:
        statements = ast.parse(cell).body
    except SyntaxError:  # an IPython magic
        return set()
    if not all(isinstance(statement, (ast.Assign, ast.AnnAssign)) for statement in statements):
        return set()
    return {node.id for node in ast.walk(ast.Module(statements, [])) if isinstance(node, ast.Name) and _is_set(node)}


def _is_set(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _quiet_errors(shell: Any) -> None:
    """Show crosslayer's errors without traceback, because a traceback would only show crosslayer's own code."""

    def handler(self: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None) -> None:
        self._showtraceback(kind, error, [f"{kind.__name__}: {error}"])

    shell.set_custom_exc((CrosslayerError,), handler)


def show_chart(spec: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Renderer of Altair charts that the user draws: with tooltips in JupyterLab, elsewhere as a picture.

    Altair's own renderers need either a network or a newer Vega-Lite than JupyterLab contains.
    """
    picture = vl_convert.vegalite_to_png(spec, vl_version=vegalite_version(), scale=2.0)
    schema = "https://vega.github.io/schema/vega-lite/v5.json"
    return {
        "application/vnd.vegalite.v5+json": spec | {"$schema": schema},
        "image/png": base64.b64encode(picture).decode(),
        "text/plain": "a chart",
    }
