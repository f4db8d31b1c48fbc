"""Verification of a link's loss, jitter and queues: measurements and tolerances.

A deviation counts as an error of the link only if chance alone would cause it in at most about one of ten thousand
checks. So a short check has wide tolerances. All checks of a campaign together are more precise; `link_checks` has
their counts.
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
"""Minimum and maximum number of loss probes; one check cannot distinguish a loss below 0.5 % from none."""
JITTER_PROBES = 200
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the one-way delay quantiles that a check stores."""
MANAGED_MS = 10.0
"""Maximum delay that fq_codel or cake may add to small packets while another flow overloads the queue, ms.

The jitter, and the time to transmit `_FRAMES_LEAVING` frames, are allowed in addition.
"""
_SIGMAS = 4.0
_SKEW = 3
"""Additional tolerance of a number of lost packets, because the distribution of small counts is skewed."""
_KOLMOGOROV = 2.2
"""Limit of the product of the Kolmogorov-Smirnov distance and the square root of the sample size.

About one sample in ten thousand exceeds the limit by chance.
"""
_FEW_BURSTS = 5
_FRAMES_LEAVING = 3
_QUEUE_TOLERANCE = 0.1
_TABLE = 4096


@dataclass(frozen=True, slots=True)
class Crossing:
    """Delays and losses of a series of small packets that the far end echoed, by packet number."""

    sent: int
    up_ms: Mapping[int, float]
    """One-way delay of each packet that arrived at the far end, ms, in order of arrival."""
    down_ms: Mapping[int, float]
    """One-way delay of each echo that came back, ms."""

    @property
    def bursts_up(self) -> list[int]:
        """Length of each run of consecutive packets lost on the way up, packets."""
        return _runs(range(self.sent), self.up_ms)

    @property
    def bursts_down(self) -> list[int]:
        """Length of each run of consecutive lost echoes, packets. Packets lost on the way up have no echo."""
        return _runs(self.up_ms, self.down_ms)


def _runs(sent: Iterable[int], arrived: Collection[int]) -> list[int]:
    """Length of each run of successive entries of `sent` that are all missing in `arrived`."""
    runs: list[int] = []
    previous_lost = False
    for number in sent:
        lost = number not in arrived
        if lost and previous_lost:
            runs[-1] += 1
        elif lost:
            runs.append(1)
        previous_lost = lost
    return runs


class Probing(Protocol):
    """The part of `Prober` that this module uses."""

    def crossing(self, expected_ms: float, probes: int, interval_s: float) -> Crossing:
        """Send small packets to the server's end, which echoes them; returns the one-way delays of both directions."""

    def queueing_ms(self, direction: str, queue: Queue) -> float | None:
        """Delay that a queue adds to small packets while another flow overloads the queue, ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Measured effects of a link.

    A value is None if the profile lacks the effect that it describes, or if the check did not measure this effect.
    """

    loss_probes: int | None = None
    """Number of small packets sent up; the far end echoed those that arrived."""
    nominal_loss_percent: float | None = None
    lost_down: int | None = None
    lost_up: int | None = None
    bursts_down: int | None = None
    """Number of runs of consecutive lost packets."""
    bursts_up: int | None = None
    delay_quantiles_down_ms: tuple[float, ...] | None = None
    """One-way delay quantiles at `LEVELS`, ms."""
    delay_quantiles_up_ms: tuple[float, ...] | None = None
    queueing_down_ms: float | None = None
    """Delay that the queue adds to small packets while another flow's load exceeds the queue's rate, ms."""
    queueing_up_ms: float | None = None
    trace_offset_ms: float | None = None
    """Position in the trace from which the link replays it, ms."""
    trace_late_down_ms: float | None = None
    """99th percentile of the packets' lateness: departure minus the departure that the trace gives; ms."""
    trace_late_up_ms: float | None = None
    cross_mbit: float | None = None
    """Payload rate of the cross-traffic during the round, Mbit/s."""
    nominal_faults: str | None = None
    """Faults that the profile gives to the path, separated by `; `."""
    fault_probes: int | None = None
    """Number of packets sent that the faults must block."""
    fault_probes_passed: int | None = None
    """Number of these packets that crossed the link."""


def spacing_s(profile: Profile, least_s: float) -> float:
    """Shortest interval, at least `least_s`, at which no small packet waits for the previous one, seconds."""
    if not profile.jitter_ms or profile.jitter_reorders:
        return least_s
    return max(least_s, (profile.quantile_ms(1) - profile.quantile_ms(0)) / 1e3)


def measure_effects(
    prober: Probing, profile: Profile, delays_ms: tuple[float, float], interval_s: float
) -> tuple[Effects, list[str]]:
    """Measure the loss, jitter and queues that the profile has; returns them, and messages about deviations.

    Parameters
    ----------
    delays_ms
        Configured delays, towards client and server.
    interval_s
        Time between small packets.
    """
    measured: dict[str, object] = {}
    faults: list[str] = []
    if profile.loss_percent:
        crossing = prober.crossing(profile.rtt_ms, loss_probes(profile), interval_s)
        runs = {"up": crossing.bursts_up, "down": crossing.bursts_down}
        measured |= {"loss_probes": crossing.sent, "nominal_loss_percent": profile.loss_percent}
        for direction, sent in (("up", crossing.sent), ("down", len(crossing.up_ms))):
            measured |= {f"lost_{direction}": sum(runs[direction]), f"bursts_{direction}": len(runs[direction])}
            faults += loss_faults(profile, sent, runs[direction], f"{direction}link")
    if profile.jitter_ms:
        crossing = prober.crossing(profile.rtt_ms, JITTER_PROBES, spacing_s(profile, interval_s))
        one_way = {"down": (crossing.down_ms, delays_ms[0]), "up": (crossing.up_ms, delays_ms[1])}
        for direction, (measured_ms, delay_ms) in one_way.items():
            delays = sorted(measured_ms.values())
            if len(delays) < 2:
                faults.append(f"{direction}link: no packets to see jitter by")
                continue
            measured[f"delay_quantiles_{direction}_ms"] = quantiles(delays)
            faults += jitter_faults(profile, delay_ms, delays, f"{direction}link")
    for direction, queue in zip(("down", "up"), profile.queues(), strict=True):
        if queue is not None:
            measured[f"queueing_{direction}_ms"] = added = prober.queueing_ms(direction, queue)
            faults += queue_faults(profile, queue, added, f"{direction}link")
    return Effects(**measured), faults  # type: ignore[arg-type]


def quantiles(delays: Sequence[float]) -> tuple[float, ...]:
    """Quantiles of delays at `LEVELS`."""
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    return tuple(cuts[round(level * 100) - 1] for level in LEVELS)


def loss_probes(profile: Profile) -> int:
    """Number of probes with which a check notices that the link loses nothing although its profile has loss.

    It is limited to the range `LOSS_PROBES`.
    """
    share = profile.loss_percent / 100
    enough = (1.1 * _SIGMAS * loss_deviation(profile, 1) / share) ** 2
    return max(LOSS_PROBES[0], min(LOSS_PROBES[1], math.ceil(enough)))


def loss_deviation(profile: Profile, packets: int) -> float:
    """Standard deviation of the number of lost packets among `packets`, taking bursts into account."""
    share = profile.loss_percent / 100
    variance = share * (1 - share)
    if profile.loss_burst_packets is not None:
        in_burst = profile.loss_in_burst_percent / 100
        bad = share / in_burst
        stay = 1 - 1 / profile.loss_burst_packets - bad / ((1 - bad) * profile.loss_burst_packets)
        variance += 2 * in_burst**2 * bad * (1 - bad) * stay / (1 - stay)
    return math.sqrt(max(0.0, variance) * packets)


def loss_faults(profile: Profile, packets: int, bursts: Sequence[int], where: str) -> Iterator[str]:
    """Yield a message for each significant deviation of the loss, or of its mean burst length, from the profile."""
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
    """Yield a message if the distribution of one-way delays deviates significantly from the profile's.

    The Kolmogorov-Smirnov distance of the distributions decides. `delays` are in ascending order, ms.
    """
    table = [max(0.0, delay_ms + profile.quantile_ms((index + 0.5) / _TABLE)) for index in range(_TABLE)]
    size = len(delays)
    # Bridges and the packet's serialisation add a constant: subtract the one with which both distributions agree best.
    cuts = statistics.quantiles(table, n=100, method="inclusive")
    paths_ms = [own - cuts[round(level * 100) - 1] for level, own in zip(LEVELS, quantiles(delays), strict=True)]
    farthest = min(_distance(table, [delay - path_ms for delay in delays]) for path_ms in paths_ms)
    if farthest > _KOLMOGOROV / math.sqrt(size):
        yield f"{where} jitter is not the profile's: its distribution is {farthest:.2f} away"


def _distance(table: Sequence[float], delays: Sequence[float]) -> float:
    """Kolmogorov-Smirnov distance between measured delays and those of a table; both are in ascending order."""
    size = len(delays)
    below = [bisect.bisect(table, delay) / len(table) for delay in delays]
    return max(max(share - rank / size, (rank + 1) / size - share) for rank, share in enumerate(below))


def queue_faults(profile: Profile, queue: Queue, added_ms: float | None, where: str) -> Iterator[str]:
    """Yield a message if the delay that a loaded queue adds deviates from the profile.

    A FIFO must add the delay of a full queue. fq_codel and cake may add at most `MANAGED_MS`. Both limits have
    tolerances.
    """
    if added_ms is None:
        yield f"{where} queue: every probe was lost"
        return
    leaving_ms = _FRAMES_LEAVING * FRAME_BYTES * 8e-3 / queue.rate_mbit + profile.jitter_ms
    if queue.longest_ms is None:
        if added_ms > MANAGED_MS + leaving_ms:
            yield f"{where} {queue.discipline} adds {added_ms:.1f} ms to other packets"
    elif abs(added_ms - queue.longest_ms) > _QUEUE_TOLERANCE * queue.longest_ms + 1 + leaving_ms:
        yield f"{where} queue adds {added_ms:.1f} ms when it is full, profile {queue.longest_ms:.1f} ms"
