"""What figures are made of: `Figure`, `draw`, a small grammar of marks, and one look for all of them.

The figures themselves stand in the rooms of their studies. No clock, no network and no file here: writing files is the
business of `crosslayer.report`.
"""

import crosslayer.figures.quick_altair  # noqa: F401  # before any other module imports Altair
from crosslayer.figures.figure import MAX_ROWS, Drawing, Figure, FigureError, draw
from crosslayer.figures.inputs import Inputs

__all__ = ["MAX_ROWS", "Drawing", "Figure", "FigureError", "Inputs", "draw"]
