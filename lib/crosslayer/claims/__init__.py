"""Checks of published statements: compute a frame of verdicts from frames of observations.

This package uses neither clock nor network. `check` compares published results with a campaign. The packages of the
studies define the checks with `measures` and `rules`. `tolerances` has the tolerances. `data` computes the estimates
for the checks.
"""

from crosslayer.claims.compared import compared
from crosslayer.claims.data import NotMeasured
from crosslayer.claims.rows import RowsOfClaim
from crosslayer.claims.rules import Verdict
from crosslayer.claims.table import (
    COLUMNS,
    FOLLOWING,
    OURS,
    Claims,
    check,
    counted_as,
    counts,
    expected_errors,
    interval,
    ours,
    rows_behind,
    rows_behind_each,
    to_markdown,
)

__all__ = [
    "COLUMNS",
    "FOLLOWING",
    "OURS",
    "Claims",
    "NotMeasured",
    "RowsOfClaim",
    "Verdict",
    "check",
    "compared",
    "counted_as",
    "counts",
    "expected_errors",
    "interval",
    "ours",
    "rows_behind",
    "rows_behind_each",
    "to_markdown",
]
