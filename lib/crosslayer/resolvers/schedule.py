"""Due times of the rounds of a comparison."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from crosslayer.resolvers.errors import ResolversError

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_LOOK_S = 600.0
"""During a wait, the clock is read again after at most this time, s, because it may be set meanwhile."""


def seconds(text: str, where: str) -> float:
    """Parse a duration such as `90s`, `15m`, `2h` or `7d` to seconds; `ResolversError` for other texts."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise ResolversError(f"is no time: {text!r}", where=where, next_step="Write 90s, 15m, 2h or 7d.")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """Due times of rounds."""

    first_s: float
    """Due time of the first round, seconds since the Unix epoch."""
    every_s: float
    """Time from one round to the next; with 0, all rounds are due at once and none is missed."""

    def due_s(self, round_: int) -> float:
        """Due time of a round, seconds since the Unix epoch."""
        return self.first_s + round_ * self.every_s

    def over_s(self, round_: int) -> float:
        """Time from which a round counts as missed: the due time of the next round, or infinity without a schedule."""
        return self.due_s(round_ + 1) if self.every_s else math.inf

    def wait(self, round_: int, sleep: Callable[[float], object] = time.sleep) -> bool:
        """Wait until a round is due; returns False if it is missed."""
        while self.every_s and (left_s := self.due_s(round_) - time.time()) > 0:
            sleep(min(left_s, _LOOK_S))
        return time.time() < self.over_s(round_)
