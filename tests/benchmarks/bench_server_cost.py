"""What 10,000 queries cost the server: CPU time and memory per transport at a rising rate, ours and plain BIND 9.

    python -m tests.benchmarks.bench_server_cost [--write] [--queries 10000]

On loopback, over a kept connection of the stub, in an open loop; BIND where it speaks the transport. Of CPU time,
`/proc/PID/stat` (proc(5)) has what the process took and the kernel on its behalf; of memory, VmRSS and its peak, which
is reset before each step. A rate counts as held where the median query left less than 5 ms late and none was lost.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crosslayer import dns
from crosslayer.dns import Protocol
from crosslayer.stub import Stub, StubSettings
from crosslayer.studies.authoritative.measure import NAME, ORIGIN, ZONE
from crosslayer.testbed import namespaces
from crosslayer.testbed import server as testbed_server
from crosslayer.testbed.bind import Bind, bind_version
from crosslayer.testbed.certificates import make_certificates
from crosslayer.testbed.network import SERVER_ADDRESS
from tests.benchmarks._common import report

RATES = (500, 1000, 2000)
"""Queries per second."""
BIND_SPEAKS = (Protocol.DOUDP, Protocol.DOTCP, Protocol.DOT, Protocol.DOH)
LISTEN = ("127.0.0.2", 5353)
ASKERS = 8
HELD_MS = 5.0


def loopback() -> None:
    """Give this network namespace the server's address."""
    for command in ("link set lo up", f"address add {SERVER_ADDRESS}/32 dev lo"):
        subprocess.run([namespaces.tool("ip"), *command.split()], check=True)


class Spawned:
    """Starts a program and remembers which process it is."""

    pid = 0

    def __call__(self, arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program, see `process.Spawn`."""
        process = subprocess.Popen(arguments, **options)
        self.pid = process.pid
        return process


@contextmanager
def ours(folder: Path) -> Iterator[tuple[int, Path]]:
    """Our server with a zone of its own: its process and CA."""
    spawn = Spawned()
    addresses = {NAME: "192.0.2.1"}
    with testbed_server.Server.start(spawn, pages_dir=None, addresses=addresses, folder=folder) as server:
        yield spawn.pid, server.ca_file


@contextmanager
def plain_bind(folder: Path) -> Iterator[tuple[int, Path]]:
    """BIND alone, on every port itself: its process and CA."""
    folder.mkdir()
    certificates = make_certificates(folder, ["localhost"], [SERVER_ADDRESS])
    spawn = Spawned()
    with Bind.start(spawn, folder=folder, origin=ORIGIN, zone=ZONE, certificates=certificates):
        yield spawn.pid, certificates.ca_file


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, s."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int, name: str) -> float:
    """VmRSS or VmHWM (its peak) of a process, MB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024 / 1e6


def step(pid: int, askers: list[dns.Asker], rate: int, queries: int) -> dict[str, Any]:
    """One rate: what it cost, for 10,000 queries, and whether it was held."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    before = cpu_s(pid)
    wire = dns.build_query(dns.Question(NAME), Protocol.DOUDP, dns.ClientSettings()).wire
    due = [dns.Due(1e3 * number / rate, number % len(askers)) for number in range(queries)]
    asked = dns.ask_at_pace(askers, due, wire, timeout_s=3)
    spent = cpu_s(pid) - before
    late_ms = statistics.median(query.send_delay_ms for query in asked)
    lost = sum(query.answered_ns is None for query in asked)
    answered = [query.response_ms for query in asked if query.response_ms is not None]
    return {
        "rate": rate,
        "cpu_s_per_10000": round(spent * 10_000 / queries, 3),
        "rss_mb": round(memory_mb(pid, "VmRSS"), 1),
        "peak_mb": round(memory_mb(pid, "VmHWM"), 1),
        "median_response_ms": round(statistics.median(answered), 3) if answered else None,
        "late_ms": round(late_ms, 3),
        "lost": lost,
        "held": late_ms < HELD_MS and not lost,
    }


def measure(queries: int) -> dict[str, Any]:
    """Every transport of both servers, each server started anew for it, so that its memory is its own."""
    result: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp())
    for name, running, protocols in (("ours", ours, tuple(Protocol)), ("bind", plain_bind, BIND_SPEAKS)):
        for protocol in protocols:
            own_folder = folder / f"{name}-{protocol.value}"
            with running(own_folder) as (pid, ca_file):
                far = dns.Resolver(SERVER_ADDRESS, server_name="localhost", ca_file=ca_file)
                settings = StubSettings.towards(far, protocol, listen=f"{LISTEN[0]}:{LISTEN[1]}")
                with Stub.start(subprocess.Popen, settings, folder / f"{name}-{protocol.value}-stub"):
                    askers = [dns.Asker(LISTEN) for _ in range(ASKERS)]
                    step(pid, askers, RATES[0], RATES[0])  # connections and caches are not in the first rate
                    result[f"{name} {protocol.value}"] = [step(pid, askers, rate, queries) for rate in RATES]
                    for asker in askers:
                        asker.close()
    return result


def main() -> None:
    """Measure and report."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_server_cost", *sys.argv[1:]])
    queries = int(sys.argv[sys.argv.index("--queries") + 1]) if "--queries" in sys.argv else 10_000
    loopback()
    report("server_cost", {"queries": queries, "bind": bind_version(), "transports": measure(queries)})


if __name__ == "__main__":
    main()
