"""Parts of figures: `Figure`, `draw`, a small grammar of marks, and one style for all of them.

The figures are in the packages of their studies. No clock, no network and no file here: `crosslayer.report` writes
files.
"""

import crosslayer.figures.quick_altair  # noqa: F401  # before any other module imports Altair
from crosslayer.figures.figure import MAX_ROWS, Drawing, Figure, FigureError, draw
from crosslayer.figures.inputs import Inputs

__all__ = ["MAX_ROWS", "Drawing", "Figure", "FigureError", "Inputs", "draw"]
