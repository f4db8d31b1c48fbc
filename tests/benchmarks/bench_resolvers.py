"""A comparison of the size of IMC 2022: its schedule and limits, and what its starter and its report take.

    python -m tests.benchmarks.bench_resolvers [--write] [--rounds 84]

313 resolvers, five transports, six vantage points, a round every two hours. Nobody is asked. The schedule is simulated
with a clock of its own: the code of `crosslayer compare` decides when each query leaves, and a visit takes its
round-trips. The starter records made-up visits of all vantage points, as it does when they arrive over SSH. Each part
runs in a process of its own.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crosslayer.campaign import provenance
from crosslayer.resolvers import everywhere, ledger, manners, visits
from crosslayer.resolvers.journal import Journal
from crosslayer.resolvers.plan import ComparePlan, Progress, TargetVisit
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.vocabulary import PAPER_SERIES, VANTAGE_POINTS, Protocol
from tests.benchmarks._common import option, report
from tests.benchmarks.bench_evidence import run

RESOLVERS, EVERY_S, TTL_S = 313, 7200.0, 300.0
START_S = 1_767_225_600.0


def plan_of(rounds: int) -> ComparePlan:
    """The plan of the paper's size."""
    targets = [
        ResolverTarget(f"r{number}", f"operator-{number}", f"198.18.{number // 250}.{number % 250 + 1}", protocol, 853)
        for number in range(RESOLVERS)
        for protocol in map(Protocol, PAPER_SERIES)
    ]
    vantages = tuple(VANTAGE_POINTS)
    return ComparePlan("a.example", rounds, 1, 5.0, targets, resumed=True, vantages=vantages, every_s=EVERY_S)


def rtt_ms(vantage: str, address: str) -> float:
    """RTT of a pair, lognormal around 160 ms."""
    return random.Random(f"{vantage} {address}").lognormvariate(5.1, 0.45)


# The schedule


class SleepingClock:
    """A clock that only sleeps move."""

    def __init__(self) -> None:
        self.now_s = START_S

    def sleep(self, duration_s: float) -> None:
        self.now_s += max(0.0, duration_s) + 1e-6  # more than what a sum of such times loses


class CountingLedger(ledger.QueryLedger):
    """The ledger, with the times of queries."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.last_s: dict[str, float] = {}
        self.least_gap_s = 1e9
        self.queries = 0

    def take(self, operator: str) -> float:
        ready_s = super().take(operator)
        if not ready_s:
            now_s = visits.time.time()
            self.least_gap_s = min(self.least_gap_s, now_s - self.last_s.get(operator, -1e9))
            self.last_s[operator] = now_s
            self.queries += 1
        return ready_s


class SleepingVisitor(visits.Visitor):
    """A visitor whose queries take their round-trips and go nowhere."""

    def _visit(self, visit: TargetVisit, target: ResolverTarget) -> Generator[float, None, TargetVisit]:
        rtt = rtt_ms(visit.vantage, target.address)
        trips = {Protocol.DOUDP: 1, Protocol.DOTCP: 2, Protocol.DOQ: 2}.get(target.protocol, 3)
        queries = manners.visit_queries(self._plan, target.protocol)
        cached_for_s = self._cached_until_s.get(target.address, 0.0) - visits.elapsed_s()
        if cached_for_s < visits._CACHED_FOR_S and self._priming_left[target.address] > 0:
            if cached_for_s > 0:
                yield visits.time.monotonic() + cached_for_s + visits._TTL_STEP_S
            queries += 1
            self._priming_left[target.address] -= 1
        for _ in range(queries):
            yield from self._turn(target)
            visits.time.sleep(trips * rtt / 1e3)
        self._cached_until_s[target.address] = visits.elapsed_s() + TTL_S
        return replace(visit, first_ms=trips * rtt, handshake_ms=(trips - 1) * rtt, next_ms=rtt, rtt_ms=rtt)


def schedule(rounds: int) -> dict[str, Any]:
    """Simulate one vantage point, which has a sixth of each operator's limits."""
    clock, plan = SleepingClock(), plan_of(rounds)
    shared = SimpleNamespace(
        time=lambda: clock.now_s,
        sleep=clock.sleep,
        gmtime=time.gmtime,
        strftime=time.strftime,
        monotonic=lambda: clock.now_s - START_S,
    )
    visits.time = ledger.time = shared  # type: ignore[attr-defined]
    visits.elapsed_s = lambda: clock.now_s
    share = len(plan.vantages)
    paced = CountingLedger(manners.QUERIES_PER_S / share, manners.QUERIES_PER_DAY // share, None)
    visitor = SleepingVisitor(Progress(plan, plan.vantages[0]), paced, ca_file=None)
    visitor._progress.check = visitor._progress.check or SimpleNamespace(intercepted=False)  # type: ignore[assignment]
    took, missed, made = [], 0, 0
    for round_ in range(rounds):
        due_s = START_S + round_ * EVERY_S
        clock.sleep(due_s - clock.now_s)
        if clock.now_s >= due_s + EVERY_S:
            missed += 1
            continue
        made += sum(1 for _ in visitor.round(round_))
        took.append(clock.now_s - due_s)
    per_day = max(state.queries for state in paced._kept.operators.values())
    return {
        "rounds": rounds,
        "visits": made,
        "queries": paced.queries,
        "missed_rounds": missed,
        "longest_round_s": round(max(took)),
        "a_round_every_s": EVERY_S,
        "least_time_between_queries_to_an_operator_s": round(paced.least_gap_s, 3),
        "needed_between_queries_s": share / manners.QUERIES_PER_S,
        "most_queries_to_an_operator_on_the_last_day": per_day,
        "allowed_a_day": manners.QUERIES_PER_DAY // share,
    }


# The starter


def starter(folder: Path, rounds: int) -> dict[str, Any]:
    """Record the visits of all vantage points and export the dataset, as the starter does."""
    plan, host = plan_of(rounds), provenance.this_host("starter")
    draw = random.Random(1)
    began = time.monotonic()
    with Journal.create(folder, plan) as journal:
        for round_ in range(rounds):
            for vantage in plan.vantages:
                entries = [visited(plan, vantage, round_, number, draw) for number in range(len(plan.targets))]
                result = everywhere.RoundResult(list(entries), host, {})
                everywhere._keep(journal, everywhere._Message(vantage, round_, result))
        recorded = time.monotonic()
        journal.export()
    return {
        "visits": len(plan.targets) * rounds * len(plan.vantages),
        "record_s": round(recorded - began, 1),
        "export_s": round(time.monotonic() - recorded, 1),
    }


def visited(plan: ComparePlan, vantage: str, round_: int, number: int, draw: random.Random) -> TargetVisit:
    """A made-up visit."""
    target = plan.targets[number]
    rtt = rtt_ms(vantage, target.address) + draw.expovariate(0.5)
    trips = {Protocol.DOUDP: 1, Protocol.DOTCP: 2, Protocol.DOQ: 2}.get(target.protocol, 3)
    visit = TargetVisit(
        round_, number, START_S + round_ * EVERY_S + number, trips * rtt, (trips - 1) * rtt, rtt_ms=rtt, vantage=vantage
    )
    if target.protocol is not Protocol.DOUDP:
        visit = replace(visit, next_ms=rtt)
    if manners.resumable(target.protocol):
        visit = replace(visit, resumed_ms=trips * rtt, resumed_handshake_ms=(trips - 1) * rtt, session_resumed=True)
    return visit


def main() -> None:
    """Run each part, and say what it took."""
    rounds = option("--rounds", 84)
    if "part" in sys.argv[1:2]:
        name = sys.argv[2]
        print(json.dumps(schedule(rounds) if name == "schedule" else starter(Path(sys.argv[3]), rounds)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder, dataset = Path(name), Path(name) / "dataset"
        result: dict[str, Any] = {"resolvers": RESOLVERS, "vantage_points": len(VANTAGE_POINTS)}
        module, further = "tests.benchmarks.bench_resolvers", ("--rounds", rounds)
        _, _, output = run(module, "part", "schedule", "-", *further, folder=folder)
        result["schedule"] = json.loads(output)
        _, peak, output = run(module, "part", "starter", dataset, *further, folder=folder)
        result["starter"] = json.loads(output) | {"peak_mb": round(peak / 1e6)}
        result["parquet_mb"] = round(sum(path.stat().st_size for path in dataset.rglob("*.parquet")) / 1e6)
        for command in ("claims", "report"):
            arguments = [dataset] if command == "claims" else [dataset, "--out", folder / "figures"]
            seconds, peak, _ = run("crosslayer", command, *arguments, folder=folder)
            result[command] = {"seconds": round(seconds), "peak_mb": round(peak / 1e6)}
    report("resolvers", result)


if __name__ == "__main__":
    main()
