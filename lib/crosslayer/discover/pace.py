"""The rate limit: how many packets may leave in a second, over all that is going on at once."""

from __future__ import annotations

import math
import threading
import time

from crosslayer.discover.errors import DiscoverError


class Pace:
    """Leave to send, given so that on average no more packets leave than the rate allows.

    What is sent at once is paid for beforehand; time in which nothing was sent is not made up for. A rate that is no
    positive number of packets per second is a `DiscoverError`.
    """

    def __init__(self, packets_per_s: float) -> None:
        if not (packets_per_s > 0 and math.isfinite(packets_per_s)):
            raise DiscoverError(
                f"{packets_per_s:g} packets per second is no rate", where="--rate", next_step="Give a number above 0."
            )
        self._packet_s = 1 / packets_per_s
        self._free_s = -math.inf
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def reserve(self, packets: int, now_s: float) -> float:
        """Time from `now_s` until so many packets may leave, seconds; they count as sent from then on."""
        with self._lock:
            start_s = max(now_s, self._free_s)
            self._free_s = start_s + packets * self._packet_s
        return start_s - now_s

    def wait(self, packets: int) -> None:
        """Sleep until so many packets may leave; `DiscoverError` once `stop` was called: nothing more may leave."""
        if self._stopped.wait(self.reserve(packets, time.monotonic())):
            raise DiscoverError("stopped")

    def stop(self) -> None:
        """Give no more leave."""
        self._stopped.set()
