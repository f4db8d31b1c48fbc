"""What the stub adds to a query, and how many it answers on one core.

    python -m tests.benchmarks.bench_stub [--write] [--pairs 500] [--seconds 5]

Must hold (issue "every DNS transport"): at most 1 ms median added to an idle DoUDP query, and 2,000 queries a second
over DoQ on one core. Idle queries go directly and through the stub in turn, in an order drawn anew each time; the load
keeps a window of queries open. kdig and dnsperf measure the same beside it, where they are installed.
"""

from __future__ import annotations

import os
import random
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dns.message

from crosslayer import pages
from crosslayer.dns import Protocol, Server
from crosslayer.links import load_profiles
from crosslayer.stub import Stub, StubSettings
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.testbed import Testbed
from tests.benchmarks._common import report

NAME = "www.example.org"
STUB = ("127.0.0.1", 53)
DIRECT = (network.SERVER_ADDRESS, 53)
IDLE_S = 0.005
WINDOW = 64
ADDED_LIMIT_MS = 1.0
RATE_LIMIT = 2000.0


def option(name: str, default: int) -> int:
    """A number given after an option of the command line."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def pinned(arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a program on the first core alone; Go's runtime then runs one goroutine at a time."""
    core = min(os.sched_getaffinity(0))
    return subprocess.Popen(["taskset", "--cpu-list", str(core), *arguments], **options)


def idle_ms(connection: socket.socket, wire: bytes) -> float:
    """Time of one query when nothing else happens, ms."""
    time.sleep(IDLE_S)
    started = time.perf_counter()
    connection.send(wire)
    connection.recv(65535)
    return (time.perf_counter() - started) * 1e3


def added(pairs: int) -> dict[str, float]:
    """What the stub adds to an idle query: direct and through it, in turn."""
    wire = dns.message.make_query(NAME, "A").to_wire()
    connections = {}
    for way, address in {"direct": DIRECT, "stub": STUB}.items():
        connections[way] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        connections[way].connect(address)
        for _warming in range(20):
            idle_ms(connections[way], wire)
    times: dict[str, list[float]] = {"direct": [], "stub": []}
    for _pair in range(pairs):
        for way in random.sample(list(connections), 2):
            times[way].append(idle_ms(connections[way], wire))
    differences = [s - d for s, d in zip(times["stub"], times["direct"], strict=True)]
    return {
        "direct_ms": round(statistics.median(times["direct"]), 4),
        "stub_ms": round(statistics.median(times["stub"]), 4),
        "added_ms": round(statistics.median(differences), 4),
        "added_p95_ms": round(statistics.quantiles(differences, n=20)[-1], 4),
    }


def by_kdig(pairs: int) -> dict[str, float] | str:
    """The same as kdig itself times it; each query is a new process."""
    if shutil.which("kdig") is None:
        return "kdig is not installed"
    times: dict[str, list[float]] = {"direct": [], "stub": []}
    for _pair in range(pairs):
        for way, address in random.sample([("direct", DIRECT), ("stub", STUB)], 2):
            command = ["kdig", f"@{address[0]}", NAME, "A"]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            match = re.search(r"\(UDP\) in ([0-9.]+) ms", output)
            assert match is not None, output
            times[way].append(float(match[1]))
    differences = [s - d for s, d in zip(times["stub"], times["direct"], strict=True)]
    return {f"{way}_ms": statistics.median(some) for way, some in times.items()} | {
        "added_ms": round(statistics.median(differences), 3)
    }


def load(seconds: float) -> dict[str, Any]:
    """As many queries as are answered with a window of them open."""
    wire = bytearray(dns.message.make_query(NAME, "A").to_wire())
    answered = failed = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection, selectors.DefaultSelector() as ready:
        connection.connect(STUB)
        ready.register(connection, selectors.EVENT_READ)

        def send(number: int) -> None:
            wire[:2] = (number & 0xFFFF).to_bytes(2)
            connection.send(wire)

        started = time.perf_counter()
        for number in range(WINDOW):
            send(number)
        sent = WINDOW
        while time.perf_counter() < started + seconds:
            if not ready.select(timeout=1.0):
                failed += WINDOW  # all lost
                for _again in range(WINDOW):
                    send(sent)
                    sent += 1
                continue
            answer = connection.recv(65535)
            answered += 1
            failed += answer[3] & 0xF != 0
            send(sent)
            sent += 1
        took_s = time.perf_counter() - started
    return {"queries_per_s": round(answered / took_s), "failed": failed}


def by_dnsperf(seconds: int) -> dict[str, Any] | str:
    """The same load from dnsperf."""
    if shutil.which("dnsperf") is None:
        return "dnsperf is not installed (Debian package dnsperf)"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as questions:
        questions.write(f"{NAME} A\n")
        questions.flush()
        command = [
            "dnsperf",
            "-s",
            STUB[0],
            "-p",
            str(STUB[1]),
            "-d",
            questions.name,
            "-l",
            str(seconds),
            "-q",
            str(WINDOW),
        ]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate, lost = re.search(r"Queries per second:\s+([0-9.]+)", output), re.search(r"Queries lost:\s+(\d+)", output)
    assert rate is not None, output
    assert lost is not None, output
    return {"queries_per_s": round(float(rate[1])), "failed": int(lost[1])}


def cpu_s(process: int) -> float:
    """CPU time a process has used, seconds."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_core(settings: StubSettings, folder: Path, seconds: int) -> dict[str, Any]:
    """The load on a stub that has one core."""
    processes = []

    def spawn(arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
        processes.append(pinned(arguments, **options))
        return processes[-1]

    with Stub.start(spawn, settings, folder) as stub:
        load(0.5)  # warms both sides
        queries, used_s = stub.stats().queries, cpu_s(processes[0].pid)
        result = load(seconds)
        used_s = cpu_s(processes[0].pid) - used_s
        result["cpu_us_per_query"] = round(1e6 * used_s / (stub.stats().queries - queries), 1)
        result["connections"] = stub.stats().connections
        result["dnsperf"] = by_dnsperf(seconds)
    return result


def main() -> None:
    """Idle queries over DoUDP, then a load over every transport with the stub on one core."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_stub", *sys.argv[1:]])
    pairs, seconds = option("--pairs", 500), option("--seconds", 5)
    specs = pages.load_pages(pages.find_spec_dir())
    result: dict[str, Any] = {"pairs": pairs, "window": WINDOW, "idle": {}, "one_core": {}, "beyond_the_limit": []}
    folder = Path(tempfile.mkdtemp())
    with (
        Testbed("plain") as testbed,
        testbed.serve(specs) as (server, _),
    ):
        testbed.set_link(load_profiles()["local"])
        towards = Server(network.SERVER_ADDRESS, NAME, server.ca_file)
        with Stub.start(subprocess.Popen, StubSettings.towards(towards, Protocol.DOUDP), folder / "idle"):
            result["idle"] = {"own": added(pairs), "kdig": by_kdig(min(pairs, 50))}
        if result["idle"]["own"]["added_ms"] > ADDED_LIMIT_MS:
            result["beyond_the_limit"].append(f"{result['idle']['own']['added_ms']} ms added > {ADDED_LIMIT_MS} ms")
        for protocol in Protocol:
            result["one_core"][protocol] = one_core(StubSettings.towards(towards, protocol), folder / protocol, seconds)
        if result["one_core"][Protocol.DOQ]["queries_per_s"] < RATE_LIMIT:
            result["beyond_the_limit"].append("fewer than 2,000 queries a second over DoQ")
    report("stub", result)


if __name__ == "__main__":
    main()
