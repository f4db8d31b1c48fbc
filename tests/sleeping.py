"""A replacement for the testbed that sleeps instead of measuring, for tests of the cluster.

Its rows have a realistic size.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crosslayer.campaign import provenance, run
from crosslayer.campaign.cluster import connected, dask_executor
from crosslayer.campaign.dask_worker import WorkerHooks
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import Executor, FinishedRound, Job
from crosslayer.errors import CrosslayerError
from crosslayer.links import load_profiles
from crosslayer.pages import find_spec_dir, load_pages

ROUND_S = "SLEEPING_ROUND_S"
"""Environment variable: duration of a round, seconds."""
LOADS = "SLEEPING_LOADS"
"""Environment variable: page loads per round."""
UNABLE = "SLEEPING_UNABLE"
"""Environment variable: if set, a worker reports that it cannot measure, with this text as the reason."""
FAILS = "SLEEPING_FAILS"
"""Environment variable: if set, a worker fails in every round with an unexpected exception."""
MIXED = "SLEEPING_MIXED"
"""Environment variable of the starter: if set, the starter also uses workers whose software versions differ."""
VERSION = "SLEEPING_VERSION"
"""Environment variable: browser version that a worker reports."""

_NAVIGATION = '{"name": "https://www.example.org/", "entryType": "navigation", "startTime": 0}' * 20


def examine(measurer: Any, plan: Any, clock: Any) -> tuple[str, dict[str, str]]:
    """Replacement for `dask_worker.examine`; returns the reason (`UNABLE`), which may be empty, and the versions."""
    return os.environ.get(UNABLE, ""), provenance.code() | {"chromium": os.environ.get(VERSION, "1")}


def executor(clock: Any) -> Executor:
    return measured


def reporting_files(clock: Any) -> Executor:
    """An executor like `measured` that adds to each round's versions what the worker received.

    These are contents and paths of two files, and the least RTT of a link. The files are the document of the user's own
    page, and the trace of the link `walk`.
    """

    def reported(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
        trace = job.profiles["walk"].trace
        assert trace is not None
        assert trace.steps is not None
        [page] = job.own_pages
        document = load_pages(find_spec_dir(), page)[page.name].resources[0].source
        files = {"document": page / document, "trace": Path(trace.steps)}
        texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
        paths = {f"path of the {name}": str(file) for name, file in files.items()}
        rtt_ms = job.profiles["walk"].course.least_rtt_ms  # type: ignore[union-attr]
        for part in measured(job, say):
            yield replace(part, versions=part.versions | texts | paths | {"least RTT": str(rtt_ms)})

    return reported


def measured(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
    """Sleep for each round and yield it, with its loads in the order of the plan.

    First, a check of each link is yielded.
    """
    if os.environ.get(FAILS):
        raise KeyError("nobody foresees this")
    constants = ("netem", {"chromium": os.environ.get(VERSION, "1")})
    for link in {cell.link for _, cell in job.todo}:
        yield FinishedRound(None, -1, {"link_checks": [_check(job, link, -1, None)]}, 0, *constants)
    conditions = [str(number) for number in range(int(os.environ.get(LOADS, "2")))]
    for number, cell in job.todo:
        time.sleep(float(os.environ.get(ROUND_S, "0.01")))
        loads = [
            _load(job, cell.link, cell.page, number, position, condition)
            for position, condition in enumerate(job.plan.shuffled(number, cell, conditions))
        ]
        rows = {"link_checks": [_check(job, cell.link, number, cell.page)], "page_loads": loads}
        yield FinishedRound(cell, number, rows, 0, *constants)


def _check(job: Job, link: str, number: int, page: str | None) -> dict[str, Any]:
    return {
        "campaign": job.campaign,
        "round": number,
        "link": link,
        "page": page,
        "when_s": 1.0,
        "backend": "netem",
        "rtt_samples_ms": [14.8],
        "rtt_ms": 14.8,
        "nominal_rtt_ms": 14.8,
        "verdict": "pass",
    }


def _load(job: Job, link: str, page: str, number: int, position: int, condition: str) -> dict[str, Any]:
    times = ("plt_ms", "connect_start_ms", "connect_ms", "request_start_ms", "response_start_ms")
    return {
        "campaign": job.campaign,
        "round": number,
        "link": link,
        "study": job.plan.study,
        "page": page,
        "h3": "1-rtt",
        "coupling": "decoupled",
        "condition": condition,
        "role": "measured",
        "position": position,
        "started_s": 1.0,
        "navigation": _NAVIGATION,
        **dict.fromkeys(times, 1.0),
    }


HOOKS = WorkerHooks(examine, executor)


def a_plan(rounds: int) -> Plan:
    return Plan(study="coalescing", links=("fiber", "4g"), pages=("example.org",), rounds=rounds, clock="virtual")


def main(address: str, folder: str, rounds: str, batch: str) -> None:
    """Start or continue a campaign on a cluster of sleeping workers, like `crosslayer measure --scheduler`."""
    plan = a_plan(int(rounds))
    with connected(address, None) as client:
        allow_mixed_versions = bool(os.environ.get(MIXED))
        lent = dask_executor(
            client, clock=plan.clock, batch=int(batch), allow_mixed_versions=allow_mixed_versions, hooks=HOOKS
        )
        run.measure(plan, Path(folder), Any, load_profiles(), say=print_line, source=lent)  # type: ignore[arg-type]


def print_line(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    import tests.sleeping  # workers import the module by this name

    try:
        tests.sleeping.main(*sys.argv[1:])
    except CrosslayerError as error:
        sys.exit(str(error))
