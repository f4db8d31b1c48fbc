"""`crosslayer compare` in a box in virtual time, checked with the box's record.

It must find the true times, order and ties, every pitfall in the box, and no other pitfall. This file is also the
program that runs in the box: `test_must_find.py seeds COUNT FOLDER` compares the same resolvers with many seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from crosslayer.box.description import load_box
from crosslayer.resolvers.journal import read_campaign
from crosslayer.resolvers.plan import Disturbance
from crosslayer.vocabulary import EventKind
from tests import box_compare
from tests.integration.conftest import run_here

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
BOXES = ROOT / "emulation/boxes"
SEEDS = 100
CLEAN_SEEDS = 20
NOISY = """
[zone]
name = "box.example"
ttl_s = 86400
[[resolver]]
name = "one"
rtt_ms = 20
jitter_ms = 1
[[resolver]]
name = "same"
rtt_ms = 20
jitter_ms = 1
[[resolver]]
name = "farther"
rtt_ms = 24
jitter_ms = 1
"""


def seeds(count: int, folder: Path) -> None:
    """In a box: compare its resolvers with many seeds, and print groups and flags of each comparison."""
    from crosslayer.resolvers import run
    from crosslayer.vocabulary import Protocol

    results = []
    for seed in range(count):
        result = folder / "result.json"
        request = run.request(
            [os.environ["CROSSLAYER_RESOLVERS"]],
            protocols=[Protocol.DOUDP, Protocol.DOQ],
            name="a.box.example",
            rounds=box_compare.ROUNDS,
            seed=seed,
            timeout_s=5.0,
            queries_per_s=50.0,
            per_day=10_000_000,
            ca_file=Path(os.environ["CROSSLAYER_CA"]),
            dataset=folder / str(seed),
            json_file=result,
        )
        run.run(request, say=lambda _text: None, tell=lambda _text: None)
        whole = json.loads(result.read_text(encoding="utf-8"))
        groups = {f"{line['name']} {line['protocol']}": line["group"] for line in whole["lines"]}
        results.append({"groups": groups, "flags": whole["flags"]})
    print(json.dumps(results))


def many(folder: Path, box: Path, count: int) -> list[Row]:
    """Results of the comparisons with many seeds in one box."""
    options = ["--clock", "virtual", "--writable", str(folder)]
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    done = run_here(
        "box", str(box), *options, "--", sys.executable, __file__, "seeds", str(count), str(folder),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_every_time_is_the_truth(testbed_machine: None, virtual_clock: list[str], tmp_path: Path) -> None:
    result, measured, truth = box_compare.run(
        BOXES / "five.toml", tmp_path, "--all", "--zone", "box.example", "--rounds", "10", "--rate", "20"
    )
    checked = box_compare.check(measured, truth)
    wrong = [one for one in checked if abs(one.error_ms) > box_compare.tolerance_ms(one)]
    assert not wrong, box_compare.table(checked)
    counts = Counter((one.value, one.transport) for one in checked)
    assert set(counts.values()) == {60}
    assert len(counts) == 6 + 6 + 5 + 6 + 4 + 4 + 2 + 6  # rtt, first, next, miss, idle, resumed, early, recursion
    assert result["flags"] == []
    # First queries of a transport are ordered correctly if the RTTs differ by at least 2 ms.
    rtt_ms = {resolver.name: resolver.rtt_ms for resolver in load_box(BOXES / "five.toml").resolver}
    by_transport = defaultdict(list)
    for line in result["lines"]:
        by_transport[line["protocol"]].append(line)
    for lines in by_transport.values():
        for near in lines:
            for far in lines:
                if rtt_ms[far["name"]] - rtt_ms[near["name"]] >= 2:
                    assert near["group"] < far["group"], (near["name"], far["name"])
    assert {(line["name"], line["group"]) for line in by_transport["DoQ"] if line["name"] == "city"} == {
        ("city", next(line["group"] for line in by_transport["DoQ"] if line["name"] == "city"))
    }, "both addresses of one resolver are in one group"


@pytest.fixture(scope="module")
def noisy(testbed_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """Results with all seeds in the box whose resolvers have jitter."""
    folder: Path = tmp_path_factory.mktemp("noisy")
    box = folder / "box.toml"
    box.write_text(NOISY, encoding="utf-8")
    return many(folder, box, SEEDS)


def test_equal_resolvers_do_not_differ_and_others_do(noisy: list[Row]) -> None:
    for transport in ("DoUDP", "DoQ"):
        equal = sum(row["groups"][f"one {transport}"] == row["groups"][f"same {transport}"] for row in noisy)
        farther = sum(
            row["groups"][f"farther {transport}"]
            > max(row["groups"][f"{name} {transport}"] for name in ("one", "same"))
            for row in noisy
        )
        assert equal >= 95, transport
        assert farther >= 95, transport


def test_nothing_is_flagged_that_is_not_planted(noisy: list[Row]) -> None:
    assert [row["flags"] for row in noisy[:CLEAN_SEEDS]] == [[]] * CLEAN_SEEDS


def flagged(result: Row) -> set[tuple[str, str]]:
    """Kind and subject of each flag, without addresses and transports."""
    return {(flag["kind"], flag["subject"].partition(" 198.")[0].partition(" 2001:")[0]) for flag in result["flags"]}


def _missed(measured: list[Row], truth: list[Row]) -> set[str]:
    """Resolvers at which a measured first query missed the cache, by the box's record (visits with a next query)."""
    missed = set()
    for visit in measured:
        if visit["next_ms"] is None:
            continue
        name, transport = visit["target"]["name"], box_compare.TRANSPORTS[visit["target"]["protocol"]]
        answers = [
            row
            for row in truth
            if row["event"] == "answer" and (row["resolver"], row["transport"]) == (name, transport)
            and row["time_ns"] >= visit["started_s"] * 1e9
        ]  # fmt: skip
        ports = [row["remote"] for row in answers]
        # The first flow with two queries is the measured one.
        first = next(row for row in answers if ports.count(row["remote"]) > 1)
        if first["source"] == "miss":
            missed.add(name)
    return missed


def test_every_pitfall_is_flagged(testbed_machine: None, virtual_clock: list[str], tmp_path: Path) -> None:
    transports = [word for name in ("doudp", "dot", "doh", "doq") for word in ("--transport", name)]
    result, measured, truth = box_compare.run(
        BOXES / "pitfalls.toml", tmp_path, "--all", "--idle", "1s", *transports, "--rate", "4", "--timeout", "1",
        "--name", "x.ads.box.example", "--rounds", "8",
    )  # fmt: skip
    # The first query to a cache misses: at a new site, and at each of several caches.
    missed = {subject for kind, subject in flagged(result) if kind == "partly missed the cache"}
    assert missed == _missed(measured, truth)
    assert "balanced" in missed <= {"balanced", "anycast", "moving"}
    assert {flag for flag in flagged(result) if flag[0] != "partly missed the cache"} == {
        ("several sites", "anycast"),
        ("several sites", "moving"),
        ("path change", "moving"),
        ("several servers behind one address", "balanced"),
        ("rate limit", "limited"),
        ("other answer", "filtering"),
        ("path change", "rerouted"),
        ("broken IPv6", "half-ipv6"),
        ("certificate", "wrong-name"),
        ("other version of DoQ", "draft"),
        ("no answer at all", "dead"),
    }
    # Of the resolver with a rate limit, only the transports that it never refused are ranked.
    limited = {
        line["protocol"] for line in result["lines"] if line["name"] == "limited" and "rate limit" in line["flags"]
    }
    ranked = {(line["name"], line["protocol"]) for line in result["lines"] if line["group"] is not None}
    assert {name for name, _ in ranked} - {"limited"} == {"plain", "equal", "half-ipv6", "wrong-name", "draft"}
    assert limited
    assert not {("limited", protocol) for protocol in limited} & ranked


def test_what_the_network_does_is_flagged(testbed_machine: None, virtual_clock: list[str], tmp_path: Path) -> None:
    result, _measured, _truth = box_compare.run(BOXES / "hotel.toml", tmp_path, "--rate", "20", "--timeout", "1")
    assert flagged(result) == {
        ("interception of UDP port 53", "this network"),
        ("blocked port", "UDP port 443"),
        ("certificate", "victim"),
    }
    assert {line["protocol"] for line in result["lines"] if line["group"] is not None} == {"DoT", "DoH", "DoQ"}
    blocked = tmp_path / "blocked.toml"
    blocked.write_text(NOISY + '[network]\nblocked = ["udp/853"]\n', encoding="utf-8")
    folder = tmp_path / "blocked"
    folder.mkdir()
    result, _measured, _truth = box_compare.run(blocked, folder, "--rate", "20", "--timeout", "1", "--rounds", "3")
    assert flagged(result) == {("blocked port", "UDP port 853")}


def _estimates(result: Row) -> dict[str, float]:
    """Idle time after which flows expire, s, from the flags."""
    prefix = "idle UDP is forgotten"
    flagged_so = [flag for flag in result["flags"] if flag["kind"] == prefix]
    return {flag["subject"].partition(" ")[0]: float(flag["evidence"].split()[1]) for flag in flagged_so}


@pytest.mark.parametrize(("forgotten", "shows"), [("new-port", {"QUIC"}), ("drop", {"QUIC", "DoUDP"})])
def test_the_time_after_which_a_nat_forgets_udp_is_measured(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path, forgotten: str, shows: set[str]
) -> None:
    box = tmp_path / "box.toml"
    text = (BOXES / "nat.toml").read_text(encoding="utf-8")
    box.write_text(text.replace('"new-port"', f'"{forgotten}"'), encoding="utf-8")
    result, measured, truth = box_compare.run(
        box, tmp_path, "--idle", "20s", "--idle", "45s", "--rate", "5", "--rounds", "4"
    )
    estimates = _estimates(result)
    assert estimates == dict.fromkeys(shows, pytest.approx(30, abs=1))
    assert len(result["flags"]) == len(shows)
    dropped = {row["reason"] for row in truth if row["event"] == "drop" and row["host"] in ("one", "two")}
    assert ("nat-forgot" in dropped) == (forgotten == "drop")
    for visit in measured:
        for query in visit["idle"]:
            transport = visit["target"]["protocol"]
            forgot = query["measured_idle_s"] > 30 and transport in ("DoQ", "DoH3", "DoUDP")
            if forgotten == "drop":
                assert (query["error"] == "timeout") == forgot, (transport, query)
            elif transport in ("DoQ", "DoH3"):
                assert query["moved"] == forgot, (transport, query)
                assert query["error"] is None


def test_a_server_that_closes_idle_connections_is_no_nat(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path
) -> None:
    box = tmp_path / "box.toml"
    text = (BOXES / "nat.toml").read_text(encoding="utf-8")
    box.write_text(text.partition("[network.nat]")[0].replace("= 120", "= 25"), encoding="utf-8")
    result, measured, _truth = box_compare.run(box, tmp_path, "--idle", "20s", "--idle", "45s", "--rounds", "2")
    assert result["flags"] == []
    ended = {(query["idle_s"], query["error"]) for visit in measured if visit["target"]["protocol"] in ("DoQ", "DoH3")
             for query in visit["idle"]}  # fmt: skip
    assert ended == {(20.0, None), (45.0, "idle timeout")}


def test_early_data_and_idle_times_are_measured(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path
) -> None:
    result, measured, truth = box_compare.run(BOXES / "five.toml", tmp_path, "--all", "--rounds", "3", "--rate", "20")
    assert result["flags"] == []
    rtt_ms = {resolver.name: resolver.rtt_ms for resolver in load_box(BOXES / "five.toml").resolver}
    early = {(row["resolver"], row["transport"]) for row in truth if row["event"] == "answer" and row["early_data"]}
    assert early == {(name, transport) for name in rtt_ms for transport in ("doq", "doh3")}
    for visit in measured:
        name, transport = visit["target"]["name"], visit["target"]["protocol"]
        near = pytest.approx(rtt_ms[name], abs=0.01 * rtt_ms[name] + 0.2)
        assert (visit["early_ms"] == near) == (transport in ("DoQ", "DoH3")), visit
        assert visit["early_error"] is None
        (idle,) = visit["idle"]
        assert idle["idle_s"] == 20
        if idle["error"] is None:
            assert idle["time_ms"] == near, (name, transport)
    closed = {visit["target"]["protocol"] for visit in measured if visit["idle"][0]["error"]}
    assert closed <= {"DoT", "DoTCP"}, "CoreDNS closes them after 10 s"


ROUND_TRIPS = {"DoUDP": 1, "DoT": 3, "DoH": 3, "DoH3": 2, "DoQ": 2}
TWO = """
[zone]
name = "box.example"
ttl_s = 86400
[[resolver]]
name = "one"
rtt_ms = 20
[[resolver]]
name = "two"
rtt_ms = 30
"""


def disturbed(
    box: Path, folder: Path, *arguments: str, program: tuple[str, ...] = ()
) -> tuple[Row, list[Disturbance], list[Row]]:
    """Compare in a box with an event during a round; returns the result, the noticed disturbances and the box's record.

    Also checks that every round is complete, without errors, and with the times of the paths.
    """
    result, measured, truth = box_compare.run(box, folder, "--rounds", "6", *arguments, program=program)
    noticed = read_campaign(folder / "dataset").disturbances["host-1"]
    again = {one.round for one in noticed if one.voids is not None}
    targets = {(visit["target"]["name"], visit["target"]["protocol"]) for visit in measured}
    assert len(measured) == 6 * len(targets), "each round has a whole attempt"
    for visit in measured:
        assert visit["attempt"] == (visit["round"] in again)
        assert visit["error"] is visit["next_error"] is None, visit
        rtt_ms = 20 if visit["target"]["name"] == "one" else 30
        assert visit["first_ms"] == pytest.approx(ROUND_TRIPS[visit["target"]["protocol"]] * rtt_ms, abs=0.5)
    return result, noticed, truth


def _during(noticed: Disturbance, folder: Path, at_ns: int) -> bool:
    """Whether an event was between the end of the round before a voided attempt and the time when it was noticed."""
    visits = read_campaign(folder / "dataset").visits
    before = max(visit.started_s for visit in visits if visit.round < noticed.round)
    return before <= at_ns / 1e9 <= noticed.noticed_s


@pytest.mark.parametrize(
    ("transports", "evidence"),
    [(("doq",), "validated another address"), (("dot", "doh"), "kept connections to 2 operators were reset")],
)
def test_a_round_in_which_the_nat_gets_another_address_is_measured_again(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path, transports: tuple[str, ...], evidence: str
) -> None:
    box = tmp_path / "box.toml"
    box.write_text(f"{TWO}[network.nat]\naddress_changes_s = [9.5]\n", encoding="utf-8")
    result, (noticed,), truth = disturbed(
        box, tmp_path, *(word for name in transports for word in ("--transport", name))
    )
    assert noticed.kind is EventKind.ADDRESS_CHANGED
    assert evidence in noticed.reason
    (changed,) = (row for row in truth if row["event"] == "address-change")
    assert _during(noticed, tmp_path, changed["time_ns"])
    assert [flag["kind"] for flag in result["flags"]] == ["address change"]
    assert [flag["subject"] for flag in result["flags"]] == [f"round {noticed.round}"]


def renumber(at_s: float, command: list[str]) -> int:
    """In a box: run a command, and change this machine's address meanwhile."""
    from pyroute2 import IPRoute

    with subprocess.Popen(command) as process, IPRoute() as ip:
        time.sleep(at_s)
        (device,) = ip.link_lookup(ifname="eth0")
        ip.addr("add", index=device, address="192.168.53.77", prefixlen=32)
        ip.addr("del", index=device, address="192.168.53.2", prefixlen=32)
        return process.wait()


def test_a_round_in_which_the_machine_gets_another_address_is_measured_again(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path
) -> None:
    box = tmp_path / "box.toml"
    box.write_text(f"{TWO}[network.nat]\n", encoding="utf-8")
    program = (sys.executable, __file__, "renumber", "10.5")
    result, (noticed,), _truth = disturbed(box, tmp_path, "--transport", "doudp", "--transport", "doh", program=program)
    assert noticed.kind is EventKind.ADDRESS_CHANGED
    assert "of its own" in noticed.reason
    assert [flag["kind"] for flag in result["flags"]] == ["address change"]


@pytest.mark.parametrize("by_s", [3600.0, -90.0, 0.5])
def test_a_round_in_which_the_clock_is_set_is_measured_again(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path, by_s: float
) -> None:
    box = tmp_path / "box.toml"
    box.write_text(f"clock_step = [{{ at_s = 10.5, by_s = {by_s} }}]\n{TWO}", encoding="utf-8")
    result, (noticed,), truth = disturbed(box, tmp_path)
    assert noticed.kind is EventKind.CLOCK_STEPPED
    assert noticed.reason == f"the time of day was set by {by_s:+.1f} s"
    assert [row["by_s"] for row in truth if row["event"] == "clock-step"] == [by_s]
    assert [flag["kind"] for flag in result["flags"]] == ["clock step"]
    # The comparison does not wait after the clock is set back, because it uses another clock for its times.
    packets = [row["time_ns"] for row in truth if row["event"] == "packet"]
    assert max(packets) - min(packets) < 120e9


if __name__ == "__main__":
    if sys.argv[1] == "renumber":
        sys.exit(renumber(float(sys.argv[2]), sys.argv[3:]))
    seeds(int(sys.argv[2]), Path(sys.argv[3]))
