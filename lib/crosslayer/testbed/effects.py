"""Loss, jitter and queue of the link: what is seen of them before it is used, and how far from the profile it may be.

A deviation that chance alone gives once in some ten thousand checks is a fault; so a check is short, and those of a
campaign together say it exactly (`link_checks` has what was counted).
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from crosslayer.links import FRAME_BYTES, Profile, Queue

LOSS_PROBES = (500, 4000)
"""Fewest and most that look for loss; less than 0.5 % only the checks of a campaign together tell from none."""
JITTER_PROBES = 200
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the quantiles of a one-way delay that a check keeps."""
MANAGED_MS = 10.0
"""What a managed queue may add to the delay of others' packets, ms, beside the frames that are leaving."""
_SIGMAS = 4.0
_SKEW = 3
"""Packets beside: small counts are skewed, and farther above their mean than their deviation says."""
_KOLMOGOROV = 2.2
"""One sample in about ten thousand is farther from its distribution than this over the square root of its size."""
_FEW_BURSTS = 5
_FRAMES_LEAVING = 3
_QUEUE_TOLERANCE = 0.1
_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Crossing:
    """What became of a series of small packets that the far end echoed; by their number."""

    sent: int
    up_ms: Mapping[int, float]
    """One-way delay of each that arrived at the far end, in the order in which they did and their echoes left."""
    down_ms: Mapping[int, float]
    """One-way delay of each echo that came back."""

    @property
    def bursts_up(self) -> list[int]:
        """Length of each run of packets that were lost on the way up, packets."""
        return _runs(range(self.sent), self.up_ms)

    @property
    def bursts_down(self) -> list[int]:
        """Length of each run of echoes that were lost, packets; what never reached the far end is not among them."""
        return _runs(self.up_ms, self.down_ms)


def _runs(sent: Iterable[int], arrived: Collection[int]) -> list[int]:
    """Lengths of runs of what did not arrive, in the order it was sent."""
    runs: list[int] = []
    before = False
    for number in sent:
        lost = number not in arrived
        if lost and before:
            runs[-1] += 1
        elif lost:
            runs.append(1)
        before = lost
    return runs


class Probing(Protocol):
    """What a `Prober` does here."""

    def crossing(self, expected_ms: float, probes: int, interval_s: float) -> Crossing:
        """Send small packets to and fro."""

    def queueing_ms(self, direction: str, queue: Queue) -> float | None:
        """Delay that a queue under more load than its rate adds to other packets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What was seen of a link's effects; None where its profile has none of that kind, or it was not looked at."""

    loss_probes: int | None = None
    """Small packets sent up; those that arrived were echoed."""
    nominal_loss_percent: float | None = None
    lost_down: int | None = None
    lost_up: int | None = None
    bursts_down: int | None = None
    """Runs of lost packets."""
    bursts_up: int | None = None
    delay_quantiles_down_ms: tuple[float, ...] | None = None
    """One-way delay at `LEVELS`."""
    delay_quantiles_up_ms: tuple[float, ...] | None = None
    queueing_down_ms: float | None = None
    """What the queue adds to the delay of other packets while more is offered than its rate."""
    queueing_up_ms: float | None = None
    trace_offset_ms: float | None = None
    """Where in its trace the link begins."""
    trace_late_down_ms: float | None = None
    """How much later than by the trace 99 of 100 packets left at most, while it was played."""
    trace_late_up_ms: float | None = None
    cross_mbit: float | None = None
    """Payload that cross-traffic delivered while the round was measured, Mbit/s."""


def spacing_s(profile: Profile, least_s: float) -> float:
    """Time between small packets for which none has to wait for the one before it, seconds."""
    if not profile.jitter_ms or profile.jitter_reorders:
        return least_s
    return max(least_s, (profile.quantile_ms(1) - profile.quantile_ms(0)) / 1e3)


def look(
    prober: Probing, profile: Profile, delays_ms: tuple[float, float], interval_s: float
) -> tuple[Effects, list[str]]:
    """Measure every effect that the profile has; what was seen, and what was out of tolerance.

    Parameters
    ----------
    delays_ms
        Delays that are configured, towards client and server.
    interval_s
        Time between small packets.
    """
    seen: dict[str, object] = {}
    faults: list[str] = []
    if profile.loss_percent:
        crossed = prober.crossing(profile.rtt_ms, loss_probes(profile), interval_s)
        runs = {"up": crossed.bursts_up, "down": crossed.bursts_down}
        seen |= {"loss_probes": crossed.sent, "nominal_loss_percent": profile.loss_percent}
        for way, sent in (("up", crossed.sent), ("down", len(crossed.up_ms))):
            seen |= {f"lost_{way}": sum(runs[way]), f"bursts_{way}": len(runs[way])}
            faults += loss_faults(profile, sent, runs[way], f"{way}link")
    if profile.jitter_ms:
        crossed = prober.crossing(profile.rtt_ms, JITTER_PROBES, spacing_s(profile, interval_s))
        for way, found, delay_ms in (("down", crossed.down_ms, delays_ms[0]), ("up", crossed.up_ms, delays_ms[1])):
            delays = sorted(found.values())
            if len(delays) < 2:
                faults.append(f"{way}link: no packets to see jitter by")
                continue
            seen[f"delay_quantiles_{way}_ms"] = quantiles(delays)
            faults += jitter_faults(profile, delay_ms, delays, f"{way}link")
    for way, queue in zip(("down", "up"), profile.queues(), strict=True):
        if queue is not None:
            seen[f"queueing_{way}_ms"] = added = prober.queueing_ms(way, queue)
            faults += queue_faults(profile, queue, added, f"{way}link")
    return Effects(**seen), faults  # type: ignore[arg-type]


def quantiles(delays: Sequence[float]) -> tuple[float, ...]:
    """Delays at `LEVELS`."""
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return tuple(cuts[round(level * 100) - 1] for level in LEVELS)


def loss_probes(profile: Profile) -> int:
    """Packets after which a link that loses none is farther from the profile than chance takes it."""
    share = profile.loss_percent / 100
    enough = (1.1 * _SIGMAS * loss_deviation(profile, 1) / share) ** 2
    return max(LOSS_PROBES[0], min(LOSS_PROBES[1], math.ceil(enough)))


def loss_deviation(profile: Profile, packets: int) -> float:
    """Standard deviation of the number of packets lost, bursts counted in."""
    share = profile.loss_percent / 100
    variance = share * (1 - share)
    if profile.loss_burst_packets is not None:
        in_burst = profile.loss_in_burst_percent / 100
        bad = share / in_burst
        stay = 1 - 1 / profile.loss_burst_packets - bad / ((1 - bad) * profile.loss_burst_packets)
        variance += 2 * in_burst**2 * bad * (1 - bad) * stay / (1 - stay)
    return math.sqrt(max(0.0, variance) * packets)


def loss_faults(profile: Profile, packets: int, bursts: Sequence[int], where: str) -> Iterator[str]:
    """Loss and mean length of its bursts against the profile's."""
    expected, lost = packets * profile.loss_percent / 100, sum(bursts)
    chance = _SIGMAS * loss_deviation(profile, packets)
    if not -chance <= lost - expected <= chance + _SKEW:
        yield f"{where} lost {lost} of {packets} packets, profile {profile.loss_percent:g} %"
    if profile.loss_in_burst_percent < 100 or len(bursts) < _FEW_BURSTS:
        return
    length = profile.loss_burst_packets or 1 / (1 - profile.loss_percent / 100)
    deviation = math.sqrt(length * (length - 1) * len(bursts))
    if abs(lost - length * len(bursts)) > _SIGMAS * deviation + _SKEW:
        yield f"{where} loses {lost / len(bursts):.2f} packets in a row, profile {length:.2f}"


def jitter_faults(profile: Profile, delay_ms: float, delays: Sequence[float], where: str) -> Iterator[str]:
    """The distribution of one-way delays, in ascending order, against the profile's (Kolmogorov and Smirnov)."""
    table = [max(0.0, delay_ms + profile.quantile_ms((place + 0.5) / _TABLE)) for place in range(_TABLE)]
    size = len(delays)
    # Bridges and the packet's own time come on top, as much as lets the two agree best.
    cuts = statistics.quantiles(table, n=100, method="inclusive")
    paths_ms = [found - cuts[round(level * 100) - 1] for level, found in zip(LEVELS, quantiles(delays), strict=True)]
    farthest = min(_distance(table, [delay - path_ms for delay in delays]) for path_ms in paths_ms)
    if farthest > _KOLMOGOROV / math.sqrt(size):
        yield f"{where} jitter is not the profile's: its distribution is {farthest:.2f} away"


def _distance(table: Sequence[float], delays: Sequence[float]) -> float:
    """Greatest distance between the distribution of delays and that of a table, both in ascending order."""
    size = len(delays)
    below = [bisect.bisect(table, delay) / len(table) for delay in delays]
    return max(max(share - rank / size, (rank + 1) / size - share) for rank, share in enumerate(below))


def queue_faults(profile: Profile, queue: Queue, added_ms: float | None, where: str) -> Iterator[str]:
    """Delay that a loaded queue adds, against a full FIFO's or what a managed one may."""
    if added_ms is None:
        yield f"{where} queue: every probe was lost"
        return
    leaving_ms = _FRAMES_LEAVING * FRAME_BYTES * 8e-3 / queue.rate_mbit + profile.jitter_ms
    if queue.longest_ms is None:
        if added_ms > MANAGED_MS + leaving_ms:
            yield f"{where} {queue.discipline} adds {added_ms:.1f} ms to other packets"
    elif abs(added_ms - queue.longest_ms) > _QUEUE_TOLERANCE * queue.longest_ms + 1 + leaving_ms:
        yield f"{where} queue adds {added_ms:.1f} ms when it is full, profile {queue.longest_ms:.1f} ms"
