"""Compare the times that DNS tools report in a box with the true times from packets.

`python tests/box_tools.py [BOX.toml]` prints a table. It needs `kdig` and `dig`. The box runs in virtual time, so
the clock stands still during computing. A difference therefore shows that a tool does not measure the interval of the
true time. The true time of a lookup begins with the first packet of the tool's connection at the client's end of the
path. It ends when the first packet that the server sends after completing the answer arrives at the client's end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
ZONE = "box.example"
LOOKUPS = 4
"""Number of lookups of each name. In the first lookup, the name is not in the resolver's cache."""
QUERIES = {"udp": "DoUDP", "tcp": "DoTCP", "dot": "DoT", "doh": "DoH", "doq": "DoQ"}
TOOLS: dict[str, dict[str, list[str]]] = {
    "kdig": {"udp": [], "tcp": ["+tcp"], "dot": ["+tls"], "doh": ["+https"], "doq": ["+quic"]},
    "dig": {"udp": [], "tcp": ["+tcp"], "dot": ["+tls"], "doh": ["+https"]},
}
"""Command-line options of each tool for each transport."""
_REPORTED = re.compile(r"in ([0-9.]+) ms|Query time: ([0-9.]+) (msec|usec)")


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup: the time that the tool reported, and the true time."""

    tool: str
    transport: str
    resolver: str
    reported_ms: float
    true_ms: float
    source: str


def names(tool: str, transport: str, resolver: str) -> str:
    """Host name that a tool queries over a transport at a resolver. It ends with a dot."""
    return f"{tool}-{transport}-{resolver}.{ZONE}."


def ask() -> dict[str, list[float | None]]:
    """Run every installed tool in the box; returns the reported times by host name, ms. None is a failed lookup."""
    listed = tomllib.loads(Path(os.environ["CROSSLAYER_RESOLVERS"]).read_text(encoding="utf-8"))["resolver"]
    reported: dict[str, list[float | None]] = {}
    for tool, transports in TOOLS.items():
        if shutil.which(tool) is None:
            continue
        for resolver in listed:
            for transport, options in transports.items():
                name = names(tool, transport, resolver["name"])
                precise = ["-u"] if tool == "dig" else []
                command = [tool, *precise, f"@{resolver['address'][0]}", *options, name, "A"]
                reported[name] = [time_in(command) for _ in range(LOOKUPS)]
    return reported


def time_in(command: list[str]) -> float | None:
    """Run a tool; returns the time that it reports, ms, or None if it reports no time."""
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    if (match := _REPORTED.search(output)) is None:
        return None
    return float(match[1]) if match[1] else float(match[2]) / (1e3 if match[3] == "usec" else 1)


def true_ms(answer: Row, packets: list[Row]) -> float:
    """Time of a lookup from its first packet to the arrival of its answer, ms.

    `packets` are the packets of the lookup's flow in order of time.
    """
    start = next(row["time_ns"] for row in packets if row["way"] == "up")
    end = next(row["left_ns"] for row in packets if row["way"] == "down" and row["time_ns"] >= answer["done_ns"])
    return float(end - start) / 1e6


def lookups(reported: dict[str, list[float | None]], truth: list[Row]) -> list[Lookup]:
    """Successful lookups with their true times from the box's record `truth`.

    A host name is left out if the record does not have one answer for each of its lookups.
    """
    flows: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in sorted((row for row in truth if row["event"] == "packet"), key=lambda row: int(row["time_ns"])):
        port = row["source_port"] if row["way"] == "up" else row["destination_port"]
        flows[row["host"], row["protocol"], port].append(row)
    answers: dict[str, list[Row]] = defaultdict(list)
    for row in truth:
        if row["event"] == "answer" and row["resolver"] != "authority":
            answers[row["name"]].append(row)
    result = []
    for name, times in reported.items():
        if len(answers[name]) != len(times):
            continue
        tool, transport, _ = name.split("-", 2)
        for reported_ms, answer in zip(times, answers[name], strict=True):
            protocol = "udp" if transport in ("udp", "doq") else "tcp"
            packets = flows[answer["resolver"], protocol, int(answer["remote"].rpartition(":")[2])]
            if reported_ms is not None:
                result.append(
                    Lookup(tool, transport, answer["resolver"], reported_ms, true_ms(answer, packets), answer["source"])
                )
    return result


def table(all_lookups: list[Lookup]) -> str:
    """Markdown table of reported minus true time: median and largest difference over all resolvers, ms.

    One row for each tool, transport and source of the answer (e.g. `hit`: the resolver's cache).
    """
    lines = [
        "| tool | transport | cache | lookups | reported minus true: median, ms | largest difference, ms |",
        "|---|---|---|--:|--:|--:|",
    ]
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for one in all_lookups:
        groups[one.tool, one.transport, one.source].append(one.reported_ms - one.true_ms)
    for (tool, transport, source), differences in groups.items():
        most = max(differences, key=abs)
        median = statistics.median(differences)
        lines.append(f"| {tool} | {QUERIES[transport]} | {source} | {len(differences)} | {median:+.2f} | {most:+.2f} |")
    return "\n".join(lines)


def measure(box: Path) -> list[Lookup]:
    """Run every installed tool in a box in virtual time; returns the successful lookups."""
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.jsonl"
        options = ["--clock", "virtual", "--truth", str(truth), "--packets"]
        command = [sys.executable, "-m", "crosslayer", "box", str(box), *options, "--", sys.executable, __file__, "ask"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
        return lookups(json.loads(done.stdout), rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["ask"]:
        print(json.dumps(ask()))
    else:
        print(table(measure(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "emulation/boxes/five.toml")))
