"""Link profiles: the values of the paper, and an error that names file, profile and key for anything unusable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crosslayer.links import FRAME_BYTES, LinkError, Profile, Qdisc, choose, load_profiles, rtt_alone, varied
from crosslayer.testbed import check


def test_a_name_varies_one_thing_of_a_link() -> None:
    known = load_profiles()
    assert choose(known, "4g-loss-2") == replace(
        known["4g"], name="4g-loss-2", title="4G, 2 % loss", loss_percent=2.0, source="4g, varied"
    )
    assert choose(known, "4g-rtt-300").rtt_ms == 300
    jittery = choose(known, "dsl-jitter-20")
    assert (jittery.jitter_ms, jittery.jitter_distribution, jittery.jitter_reorders) == (20, "normal", False)
    loaded = choose(known, "4g-loss-1-queue-10bdp")
    assert (loaded.loss_percent, loaded.queue_bdp, loaded.cross_traffic) == (1, 10, "bulk")
    assert loaded.title == "4G, 1 % loss, queue of 10 BDP, loaded"
    assert choose(known, "4g-queue-cake").queue == "cake"
    for name in ("nothing-loss-2", "4g-loss-", "4g-queue-red", "4g-colour-2"):
        with pytest.raises(LinkError, match="no link profile"):
            choose(known, name)
    with pytest.raises(LinkError, match="at most 100"):
        choose(known, "4g-loss-101")


def test_paper_links_have_the_authors_values() -> None:
    # data/published/link_profiles.csv has the same from the authors' scripts; typed here from Table II's sources.
    profiles = load_profiles()
    expected = {
        "fiber": (14.767147, 99.859576, 109.103380),
        "cable": (25.17665, 165.046798, 11.634674),
        "dsl": (42.35979, 10.73476, 0.842152),
        "4g": (91.85231065904635, 53.95487190708256, 21.18103261207894),
        "4g-medium": (104.5041425140391, 28.64829771023976, 4.224282864079301),
    }
    for name, values in expected.items():
        link = profiles[name]
        assert (link.rtt_ms, link.download_mbit, link.upload_mbit) == values
    assert not profiles["local"].shaped


def test_half_the_rtt_on_each_direction_and_a_limit_that_holds_what_is_in_flight() -> None:
    link = Profile("x", rtt_ms=100.0, title="X", download_mbit=80.0, upload_mbit=8.0, queue_packets=10)
    down, up = link.qdiscs()
    assert (down.delay_ms, up.delay_ms) == (50.0, 50.0)
    in_flight = 80e6 * 0.050 / 8 / FRAME_BYTES
    assert in_flight <= down.limit_packets - 10 < in_flight + 1
    assert down.limit_packets > up.limit_packets > 10


def test_every_parameter_reaches_tc() -> None:
    link = Profile(
        "x", rtt_ms=20.5, title="X", download_mbit=10.5, jitter_ms=2.0, jitter_distribution="normal",
        loss_percent=1.5, reorder_percent=5.0,
    )  # fmt: skip
    command = " ".join(link.qdiscs()[0].tc_arguments())
    assert command.startswith("netem limit ")
    assert "delay 10250.000us 2000.000us distribution normal" in command
    assert "loss random 1.5% reorder 5.0% rate 10500000bit" in command


def test_a_direction_without_rate_gets_none() -> None:
    down, up = Profile("x", rtt_ms=10.0, title="X", upload_mbit=1.0).qdiscs()
    assert "rate" not in down.tc_arguments()
    assert "rate" in up.tc_arguments()


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("rtt_ms = -1", "rtt_ms", "must not be negative"),
        ("rtt_ms = 10\ndownload_mbit = 0", "download_mbit", "must be above 0"),
        ("rtt_ms = 10\nupload_mbit = -3.0", "upload_mbit", "must be above 0"),
        ("rtt_ms = 10\nrtt = 3", "rtt", "is an unknown key"),
        ("rtt_ms = '10'", "rtt_ms", "must be a number"),
        ("rtt_ms = nan", "rtt_ms", "must be a number"),
        ("rtt_ms = true", "rtt_ms", "must be a number"),
        ("download_mbit = 3", "rtt_ms", "is missing"),
        ("rtt_ms = 10\nloss_percent = 101", "loss_percent", "at most 100"),
        ("rtt_ms = 10\nqueue_packets = 0", "queue_packets", "at least 1"),
        ("rtt_ms = 10\nqueue_packets = 1.5", "queue_packets", "whole number"),
        ("rtt_ms = inf", "rtt_ms", "must be a number"),
        ("rtt_ms = 10\nname = 'good'", "name", "is 'good'"),
        ("rtt_ms = 10\ntitle = 3", "title", "must be text"),
        ("rtt_ms = 10\njitter_ms = 1\njitter_distribution = 'flat'", "jitter_distribution", "'flat'"),
        ("rtt_ms = 10\njitter_distribution = 'normal'", "jitter_distribution", "no jitter"),
        ("rtt_ms = 0\nreorder_percent = 1", "reorder_percent", "needs a delay"),
    ],
)
def test_a_bad_value_is_named_by_file_profile_and_key(tmp_path: Path, text: str, key: str, what: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f"[good]\nrtt_ms = 1\n[bad]\n{text}\n", encoding="utf-8")
    with pytest.raises(LinkError) as caught:
        load_profiles(file)
    assert str(file) in caught.value.where
    assert "'bad'" in caught.value.where
    assert f"'{key}'" in caught.value.where
    assert what in caught.value.what
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("text", "key", "what"),
    [
        ("rtt_ms = 100000\ndownload_mbit = 5", "rtt_ms", "must be at most 60000, is 100000"),
        ("rtt_ms = 5\ndownload_mbit = 1e9", "download_mbit", "must be at most 100000, is 1000000000.0"),
        ("rtt_ms = 5\nupload_mbit = 1e-9", "upload_mbit", "must be at least 0.001, is 1e-09"),
        ("rtt_ms = 5\njitter_ms = 1e9", "jitter_ms", "must be at most 60000"),
        ("rtt_ms = 5\ndownload_mbit = 5\nqueue_packets = 1000000000000", "queue_packets", "must be at most 1000000"),
        ("rtt_ms = 600\ndownload_mbit = 1e5\nqueue_bdp = 1e3", "queue_bdp", "a queue of 7500000000000 bytes"),
        ("rtt_ms = 5\nloss_percent = 1\nloss_burst_packets = 1e30", "loss_burst_packets", "must be at most 1000000"),
    ],
)
def test_what_tc_cannot_take_is_refused_by_its_key(tmp_path: Path, text: str, key: str, what: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(f"[mine]\n{text}\n", encoding="utf-8")
    with pytest.raises(LinkError) as caught:
        load_profiles(file)
    assert caught.value.where == f"{file}, profile 'mine', key '{key}'"
    assert what in caught.value.what


def test_the_largest_link_is_one_that_tc_takes() -> None:
    """`limit` of netem has 32 bits, as has that of a token bucket."""
    largest = {"rtt_ms": 60_000.0, "download_mbit": 1e5, "upload_mbit": 1e5, "queue_packets": 1_000_000}
    for profile in (Profile("x", **largest), Profile("x", **largest, queue="fifo")):  # type: ignore[arg-type]
        for stage in (stage for way in profile.stages() for stage in way):
            limit = stage.limit_packets if isinstance(stage, Qdisc) else stage.limit_bytes
            assert limit < 2**32


@pytest.mark.parametrize("text", ["[bad\n", "bad = 3\n"])
def test_a_file_that_is_no_table_of_profiles_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(LinkError, match=r"profiles\.toml"):
        load_profiles(file)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="cannot be read"):
        load_profiles(tmp_path / "none.toml")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(LinkError, match="Choose one of: fiber, cable"):
        choose(load_profiles(), "fibre")
    with pytest.raises(LinkError, match=r"Did you mean 'fiber'\?.*rtt-50.*4g-loss-2"):
        choose(load_profiles(), "fibre")
    with pytest.raises(LinkError, match="rtt-50"):
        choose(load_profiles(), "rtt-0")


def test_an_rtt_alone_is_a_link_without_an_entry() -> None:
    assert choose({}, "rtt-12.5") == Profile("rtt-12.5", 12.5, "RTT 12.5 ms", source="an RTT alone")
    assert [rtt_alone(name) for name in ("rtt-0", "rtt-", "rtt-x", "rtt--5", "rtt-50ms", "fiber")] == [None] * 6


def test_every_link_has_the_title_that_figures_write() -> None:
    titles = {name: profile.title for name, profile in load_profiles().items()}
    tnsm = {"fiber": "Fiber", "cable": "Cable", "dsl": "DSL", "4g": "4G", "4g-medium": "4G medium"}
    assert tnsm.items() <= titles.items()
    assert titles["twente-us-loss"] == "US, loss"


def test_a_profile_without_title_is_written_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[office]\nrtt_ms = 7\n", encoding="utf-8")
    assert load_profiles(file)["office"] == Profile("office", 7.0, "office")


def test_what_the_host_adds_is_not_calibrated_into_the_link() -> None:
    """A probe that always comes 14 ms late: no path takes that long, so the check has to see it."""
    profile = load_profiles()["4g-medium"]
    applied: list[tuple[float, float]] = []

    class Late:
        """Probes over the link that was applied last."""

        def __init__(self, path_ms: float) -> None:
            self.path_ms = path_ms

        def rtt_samples_ms(self, _expected_ms: float, interval_s: float) -> list[float]:
            return [sum(applied[-1]) + self.path_ms] * check.PROBES

    check.calibrated_delays(Late(0.4), profile, applied.append)  # type: ignore[arg-type]
    assert sum(applied[-1]) == pytest.approx(profile.rtt_ms - 0.4)
    applied.clear()
    check.calibrated_delays(Late(14), profile, applied.append)  # type: ignore[arg-type]
    assert sum(applied[-1]) + 14 - profile.rtt_ms > 5 * check.tolerance_ms(profile)


@pytest.mark.parametrize(
    ("name", "options"),
    [("leo", {}), ("cellular", {}), ("4g", {"trace": "leo.csv"}), ("4g", {"trace": "cellular.down,cellular.up"})],
)
def test_a_trace_of_both_directions_has_only_a_fifo(name: str, options: dict[str, str]) -> None:
    traces = Path(__file__).parents[2] / "emulation" / "traces"
    given = {option: ",".join(str(traces / file) for file in files.split(",")) for option, files in options.items()}
    link = choose(load_profiles(), name)
    limited = varied(link, queue="100", **given)
    assert (limited.queue, limited.queue_bdp, limited.queue_packets) == (None, None, 100)
    for queue in ("fq_codel", "fifo", "10bdp"):
        with pytest.raises(LinkError, match=r"has a FIFO of its own.*--queue 100"):
            varied(link, queue=queue, **given)


def test_a_queue_of_a_link_gives_way_to_the_fifo_of_a_trace() -> None:
    down = str(Path(__file__).parents[2] / "emulation" / "traces" / "cellular.down")
    managed = varied(choose(load_profiles(), "4g"), queue="fq_codel")
    assert varied(managed, trace=f"{down},{down}", queue="100").queue is None
    one_direction = varied(choose(load_profiles(), "4g"), trace=down, queue="100")
    assert (one_direction.queue, one_direction.queue_packets) == ("fifo", 100)
