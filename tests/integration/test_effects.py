"""Loss, jitter, queues, cross-traffic and traces of the link are as configured, counted over 20,000 packets.

This file is also the program that measures once per backend in private namespaces; the tests read its output. Here it
measures netem in a guest in virtual time, where processing of packets takes no time. tests/long measures the backend
`uml`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crosslayer.guest import run_attached
from crosslayer.links import FRAME_BYTES, Profile, load_profiles
from crosslayer.process import ProcessDied
from crosslayer.testbed import namespaces
from crosslayer.testbed.effects import LEVELS
from crosslayer.testbed.testbed import Testbed

PACKETS = 20_000
INTERVAL_S = 0.001

RANDOM = Profile("random", 20.0, loss_percent=5, jitter_ms=2, jitter_distribution="normal")
BURSTS = Profile("bursts", 20.0, loss_percent=10, loss_burst_packets=2, jitter_ms=2, jitter_distribution="paretonormal")
ORDERED = Profile("ordered", 20.0, jitter_ms=1, jitter_distribution="pareto", jitter_reorders=False)
OVERTAKING = Profile("overtaking", 20.0, download_mbit=50, upload_mbit=50, jitter_ms=3)
_RATES = {"rtt_ms": 20.0, "download_mbit": 20.0, "upload_mbit": 5.0}
FIFO = Profile("fifo", **_RATES, queue_bdp=10, cross_traffic="bulk")
SHORT = Profile("short", **_RATES, queue_bdp=1, cross_traffic="paced", cross_mbit=5)
FQ_CODEL = Profile("fq_codel", **_RATES, queue="fq_codel", cross_traffic="bulk")
CAKE = Profile("cake", **_RATES, queue="cake", cross_traffic="bulk")
UPWARDS = Profile("upwards", **_RATES, queue_bdp=10, cross_traffic="bulk", cross_direction="up")
CELLULAR = load_profiles()["cellular"]
LEO = load_profiles()["leo"]
TRACED = {link.name: link for link in (CELLULAR, LEO)}
_TRACES = Path(__file__).parents[2] / "emulation" / "traces"
BEGINS_MS = {"cellular": 2500.0, "leo": 13_500.0}
"""Times in the traces shortly before a gap of 0.3 s, and before a handover."""
FOLLOWED_MS, _WINDOW_MS = 2000, 200
COUNTED = {link.name: link for link in (RANDOM, BURSTS, ORDERED, OVERTAKING)}
LOADED = {link.name: link for link in (FIFO, SHORT, FQ_CODEL, CAKE, UPWARDS)}


def count(testbed: Testbed, profile: Profile) -> dict[str, Any]:
    """Losses, delays and reordering of 20,000 packets and their echoes."""
    check = testbed.set_link(profile)
    # With ordered jitter, each packet waits for the previous one, so fewer packets are sent at longer intervals.
    packets, interval_s = (PACKETS, INTERVAL_S) if profile.jitter_reorders else (PACKETS // 10, 0.006)
    crossing = testbed._prober.crossing(profile.rtt_ms, packets, interval_s)
    up = crossing.up_ms
    overtaken = sum(up[n] > up[n + 1] + interval_s * 1e3 for n in up if n + 1 in up)
    ways = {"up": (crossing.sent, crossing.bursts_up, crossing.up_ms)}
    ways["down"] = (len(crossing.up_ms), crossing.bursts_down, crossing.down_ms)
    return {
        "verdict": check.verdict,
        "overtaken": overtaken,
        **{way: [sent, bursts, sorted(delays.values())] for way, (sent, bursts, delays) in ways.items()},
    }


def load(testbed: Testbed, profile: Profile) -> dict[str, Any]:
    """RTT of small packets during cross-traffic, and rate of the cross-traffic."""
    check = testbed.set_link(profile)
    samples = []
    with testbed.cross_traffic() as cross:
        for _ in range(10):
            time.sleep(0.2)
            samples += testbed._prober.rtt_samples_ms(1000, 10)
    return asdict(check) | {"verdict": check.verdict, "mbit": cross.mbit, "beside_ms": statistics.median(samples)}


def follow(testbed: Testbed, profile: Profile) -> dict[str, Any]:
    """Packets delivered by a trace in each window under overload, and delays of small packets.

    Times are times of the trace, for packets that arrive at the replaying end of the link.
    """
    offset_ms = BEGINS_MS[profile.name]
    testbed.begin_trace_at(offset_ms)
    check = testbed.set_link(profile)
    prober, result = testbed._prober, asdict(check) | {"verdict": check.verdict}
    down_ms, up_ms = (delay for delay in testbed._delays[profile.name])
    for way, mbit, before_ms, after_ms in (("down", 90, down_ms, 0.0), ("up", 14, 0.0, up_ms)):
        rate = mbit if profile is LEO else {"down": 20, "up": 8}[way]
        frames = int(rate * 1e3 * FOLLOWED_MS / 8 / FRAME_BYTES)
        testbed.rewind()
        begin_ns = time.time_ns()
        gap_ns = FOLLOWED_MS * 1e6 / frames
        _sent, arrived = prober.paced(way, [begin_ns + round(n * gap_ns) for n in range(frames)], FRAME_BYTES)
        windows: Counter[int] = Counter()
        for when in arrived.values():
            windows[int((when - begin_ns) / 1e6 - after_ms) // _WINDOW_MS] += 1
        result[f"frames_{way}"] = [windows[number] for number in range(FOLLOWED_MS // _WINDOW_MS)]
        testbed.rewind()
        begin_ns = time.time_ns()
        sent, arrived = prober.paced(way, [begin_ns + n * 5_000_000 for n in range(FOLLOWED_MS // 5)], 64)
        result[f"delays_{way}"] = [
            ((sent[n] - begin_ns) / 1e6 + offset_ms + before_ms, (arrived[n] - sent[n]) / 1e6) for n in sorted(arrived)
        ]
    return result


def killed(testbed: Testbed) -> str:
    """Error text after the trace replay was killed."""
    assert testbed._replay is not None
    os.kill(testbed._replay.pid, signal.SIGKILL)
    try:
        testbed.set_link(LEO)
    except ProcessDied as died:
        return died.what
    return "nothing"


def measure(backend: str) -> dict[str, Any]:
    """All measurements on one backend."""
    with Testbed(backend) as testbed:
        results: dict[str, Any] = {"backend": testbed.backend.name}
        results |= {name: count(testbed, profile) for name, profile in COUNTED.items()}
        results |= {name: load(testbed, profile) for name, profile in LOADED.items()}
        results |= {name: follow(testbed, profile) for name, profile in TRACED.items()}
        results["killed"] = killed(testbed)
        return results


def run(backend: str, where: str) -> dict[str, Any]:
    """Run this file as a program, `here` or in a guest in virtual time (`virtual`); returns its results."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, backend, where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert results["backend"] == backend
    return results


@pytest.fixture(scope="module")
def seen(virtual_clock: list[str]) -> dict[str, Any]:
    """Results of the program in a guest."""
    return run("netem", "virtual")


@pytest.mark.parametrize("name", [*COUNTED, *LOADED, *TRACED])
def test_the_link_proves_itself(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["verdict"] == "pass"


@pytest.mark.parametrize("name", ["random", "bursts"])
def test_loss_is_within_a_tenth_over_20_000_packets(seen: dict[str, Any], name: str) -> None:
    sent, lost = (
        sum(part(seen[name][way]) for way in ("up", "down")) for part in (lambda w: w[0], lambda w: sum(w[1]))
    )
    assert sent > PACKETS
    assert lost / sent == pytest.approx(COUNTED[name].loss_percent / 100, rel=0.1)


@pytest.mark.parametrize(("name", "mean"), [("random", 1 / 0.95), ("bursts", 2.0)])
def test_bursts_have_the_expected_length(seen: dict[str, Any], name: str, mean: float) -> None:
    """Chi-squared test against the geometric distribution, with an error probability of 1 in 10,000."""
    counts = Counter(length for way in ("up", "down") for length in seen[name][way][1])
    total, stays = counts.total(), 1 - 1 / mean
    cells, length = [], 1
    while (expected := total * (1 - stays) * stays ** (length - 1)) >= 5:
        cells.append((counts[length], expected))
        length += 1
    cells.append((total - sum(seen for seen, _ in cells), total * stays ** (length - 1)))
    degrees = len(cells) - 1
    chi_squared = sum((counted - expected) ** 2 / expected for counted, expected in cells)
    # Wilson and Hilferty: the cube root of chi-squared is nearly normal.
    limit = degrees * (1 - 2 / (9 * degrees) + 3.72 * math.sqrt(2 / (9 * degrees))) ** 3
    assert chi_squared < limit, cells


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("way", ["up", "down"])
def test_quantiles_of_jitter_are_within_a_twentieth(seen: dict[str, Any], name: str, way: str) -> None:
    profile, delays = COUNTED[name], seen[name][way][2]
    cuts = statistics.quantiles(delays, n=100, method="inclusive")
    middle, expected_middle = statistics.median(delays), profile.quantile_ms(0.5)

    def width(level: float) -> float:
        """Inverse of the distribution's density at a level, ms."""
        return (profile.quantile_ms(level + 0.01) - profile.quantile_ms(level - 0.01)) / 0.02

    for level in (level for level in LEVELS if level != 0.5):
        quantile, expected = cuts[round(level * 100) - 1] - middle, profile.quantile_ms(level) - expected_middle
        # Quantile and median of a sample both have errors, which are correlated.
        low, high = min(level, 0.5), max(level, 0.5)
        variance = width(level) ** 2 * level * (1 - level) + width(0.5) ** 2 / 4
        variance -= 2 * width(level) * width(0.5) * low * (1 - high)
        chance = 4 * math.sqrt(variance / len(delays))
        assert quantile == pytest.approx(expected, rel=0.05, abs=0.02 + chance * (name == "ordered")), level


def test_jitter_overtakes_where_it_may_and_only_there(seen: dict[str, Any]) -> None:
    assert seen["overtaking"]["overtaken"] > 0.1 * PACKETS
    assert seen["ordered"]["overtaken"] == 0


def test_fq_codel_and_cake_keep_the_delay_under_10_ms_where_a_long_fifo_does_not(seen: dict[str, Any]) -> None:
    added = {name: seen[name]["beside_ms"] - LOADED[name].rtt_ms for name in LOADED}
    assert added["fq_codel"] < 10
    assert added["cake"] < 10
    assert added["fifo"] > 50
    assert added["upwards"] > 50
    assert added["short"] < 2  # paced traffic below the rate leaves the queue empty


def test_a_full_fifo_is_as_long_as_it_was_asked_for(seen: dict[str, Any]) -> None:
    for name, bdp in (("fifo", 10), ("short", 1)):
        for way in ("down", "up"):
            assert seen[name][f"queueing_{way}_ms"] == pytest.approx(bdp * 20.0, rel=0.1, abs=5)


def test_cross_traffic_has_what_the_link_gives(seen: dict[str, Any]) -> None:
    assert seen["short"]["mbit"] == pytest.approx(5, rel=0.03)
    for name in ("fifo", "fq_codel", "cake"):
        assert seen[name]["mbit"] == pytest.approx(20, rel=0.15)
    assert seen["upwards"]["mbit"] == pytest.approx(5, rel=0.2)


@pytest.mark.parametrize("way", ["down", "up"])
def test_delivered_bytes_are_within_a_twentieth_of_the_mahimahi_file(seen: dict[str, Any], way: str) -> None:
    """The expected numbers are the lines of the file in windows of 0.2 s."""
    times = [int(line) for line in (_TRACES / f"cellular.{way}").read_text(encoding="ascii").splitlines()]
    begin = BEGINS_MS["cellular"]
    frames = seen["cellular"][f"frames_{way}"]
    expected = [
        sum(begin + n * _WINDOW_MS < time <= begin + (n + 1) * _WINDOW_MS for time in times) for n in range(len(frames))
    ]
    assert 0 in expected[1:-1]  # the gap
    for window in range(1, len(frames) - 1):
        assert frames[window] == pytest.approx(expected[window], rel=0.05, abs=1), window
    assert sum(frames[1:-1]) == pytest.approx(sum(expected[1:-1]), rel=0.01, abs=1)


@pytest.mark.parametrize(("way", "mbit"), [("down", 80), ("up", 12)])
def test_packets_wait_during_a_handover(seen: dict[str, Any], way: str, mbit: float) -> None:
    frames = seen["leo"][f"frames_{way}"]
    full = mbit * 1e3 * _WINDOW_MS / 8 / FRAME_BYTES
    for window in range(1, len(frames) - 1):  # the handover begins at 14,960 ms, in the eighth window
        part = 0.8 if window == 7 else 1.0
        assert frames[window] == pytest.approx(part * full, rel=0.05), window
    rtts = {True: LEO.course.rtts[0][1], False: LEO.course.rtts[2][1]}  # type: ignore[union-attr]
    delays = seen["leo"][f"delays_{way}"]
    for before, rtt_ms in rtts.items():
        some = [delay for at_ms, delay in delays if (at_ms < 14_900 if before else at_ms > 15_010)]
        assert statistics.median(some) == pytest.approx(rtt_ms / 2, abs=0.5)
    held = [delay for at_ms, delay in delays if 14_900 < at_ms < 15_010]
    assert max(held) == pytest.approx(rtts[True] / 2 + 40, abs=6)  # a probe every 5 ms


def test_packets_leave_at_the_times_of_the_trace(seen: dict[str, Any]) -> None:
    """Packets leave at most 0.1 ms late in virtual time."""
    most_ms = 0.1 if seen["backend"] == "netem" else 20.0
    for name in TRACED:
        for way in ("down", "up"):
            assert -0.5 < seen[name][f"trace_late_{way}_ms"] < most_ms


def test_a_player_that_dies_is_reported(seen: dict[str, Any]) -> None:
    assert seen["killed"] == "the trace replay ended with status -9"


if __name__ == "__main__":
    _backend, _where = sys.argv[1:]
    if _where == "virtual":
        sys.exit(
            run_attached([sys.executable, "-m", "tests.integration.test_effects", _backend, "here"], clock="virtual")
        )
    namespaces.enter([sys.executable, "-m", "tests.integration.test_effects", _backend, "here"])
    print(json.dumps(measure(_backend)))
