"""The published statements as checks: frames in, one frame of verdicts out. No clock, no network and no file here.

`check` holds every result of TNSM24 against a campaign. `tnsm24` is the table of checks, `checks` their kinds,
`tolerances` how close is close enough, `observed` the campaign as the checks see it.
"""

from crosslayer.claims.checks import Verdict
from crosslayer.claims.table import CLASSES, COLUMNS, check, counts, interval, ours, to_html, to_markdown

__all__ = ["CLASSES", "COLUMNS", "Verdict", "check", "counts", "interval", "ours", "to_html", "to_markdown"]
