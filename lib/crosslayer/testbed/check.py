"""Verification of the link: idle RTT and rates measured across it, and the calibration of its delay.

The modules `effects` and `trace_check` verify loss, jitter, queues and traces.
"""

from __future__ import annotations

import math
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace

from crosslayer.links import FRAME_BYTES, Profile, Queue
from crosslayer.testbed import effects, namespaces, network, trace_check
from crosslayer.testbed.effects import Crossing, Effects
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.trace_check import Playing
from crosslayer.timestamps import arrival_ns, receive, stamp_arrivals

PROBES = 50
PROBE_INTERVAL_S = 0.002
_PROBE = struct.Struct("!IQ")
_WAIT_S = 1.0
RTT_TOLERANCE = 0.01
RTT_TOLERANCE_MS = 0.15
RATE_TOLERANCE = 0.03
_TRAIN_S = 0.12
_TRAIN_PACE = 1.5
_TRAIN_FRAMES = (32, 1500)
_PROBE_BYTES = 64
_HEADERS = FRAME_BYTES - 1500 + 28  # Ethernet, IP and UDP
_CALIBRATION_STEPS = 4
_CALIBRATION_ATTEMPTS = 6
_LOST_MOST = 0.005
_PATH_MS = 5.0  # a path itself adds 0.2 to 0.6 ms; in a guest in real time ten times that
_FEW = 10
_OVERLOAD = 2.0
_MANAGED_S = 0.3
_FILLED = 1.3
_LOADED_SHARE = 0.2
_PROBE_S = 0.005
_IDLE_PROBES = 5


@dataclass(frozen=True, slots=True)
class LinkCheck(Effects):
    """Result of one check of the link: a row of `link_checks` without the campaign's own columns."""

    link: str
    when_s: float
    """Start of the check, seconds since the Unix epoch."""
    backend: str
    rtt_samples_ms: tuple[float, ...]
    probes: int
    rtt_ms: float | None
    """Median idle RTT, ms; None if no probe came back."""
    nominal_rtt_ms: float
    down_mbit: float | None
    up_mbit: float | None
    nominal_down_mbit: float | None
    nominal_up_mbit: float | None
    configured_down_delay_ms: float
    configured_up_delay_ms: float
    verdict: str
    """`pass`, or the deviations that exceed their tolerances, separated by `; `."""

    @property
    def passed(self) -> bool:
        """Whether the link matches its profile."""
        return self.verdict == "pass"


class Prober:
    """Sends probes across the link, by UDP sockets at both ends.

    A thread echoes packets at the server's end. The sockets stay open for all checks.
    """

    def __init__(self) -> None:
        with namespaces.namespace(network.CLIENT):
            self._near = _socket()
            self._near.bind((network.CLIENT_ADDRESS, 0))
        with namespaces.namespace(network.SERVER):
            self._far = _socket()
            self._far.bind((network.SERVER_ADDRESS, 0))
            self._echo = _socket()
            self._echo.bind((network.SERVER_ADDRESS, 0))
        self._reflected: dict[tuple[int, int], tuple[int, int]] = {}  # series and number: arrival and departure, ns
        self._reflector = threading.Thread(target=self._reflect, daemon=True, name="udp-echo")
        self._reflector.start()

    def _reflect(self) -> None:
        while True:
            data, ancillary, _flags, sender = self._echo.recvmsg(64, 64)
            if not data:
                return
            if len(data) == _PROBE.size:
                number, series = _PROBE.unpack(data)
                self._reflected[series, number] = arrival_ns(ancillary), time.time_ns()
            self._echo.sendto(data, sender)

    def close(self) -> None:
        """Stop the echo thread with an empty datagram and close the sockets."""
        self._far.sendto(b"", self._echo.getsockname())
        self._reflector.join()
        for end in (self._near, self._far, self._echo):
            end.close()

    def rtt_samples_ms(
        self, expected_ms: float, probes: int = PROBES, interval_s: float = PROBE_INTERVAL_S
    ) -> list[float]:
        """Idle round-trip times of the probes that came back, ms.

        Arrivals are kernel receive timestamps, which exclude this process's scheduling delay.
        """
        sent, back = self._echoes(expected_ms, probes, interval_s)
        return [(back[number] - sent[number]) / 1e6 for number in sorted(back)]

    def crossing(self, expected_ms: float, probes: int, interval_s: float) -> Crossing:
        """Send small packets to the server's end, which echoes them; returns the one-way delays of both directions."""
        sent, back = self._echoes(expected_ms, probes, interval_s)
        echoed = {number: times for (series, number), times in self._reflected.items() if series == sent[0]}
        return Crossing(
            probes,
            {number: (arrived - sent[number]) / 1e6 for number, (arrived, _departed) in echoed.items()},
            {
                number: (back[number] - departed) / 1e6
                for number, (_arrived, departed) in echoed.items()
                if number in back
            },
        )

    def _echoes(self, expected_ms: float, probes: int, interval_s: float) -> tuple[list[int], dict[int, int]]:
        """Send probes; returns the departure time of each probe, and the arrival time of each echo by number; ns."""
        _drain(self._near)
        self._reflected.clear()
        far = self._echo.getsockname()
        sent: list[int] = []
        arrived: dict[int, int] = {}

        def take(wait_s: float) -> None:
            self._near.settimeout(wait_s)
            data, when = receive(self._near)
            if len(data) == _PROBE.size:
                number, series = _PROBE.unpack(data)
                if series == sent[0]:
                    arrived[number] = when

        begin = time.perf_counter()
        for number in range(probes):
            while (wait_s := begin + number * interval_s - time.perf_counter()) > 0:
                time.sleep(wait_s)
            sent.append(time.time_ns())
            self._near.settimeout(None)
            self._near.sendto(_PROBE.pack(number, sent[0]), far)
            with suppress(BlockingIOError):  # a long series exceeds the socket's buffer
                while True:
                    take(0)
        deadline = time.monotonic() + expected_ms / 1e3 + _WAIT_S
        while len(arrived) < probes and (wait_s := deadline - time.monotonic()) > 0:
            try:
                take(wait_s)
            except TimeoutError:
                break
        return sent, arrived

    def paced(self, direction: str, at_ns: Sequence[int], frame_bytes: int) -> tuple[list[int], dict[int, int]]:
        """Send frames of a given size at given times, ns since the Unix epoch, in direction `down` or `up`.

        Returns the departure time of each frame, and the arrival times by frame number, ns since the Unix epoch.
        """
        sender, receiver = (self._far, self._near) if direction == "down" else (self._near, self._far)
        _drain(receiver)
        target, payload = receiver.getsockname(), bytes(frame_bytes - _HEADERS - 4)
        arrived: dict[int, int] = {}

        def collect() -> None:
            deadline = at_ns[-1] + _WAIT_S * 1e9
            while len(arrived) < len(at_ns) and (wait := deadline - time.time_ns()) > 0:
                receiver.settimeout(wait / 1e9)
                with suppress(TimeoutError):
                    data, when = receive(receiver)
                    if len(data) == len(payload) + 4:
                        arrived[int.from_bytes(data[:4], "big")] = when

        collector = threading.Thread(target=collect, daemon=True, name="paced-sink")
        collector.start()
        sent = []
        for number, due_ns in enumerate(at_ns):
            if (wait := due_ns - time.time_ns()) > 0:
                time.sleep(wait / 1e9)
            sent.append(time.time_ns())
            sender.sendto(number.to_bytes(4, "big") + payload, target)
        collector.join()
        return sent, arrived

    def queueing_ms(self, direction: str, queue: Queue) -> float | None:
        """Delay, ms, that a queue adds to small packets while frames of another flow arrive at twice the queue's rate.

        The load lasts `_MANAGED_S`; for a FIFO it lasts longer, so that the queue becomes full. The value is the median
        delay in the last fifth of the load, minus the median delay before the load. It is None if all small packets of
        one of the two periods were lost.
        """
        sender, receiver = (self._far, self._near) if direction == "down" else (self._near, self._far)
        _drain(receiver)
        target = receiver.getsockname()
        load_s = _MANAGED_S
        if queue.longest_ms is not None:
            load_s += queue.longest_ms / 1e3 / (_OVERLOAD - 1) * _FILLED
        pace_s = FRAME_BYTES * 8 / (queue.rate_mbit * 1e6 * _OVERLOAD)
        payload = bytes(FRAME_BYTES - _HEADERS)
        series = time.time_ns()
        sent: list[int] = []

        def probe() -> None:
            sent.append(time.time_ns())
            sender.sendto(_PROBE.pack(len(sent) - 1, series), target)

        with _loading(direction) as (load, sink):
            for _number in range(_IDLE_PROBES):
                probe()
                time.sleep(_PROBE_S)
            begin, number = time.perf_counter(), 0
            while (now := time.perf_counter() - begin) < load_s:
                if now >= (len(sent) - _IDLE_PROBES) * _PROBE_S:
                    probe()
                if (wait_s := number * pace_s - now) > 0:
                    time.sleep(wait_s)
                load.sendto(payload, sink)
                number += 1
            delays = {
                number: (when - sent[number]) / 1e6 for number, when in _arrivals(receiver, series, queue.longest_ms)
            }
        loaded = [delays[i] for i in range(int(len(sent) * (1 - _LOADED_SHARE)), len(sent)) if i in delays]
        idle = [delays[i] for i in range(_IDLE_PROBES) if i in delays]
        return statistics.median(loaded) - statistics.median(idle) if loaded and idle else None

    def rate_mbit(self, direction: str, nominal_mbit: float) -> tuple[float | None, float]:
        """Rate at which a train of full frames leaves the link, Mbit/s, and the share of the train that was lost.

        `direction` is `down` or `up`. The rate is None if too few frames arrived.

        The train is sent faster than the nominal rate, so the link alone determines the spacing of the frames that
        leave it (packet-pair dispersion). Each frame is paired with the frame half a train later. The rate is the
        median over these pairs, so single stalls of the host have no effect.
        """
        sender, receiver = (self._far, self._near) if direction == "down" else (self._near, self._far)
        _drain(receiver)
        low, high = _TRAIN_FRAMES
        frames = min(high, max(low, int(nominal_mbit * 1e6 * _TRAIN_S / 8 / FRAME_BYTES)))
        payload = bytes(FRAME_BYTES - _HEADERS - 4)
        target = receiver.getsockname()
        pace_s = FRAME_BYTES * 8 / (nominal_mbit * 1e6 * _TRAIN_PACE)
        arrivals: list[int] = []
        done = threading.Event()

        def collect() -> None:
            deadline = time.monotonic() + frames * FRAME_BYTES * 8 / (nominal_mbit * 1e6) + _WAIT_S
            while len(arrivals) < frames and (wait_s := deadline - time.monotonic()) > 0:
                receiver.settimeout(wait_s)
                try:
                    data, when = receive(receiver)
                except TimeoutError:
                    break
                if len(data) == len(payload) + 4:
                    arrivals.append(when)
            done.set()

        threading.Thread(target=collect, daemon=True, name="rate-sink").start()
        begin = time.perf_counter()
        for number in range(frames):
            if (wait_s := begin + number * pace_s - time.perf_counter()) > 0.001:
                time.sleep(wait_s)
            sender.sendto(struct.pack("!I", number) + payload, target)
        done.wait()
        half, lost = len(arrivals) // 2, 1 - len(arrivals) / frames
        if half < low // 4:
            return None, lost
        slopes = [arrivals[i + half] - arrivals[i] for i in range(len(arrivals) - half)]
        return half * FRAME_BYTES * 8e3 / float(statistics.median(slopes)), lost


def check(
    prober: Prober,
    profile: Profile,
    backend: str,
    delays_ms: tuple[float, float],
    *,
    rates: bool,
    playing: Playing | None = None,
) -> LinkCheck:
    """Measure the link and compare it with its profile.

    Without `rates`, only the idle RTT is measured; a rate takes up to 0.5 s on slow links. `delays_ms` are the
    configured netem delays, towards client and server. `playing` is the trace of the link, if it has one. The trace is
    measured last, while it plays. All other values are measured without it.
    """
    when = time.time()
    samples = prober.rtt_samples_ms(profile.rtt_ms, interval_s=effects.spacing_s(profile, PROBE_INTERVAL_S))
    rtt = statistics.median(samples) if samples else None
    no_rate = None, 0.0
    down, lost_down = prober.rate_mbit("down", profile.download_mbit) if rates and profile.download_mbit else no_rate
    up, lost_up = prober.rate_mbit("up", profile.upload_mbit) if rates and profile.upload_mbit else no_rate
    faults = list(_faults(profile, len(samples), rtt, down, up, rates=rates))
    measured = Effects()
    if rates:
        measured, further = effects.measure_effects(prober, profile, delays_ms, PROBE_INTERVAL_S)
        faults += further
    trace = trace_check.TraceMeasurement()
    if playing is not None:
        if rates:
            trace, further = trace_check.measure_trace(prober, profile, playing, delays_ms)
            faults += further
        measured = replace(
            measured,
            trace_offset_ms=playing.offset_ms,
            trace_late_down_ms=trace.late_ms.get("down"),
            trace_late_up_ms=trace.late_ms.get("up"),
        )
    if profile.arriving == 1 and not any(profile.queues()):
        faults += [
            f"{name}link lost {lost:.1%} of a train"
            for name, lost in (("down", lost_down), ("up", lost_up))
            if _LOST_MOST < lost < 1 - _LOST_MOST and _train_fits(profile)
        ]
    return LinkCheck(
        **asdict(measured),
        link=profile.name,
        when_s=when,
        backend=backend,
        rtt_samples_ms=tuple(samples),
        probes=PROBES,
        rtt_ms=rtt,
        nominal_rtt_ms=profile.rtt_ms,
        down_mbit=trace.mbit.get("down", down),
        up_mbit=trace.mbit.get("up", up),
        nominal_down_mbit=trace.nominal_mbit.get("down", profile.download_mbit),
        nominal_up_mbit=trace.nominal_mbit.get("up", profile.upload_mbit),
        configured_down_delay_ms=delays_ms[0],
        configured_up_delay_ms=delays_ms[1],
        verdict="; ".join(faults) or "pass",
    )


def _train_fits(profile: Profile) -> bool:
    """Whether the queue has space for all waiting frames of a train, which is sent faster than the link's rate."""
    return _TRAIN_FRAMES[1] * (1 - 1 / _TRAIN_PACE) < profile.queue_packets


def tolerance_ms(profile: Profile) -> float:
    """Tolerance of the idle RTT, ms.

    It is the larger of 1 % of the profile's RTT and 0.15 ms. Three standard errors of the jitter are added to that
    value. For a profile without shaping the tolerance is 1 ms.
    """
    jitter = 3 * profile.jitter_ms * math.sqrt(2 / PROBES)
    if not profile.shaped:
        return 1.0  # no link: the delay of the testbed itself
    return max(RTT_TOLERANCE * profile.rtt_ms, RTT_TOLERANCE_MS) + jitter


def fewest_probes(profile: Profile) -> int:
    """Minimum number of probes that must come back: all if the link loses nothing, fewer if it has loss.

    Each probe crosses the link twice. Four standard deviations below the expected number are allowed.
    """
    share = profile.arriving**2
    return max(1, math.ceil(PROBES * share - 4 * math.sqrt(PROBES * share * (1 - share))))


def _faults(
    profile: Profile, came_back: int, rtt: float | None, down: float | None, up: float | None, *, rates: bool
) -> Iterator[str]:
    if rtt is None or came_back < fewest_probes(profile):
        yield f"{came_back} of {PROBES} probes came back"
    elif abs(rtt - profile.rtt_ms) > tolerance_ms(profile):
        yield f"idle RTT {rtt:.2f} ms, profile {profile.rtt_ms:.2f} ms"
    if not rates:
        return
    for name, measured, nominal in (("down", down, profile.download_mbit), ("up", up, profile.upload_mbit)):
        if nominal is None:
            continue
        if measured is None:
            yield f"{name}link rate: the probe train was lost"
        elif abs(measured / nominal - 1) > RATE_TOLERANCE:
            yield f"{name}link {measured:.2f} Mbit/s, profile {nominal:.2f} Mbit/s"


def calibrated_delays(
    prober: Prober, profile: Profile, apply: Callable[[tuple[float, float]], None]
) -> tuple[float, float]:
    """The netem delays towards client and server (ms) with which the measured idle RTT matches the RTT of the profile.

    The path's own delay (bridges, guest, serialisation of the small probe) is subtracted in equal halves. A measurement
    is repeated if its interquartile range is too large, i.e. the host disturbed it. So a stall does not change the
    link's delay. Corrections are limited to the largest delay of any path (`_PATH_MS`). A larger deviation comes from
    the host, and the check reports it. `apply` configures the link. `TestbedError` if a measurement and all its
    repetitions each get fewer than `_FEW` probes back.
    """
    rates = [rate for rate in (profile.download_mbit, profile.upload_mbit) if rate]
    least = max(0.0, profile.rtt_ms - _PATH_MS - sum(_PROBE_BYTES * 8e-3 / rate for rate in rates)) / 2
    delays = (profile.rtt_ms / 2, profile.rtt_ms / 2)
    goal = tolerance_ms(profile) / 5
    apply(delays)
    for _step in range(_CALIBRATION_STEPS):
        error = _undisturbed_rtt_ms(prober, profile) - profile.rtt_ms
        if abs(error) <= goal:
            break
        delays = (max(least, delays[0] - error / 2), max(least, delays[1] - error / 2))
        apply(delays)
    return delays


def _undisturbed_rtt_ms(prober: Prober, profile: Profile) -> float:
    """Median idle RTT of the first measurement whose interquartile range is within a limit, ms.

    The limit is the tolerance plus the interquartile range that the jitter causes. If all `_CALIBRATION_ATTEMPTS`
    measurements exceed it, the one with the smallest range is used. A measurement with fewer than `_FEW` probes does
    not count; `TestbedError` if none counts.
    """
    tightest: tuple[float, float] | None = None
    for _attempt in range(_CALIBRATION_ATTEMPTS):
        samples = prober.rtt_samples_ms(profile.rtt_ms, interval_s=effects.spacing_s(profile, PROBE_INTERVAL_S))
        if len(samples) < _FEW:
            continue
        low, middle, high = statistics.quantiles(samples, n=4)
        if tightest is None or high - low < tightest[0]:
            tightest = (high - low, middle)
        if high - low <= tolerance_ms(profile) + 1.35 * math.sqrt(2) * profile.jitter_ms:
            break
    if tightest is None:
        raise TestbedError(
            "no packet crosses the link", where=f"link {profile.name}", next_step="Run `crosslayer doctor`."
        )
    return tightest[1]


@contextmanager
def _loading(direction: str) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """A socket that loads one direction of the link, and the address to send to; arriving packets are not read."""
    ends = [(network.CLIENT, network.CLIENT_ADDRESS), (network.SERVER, network.SERVER_ADDRESS)]
    sockets = []
    for side, address in ends if direction == "up" else reversed(ends):
        with namespaces.namespace(side):
            sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sockets[-1].bind((address, 0))
    load, sink = sockets
    with load, sink:
        yield load, sink.getsockname()


def _arrivals(receiver: socket.socket, series: int, longest_ms: float | None) -> Iterator[tuple[int, int]]:
    """Number and arrival time, ns, of each probe of a series that arrives.

    The iterator ends when no probe has arrived for `_WAIT_S` + `longest_ms`.
    """
    receiver.settimeout(_WAIT_S + (longest_ms or 0) / 1e3)
    while True:
        try:
            data, when = receive(receiver)
        except TimeoutError:
            return
        if len(data) == _PROBE.size and _PROBE.unpack(data)[1] == series:
            yield _PROBE.unpack(data)[0], when


def _socket() -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    stamp_arrivals(end)
    return end


def _drain(end: socket.socket) -> None:
    end.setblocking(False)
    try:
        while True:
            end.recv(2048)
    except BlockingIOError:
        pass
    finally:
        end.setblocking(True)
