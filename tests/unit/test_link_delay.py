"""When a packet was to go out by netem's rule, and how much later it did."""

from __future__ import annotations

import contextlib

import pytest

from crosslayer.packets import Frame
from crosslayer.testbed import link_delay
from crosslayer.testbed.link_delay import DelayMeter, NetemRule, extra_delays_ms

MS = 1_000_000
BYTES = 1250
FRAMES = [bytes([number]) * 100 for number in range(4)]
RULE = NetemRule(delay_ms=10.0, rate_mbit=10.0)
"""A frame takes a millisecond."""


def seen(moment_ms: float, frame: bytes) -> Frame:
    return Frame(round(moment_ms * MS), "to-client", False, frame, BYTES)


def at(moments_ms: list[float], frames: list[bytes] = FRAMES) -> list[Frame]:
    return [seen(moment, frame) for moment, frame in zip(moments_ms, frames, strict=False)]


class Rings:
    """Both ends of a wire that one frame went down, a quarter of a millisecond late."""

    def __init__(self, device: str, **_room: int) -> None:
        self._frame = Frame(0, device, False, FRAMES[0], BYTES)
        if device == "to-client":
            self._frame = Frame(round(11.25 * MS), device, True, FRAMES[0], BYTES)

    def start(self) -> None: ...

    def take(self) -> tuple[list[Frame], int]:
        return [self._frame], 0


@pytest.mark.parametrize(("set_by_ms", "late_ms"), [(0.5, [0.25]), (60_000.0, []), (-60_000.0, [])])
def test_of_an_observation_in_which_the_clock_was_set_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, set_by_ms: float, late_ms: list[float]
) -> None:
    ahead_ms = iter([1000.0, 1000.0 + set_by_ms])
    monkeypatch.setattr(link_delay, "Ring", Rings)
    monkeypatch.setattr(link_delay, "_clock_offset_ms", lambda: next(ahead_ms))
    monkeypatch.setattr(link_delay.namespaces, "namespace", contextlib.nullcontext)
    watch = DelayMeter()
    watch.start()
    assert [extra.late_p50_ms for extra in watch.extra_delays_ms(RULE, RULE)] == late_ms


def test_packets_that_queue_go_out_one_after_the_other() -> None:
    came = at([0, 0, 0.5, 20])
    assert extra_delays_ms(came, at([11, 12, 13, 31]), RULE) == pytest.approx([0, 0, 0, 0])
    assert extra_delays_ms(came, at([11, 12.25, 15, 31]), RULE) == pytest.approx([0, 0.25, 2, 0])


def test_without_a_rate_there_is_the_delay_alone() -> None:
    assert extra_delays_ms(at([0, 0, 1]), at([10, 10, 11.5]), NetemRule(10.0, None)) == pytest.approx([0, 0, 0.5])


def test_what_did_not_go_out_has_no_value_and_yet_its_time_at_the_rate() -> None:
    assert extra_delays_ms(at([0, 0, 0]), [seen(13, FRAMES[2])], RULE) == pytest.approx([0])


def test_the_same_bytes_twice_are_two_packets() -> None:
    twice = [FRAMES[0], FRAMES[0]]
    assert extra_delays_ms(at([0, 5], twice), at([11, 16.5], twice), RULE) == pytest.approx([0, 0.5])


def test_bytes_that_went_out_before_they_came_in_are_those_of_another_packet() -> None:
    twice = [FRAMES[0], FRAMES[0]]
    assert extra_delays_ms(at([5], twice), at([2, 16.5], twice), RULE) == pytest.approx([0.5])
