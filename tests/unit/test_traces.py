"""Traces: files from outside are read or refused with their line, and packets leave when the trace has it."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from crosslayer.campaign.plan import Cell, Plan
from crosslayer.decode import FieldError
from crosslayer.links import LinkError, Profile, load_profiles, own_profiles, varied
from crosslayer.testbed import trace_check, trace_replay
from crosslayer.testbed.trace_check import Playing
from crosslayer.testbed.trace_replay import Schedule
from crosslayer.traces import OPPORTUNITY_BYTES, Trace, TraceError

TESTS = Path(__file__).parents[1] / "data" / "traces" / "speed_tests.csv"
NS = 1_000_000


def mahimahi(path: Path, times: Sequence[int]) -> Trace:
    path.write_text("\n".join(map(str, times)) + "\n", encoding="ascii")
    return Trace(down=str(path))


def steps(path: Path, text: str) -> Trace:
    path.write_text(text, encoding="ascii")
    return Trace(steps=str(path))


def way(trace: Trace, limit: int = 1000, rtt_ms: float = 20.0) -> Schedule:
    profile = Profile("x", rtt_ms, trace=trace, queue_packets=limit)
    assert profile.course is not None
    down, _up = trace_replay.schedules(trace_check.replay_format(profile.course, profile))
    down.start(0)
    return down


def by_opportunity(times: Sequence[int], packets: Sequence[tuple[int, int]]) -> list[int]:
    """Mahimahi's own procedure, an opportunity after the other: when each packet (ms it came, bytes) has left."""
    left: list[int] = []
    waiting: list[list[int]] = []
    coming = [list(packet) for packet in packets]
    turn = 0
    while len(left) < len(packets):
        for ms in (turn * times[-1] + time for time in times):
            while coming and coming[0][0] < ms:
                waiting.append(coming.pop(0))
            room = OPPORTUNITY_BYTES
            while waiting and room:
                taken = min(room, waiting[0][1])
                waiting[0][1] -= taken
                room -= taken
                if not waiting[0][1]:
                    waiting.pop(0)
                    left.append(ms)
        turn += 1
    return left


def test_packets_leave_as_mahimahi_lets_them(tmp_path: Path) -> None:
    draw = random.Random(1)
    for case in range(20):
        times = sorted(draw.randint(0 if case % 2 else 1, 400) for _ in range(60))
        # A quarter of a ms after the opportunity of that ms, so that none is met exactly.
        packets = sorted((draw.randint(0, 1500), draw.randint(40, 1504)) for _ in range(150))
        played = way(mahimahi(tmp_path / "x.down", times))
        results = [played.leaves_ns(came * NS + NS // 4, size + 10) for came, size in packets]
        expected = by_opportunity(times, [(came, size) for came, size in packets])
        assert results == [ms * NS for ms in expected]


def test_a_rate_in_steps_is_that_rate_and_0_holds_packets(tmp_path: Path) -> None:
    text = "duration_ms,download_mbit\n100,8\n50,0\n100,16\n"
    played = way(steps(tmp_path / "x.csv", text))
    assert played.leaves_ns(0, 1000) == 1 * NS
    assert played.leaves_ns(0, 1000) == 2 * NS
    assert played.leaves_ns(99 * NS, 2000) == 150 * NS + NS // 2  # half of it before the gap
    assert played.leaves_ns(249 * NS, 4000) == 250 * NS + 2 * NS  # into the next turn
    assert played.leaves_ns(1000 * 250 * NS, 1000) == (1000 * 250 + 1) * NS


def test_a_queue_drops_what_it_has_no_room_for(tmp_path: Path) -> None:
    played = way(steps(tmp_path / "x.csv", "duration_ms,download_mbit\n100,8\n"), limit=3)
    results = [played.leaves_ns(0, 1000) for _ in range(5)]
    assert results == [1 * NS, 2 * NS, 3 * NS, None, None]
    assert played.leaves_ns(1 * NS, 1000) == 4 * NS


def test_the_delay_follows_the_rtt_and_nobody_overtakes(tmp_path: Path) -> None:
    trace = steps(tmp_path / "x.csv", "duration_ms,rtt_ms\n100,50\n100,20\n")
    played = way(trace)
    assert played.leaves_ns(10 * NS, 100) == 25 * NS
    assert played.leaves_ns(99 * NS, 100) == 114 * NS
    assert played.leaves_ns(101 * NS, 100) == 114 * NS
    assert played.leaves_ns(120 * NS, 100) == 120 * NS
    before = Schedule(None, {"at_ns": [0, 5], "extra_ns": [5]})
    assert before.leaves_ns(121 * NS, 100) == 121 * NS


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("1\n5\n4\n", "line 3", "goes back from 5 ms to 4"),
        ("1\n# no\n2.5\n", "line 3", "'2.5'"),
        ("1 2\n", "line 1", "'1 2'"),
        ("", "x.down", "no delivery opportunity"),
        ("5\n" + "9" * 21 + "\n", "line 2", "at most 604800000 ms"),
        ("9" * 5000, "line 1", "at most 604800000 ms"),
        ("604800001\n", "line 1", "at most 604800000 ms"),
        ("0\n0\n", "x.down", "no delivery opportunity"),
    ],
)
def test_a_file_that_is_not_mahimahis_is_refused_with_its_line(
    tmp_path: Path, text: str, where: str, what: str
) -> None:
    file = tmp_path / "x.down"
    file.write_text(text, encoding="ascii")
    with pytest.raises(TraceError, match=what) as caught:
        Trace(down=str(file)).course()
    assert caught.value.where.endswith(where)
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("rtt_ms\n5\n", "x.csv", "no column 'duration_ms'"),
        ("duration_ms,speed\n5,5\n", "x.csv", "a column 'speed'"),
        ("duration_ms,rtt_ms\n5\n", "line 2", "1 values for 2 columns"),
        ("duration_ms,rtt_ms\n# so\n0,5\n", "line 3", "'0' as duration_ms"),
        ("duration_ms,rtt_ms\n5,inf\n", "line 2", "'inf' as rtt_ms"),
        ("duration_ms,upload_mbit\n5,-1\n", "line 2", "'-1' as upload_mbit"),
        ("duration_ms,upload_mbit\n5,0\n", "x.csv", "no upload_mbit above 0"),
        ("duration_ms\n5\n", "x.csv", "no steps"),
        ("duration_ms,rtt_ms\n1e99,5\n", "line 2", "'1e99' as duration_ms"),
        ("duration_ms,rtt_ms\n5,60001\n", "line 2", "'60001' as rtt_ms"),
        ("duration_ms,upload_mbit\n5,1e9\n", "line 2", "'1e9' as upload_mbit"),
        ("duration_ms,rtt_ms\n", "x.csv", "no steps"),
    ],
)
def test_steps_that_are_none_are_refused_with_their_line(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(TraceError, match=what) as caught:
        steps(tmp_path / "x.csv", text).course()
    assert caught.value.where.endswith(where)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"\x1f\x8b\xff")
    for name, what in (("none", "cannot be read"), ("packed", "is not UTF-8")):
        with pytest.raises(TraceError, match=what):
            Trace(down=str(tmp_path / name)).course()


def test_draws_have_the_distribution_of_the_speed_tests() -> None:
    course = Trace(errant=str(TESTS), of="alpha, nowhere, 4G, good", every_s=2.0).course()
    assert course.down is not None
    assert course.length_ms == 200_000
    rtts = [rtt for _, rtt in course.rtts]
    rates = [
        (later - earlier) * 8e-3 / 2000
        for earlier, later in zip(course.down.delivered_bytes, course.down.delivered_bytes[1:], strict=False)
    ]
    tests = [line.split(",") for line in TESTS.read_text(encoding="ascii").splitlines()[1:]]
    good = [row for row in tests if row[0] == "alpha" and float(row[3]) > -75]
    for drawn, measured in ((rates, [float(row[4]) for row in good]), (rtts, [float(row[6]) for row in good])):
        assert len(set(drawn)) == len(drawn) > len(measured)
        assert statistics.mean(drawn) == pytest.approx(statistics.mean(measured), rel=0.1)
        factor = (len(measured) * 5 / 4) ** (-1 / 7)  # Silverman's, which a kernel density widens by
        widened = statistics.stdev(measured) * math.sqrt(1 + factor**2)
        assert statistics.stdev(drawn) == pytest.approx(widened, rel=0.25)
    # Fast tests have short RTTs, and so have the draws.
    assert statistics.correlation(rates, rtts) == pytest.approx(
        statistics.correlation([float(row[4]) for row in good], [float(row[6]) for row in good]), abs=0.2
    )


def test_speed_tests_of_nobody_are_refused_with_those_there_are() -> None:
    for of in ("gamma,nowhere,4g,good", "beta,nowhere,4g,good", "alpha"):
        with pytest.raises(TraceError, match="too few") as caught:
            Trace(errant=str(TESTS), of=of).course()
        assert "alpha,nowhere,4g,good; alpha,nowhere,4g,medium" in caught.value.next_step


def test_speed_tests_of_another_format_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tests.csv"
    file.write_text(TESTS.read_text(encoding="ascii").replace(",4G,", ",5G,", 1), encoding="ascii")
    with pytest.raises(TraceError, match="'5g' as access_technology") as caught:
        Trace(errant=str(file), of="a,b,c,d").course()
    assert caught.value.where.endswith("line 2")


@pytest.mark.parametrize(
    ("values", "key"),
    [({}, ""), ({"down": "a", "steps": "b"}, ""), ({"errant": "a"}, "of"), ({"steps": "a", "of": "b"}, "of")],
)
def test_a_trace_is_of_one_kind(values: dict[str, str], key: str) -> None:
    with pytest.raises(FieldError) as caught:
        Trace(**values)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_a_link_leaves_to_its_trace_what_that_says(tmp_path: Path) -> None:
    both = steps(tmp_path / "x.csv", "duration_ms,rtt_ms,download_mbit\n100,50,8\n100,20,8\n")
    assert Profile("x", 20.0, upload_mbit=5, trace=both).course is not None
    for values, key in (
        ({"rtt_ms": 20.0, "download_mbit": 5.0}, "download_mbit"),
        ({"rtt_ms": 21.0}, "rtt_ms"),
        ({"rtt_ms": 0.0}, "rtt_ms"),
        ({"rtt_ms": 20.0, "queue": "cake"}, "queue"),
    ):
        with pytest.raises(FieldError) as caught:
            Profile("x", trace=both, **values)  # type: ignore[arg-type]
        assert caught.value.key == key


def test_a_file_of_links_names_traces_in_its_folder(tmp_path: Path) -> None:
    mahimahi(tmp_path / "tram.down", [1, 2, 3])
    steps(tmp_path / "leo.csv", "duration_ms,rtt_ms\n100,50\n100,20\n")
    file = tmp_path / "mine.toml"
    file.write_text(
        '[tram]\nrtt_ms = 30\nupload_mbit = 5\ntrace = { down = "tram.down" }\n[low]\ntrace = { steps = "leo.csv" }\n',
        encoding="utf-8",
    )
    result = own_profiles(file)
    assert result["tram"].trace == Trace(down=str(tmp_path / "tram.down"))
    assert result["low"].rtt_ms == 20  # the least of the trace's
    for text, error, what in (
        ('trace = { downwards = "tram.down" }', LinkError, "is an unknown key"),
        ('rtt_ms = 5\ntrace = { down = "none.down" }', TraceError, "cannot be read"),
        ('rtt_ms = 5\ntrace = "tram.down"', LinkError, "must be"),
        ('trace = { down = "tram.down" }', LinkError, "is missing"),
    ):
        file.write_text(f"[tram]\n{text}\n", encoding="utf-8")
        with pytest.raises(error, match=what):
            own_profiles(file)


def test_the_command_line_puts_a_trace_instead_of_a_links_values(tmp_path: Path) -> None:
    down, up = tmp_path / "a.down", tmp_path / "a.up"
    mahimahi(down, [1, 2])
    mahimahi(up, [5, 9])
    link = Profile("x", 60.0, download_mbit=10, upload_mbit=5)
    one = varied(link, trace=str(down))
    assert (one.rtt_ms, one.download_mbit, one.upload_mbit) == (60, None, 5)
    two = varied(link, trace=f"{down},{up}", loss="1%")
    assert (two.download_mbit, two.upload_mbit, two.loss_percent) == (None, None, 1)
    assert two.name == "x+1%+a.down+a.up"
    steps(tmp_path / "leo.csv", "duration_ms,rtt_ms\n100,50\n100,20\n")
    assert varied(link, trace=str(tmp_path / "leo.csv")).rtt_ms == 20


def test_the_projects_traces_are_traces() -> None:
    results = {name: profile.course for name, profile in load_profiles().items() if profile.trace is not None}
    assert set(results) == {"leo", "cellular"}
    assert load_profiles()["geo"].rtt_ms == 600
    assert Counter(duration for duration, _ in results["leo"].rtts) == {14960.0: 8, 40.0: 8}  # type: ignore[union-attr]


def test_a_round_begins_where_the_seed_has_it() -> None:
    plan = Plan(study="x", links=("a",), pages=("p",))
    cell = Cell("a", "p")
    positions = [plan.trace_position(number, cell) for number in range(200)]
    assert positions == [plan.trace_position(number, cell) for number in range(200)]
    assert positions != [replace(plan, seed=2).trace_position(number, cell) for number in range(200)]
    assert 0 <= min(positions) < 0.1
    assert 0.9 < max(positions) < 1


class Simulated:
    """Both ends and a player in between, without time: what arrives is what a way of this trace lets through."""

    def __init__(self, profile: Profile) -> None:
        assert profile.course is not None
        self._format = trace_check.replay_format(profile.course, profile)

    def play(self, epoch_ns: int) -> None:
        self._ways = trace_replay.schedules(self._format)
        for one in self._ways:
            one.start(epoch_ns)

    def paced(self, direction: str, at_ns: Sequence[int], frame_bytes: int) -> tuple[list[int], dict[int, int]]:
        leaving = [self._ways[direction == "up"].leaves_ns(at, frame_bytes) for at in at_ns]
        return list(at_ns), {number: at for number, at in enumerate(leaving) if at is not None}


def test_a_player_of_another_trace_is_detected(tmp_path: Path) -> None:
    def link(name: str, mbit: float, rtt_ms: float) -> Profile:
        text = f"duration_ms,rtt_ms,download_mbit,upload_mbit\n5000,{rtt_ms},{mbit},5\n5000,20,{mbit},5\n"
        return Profile(name, 20.0, trace=steps(tmp_path / f"{name}.csv", text))

    expected = link("told", 20, 40)

    def faults(other: Profile) -> str:
        wire = Simulated(other)
        _seen, result = trace_check.measure_trace(wire, expected, Playing(100.0, wire.play), (0.0, 0.0))
        return "; ".join(result)

    assert faults(link("same", 20, 40)) == ""
    assert "downlink 17.99" in faults(link("slow", 18, 40))
    assert "downlink 21.36" in faults(link("fast", 24, 40))  # as much as is offered
    assert "ms after the trace's time" in faults(link("far", 20, 60))
