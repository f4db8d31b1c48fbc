"""The rate limit: packets per second over all connections together."""

from __future__ import annotations

import math
import threading
import time

from crosslayer.discover.errors import DiscoverError


class Pace:
    """A rate limiter: on average no more packets are sent than the rate allows.

    Packets are reserved before they are sent. Idle time does not allow a burst later. `DiscoverError` if the rate is
    not a positive number.
    """

    def __init__(self, packets_per_s: float) -> None:
        if not (packets_per_s > 0 and math.isfinite(packets_per_s)):
            raise DiscoverError(
                f"{packets_per_s:g} packets per second is not a rate",
                where="--rate",
                next_step="Give a number above 0.",
            )
        self._packet_s = 1 / packets_per_s
        self._free_s = -math.inf
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def reserve(self, packets: int, now_s: float) -> float:
        """Reserve packets; returns the time that must pass after `now_s` before they may be sent, s."""
        with self._lock:
            start_s = max(now_s, self._free_s)
            self._free_s = start_s + packets * self._packet_s
        return start_s - now_s

    def wait(self, packets: int) -> None:
        """Reserve packets and sleep until they may be sent; `DiscoverError` after `stop`."""
        if self._stopped.wait(self.reserve(packets, time.monotonic())):
            raise DiscoverError("stopped")

    def stop(self) -> None:
        """Forbid all further packets."""
        self._stopped.set()
