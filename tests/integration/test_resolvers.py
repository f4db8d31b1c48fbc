"""`crosslayer compare` in the Internet in a box, compared with its truth; and what leaves without consent.

This file is also the program that runs in namespaces: `test_resolvers.py SCENARIO FOLDER`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import CROSSLAYER, Run

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
FIVE = ROOT / "emulation/boxes/five.toml"
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
OUTSIDE = "198.51.100.7"

# Inside a namespace


def compare(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CROSSLAYER, "compare", *arguments], capture_output=True, text=True, check=False, timeout=300, **options
    )


def killed(folder: Path) -> None:
    """Kill a comparison with SIGKILL after some visits, then continue it."""
    out = folder / "killed.jsonl"
    arguments = [
        "--name",
        "a.box.example",
        "--transport",
        "doudp",
        "--transport",
        "dot",
        "--rate",
        "50",
        "--out",
        str(out),
    ]
    with subprocess.Popen(
        [*CROSSLAYER, "compare", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while not out.exists() or out.read_bytes().count(b"\n") < 20:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    at_kill = out.read_text(encoding="utf-8").splitlines()
    done = compare(*arguments, "--resume")
    print(json.dumps({"at_kill": at_kill, "status": done.returncode, "error": done.stderr[-500:]}))


def uplink() -> socket.socket:
    """An interface with a default route, and a packet socket that receives all that leaves by it."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        ip.link("add", ifname="up", kind="veth", peer={"ifname": "far"})
        up, far = (ip.link_lookup(ifname=name)[0] for name in ("up", "far"))
        mac = ip.get_links(far)[0].get_attr("IFLA_ADDRESS")
        for index in (up, far, ip.link_lookup(ifname="lo")[0]):
            ip.link("set", index=index, state="up")
        ip.addr("add", index=up, address="203.0.113.1", prefixlen=24)
        ip.neigh("add", dst="203.0.113.2", lladdr=mac, ifindex=up, state=0x80)
        ip.route("add", dst="default", gateway="203.0.113.2", oif=up)
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    capture.bind(("far", 0x0800))
    capture.setblocking(False)
    return capture


def packets(capture: socket.socket) -> int:
    """Packets to the outside address since the last call."""
    count = 0
    time.sleep(0.1)
    with contextlib.suppress(BlockingIOError):
        while True:
            count += socket.inet_aton(OUTSIDE) == capture.recv(65535)[30:34]
    return count


def consent(folder: Path) -> None:
    """Packets that leave before, without and with consent."""
    from crosslayer.discover.negotiate import negotiate
    from crosslayer.discover.pace import Pace
    from crosslayer.dns import Protocol, Question, Resolver, exchange, tcp_rtt
    from crosslayer.errors import CrosslayerError

    capture = uplink()
    base = [f"udp://{OUTSIDE}", f"tls://{OUTSIDE}#a.example", f"quic://{OUTSIDE}#a.example"]
    base += ["--rounds", "1", "--timeout", "0.5", "--out", str(folder / "c.jsonl")]
    result: Row = {}
    for name, arguments, typed in (
        ("dry run", ["--dry-run"], ""),
        ("no input", [], ""),
        ("other sentence", [], "yes\n"),
        ("higher rate", ["--rate", "5", "--i-may-send-this"], ""),
    ):
        status = compare(*base, *arguments, input=typed).returncode
        result[name] = [status, packets(capture)]
    server, refusals = Resolver(OUTSIDE, "a.example", verify=False), 0
    for ask in (
        *(lambda protocol=protocol: exchange(server, Question("a.example"), protocol) for protocol in Protocol),
        lambda: tcp_rtt(server),
        lambda: negotiate([(OUTSIDE, 853)], Pace(20), timeout_s=0.3, progress=lambda _n: None),
    ):
        try:
            ask()
        except CrosslayerError as error:
            refusals += "there is no consent" in str(error)
    result["clients"] = [refusals, packets(capture)]
    for name, arguments, typed in (
        ("typed", ["--out", str(folder / "t.jsonl")], "I may send this\n"),
        ("option", ["--out", str(folder / "o.jsonl"), "--i-may-send-this"], ""),
    ):
        status = compare(*base, *arguments, input=typed).returncode
        result[name] = [status, packets(capture)]
    print(json.dumps(result))


# Outside


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def in_box(run: Run, box: Path, folder: Path, *arguments: str) -> tuple[dict[tuple[str, str], Row], Row, list[Row]]:
    """Compare in a box in virtual time: lines by resolver and transport, the whole result, and the truth."""
    truth, result = folder / "truth.jsonl", folder / "result.json"
    command = [*CROSSLAYER, "compare", "--name", "a.box.example", "--json", str(result), "--seed", "1"]
    command += ["--out", str(folder / "compare.jsonl"), *arguments]
    options = ["--clock", "virtual", "--truth", str(truth), "--writable", str(folder)]
    done = run("box", str(box), *options, "--", *command, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    whole = json.loads(result.read_text(encoding="utf-8"))
    lines = {(line["name"], line["protocol"]): line for line in whole["lines"] if ":" not in line["address"]}
    return lines, whole, [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]


def test_the_true_order_and_times_are_measured(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    lines, whole, truth = in_box(
        crosslayer, FIVE, tmp_path, *(word for name in ROUND_TRIPS for word in ("--transport", name.lower()))
    )
    for transport, round_trips in ROUND_TRIPS.items():
        for name, rtt_ms in RTT_MS.items():
            line, tolerance = lines[name, transport], 0.01 * rtt_ms + 0.2
            assert line["first_ms"]["median"] == pytest.approx(round_trips * rtt_ms, abs=tolerance), (name, transport)
            assert line["next_ms"]["median"] == pytest.approx(rtt_ms, abs=tolerance), (name, transport)
            assert line["rtt_ms"]["median"] == pytest.approx(rtt_ms, abs=0.1)
            assert line["reasons"] == {}
            assert ("resumed_ms" in line) == (transport != "DoUDP")
        groups = [lines[name, transport]["group"] for name in RTT_MS]
        assert groups == sorted(set(groups)), transport
    assert whole["advice"].startswith("Take encrypted near 198.18.1.53 DoQ; unencrypted near 198.18.1.53 DoUDP:")
    # The budget is kept: each query is counted, and no operator gets two within a second.
    times = defaultdict(list)
    for row in truth:
        if row["event"] == "answer" and row["resolver"] != "authority":
            times[row["resolver"]].append(row["time_ns"] / 1e9)
    per_address = 6 * (3 + 4 + 4)
    assert {name: len(when) for name, when in times.items()} == {
        name: per_address * (2 if name == "city" else 1) for name in RTT_MS
    }
    for name, when in times.items():
        # The first packet leaves on time; a query follows 0 to 2 round-trips later.
        slack = 2 * RTT_MS[name] / 1000 + 0.01
        assert min(b - a for a, b in zip(sorted(when), sorted(when)[1:], strict=False)) > 1 - slack


def test_equals_and_failures(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(PITFALLS, encoding="utf-8")
    lines, whole, truth = in_box(crosslayer, box, tmp_path, "--transport", "doh", "--transport", "doq")
    for transport in ("DoH", "DoQ"):
        assert lines["one", transport]["group"] == lines["same", transport]["group"]
        (reason,) = lines["dead", transport]["reasons"]
        assert reason == "no answer"
        assert lines["dead", transport]["failed"] == 3
        for name in ("other-name", "expired"):
            (reason,) = lines[name, transport]["reasons"]
            assert reason.startswith("wrong certificate ("), reason
        assert lines["limited", transport]["reasons"] == {}
    assert lines["draft", "DoH"]["reasons"] == {}
    (reason,) = lines["draft", "DoQ"]["reasons"]
    assert reason.startswith("other application protocol"), reason
    assert "one 198.18.1.53 DoQ" in whole["advice"]
    assert "same 198.18.2.53 DoQ" in whole["advice"]
    assert not [row for row in truth if row["event"] == "answer" and row["source"] == "limited"]


def test_back_off_from_a_resolver_that_refuses(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(PITFALLS[: PITFALLS.index('[[resolver]]\nname = "one"')] + PITFALLS[PITFALLS.rindex("[[res") :])
    lines, _whole, truth = in_box(crosslayer, box, tmp_path, "--transport", "doudp", "--rate", "50", "--rounds", "8")
    answers = [row for row in truth if row["event"] == "answer" and row["resolver"] == "limited"]
    limited = [number for number, row in enumerate(answers) if row["source"] == "limited"]
    assert limited
    for number in limited[:-1]:
        assert answers[number + 1]["time_ns"] - answers[number]["time_ns"] > 4.9e9
    assert any("rcode REFUSED" in reason for reason in lines["limited", "DoUDP"]["reasons"])


def test_killed_and_resumed_loses_nothing(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__)), "killed", str(tmp_path)]
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(FIVE), *options, "--", *command, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result["status"] == 0, result["error"]
    lines = (tmp_path / "killed.jsonl").read_text(encoding="utf-8").splitlines()
    kept = result["at_kill"][:20]
    assert lines[:20] == kept
    visits = [(row["round"], row["target"]) for row in map(json.loads, lines[1:])]
    assert sorted(visits) == [(round_, target) for round_ in range(6) for target in range(12)]


def test_no_packet_leaves_without_consent(testbed_machine: None, tmp_path: Path) -> None:
    command = [
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
        sys.executable,
        str(Path(__file__)),
        "consent",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert result.pop("dry run") == [0, 0]
    assert result.pop("clients") == [8, 0]
    for name in ("typed", "option"):
        status, count = result.pop(name)
        assert status == 0
        assert count >= 3
    assert set(result) == {"no input", "other sentence", "higher rate"}
    assert all(status == 1 and count == 0 for status, count in result.values()), result


if __name__ == "__main__":
    {"killed": killed, "consent": consent}[sys.argv[1]](Path(sys.argv[2]))
