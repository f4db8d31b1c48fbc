"""Published statements as checks: from frames to a frame of verdicts. No clock, no network, no study here.

`check` compares results with a campaign. The packages of the studies define them with `measures` and `checks`; `rules`
has the tolerances, `data` the campaign as the checks read it.
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
