"""`crosslayer compare` in a box (emulated Internet), checked with the box's record: times, limits, and resumption.

This file is also the program that runs in a box: `test_resolvers.py SCENARIO FOLDER`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.resolvers.journal import read_campaign
from tests.integration.conftest import CROSSLAYER, Run

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
FIVE = ROOT / "emulation/boxes/five.toml"
VANTAGES = ROOT / "emulation/boxes/vantages.toml"
RTT_MS = {"near": 5, "city": 30, "country": 32, "continent": 100, "antipode": 300}
ROUND_TRIPS = {"DoUDP": 1, "DoH": 3, "DoQ": 2}
PITFALLS = """
[zone]
name = "box.example"
[[resolver]]
name = "one"
rtt_ms = 20
[[resolver]]
name = "same"
rtt_ms = 20
[[resolver]]
name = "dead"
dead = true
[[resolver]]
name = "other-name"
certificate = "other-name"
[[resolver]]
name = "expired"
certificate = "expired"
[[resolver]]
name = "draft"
rtt_ms = 60
doq_alpn = "doq-i02"
[[resolver]]
name = "limited"
rtt_ms = 40
rate_limit = { queries_per_s = 2, answer = "refused" }
"""

# Inside a box


def compare(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CROSSLAYER, "compare", *arguments], capture_output=True, text=True, check=False, timeout=300, **options
    )


def killed(folder: Path) -> None:
    """Kill a comparison with SIGKILL after some visits, then continue it."""
    from crosslayer.campaign.store import Store

    out, shown = folder / "killed", folder / "killed.log"
    arguments = ["--name", "a.box.example", "--transport", "doudp", "--transport", "dot", "--rate", "50"]
    arguments += ["--dataset", str(out)]
    with (
        shown.open("wb") as log,
        subprocess.Popen([*CROSSLAYER, "compare", *arguments], stdout=subprocess.DEVNULL, stderr=log) as process,
    ):
        while (reported := counted(shown)) < 20:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    reported = counted(shown)
    with Store(out) as store:
        at_kill = [(row["round"], row["target"], row["state"]) for row in store.rows("resolver_queries", "host-1")]
    done = compare(*arguments, "--resume")
    result = {"reported": reported, "at_kill": at_kill, "status": done.returncode, "error": done.stderr[-500:]}
    print(json.dumps(result))


def counted(log: Path) -> int:
    """Number of visits in the last progress bar of a log."""
    return max((int(count) for count in re.findall(r"(\d+)/\d+ ", log.read_text(encoding="utf-8"))), default=0)


# Outside a box


def environment() -> dict[str, str]:
    return os.environ | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }


def in_box(
    run: Run, box: Path, folder: Path, *arguments: str, program: Sequence[str] = (), **variables: str
) -> tuple[dict[tuple[str, str], Row], Row, list[Row]]:
    """Compare in a box in virtual time; returns lines by resolver and transport, the result, and the box's record.

    If `program` is given, it runs in place of `crosslayer compare`, with the same arguments.
    """
    truth, result = folder / "truth.jsonl", folder / "result.json"
    command = [*(program or [*CROSSLAYER, "compare"]), "--name", "a.box.example", "--json", str(result)]
    command += ["--seed", "1", "--dataset", str(folder / "compare"), *arguments]
    options = ["--clock", "virtual", "--truth", str(truth), "--writable", str(folder)]
    done = run("box", str(box), *options, "--", *command, env=environment() | variables)
    assert done.returncode == 0, done.stderr[-2000:]
    whole = json.loads(result.read_text(encoding="utf-8"))
    lines = {(line["name"], line["protocol"]): line for line in whole["lines"] if ":" not in line["address"]}
    return lines, whole, [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]


def test_the_true_order_and_times_are_measured(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    lines, whole, truth = in_box(
        crosslayer, FIVE, tmp_path, "--all", *(word for name in ROUND_TRIPS for word in ("--transport", name.lower()))
    )
    for transport, round_trips in ROUND_TRIPS.items():
        for name, rtt_ms in RTT_MS.items():
            line, tolerance = lines[name, transport], 0.01 * rtt_ms + 0.2
            assert line["first_ms"]["median"] == pytest.approx(round_trips * rtt_ms, abs=tolerance), (name, transport)
            assert ("next_ms" in line) == ("resumed_ms" in line) == (transport != "DoUDP")
            if transport != "DoUDP":
                assert line["next_ms"]["median"] == pytest.approx(rtt_ms, abs=tolerance), (name, transport)
            assert line["rtt_ms"]["median"] == pytest.approx(rtt_ms, abs=0.1)
            assert line["reasons"] == {}
        groups = [lines[name, transport]["group"] for name in RTT_MS]
        assert groups == sorted(set(groups)), transport
    assert whole["advice"].endswith("Encrypted: near 198.18.1.53 DoQ. Unencrypted: near 198.18.1.53 DoUDP.")
    # The budget is kept: every query is counted, and each operator gets at most one query per second.
    times = defaultdict(list)
    for row in truth:
        if row["event"] == "answer" and row["resolver"] != "authority":
            times[row["resolver"]].append(row["time_ns"] / 1e9)
    # First, next, idle and resumed query, early data, and at most one query per round that fills the cache.
    for name, when in times.items():
        addresses = 2 if name == "city" else 1
        assert 1 <= len(when) - addresses * 6 * (2 + 4 + 5) <= addresses * 6, name
    # The operators are interleaved: the one with two addresses determines the total time, not the sum of all.
    starts = [when for all_times in times.values() for when in all_times]
    longest_s = 2 * 6 * (2 + 4 + 5 + 1) + 2 * 6 * 3 * 20
    assert max(starts) - min(starts) < 1.5 * longest_s
    for name, when in times.items():
        # The first packet is sent on time; the query arrives 0 to 2 round-trips later.
        slack = 2 * RTT_MS[name] / 1000 + 0.01
        assert min(b - a for a, b in zip(sorted(when), sorted(when)[1:], strict=False)) > 1 - slack


def test_by_default_five_resolvers_take_two_minutes_and_300_queries(
    crosslayer: Run, virtual_clock: list[str], tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    lines, whole, truth = in_box(crosslayer, FIVE, tmp_path, "--out", str(report))
    asked = [row["time_ns"] / 1e9 for row in truth if row["event"] == "answer" and row["resolver"] != "authority"]
    # One query fills each cache. One further query to an address without a host has no answer.
    assert len(asked) == 5 * (1 + 6 * 9)
    assert len(asked) + 1 <= 300
    assert max(asked) - min(asked) < 120
    assert len(lines) == 25
    assert whole["flags"] == []
    assert "Encrypted: near 198.18.1.53 D" in whole["advice"]
    text = report.read_text(encoding="utf-8")
    assert text.count("<svg") == 1
    assert whole["advice"].replace("'", "&#39;") in text


def test_equals_and_failures(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(PITFALLS, encoding="utf-8")
    lines, whole, truth = in_box(crosslayer, box, tmp_path, "--transport", "doh", "--transport", "doq")
    for transport in ("DoH", "DoQ"):
        assert lines["one", transport]["group"] == lines["same", transport]["group"]
        assert set(lines["dead", transport]["reasons"]) == {"no answer"}
        for name in ("other-name", "expired"):
            (reason,) = lines[name, transport]["reasons"]
            assert reason.startswith("wrong certificate ("), reason
        assert lines["limited", transport]["reasons"] == {}
    assert sum(lines["dead", transport]["failed"] for transport in ("DoH", "DoQ")) == 3
    assert lines["draft", "DoH"]["reasons"] == {}
    (reason,) = lines["draft", "DoQ"]["reasons"]
    assert reason.startswith("other application protocol"), reason
    assert "one 198.18.1.53 DoQ" in whole["advice"]
    assert "same 198.18.2.53 DoQ" in whole["advice"]
    assert not [row for row in truth if row["event"] == "answer" and row["source"] == "limited"]


def test_back_off_from_a_resolver_that_refuses(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(PITFALLS[: PITFALLS.index('[[resolver]]\nname = "one"')] + PITFALLS[PITFALLS.rindex("[[res") :])
    lines, _whole, truth = in_box(crosslayer, box, tmp_path, "--transport", "doudp", "--rate", "50", "--rounds", "20")
    answers = [row for row in truth if row["event"] == "answer" and row["resolver"] == "limited"]
    limited = [number for number, row in enumerate(answers) if row["source"] == "limited"]
    assert limited
    for number in limited[:-1]:
        assert answers[number + 1]["time_ns"] - answers[number]["time_ns"] > 4.9e9
    assert any("rcode REFUSED" in reason for reason in lines["limited", "DoUDP"]["reasons"])


MANNERS = """
[zone]
name = "box.example"
ttl_s = 3600
[[resolver]]
name = "plain"
rtt_ms = 20
[[resolver]]
name = "stopped"
rtt_ms = 20
[[resolver]]
name = "listed"
rtt_ms = 20
[[resolver]]
name = "forbids"
rtt_ms = 30
asks_to_stop = { after_queries = 4, answer = "403" }
[[resolver]]
name = "prohibits"
rtt_ms = 40
asks_to_stop = { after_queries = 5, answer = "prohibited" }
[[resolver]]
name = "refuses"
rtt_ms = 40
asks_to_stop = { after_queries = 6, answer = "451" }
[[resolver]]
name = "silent"
rtt_ms = 10
dead = true
"""


def manners(folder: Path, *arguments: str) -> None:
    """In a box that counts as outside: compare with a small daily limit until the comparison is complete."""
    config = folder / "config/crosslayer"
    config.mkdir(parents=True)
    stops = config / "stop_list.toml"
    stops.write_text('[[stop]]\nreason = "asked by mail"\nnetworks = ["198.18.2.0/24"]\n', encoding="utf-8")
    runs: list[Row] = []
    base = [*arguments, "--transport", "doudp", "--transport", "doh", "--per-day", "16", "--i-may-send-this"]
    while not runs or runs[-1]["status"] == 75:
        done = compare(*base, *(["--resume"] if runs else []))
        runs.append({"at_s": time.time(), "status": done.returncode, "out": done.stdout, "error": done.stderr[-800:]})
        # From the second run on, another resolver is on the stop list.
        stops.write_text(
            stops.read_text() + '[[stop]]\nreason = "asked us"\noperators = ["listed"]\n', encoding="utf-8"
        )
        if len(runs) > 1 and runs[-1]["status"] == 75:
            time.sleep(86_400 - time.time() % 86_400)
    (folder / "runs.json").write_text(json.dumps(runs), encoding="utf-8")
    sys.exit(runs[-1]["status"])


def test_manners_outside(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(MANNERS, encoding="utf-8")
    program = [sys.executable, str(Path(__file__)), "manners", str(tmp_path)]
    folders = {f"XDG_{kind}_HOME": str(tmp_path / kind.lower()) for kind in ("CONFIG", "STATE")}
    lines, _whole, truth = in_box(
        crosslayer, box, tmp_path, "--rounds", "12", program=program, CROSSLAYER_BOX_IS_OUTSIDE="1", **folders
    )
    runs = json.loads((tmp_path / "runs.json").read_text(encoding="utf-8"))
    # 12 rounds of 3 queries do not fit into days of 16 queries. The second run is on the first day and sends nothing.
    assert [run["status"] for run in runs] == [75, 75, 75, 0], runs[-1]["error"]
    assert not [
        row for row in truth if row["event"] == "answer" and runs[0]["at_s"] < row["time_ns"] / 1e9 < runs[1]["at_s"]
    ]
    assert all("MANY" not in run["out"] for run in runs)
    assert "- plain 198.18.1.53 DoH 60.0 20.0 " in " ".join(runs[0]["out"].split()), runs[0]["out"]
    asked = defaultdict(list)
    for row in truth:
        if row["event"] == "answer" and row["resolver"] != "authority":
            asked[row["resolver"]].append(row["time_ns"] / 1e9)
    for name, when in asked.items():
        days = [int(at // 86_400) for at in when]
        assert max(map(days.count, days)) <= 16, name
        assert min(b - a for a, b in pairwise(when)) > 0.9, name
    # Stop list: one resolver got no query, the other none after it was listed. The dataset could be continued.
    assert "stopped" not in asked
    assert lines["stopped", "DoUDP"]["not_asked"] == "stop list: asked by mail"
    assert "not asked: listed 198.18.3.53: stop list: asked us" in runs[1]["out"]
    assert asked["listed"]
    assert max(asked["listed"]) < runs[0]["at_s"]
    # Resolvers that ask to stop get no further queries.
    for name, queries, reason in (
        ("forbids", None, "http status 403"),
        ("prohibits", 6, "extended error Prohibited"),
        ("refuses", None, "451"),
    ):
        stops = [
            row for row in truth if row["event"] == "answer" and row["resolver"] == name and row["source"] == "stop"
        ]
        assert reason in lines[name, "DoH"]["not_asked"], lines[name, "DoH"]
        assert reason in lines[name, "DoUDP"]["not_asked"]
        assert len(stops) <= 3
        assert queries is None or len(asked[name]) == queries
    # Pauses persist across runs, in the state file.
    state = json.loads((tmp_path / "state/crosslayer/operators.json").read_text(encoding="utf-8"))["operators"]
    assert state["silent"]["pause_s"] == 5 * 2 ** (3 - 1)
    assert sum(lines["silent", transport]["failed"] for transport in ("DoH", "DoUDP")) == 3


ONE_OPERATOR = """
[zone]
name = "box.example"
ttl_s = 3600
[[resolver]]
name = "big-one"
operator = "big"
rtt_ms = 20
[[resolver]]
name = "big-two"
operator = "big"
rtt_ms = 30
[[resolver]]
name = "small"
rtt_ms = 40
"""


def test_an_operator_at_its_limit_is_left_out_and_the_others_go_on(
    crosslayer: Run, virtual_clock: list[str], tmp_path: Path
) -> None:
    box = tmp_path / "box.toml"
    box.write_text(ONE_OPERATOR, encoding="utf-8")
    out = tmp_path / "compare"
    command = [*CROSSLAYER, "compare", "--name", "a.box.example", "--transport", "doudp", "--transport", "doh"]
    command += ["--per-day", "25", "--seed", "1", "--dataset", str(out)]
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(box), *options, "--", *command, env=environment())
    assert done.returncode == 75, done.stderr[-2000:]
    assert "Left out: big: has got its 25 queries of today" in done.stderr
    kept = read_campaign(out)
    visits = defaultdict(set)
    for visit in kept.visits:
        visits[kept.plan.targets[visit.target].operator].add((visit.round, visit.target))
    assert len(visits["small"]) == 12, "all rounds of both transports"
    assert 12 <= len(visits["big"]) < 24
    events = Dataset.open(out).table("resolver_events").collect()
    assert events.filter(kind="day-limit")["subject"].to_list() == ["big"]


def test_rounds_at_intervals_keep_to_the_times(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    """84 rounds, one every half hour, are killed with SIGKILL after 15 hours and continued after 21."""
    box = tmp_path / "box.toml"
    box.write_text('[zone]\nname = "box.example"\n[[resolver]]\nname = "one"\nrtt_ms = 20\n', encoding="utf-8")
    command = [sys.executable, str(Path(__file__)), "intervals", str(tmp_path)]
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(box), *options, "--", *command, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == 0, result["error"]
    rows = Dataset.open(tmp_path / "intervals").table("resolver_queries").filter(cache="hit", state="cold").collect()
    missed = Dataset.open(tmp_path / "intervals").table("resolver_events").filter(kind="missed-round").collect()
    begun = dict(rows.group_by("round").agg(pl.col("started_s").min()).iter_rows())
    late_s = {round_: at_s - (begun[1] - 1800) - 1800 * round_ for round_, at_s in begun.items()}
    # The network is checked before the first visit. The continued campaign begins with the current round.
    continued = max(late_s, key=late_s.__getitem__)
    assert 0 < late_s[0] < 5
    assert 0 < late_s[continued] < 1800
    assert all(abs(late_s[round_]) < 0.1 for round_ in begun.keys() - {0, continued}), late_s
    lost = sorted(set(range(84)) - set(begun))
    assert lost == list(range(lost[0], lost[0] + len(lost)))
    assert sorted(missed["round"]) == lost
    assert len(lost) in (11, 12), "6 hours"
    assert continued == lost[-1] + 1
    assert rows["error"].is_null().all()
    assert (rows["total_ms"] < 21).all(), "each round fills the caches first"


def intervals(folder: Path) -> None:
    """Measure every half hour for 42 hours; the command is killed after 15 hours and continued six hours later."""
    arguments = ["--name", "a.box.example", "--transport", "doudp", "--rate", "50", "--every", "30m", "--for", "42h"]
    arguments += ["--dataset", str(folder / "intervals")]
    with subprocess.Popen(
        [*CROSSLAYER, "compare", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        time.sleep(15.24 * 3600)
        process.send_signal(signal.SIGKILL)
    time.sleep(6 * 3600)
    done = subprocess.run([*CROSSLAYER, "compare", *arguments, "--resume"], capture_output=True, text=True, check=False)
    print(json.dumps({"status": done.returncode, "error": done.stderr[-500:]}))


def test_a_vantage_point_dies_and_comes_back(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "tests/vantages.py"), str(tmp_path)]
    program += ["--dies-h", "0.5", "--back-h", "2.5", "--every", "1h", "--for", "4h"]
    program += ["--transport", "doudp", "--rate", "3"]
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(VANTAGES), *options, "--", *program, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "oslo dies" in done.stderr
    rows = Dataset.open(tmp_path / "dataset").table("resolver_queries").collect()
    assert rows["error"].is_null().all()
    rounds = {vantage: sorted(some["round"].unique()) for (vantage,), some in rows.group_by("link")}
    # oslo is dead from hour 0.5 to 2.5: the round of hour 1 is missed, and that of hour 2 is late.
    assert rounds == {"here": [0, 1, 2, 3], "lima": [0, 1, 2, 3], "oslo": [0, 2, 3]}
    assert (rows["host"].cast(pl.String) == rows["link"]).all()
    missed = Dataset.open(tmp_path / "dataset").table("resolver_events").filter(kind="missed-round").collect()
    assert sorted(missed.select("link", "round").iter_rows()) == [("oslo", 1)]
    medians = {key: some["total_ms"].median() for key, some in rows.group_by("link", "resolver")}
    true_ms = {"here": (12, 60, 25), "oslo": (20, 70, 24), "lima": (150, 18, 26)}
    for vantage, times in true_ms.items():
        for resolver, expected in zip(("north", "south", "wide"), times, strict=True):
            assert medians[vantage, resolver] == pytest.approx(expected, abs=0.01 * expected + 0.2)


def test_killed_and_resumed_loses_nothing(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__)), "killed", str(tmp_path)]
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(FIVE), *options, "--", *command, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["status"] == 0, result["error"]
    at_kill = {(round_, target) for round_, target, _state in result["at_kill"]}
    assert 20 <= result["reported"] <= len(at_kill) < 60
    kept = read_campaign(tmp_path / "killed")
    visits = [(visit.round, visit.target) for visit in kept.visits]
    assert sorted(visits) == [(round_, target) for round_ in range(6) for target in range(10)]
    rows = Dataset.open(tmp_path / "killed").table("resolver_queries").collect()
    first = rows.filter(pl.struct("round", "target").is_in([{"round": r, "target": t} for r, t in at_kill]))
    assert sorted(first.select("round", "target", "state").iter_rows()) == sorted(map(tuple, result["at_kill"]))
    assert rows.filter(pl.col("state") == "kept").height == 30


if __name__ == "__main__":
    {"killed": killed, "manners": manners, "intervals": intervals}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
