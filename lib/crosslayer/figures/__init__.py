"""One function per published figure: frame in, Altair chart out. No clock, no network and no file here.

`FIGURES` has them all; `draw` makes a figure's rows from `Inputs` and the chart from the rows. Writing files is the
business of `crosslayer.report`.
"""

from crosslayer.figures.inputs import Inputs
from crosslayer.figures.registry import FIGURES, MAX_ROWS, Drawing, Figure, FigureError, draw, of_study

__all__ = ["FIGURES", "MAX_ROWS", "Drawing", "Figure", "FigureError", "Inputs", "draw", "of_study"]
