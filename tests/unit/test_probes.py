"""How many probes of a link may be missing: none of one that loses nothing, else what chance allows."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from crosslayer.links import load_profiles
from crosslayer.testbed.check import PROBES, _faults, fewest_probes

FIBER = load_profiles()["fiber"]


@pytest.mark.parametrize(("came_back", "passes"), [(PROBES, True), (PROBES - 1, False), (0, False)])
def test_a_lossless_link_may_lose_no_probe(came_back: int, passes: bool) -> None:
    rtt = FIBER.rtt_ms if came_back else None
    assert (not list(_faults(FIBER, came_back, rtt, None, None, rates=False))) is passes


@pytest.mark.parametrize("loss_percent", [0.5, 1.0, 10.0])
def test_a_lossy_link_loses_what_it_says_and_not_much_more(loss_percent: float) -> None:
    lossy = replace(FIBER, loss_percent=loss_percent)
    draw = random.Random(1)
    share = (1 - loss_percent / 100) ** 2
    results = [sum(draw.random() < share for _ in range(PROBES)) for _ in range(2000)]
    assert sum(n < fewest_probes(lossy) for n in results) <= 8  # one check in 250 at most is repeated
    assert fewest_probes(lossy) > PROBES * share * 0.7
    assert fewest_probes(replace(FIBER, loss_percent=100.0)) == 1
