"""Statistics of observations: functions that take and return frames. They use no clock, network or named files.

- `rows`: valid rows of the tables
- `metrics.combinations`: PLTs from DNS exchanges and page loads
- `lookups`: DNS lookups as series by transport and kind
- `paced`: means and variances of the times of queries at a fixed rate
- `grouping`: groups of rows, from frames of any size
- `cells`: all observations of a campaign, read once
- `distributions`: CDF curves and quantiles
- `resampling`: the bootstrap of all intervals
- `intervals`: medians and differences with their intervals
- `lines`: straight lines through medians
- `links`: the emulated link
- `self_check`: loads that should be equal
- `hosts`: differences between machines
- `drift`: rounds that were measured again
- `campaigns`: interval for the value of a further campaign

Frames are lazy until their rounds are resampled, so a campaign may be larger than the memory.
"""

from crosslayer.metrics.campaigns import FurtherCampaign, further_campaign, standard_error
from crosslayer.metrics.cells import Cells, Numbers, Part
from crosslayer.metrics.combinations import (
    BASELINE,
    COMBINATIONS,
    SHOWN,
    combination,
    combine,
    exclusions,
    relative_increase,
)
from crosslayer.metrics.distributions import MAX_POINTS, curve, curves, summary
from crosslayer.metrics.drift import Drift, drift
from crosslayer.metrics.grouping import Frames, gathered
from crosslayer.metrics.hosts import AGREED_PERCENT, disagreeing, disagreement, spread
from crosslayer.metrics.intervals import (
    median,
    medians,
    paired,
    paired_costs,
    quantile_differences,
    relative_medians,
    relative_to,
    rounds_of,
)
from crosslayer.metrics.lines import line
from crosslayer.metrics.links import in_force, in_rtts, link_table, nominal_rtts
from crosslayer.metrics.lookups import lookup_series
from crosslayer.metrics.paced import estimate, moments, paced
from crosslayer.metrics.resampling import MIN_ROUNDS, Estimate, Rounds, Sample, derived, drawn
from crosslayer.metrics.rows import (
    CELL,
    CLUSTER,
    ROUND,
    exchanges,
    failures,
    page_loads,
    resolved_loads,
    tcp_rtts,
)
from crosslayer.metrics.self_check import (
    EQUAL_PERCENT,
    SELF_CHECKS,
    equivalence,
    loads_by_kind,
    pooled_pairs,
    repetition_differences,
    self_checked,
)

__all__ = [
    "AGREED_PERCENT",
    "BASELINE",
    "CELL",
    "CLUSTER",
    "COMBINATIONS",
    "EQUAL_PERCENT",
    "MAX_POINTS",
    "MIN_ROUNDS",
    "ROUND",
    "SELF_CHECKS",
    "SHOWN",
    "Cells",
    "Drift",
    "Estimate",
    "Frames",
    "FurtherCampaign",
    "Numbers",
    "Part",
    "Rounds",
    "Sample",
    "combination",
    "combine",
    "curve",
    "curves",
    "derived",
    "disagreeing",
    "disagreement",
    "drawn",
    "drift",
    "equivalence",
    "estimate",
    "exchanges",
    "exclusions",
    "failures",
    "further_campaign",
    "gathered",
    "in_force",
    "in_rtts",
    "line",
    "link_table",
    "loads_by_kind",
    "lookup_series",
    "median",
    "medians",
    "moments",
    "nominal_rtts",
    "paced",
    "page_loads",
    "paired",
    "paired_costs",
    "pooled_pairs",
    "quantile_differences",
    "relative_increase",
    "relative_medians",
    "relative_to",
    "repetition_differences",
    "resolved_loads",
    "rounds_of",
    "self_checked",
    "spread",
    "standard_error",
    "summary",
    "tcp_rtts",
]
