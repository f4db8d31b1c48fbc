"""Measured times of a resolver, from a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosslayer.campaign import CampaignError
from crosslayer.campaign.plan import changed
from crosslayer.errors import CrosslayerError
from crosslayer.links import LinkError
from crosslayer.resolvers.like import measured_times
from crosslayer.studies import sized

DATASET = "data/raw/resolvers"


def test_rtts_and_own_times_of_hits_and_misses() -> None:
    times = measured_times(f"{DATASET}:north@lima", "x")
    assert times.resolver == "north from lima"
    assert times.rtts_ms == pytest.approx([150.0] * len(times.rtts_ms), abs=0.1)
    assert times.hits_ms == pytest.approx([0.0] * len(times.hits_ms), abs=0.1)
    assert times.misses_ms == pytest.approx([80.0] * len(times.misses_ms), abs=0.1)


def test_each_of_the_rtts_is_drawn_and_a_seed_repeats_them() -> None:
    times = measured_times(f"{DATASET}:moved@here", "x")
    drawn = [times.drawn_rtt_ms(str(seed)) for seed in range(100)]
    assert {round(rtt) for rtt in drawn} == {30, 70}
    assert drawn == [times.drawn_rtt_ms(str(seed)) for seed in range(100)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("north", "must be DATASET:RESOLVER"),
        (f"{DATASET}:", "must be DATASET:RESOLVER"),
        ("nowhere:north", "there is no such dataset folder"),
        (f"{DATASET}:nort@here", "Did you mean 'north'?"),
        (f"{DATASET}:north", "several vantage points. Give DATASET:north@VANTAGE, one of: here, lima, oslo."),
        (f"{DATASET}:north@rome", "no vantage point 'rome'"),
        ("data/raw/coalescing:north", "no resolver 'north'"),
    ],
)
def test_what_names_no_resolver_is_an_error_with_a_next_step(text: str, message: str) -> None:
    with pytest.raises(CrosslayerError) as refused:
        measured_times(text, "--resolver-like")
    assert message in str(refused.value)


def test_a_resolver_must_be_behind_the_link() -> None:
    times = measured_times(f"{DATASET}:north@here", "x")
    times.check_link("rtt-10", 10.0)
    with pytest.raises(LinkError, match=r"RTT of 12\.0 ms, less than the 14\.8 ms of the link"):
        times.check_link("fiber", 14.8)


def test_only_the_stub_has_another_resolver() -> None:
    plan = sized("web", "smoke")
    with pytest.raises(CampaignError, match="needs the stub as resolver"):
        changed(plan, {"options": {"resolver": "browser", "resolver_like": f"{DATASET}:north@here"}})
    assert Path(DATASET).is_dir()
