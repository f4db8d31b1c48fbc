"""How claims are judged: every tolerance, written down before any reference campaign was looked at, and its versions.

The re-run has another machine, another browser (five years younger), another DNS client and another emulator than
the papers. What is physics (round-trips, serialisation) must come out the same; what is processing time will not.
So a tolerance is derived from what a reader does with the number, not from what a campaign happened to give.

- Durations in multiples of the RTT say how many round-trips something takes, and a bit of processing on top. 10 %, and
  0.15 RTT at the least: always less than half a round-trip, so that no round-trip too many or too few can hide in it.
- Relative PLT increases say how much a choice costs. A third of the published value: a reader who weighs 30 % against
  10 % is still right. Not less than 1 percentage point, which nobody notices and 30 rounds cannot resolve; not more
  than 5, the width of a step of Fig. 8's colours.
- PLTs in ms belong to a machine and a browser; 10 % is what the same page may differ by between two of them. There is
  no direction in such a number, so outside the tolerance it is simply not reproduced.
- Differences of PLTs in ms are round-trips again: 10 %, and 0.15 RTT of the link at the least.
- Shares of a distribution: 10 percentage points. Counts: exact.
- Bytes on the wire: 5 %, less than a field more or less makes in any of the messages. Where another field, a padding or
  an acknowledgement makes more, the claim's note says message by message which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RULES = {
    1: """2026-11-21. The point estimate decides: reproduced within the tolerance, orderings where each interval
    excludes 0; direction only where the point has the published sign or number of round-trips, or is
    close to a bound.""",
    2: """2026-11-22. The whole 95 % interval decides: reproduced within the tolerance, not reproduced wholly outside,
    inconclusive where it straddles or where fewer than six rounds give none. An ordering is inconclusive where its
    interval reaches across 0, and refuted only beyond doubt. Direction only: outside, and beyond doubt of the published
    sign or number of round-trips; bounds and orderings have none. The least and the greatest observation have the
    interval of Robson and Whitlock (1964); counts of steps, modes and failures, and shares between steps have none and
    are taken at their word. "Up to" is a bound. What follows from another result is counted apart. The tolerances are
    those of version 1.""",
    3: """2026-11-22. As version 2, by intervals that hold 93 to 97 % in simulated campaigns (docs/statistics.md):
    wider where rounds are few, of means and variances studentised, and none where a statistic takes more
    rounds than there are, which is inconclusive.""",
    4: """2026-11-24. As version 3, but modes are of densities that tell nothing apart that a browser's clock does not,
    whose steps are 0.1 ms: before, 30.2 and 30.3 ms could be two modes.""",
}
"""Versions of the rules: since when, and what they say. The commit is git's to tell: `git log -S` with a sentence."""
VERSION = max(RULES)
"""By which verdicts are given; what version 1 said is kept beside."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a number may differ by, in its own unit."""

    at_least: float
    share: float = 0.0
    """Of the published value."""
    at_most: float = math.inf

    def allowed(self, published: float) -> float:
        """Allowed distance from the published value."""
        return min(self.at_most, max(self.at_least, self.share * abs(published)))


IN_RTTS = Tolerance(at_least=0.15, share=0.1)
RELATIVE = Tolerance(at_least=1.0, share=1 / 3, at_most=5.0)
ABSOLUTE = Tolerance(at_least=0.0, share=0.1)
SHARE = Tolerance(at_least=10.0)
FRACTION = Tolerance(at_least=0.05)
EXACT = Tolerance(at_least=0.0)
OVERHEAD = Tolerance(at_least=0.01, share=0.25)
"""What a duration takes beyond whole round-trips, RTT; published values have two decimals."""
BYTES = Tolerance(at_least=0.0, share=0.05)


def difference_ms(rtt_ms: float) -> Tolerance:
    """For a difference of PLTs on a link with this RTT."""
    return Tolerance(at_least=IN_RTTS.at_least * rtt_ms, share=IN_RTTS.share)


# Criteria for shapes and for orderings that hold "mostly".

STEP_SHARE = 0.8
"""A step of a CDF belongs to a link where this share of the link's observations lies in the step's percentiles."""

STEP_RISE_RTT = 0.05
"""Two steps are told apart where their middles are this far apart: what one sees on an axis of 0 to 4 RTT."""

TAIL_RATIO = 1.5
"""A left tail: P5 to P20 is this many times as long as P20 to P50 (0.95 times in a normal distribution)."""

MODE_HEIGHT = 0.2
"""A mode counts where it is at least this high, relative to the highest."""

MODE_VALLEY = 0.8
"""Two modes count where the density between them falls below this share of the lower one."""

MODE_WIDTH_MS = 0.1
"""No kernel of a density is narrower: Chromium's times have steps of this size."""

MATCHES_PERCENT = 0.5
"""Coalescing matches the baseline in a cell where its median PLT is at most this much above the baseline's."""

MUCH_LESS_THAN_ONE_RTT = 0.5
"""What "much less than one RTT" is taken to mean."""

ROUND_TRIP_SLACK = 0.02
"""An idle RTT may be calibrated this much too short, so that "at least one round-trip" still holds."""
