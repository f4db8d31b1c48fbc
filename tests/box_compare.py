"""Compare the times that `crosslayer compare` measures in a box with the true times.

`python tests/box_compare.py [BOX.toml]` measures in virtual time and prints a table. `--wall` measures in real time,
without resumed connections and idle times. The true RTT comes from the description of the box. The other true times
come from its record of packets and answers. They are times of packets at the client's end of the path, as in
`tests/box_tools.py`; only the resolver's own time is the one that the record states for its answers.

A visit is the measurement of one target in one round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crosslayer.resolvers.journal import read_campaign

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
ZONE = "box.example"
ROUNDS = 10
TRANSPORTS = {"DoUDP": "udp", "DoTCP": "tcp", "DoT": "dot", "DoH": "doh", "DoH3": "doh3", "DoQ": "doq"}
"""Name of each transport in the box's record."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A value that a visit measured, with the true value."""

    value: str
    """Name of the value, a key of `MEANING`: first, next, miss, idle, resumed, early, rtt or recursion."""
    resolver: str
    transport: str
    measured_ms: float
    true_ms: float
    rtt_ms: float
    """True RTT of the path, ms."""

    @property
    def error_ms(self) -> float:
        """Measured value minus true value, ms."""
        return self.measured_ms - self.true_ms


def run(
    box: Path, folder: Path, *arguments: str, program: Sequence[str] = (), clock: str = "virtual"
) -> tuple[Row, list[Row], list[Row]]:
    """Run `crosslayer compare` in a box; returns its result, the visits with their targets, and the box's record.

    If `program` is given, the box runs `program` with the command line of `crosslayer compare` as last arguments.
    """
    truth, result, dataset = folder / "truth.jsonl", folder / "result.json", folder / "dataset"
    box_options = ["--clock", clock, "--truth", str(truth), "--packets", "--writable", str(folder)]
    command = ["compare", "--name", f"a.{ZONE}", "--json", str(result), "--dataset", str(dataset), "--seed", "1"]
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    crosslayer = [sys.executable, "-m", "crosslayer"]
    done = subprocess.run(
        [*crosslayer, "box", str(box), *box_options, "--", *program, *crosslayer, *command, *arguments],
        capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    kept = read_campaign(dataset)
    measured = [asdict(visit) | {"target": asdict(kept.plan.targets[visit.target])} for visit in kept.visits]
    whole = json.loads(result.read_text(encoding="utf-8"))
    return whole, measured, [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]


def check(measured: list[Row], truth: list[Row]) -> list[Checked]:
    """All values of the visits without an error, each with its true value from the box's record `truth`."""
    flows: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    forwarded = [row for row in truth if row["event"] == "packet" and "left_ns" in row]
    for row in sorted(forwarded, key=lambda row: int(row["time_ns"])):
        port = row["source_port"] if row["way"] == "up" else row["destination_port"]
        flows[row["host"], row["protocol"], port].append(row)
    paths = {row["name"]: row["path"][0][1] for row in truth if row["event"] == "host"}
    answers: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in truth:
        if row["event"] == "answer" and row["resolver"] != "authority":
            family = 6 if row["remote"].startswith("[") else 4
            answers[row["resolver"], row["transport"], family].append(row)
    checked: list[Checked] = []
    for visit in measured:
        target = visit["target"]
        name, transport = target["name"], target["protocol"]
        family = 6 if ":" in target["address"] else 4
        since_ns = visit["started_s"] * 1e9
        own = [row for row in answers[name, TRANSPORTS[transport], family] if row["time_ns"] >= since_ns]
        over = "udp" if transport in ("DoUDP", "DoH3", "DoQ") else "tcp"
        if visit["error"] is not None:
            continue
        # A query that fills the cache has a separate flow, before the measured queries.
        ports = list(dict.fromkeys(_port(row) for row in own))
        kept = [row for row in own if _port(row) == ports[0]]
        expected = 1 + (visit["next_ms"] is not None) + (visit["miss_ms"] is not None)
        if len(kept) < expected:
            ports = ports[1:]
            kept = [row for row in own if _port(row) == ports[0]]
        rtt_ms = float(paths[name])

        def packets_of(port: int, key: tuple[str, str] = (name, over), since_ns: float = since_ns) -> list[Row]:
            return [row for row in flows[(*key, port)] if row["time_ns"] >= since_ns]

        packets = packets_of(ports[0])

        def add(
            value: str,
            true_ms: float,
            key: str,
            visit: Row = visit,
            own: tuple[str, str, float] = (name, transport, rtt_ms),
        ) -> None:
            checked.append(Checked(value, own[0], own[1], visit[key], true_ms, own[2]))

        add("first", _since_first(kept[0], packets), "first_ms")
        if visit["next_ms"] is not None:
            add("next", _since_query(kept[1], packets), "next_ms")
        if visit["miss_ms"] is not None:
            miss, hit = kept[expected - 1], kept[expected - 2]
            assert (miss["source"], hit["source"]) == ("miss", "hit"), (miss, hit)
            add("miss", _since_query(miss, packets), "miss_ms")
            hit_ms = visit["next_ms"] if visit["next_ms"] is not None else visit["first_ms"]
            recursion_ms = miss["own_ms"] - hit["own_ms"]
            checked.append(Checked("recursion", name, transport, visit["miss_ms"] - hit_ms, recursion_ms, rtt_ms))
        if visit["resumed_ms"] is not None:
            # Queries that filled the cache again are misses. CoreDNS's own DoT listener reports no resumption.
            others = [row for row in own if _port(row) != ports[0] and row["source"] == "hit"]
            resumed = next(row for row in others if row["resumed"] or transport == "DoT")
            add("resumed", _since_first(resumed, packets_of(_port(resumed))), "resumed_ms")
        if visit["early_ms"] is not None:
            early = next(row for row in own if row["early_data"])
            add("early", _since_first(early, packets_of(_port(early))), "early_ms")
        for number, query in enumerate(visit["idle"]):
            if query["error"] is None:
                true_ms = _since_query(kept[expected + number], packets)
                checked.append(Checked("idle", name, transport, query["time_ms"], true_ms, rtt_ms))
        if visit["rtt_ms"] is not None:
            add("rtt", rtt_ms, "rtt_ms")
    return checked


def _port(answer: Row) -> int:
    return int(answer["remote"].rpartition(":")[2])


def _arrival_ns(answer: Row, packets: list[Row]) -> int:
    """Time at which an answer arrives at the client, ns."""
    return next(row["left_ns"] for row in packets if row["way"] == "down" and row["time_ns"] >= answer["done_ns"])


def _since_first(answer: Row, packets: list[Row]) -> float:
    """Time from the first packet of a connection to the arrival of an answer, ms."""
    start = next(row["time_ns"] for row in packets if row["way"] == "up")
    return float(_arrival_ns(answer, packets) - start) / 1e6


def _since_query(answer: Row, packets: list[Row]) -> float:
    """Time from the packet of a query to the arrival of its answer, ms."""
    start = max(row["time_ns"] for row in packets if row["way"] == "up" and row["left_ns"] <= answer["time_ns"])
    return float(_arrival_ns(answer, packets) - start) / 1e6


def tolerance_ms(one: Checked, *, wall: bool = False) -> float:
    """Largest absolute error that a value may have, ms; `wall` means real time."""
    if one.value == "rtt":
        return 0.1
    if one.value == "recursion":
        return 1.0 if wall else 0.5
    return 0.01 * one.rtt_ms + 0.2


MEANING = {
    "rtt": "RTT of the path",
    "first": "first query, new connection",
    "next": "next query, same connection",
    "miss": "query that misses the cache",
    "idle": "query after 20 s idle, same connection",
    "resumed": "resumed connection",
    "early": "query in early data",
    "recursion": "resolver's own time: miss minus hit",
}
TOLERANCE = {"rtt": "0.1 ms", "recursion": "0.5 ms (real time: 1 ms)"}


def table(all_checked: list[Checked], *, wall: bool = False) -> str:
    """Markdown table of errors: one row for each name of a value, over all resolvers, transports and rounds."""
    lines = [
        "| measured | transports | n | measured minus true: median, ms | largest, ms | tolerance | values outside |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    for value, meaning in MEANING.items():
        if not (group := [one for one in all_checked if one.value == value]):
            continue
        errors = [one.error_ms for one in group]
        over = sum(abs(one.error_ms) > tolerance_ms(one, wall=wall) for one in group)
        cells = [
            meaning,
            str(len({one.transport for one in group})),
            str(len(group)),
            f"{statistics.median(errors):+.3f}",
            f"{max(errors, key=abs):+.3f}",
            TOLERANCE.get(value, "0.01 RTT + 0.2 ms"),
            str(over),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    wall = "--wall" in sys.argv
    files = [Path(argument) for argument in sys.argv[1:] if argument != "--wall"]
    described = files[0] if files else ROOT / "emulation/boxes/five.toml"
    chosen = ["--zone", ZONE, "--rounds", str(ROUNDS), "--rate", "20"] + ([] if wall else ["--all"])
    with tempfile.TemporaryDirectory() as temporary:
        _result, rows, facts = run(described, Path(temporary), *chosen, clock="wall" if wall else "virtual")
    print(table(check(rows, facts), wall=wall))
