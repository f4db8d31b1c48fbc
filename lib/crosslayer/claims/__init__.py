"""Published statements as checks: frames in, one frame of verdicts out. No clock, no network, no study here.

`check` holds results against a campaign. What they are is in the rooms of the studies, which write them in the words
of `measures` and `checks`; `rules` has how close is close enough, `observed` the campaign as the checks see it.
"""

from crosslayer.claims.checks import Verdict
from crosslayer.claims.compared import compared
from crosslayer.claims.data import NotMeasured
from crosslayer.claims.rows import RowsOfClaim
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
