"""DNS exchange medians in multiples of the RTT, over the emulated links: every transport, every resumption.

    python -m tests.benchmarks.bench_dns [--write] [--rounds 40]

Must hold (issue "the main job"): DoUDP at most 1.05 on fiber, 1.02 on 4G; DoQ (full handshake) 2.45 and 2.08; DoH 3.40
and 3.08; a resumed DoQ query as early data 1.20 and 1.05; DoH3 likewise.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from crosslayer import dns, pages
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.testbed import Testbed
from tests.benchmarks._common import report

LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
LIMITS = {
    ("fiber", "DoUDP none"): 1.05, ("4g", "DoUDP none"): 1.02,
    ("fiber", "DoQ none"): 2.45, ("4g", "DoQ none"): 2.08,
    ("fiber", "DoH none"): 3.40, ("4g", "DoH none"): 3.08,
    ("fiber", "DoQ early-data"): 1.20, ("4g", "DoQ early-data"): 1.05,
    ("fiber", "DoH3 early-data"): 1.20, ("4g", "DoH3 early-data"): 1.05,
}  # fmt: skip


def main() -> None:
    """Measure every condition in turn, round by round."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_dns", *sys.argv[1:]])
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 40
    profiles = load_profiles()
    every = pages.load_pages(pages.find_spec_dir())
    specs = [page for page in every.values() if page.aliases]  # those of TNSM24: more names make a larger certificate
    result: dict[str, Any] = {"rounds": rounds, "links": {}, "above_the_limit": []}
    with Testbed() as testbed, testbed.serve(every, resolved=[page.name for page in specs]) as (server, _):
        result["backend"] = testbed.backend.name
        resolver = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=server.ca_file)
        question = dns.Question("www.example.org")
        conditions = [(p, r) for p in dns.Protocol for r in p.transport.resumptions]
        with dns.Capture() as capture:
            for name in LINKS:
                link = profiles[name]
                check = testbed.set_link(link)
                sessions = dns.SessionStore()
                rows: dict[str, list[dns.ExchangeResult]] = {}
                for number in range(rounds + 1):
                    for protocol, resumption in conditions:
                        if resumption is not dns.Resumption.NONE:
                            dns.exchange(resolver, question, protocol, sessions=sessions, capture=capture, priming=True)
                        row = dns.exchange(resolver, question, protocol, resumption, sessions=sessions, capture=capture)
                        if number:  # the first warms imports and caches
                            rows.setdefault(f"{protocol} {resumption}", []).append(row)
                results: dict[str, Any] = {"verdict": check.verdict, "rtt_ms": check.rtt_ms}
                for condition, some in rows.items():
                    good = [row for row in some if row.error is None]
                    rtts = [row.total_ms / link.rtt_ms for row in good if row.total_ms is not None]
                    handshakes = [row.handshake_ms / link.rtt_ms for row in good if row.handshake_ms is not None]
                    results[condition] = {
                        "exchange_rtt": round(statistics.median(rtts), 3),
                        "handshake_rtt": round(statistics.median(handshakes), 3),
                        "cpu_ms": round(statistics.median(row.cpu_ms or 0 for row in good), 2),
                        "failed": len(some) - len(good),
                    }
                    limit = LIMITS.get((name, condition))
                    if limit is not None and statistics.median(rtts) > limit:
                        result["above_the_limit"].append(f"{name} {condition}: {statistics.median(rtts):.3f} > {limit}")
                result["links"][name] = results
    report("dns", result)


if __name__ == "__main__":
    main()
