"""What all figures have in common: the class `Figure`, the function `draw`, functions for marks, and one style.

Each study's package defines its own figures. This package uses no clock and no network. It writes no files:
`crosslayer.report` writes them.
"""

import crosslayer.figures.quick_altair  # noqa: F401  # before any other module imports Altair
from crosslayer.figures.figure import MAX_ROWS, Drawing, Figure, FigureError, draw
from crosslayer.figures.inputs import Inputs

__all__ = ["MAX_ROWS", "Drawing", "Figure", "FigureError", "Inputs", "draw"]
