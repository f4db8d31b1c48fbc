"""From observations to numbers: frames in, frames out. No clock, no network and no file here.

`observations` says which rows count, `combinations` joins DNS exchanges and page loads to PLTs, `distributions`
has CDF curves and quantiles, `intervals` medians with their uncertainty, `links` the emulated link itself.
Everything that need not be resampled is lazy, so that a campaign of any size streams.
"""

from crosslayer.metrics.combinations import (
    BASELINE,
    COMBINATIONS,
    combination,
    combine,
    exclusions,
    relative_increase,
)
from crosslayer.metrics.distributions import curves, summary
from crosslayer.metrics.intervals import MIN_ROUNDS, medians, paired, relative_medians
from crosslayer.metrics.links import in_rtts, link_table, nominal_rtts
from crosslayer.metrics.observations import CELL, ROUND, exchanges, failures, page_loads, tcp_rtts

__all__ = [
    "BASELINE",
    "CELL",
    "COMBINATIONS",
    "MIN_ROUNDS",
    "ROUND",
    "combination",
    "combine",
    "curves",
    "exchanges",
    "exclusions",
    "failures",
    "in_rtts",
    "link_table",
    "medians",
    "nominal_rtts",
    "page_loads",
    "paired",
    "relative_increase",
    "relative_medians",
    "summary",
    "tcp_rtts",
]
