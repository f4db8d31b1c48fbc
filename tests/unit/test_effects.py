"""A link that is not what its profile says is found out: by its losses, their bursts, its jitter, its queue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from crosslayer.links import LinkError, Profile, Queue, load_profiles, own_profiles, varied
from crosslayer.testbed import effects
from crosslayer.testbed.effects import Crossing

LINK = Profile("x", 20.0, download_mbit=10, upload_mbit=5)
RANDOM = replace(LINK, loss_percent=5.0)
BURSTS = replace(LINK, loss_percent=10.0, loss_burst_packets=3.0)


def lost(profile: Profile, packets: int, seed: int = 1) -> list[int]:
    """Bursts that netem's chain gives."""
    draw = random.Random(seed)
    arrived = set()
    bad = False
    leave = 1 / (profile.loss_burst_packets or 1)
    enter = leave * profile.loss_percent / (100 - profile.loss_percent)
    for number in range(packets):
        if profile.loss_burst_packets is None:
            gone = draw.random() < profile.loss_percent / 100
        else:
            gone, bad = bad, (draw.random() >= leave) if bad else (draw.random() < enter)
        if not gone:
            arrived.add(number)
    return Crossing(packets, dict.fromkeys(arrived, 1.0), {}).bursts_up


def loss_faults(profile: Profile, bursts: list[int], packets: int = 500) -> list[str]:
    return list(effects.loss_faults(profile, packets, bursts, "uplink"))


@pytest.mark.parametrize("profile", [RANDOM, BURSTS], ids=["random", "bursts"])
def test_the_right_loss_passes_and_another_does_not(profile: Profile) -> None:
    probes = effects.loss_probes(profile)
    assert sum(bool(loss_faults(profile, lost(profile, probes, seed), probes)) for seed in range(300)) <= 1
    assert loss_faults(profile, [], probes) != []
    assert loss_faults(profile, lost(replace(profile, loss_percent=3 * profile.loss_percent), probes), probes) != []


def test_losses_in_a_row_are_no_independent_ones() -> None:
    one_by_one = [1] * 50
    assert "in a row" in " ".join(loss_faults(BURSTS, one_by_one))
    assert "in a row" in " ".join(loss_faults(RANDOM, [5] * 6))


def test_the_number_lost_varies_as_far_as_its_deviation_says() -> None:
    for profile in (RANDOM, BURSTS):
        counts = [sum(lost(profile, 500, seed)) for seed in range(400)]
        mean = sum(counts) / len(counts)
        deviation = (sum((n - mean) ** 2 for n in counts) / len(counts)) ** 0.5
        assert deviation == pytest.approx(effects.loss_deviation(profile, 500), rel=0.15)


def test_runs_are_of_neighbours_among_what_was_sent() -> None:
    crossing = Crossing(8, dict.fromkeys((0, 3, 4, 5, 7), 1.0), dict.fromkeys((0, 5), 1.0))
    assert crossing.bursts_up == [2, 1]
    assert crossing.bursts_down == [2, 1]  # 3 and 4; 7: what never arrived was not sent back
    overtaken = Crossing(4, dict.fromkeys((2, 0, 3, 1), 1.0), dict.fromkeys((0, 1), 1.0))
    assert overtaken.bursts_down == [1, 1]  # 2 and 3 were not sent one after the other


def delays(profile: Profile, count: int = 200, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return sorted(10.4 + profile.quantile_ms(draw.random()) for _ in range(count))


@pytest.mark.parametrize("distribution", [None, "normal", "pareto", "paretonormal"])
def test_the_right_jitter_passes_and_another_does_not(distribution: str | None) -> None:
    profile = replace(LINK, jitter_ms=2.0, jitter_distribution=distribution)
    results = [list(effects.jitter_faults(profile, 10.0, delays(profile, seed=s), "uplink")) for s in range(100)]
    assert results.count([]) >= 99
    for other in (replace(profile, jitter_ms=4.0), replace(profile, jitter_ms=0.5)):
        assert list(effects.jitter_faults(profile, 10.0, delays(other), "uplink")) != []
    assert list(effects.jitter_faults(profile, 10.0, [10.0] * 200, "uplink")) != []


def test_a_queue_of_another_length_is_detected() -> None:
    fifo = replace(LINK, queue_bdp=10.0)
    down, _up = fifo.queues()
    assert down is not None
    assert down.longest_ms == pytest.approx(200)

    def faults(profile: Profile, queue: Queue, added: float | None) -> list[str]:
        return list(effects.queue_faults(profile, queue, added, "downlink"))

    assert faults(fifo, down, 205.0) == []
    assert faults(fifo, down, 20.0) != []
    assert faults(fifo, down, 400.0) != []
    assert faults(fifo, down, None) != []
    managed = replace(LINK, queue="fq_codel").queues()[0]
    assert managed is not None
    assert managed.longest_ms is None
    assert faults(fifo, managed, 9.0) == []
    assert faults(fifo, managed, 100.0) != []


def test_stages_stand_in_the_order_packets_meet_them() -> None:
    def stages(profile: Profile) -> list[str]:
        return [" ".join(command) for stage in profile.stages()[0] for command in stage.tc_commands()]

    assert len(stages(LINK)) == 1
    path, bucket, codel, rate = stages(replace(LINK, queue="fq_codel", loss_percent=1.0, jitter_ms=1.0))
    assert "delay" in path
    assert "loss random 1.0%" in path
    assert "rate" not in path
    assert bucket.startswith("root handle 1: tbf rate 10000000bit")
    assert codel.startswith("parent 1:1 fq_codel")
    assert rate.endswith("rate 10000000bit")
    assert "cake bandwidth 10000000bit" in stages(replace(LINK, queue="cake"))[1]
    assert "limit 250000" in stages(replace(LINK, queue_bdp=10.0))[1]
    # What keeps its order needs no stage more: a rate has netem let nobody overtake.
    assert len(stages(replace(LINK, jitter_ms=1.0, jitter_reorders=False))) == 1
    assert "rate" in stages(Profile("y", 20.0, jitter_ms=1.0, jitter_reorders=False))[0]
    assert "loss gemodel 3.7037037% 33.3333333% 100.0000000%" in stages(BURSTS)[0]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"queue_bdp": 1.0, "download_mbit": None, "upload_mbit": None}, "queue_bdp"),
        ({"queue": "cake", "download_mbit": None, "upload_mbit": None}, "queue"),
        ({"queue": "cake", "queue_bdp": 2.0}, "queue_bdp"),
        ({"loss_burst_packets": 2.0}, "loss_burst_packets"),
        ({"loss_percent": 1.0, "loss_in_burst_percent": 50.0}, "loss_in_burst_percent"),
        ({"loss_percent": 60.0, "loss_burst_packets": 2.0, "loss_in_burst_percent": 50.0}, "loss_percent"),
        ({"cross_traffic": "paced", "download_mbit": None}, "cross_traffic"),
    ],
)
def test_effects_that_contradict_each_other_are_refused(values: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        replace(LINK, **values)  # type: ignore[arg-type]
    assert caught.value.key == key  # type: ignore[attr-defined]


def given_effects() -> Iterator[tuple[dict[str, str], dict[str, object]]]:
    yield {"loss": "1%"}, {"loss_percent": 1.0, "loss_burst_packets": None}
    yield {"loss": "1%,3"}, {"loss_percent": 1.0, "loss_burst_packets": 3.0}
    yield {"jitter": "5ms"}, {"jitter_ms": 5.0, "jitter_distribution": None, "jitter_reorders": True}
    yield {"jitter": "5ms,pareto,ordered"}, {"jitter_distribution": "pareto", "jitter_reorders": False}
    yield {"queue": "10bdp"}, {"queue_bdp": 10.0}
    yield {"queue": "100"}, {"queue": "fifo", "queue_packets": 100}
    yield {"queue": "cake"}, {"queue": "cake"}
    yield {"cross": "bulk"}, {"cross_traffic": "bulk", "cross_direction": "down"}
    yield {"cross": "paced:20,up"}, {"cross_traffic": "paced", "cross_mbit": 20.0, "cross_direction": "up"}


@pytest.mark.parametrize(("given", "values"), list(given_effects()))
def test_the_effects_of_the_command_line_are_the_keys_of_a_profile(
    given: dict[str, str], values: dict[str, object]
) -> None:
    made = varied(LINK, **given)
    assert {name: getattr(made, name) for name in values} == values
    assert made.name != LINK.name
    assert made.rtt_ms == LINK.rtt_ms


@pytest.mark.parametrize(
    "given", [{"loss": "much"}, {"loss": "101%"}, {"jitter": "5ms,flat"}, {"queue": "red"}, {"cross": "udp"}]
)
def test_unknown_effects_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(LinkError):
        varied(LINK, **given)


def test_no_word_leaves_the_link_as_it_is() -> None:
    assert varied(LINK) is LINK


def test_links_of_ones_own_do_not_take_the_names_there_are(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "mine.toml"
    file.write_text("[office]\nrtt_ms = 7\nloss_percent = 2\n", encoding="utf-8")
    assert list(own_profiles(file)) == ["office"]
    assert "office" not in load_profiles()
    file.write_text("[4g]\nrtt_ms = 7\n", encoding="utf-8")
    with pytest.raises(LinkError, match="name of a built-in link"):
        own_profiles(file)
