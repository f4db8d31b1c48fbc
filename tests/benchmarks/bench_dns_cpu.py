"""What an exchange costs the client: CPU and wall time per transport and resumption, on loopback without any delay.

    python -m tests.benchmarks.bench_dns_cpu [--write] [--rounds 100]

Rounds interleave all conditions. Wall time includes the server's work on the same machine; ratios are to DoUDP.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crosslayer.dns import (
    Capture,
    ExchangeResult,
    Protocol,
    Question,
    Resumption,
    Server,
    SessionStore,
    exchange,
)
from crosslayer.testbed import namespaces
from crosslayer.testbed import server as testbed_server
from tests.benchmarks._common import report

NAME = "www.example.org"
ADDRESS = "10.53.1.1"
SERVER_ADDRESS = "10.53.0.2"
CONDITIONS = [(protocol, resumption) for protocol in Protocol for resumption in protocol.transport.resumptions]


def loopback() -> None:
    """Give this network namespace the server's addresses."""
    for command in ("link set lo up", *(f"address add {a}/32 dev lo" for a in (SERVER_ADDRESS, ADDRESS))):
        subprocess.run([namespaces.tool("ip"), *command.split()], check=True)


def empty_page(folder: Path) -> Path:
    """The server wants a page; one byte will do."""
    (folder / "page" / "body").mkdir(parents=True)
    (folder / "page" / "body" / "0").write_bytes(b"x")
    resource = {"path": "/", "file": "body/0", "content_type": "text/html", "content_encoding": "", "wire_bytes": 1}
    manifest = {"page": "page", "host": NAME, "aliases": [], "resources": [resource]}
    (folder / "page" / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def measure(rounds: int) -> dict[tuple[Protocol, Resumption], list[ExchangeResult]]:
    """Every condition once a round, after one round that does not count."""
    kept: dict[tuple[Protocol, Resumption], list[ExchangeResult]] = {condition: [] for condition in CONDITIONS}
    folder = Path(tempfile.mkdtemp())
    with (
        testbed_server.Server.start(
            subprocess.Popen,
            pages_dir=empty_page(folder / "pages"),
            addresses={NAME: ADDRESS},
            folder=folder / "server",
        ) as running,
        Capture() as capture,
    ):
        server = Server(SERVER_ADDRESS, NAME, running.ca_file)
        for number in range(rounds + 1):
            for protocol, resumption in CONDITIONS:
                sessions = SessionStore()
                if resumption is not Resumption.NONE:
                    exchange(server, Question(NAME), protocol, sessions=sessions, priming=True, capture=capture)
                row = exchange(server, Question(NAME), protocol, resumption, sessions=sessions, capture=capture)
                assert row.error is None, row.error
                if number:
                    kept[protocol, resumption].append(row)
    return kept


def main() -> None:
    """Measure and report."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_dns_cpu", *sys.argv[1:]])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 100
    loopback()
    rows = measure(rounds)
    result: dict[str, Any] = {"rounds": rounds, "conditions": {}}
    medians = {
        condition: (statistics.median(e.cpu_ms for e in kept), statistics.median(e.total_ms or 0.0 for e in kept))
        for condition, kept in rows.items()
    }
    base_cpu_ms, base_wall_ms = medians[Protocol.DOUDP, Resumption.NONE]
    for (protocol, resumption), (cpu_ms, wall_ms) in medians.items():
        result["conditions"][f"{protocol} {resumption}"] = {
            "cpu_ms": round(cpu_ms, 3),
            "wall_ms": round(wall_ms, 3),
            "cpu_ratio": round(cpu_ms / base_cpu_ms, 1),
            "wall_ratio": round(wall_ms / base_wall_ms, 1),
        }
    report("dns_cpu", result)


if __name__ == "__main__":
    main()
