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
- Shares of a distribution: 10 percentage points, and half of the published share at most. Counts: exact.
- Bytes on the wire: 5 %, less than a field more or less makes in any of the messages. Where another field, a padding or
  an acknowledgement makes more, the claim's note says message by message which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RULES = {
    5: """2026-11-25. The whole 95 % interval decides: reproduced within the tolerance, not reproduced wholly outside,
    inconclusive where it straddles or where there are too few rounds for one. Direction only: outside, beyond doubt of
    the published sign or number of round-trips, and within a factor of two of the published value. An ordering is
    judged jointly over its comparisons. A value or difference smaller than what the clock resolves has no verdict. What
    the configuration alone gives follows from it. The least and the greatest observation have the interval of Robson
    and Whitlock (1964); counts of steps, modes and failures, and shares between steps have none, and their point
    estimate decides. What follows from another claim is counted apart.""",
}
"""Versions of the rules: since when, and their text."""
VERSION = max(RULES)
"""Version of the rules."""

FACTOR = 2.0
"""A value of the published sign shows the published direction up to this many times, or this fraction of, it."""

MOST_ROUNDS = 1_000_000
"""No campaign has more: the value then lies on the border itself."""

EXCHANGE_RESOLUTION_MS = 0.01
"""The two decimals that the papers print of a DNS exchange; in virtual time processing takes less."""

LOAD_RESOLUTION_MS = 0.1
"""Steps of Chromium's clock."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a number may differ by, in its own unit."""

    at_least: float
    share: float = 0.0
    """Share of the published value."""
    at_most: float = math.inf
    at_most_share: float = math.inf
    """Maximum share of the published value, so that 0 never reproduces it."""

    def allowed(self, published: float) -> float:
        """Allowed distance from the published value."""
        allowed = min(self.at_most, max(self.at_least, self.share * abs(published)))
        return min(allowed, self.at_most_share * abs(published)) if published else allowed


IN_RTTS = Tolerance(at_least=0.15, share=0.1)
RELATIVE = Tolerance(at_least=1.0, share=1 / 3, at_most=5.0)
ABSOLUTE = Tolerance(at_least=0.0, share=0.1)
SHARE = Tolerance(at_least=10.0, at_most_share=0.5)
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
"""Distance of the middles of two steps that are visible on an axis of 0 to 4 RTT."""

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
