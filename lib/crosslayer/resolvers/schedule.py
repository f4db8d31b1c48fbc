"""When the rounds of a comparison are due."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from crosslayer.resolvers.errors import ResolversError

_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_LOOK_S = 600.0
"""The clock is looked at so often, since it may be set while a round is waited for."""


def seconds(text: str, where: str) -> float:
    """A time such as `90s`, `15m`, `2h` or `7d`; `ResolversError` if it is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise ResolversError(f"is no time: {text!r}", where=where, next_step="Write 90s, 15m, 2h or 7d.")
    return float(match[1]) * _UNITS[match[2]]


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """The times of rounds."""

    first_s: float
    """When the first round is due, seconds since the Unix epoch."""
    every_s: float
    """Time between rounds; 0: each is due at once."""

    def due_s(self, round_: int) -> float:
        """When a round is due."""
        return self.first_s + round_ * self.every_s

    def over_s(self, round_: int) -> float:
        """From when on a round is missed: the next one is due."""
        return self.due_s(round_ + 1) if self.every_s else math.inf

    def wait(self, round_: int, sleep: Callable[[float], object] = time.sleep) -> bool:
        """Wait until a round is due; returns whether it still is."""
        while self.every_s and (left_s := self.due_s(round_) - time.time()) > 0:
            sleep(min(left_s, _LOOK_S))
        return time.time() < self.over_s(round_)
