"""The tolerances of the verdicts and the versions of the rules.

Every tolerance was chosen before any committed campaign was measured. The replication uses another machine, a browser
that is five years newer, another DNS client and another link emulator than the papers. The number of round-trips and
the serialisation delay do not depend on these; processing times do. Each tolerance follows from the purpose of the
published number:

- Durations in multiples of the RTT: 10 %, at least 0.15 RTT. Such a number is a count of round-trips plus processing.
  The tolerance is always below half a round-trip, so one round-trip too many or too few is outside.
- Relative PLT increases: one third of the published value. With such an error, a comparison of 30 % with 10 % still
  leads to the right decision. At least 1 percentage point: nobody notices less, and 30 rounds cannot resolve less. At
  most 5 points, the width of a colour step in Fig. 8 of TNSM24.
- PLTs in ms: 10 %. The PLT of one page differs by this much between two machines with different browsers. A PLT has
  no sign to confirm, so a value outside the tolerance is "not reproduced".
- Differences of PLTs in ms: 10 %, at least 0.15 RTT of the link.
- Shares of a distribution: 10 percentage points, at most half of the published share. Counts: exact.
- Bytes on the wire: 5 %. One additional field in a message usually changes the size by less. If a field, padding or
  an acknowledgement changes the size by more, the note of the claim lists the messages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RULES = {
    5: """2026-11-25. The 95 % interval decides. Reproduced: the interval lies within the tolerance. Not reproduced: it
    lies outside. Inconclusive: it contains a limit of the tolerance, or there are too few rounds for an interval.
    Direction only: the interval lies outside, but has the published sign or number of round-trips, and lies between
    half and twice the published value (for a shape, the value does). An ordering is judged jointly over its
    comparisons. A value or difference below the resolution of the clock has no verdict, and a
    distribution narrower than it has no shape. Follows: the configuration
    alone, or another claim, determines the result; such claims are counted separately. Minimum and maximum have the
    interval of Robson and Whitlock (1964). Counts of steps, modes and failures, and shares between steps, have no
    interval; their point estimate decides.""",
}
"""Text of each version of the rules, with the date from which it applies."""
VERSION = max(RULES)
"""Current version of the rules."""

FACTOR = 2.0
"""Largest ratio between our value and the published one, in either order, for the verdict "direction only".

For a number, the whole interval must meet this limit; for a share of a distribution, our value must.
"""

MOST_ROUNDS = 1_000_000
"""Maximum of `rounds_needed`.

If a decision needs more rounds than this, the measured value practically lies on the border between two verdicts.
"""

EXCHANGE_RESOLUTION_MS = 0.01
"""Resolution of the duration of a DNS exchange: the two decimals that the papers print."""

LOAD_RESOLUTION_MS = 0.1
"""Resolution of the times of a page load: the step of Chromium's clock."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed distance of a number from its published value, in the unit of the number."""

    at_least: float
    """Lower limit of the allowed distance."""
    share: float = 0.0
    """Allowed distance as a share of the published value."""
    at_most: float = math.inf
    """Upper limit of the allowed distance."""
    at_most_share: float = math.inf
    """Upper limit as a share of the published value. With a limit below 1, a measured 0 never reproduces this value."""

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
"""Tolerance of the part of a duration beyond whole round-trips, RTT. Published values have two decimals."""
BYTES = Tolerance(at_least=0.0, share=0.05)


def difference_ms(rtt_ms: float) -> Tolerance:
    """Tolerance of a difference of PLTs on a link with this RTT, ms."""
    return Tolerance(at_least=IN_RTTS.at_least * rtt_ms, share=IN_RTTS.share)


# Criteria for shapes of distributions and for orderings with exceptions.

STEP_SHARE = 0.8
"""A step of the CDF over all links belongs to a link if it has at least this share of the link's observations."""

STEP_RISE_RTT = 0.05
"""Minimum distance between the middles of two steps, RTT: visible on an axis from 0 to 4 RTT."""

TAIL_RATIO = 1.5
"""Minimum ratio of P20 - P5 to P50 - P20 of a distribution with a left tail (normal distribution: 0.95)."""

MODE_HEIGHT = 0.2
"""Minimum height of a mode, relative to the highest mode."""

MODE_VALLEY = 0.8
"""Maximum density between two separate modes, relative to the lower of both modes."""

MODE_WIDTH_MS = 0.1
"""Minimum width of the kernel of a density, ms: the step of Chromium's clock."""

MATCHES_PERCENT = 0.5
"""Maximum increase of the median PLT, %, at which coalescing "matches" the baseline in a cell."""

MUCH_LESS_THAN_ONE_RTT = 0.5
"""Upper limit of "much less than one RTT", RTT."""

ROUND_TRIP_SLACK = 0.02
"""Calibration error of a link's idle RTT, in RTT.

A duration of at least n minus this value counts as "at least n round-trips".
"""
