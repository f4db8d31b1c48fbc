"""The rounds of a plan, measured one after the other in this process. Inside private namespaces only."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crosslayer import pages, places
from crosslayer.browser import BrowserPrograms, find_browser
from crosslayer.campaign import provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.links import Profile
from crosslayer.machine import Meter
from crosslayer.places import PlaceError
from crosslayer.process import ProcessDied
from crosslayer.stub import stub_version
from crosslayer.testbed import LinkCheck, Testbed, network
from crosslayer.testbed.errors import TestbedError


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured, whole or the share of one guest."""

    plan: Plan
    campaign: str
    """Identifier of the campaign."""
    todo: list[tuple[int, Cell]]
    """Rounds of a cell, in this order."""
    measurer: type[Measurer]
    profiles: dict[str, Profile]
    """Every link that the plan may name, by name."""
    backend: str
    own_pages: tuple[Path, ...] = ()
    """Folders of pages beside the project's."""


@dataclass(frozen=True, slots=True)
class Part:
    """A finished round of a cell, or the checks before the first round."""

    cell: Cell | None
    """None for the checks."""
    number: int
    """Of the round; -1 for the checks."""
    rows: Rows
    failures: int
    """How many of its observations failed."""
    backend: str
    versions: dict[str, str]
    """Of everything that took part in it, by name."""
    host: provenance.Host | None = None
    """The machine it was measured on; None for this one."""


Source = Callable[[Job, Callable[[str], None]], Generator[Part, None, None]]
"""Where rounds come from: takes what is to be measured and where to say things, gives each part once, in any order."""


def measured_here(job: Job, say: Callable[[str], None]) -> Generator[Part, None, None]:
    """Measure in this process.

    A program of the testbed that dies costs the round in flight: the testbed is made anew and the round measured again.

    Parameters
    ----------
    job
        What to measure.
    say
        Takes lines for the user.

    Yields
    ------
    Part
        The checks of the links, then each round when it is finished.

    Raises
    ------
    TestbedError
        Where this machine cannot provide the testbed; nothing was measured then.
    CampaignError
        Where a round cannot be measured.
    """
    spec_dir = pages.find_spec_dir()
    specs = pages.load_pages(spec_dir, *job.own_pages)
    programs = find_browser()
    versions = versions_here(job, programs)
    served = [specs[name] for name in (*job.plan.pages, "warmup")]
    todo = deque(job.todo)
    measured = False
    while todo:
        left = len(todo)
        try:
            with (
                Testbed(job.backend, congestion_control=job.plan.congestion_control) as testbed,
                testbed.serve(
                    served, spec_dir=spec_dir, own=job.own_pages, **job.measurer.server_options(job.plan)
                ) as far_end,
                job.measurer(Bench(job.plan, job.campaign, specs, *far_end, programs, testbed.folder)) as measuring,
            ):
                over = testbed.backend
                in_force = {
                    "link_kernel": over.version,
                    "tcp_congestion_control": network.congestion_control(),
                }
                told = over.name, versions | in_force
                if not measured:
                    cells = len({cell for _, cell in todo})
                    say(f"Measuring over {over.name} ({over.version}): {cells} cells, {left} rounds of a cell to go.")
                links = {cell.link for _, cell in todo}
                checks = _prepare(testbed, measuring, [job.profiles[name] for name in job.plan.links if name in links])
                for result in checks:
                    if not measured:
                        say(_describe(result))
                    yield Part(None, -1, {"link_checks": _check_rows(testbed, job.campaign, -1, None)}, 0, *told)
                while todo:
                    number, cell = todo[0]
                    rows, failures = _round(job, testbed, measuring, number, cell)
                    testbed.raise_if_dead()  # what it measured last is not to be believed then
                    yield Part(cell, number, rows, failures, *told)
                    todo.popleft()
                    measured = True
        except (ProcessDied, TestbedError) as died:
            if not measured:
                raise
            if left == len(todo):
                raise CampaignError(
                    f"a round cannot be measured: {died}",
                    where=job.campaign,
                    next_step="Mend the fault and give the same command again: it goes on from there.",
                ) from died
            say(f"{died} The testbed is made anew and the round in flight measured again.")


def versions_here(job: Job, programs: BrowserPrograms) -> dict[str, str]:
    """Versions of everything that takes part where this process runs, by name.

    Raises
    ------
    PlaceError
        Where there is no server.
    """
    server = places.find("server").path
    versions = provenance.packages() | job.measurer.versions(job.plan)
    versions |= {
        "chromium": programs.browser_version,
        "chromedriver": programs.driver_version,
        "server": provenance.server_version(server),
        "quic-go": provenance.quic_go_version(server),
    }
    with contextlib.suppress(PlaceError):  # most studies need none
        versions["stub"] = stub_version()
    return versions


def _prepare(testbed: Testbed, measuring: Measurer, links: list[Profile]) -> Iterator[LinkCheck]:
    """Every link once, so that its delay is calibrated, and everything once without recording it."""
    for place, profile in enumerate(links):
        yield testbed.set_link(profile)
        if place == 0:
            measuring.warm_up()


def _round(job: Job, testbed: Testbed, measuring: Measurer, number: int, cell: Cell) -> tuple[Rows, int]:
    """One repetition of one cell: the link's check, then every condition once, and what the machine did meanwhile."""
    meter = Meter()
    profile = job.profiles[cell.link]
    changed = testbed.profile is None or testbed.profile.name != profile.name
    result = testbed.set_link(profile) if changed else testbed.check_link()
    if not result.passed and not changed:
        result = testbed.set_link(profile)
    checks = _check_rows(testbed, job.campaign, number, cell.page)
    rows: dict[str, list[Any]] = {"link_checks": checks}
    failures = 0
    conditions = [*measuring.conditions(cell), *measuring.self_checks(cell, number)]
    with testbed.cross_traffic() as cross:
        for position, condition in enumerate(job.plan.shuffled(number, cell, conditions)):
            if result.passed:
                time.sleep(profile.rtt_ms / 1e3)  # or what closes the connection before is still on the link
                found = measuring.measure(condition, cell, number, position)
            else:
                why = f"not measured: the link's check failed ({result.verdict})"
                found = measuring.failed(condition, cell, number, position, why)
            faults = 0
            for table, some in found.items():
                rows.setdefault(table, []).extend(some)
                faults += sum(row.get("error") is not None for row in some)
            if faults:
                testbed.raise_if_dead()  # at once: whatever follows would fail too
            failures += faults
    checks[-1]["cross_mbit"] = cross.mbit
    where = {"campaign": job.campaign, "round": number, "link": cell.link, "study": job.plan.study, "page": cell.page}
    rows["machine"] = [where | asdict(meter.usage())]
    return rows, failures


def _check_rows(testbed: Testbed, campaign: str, number: int, page: str | None) -> list[dict[str, Any]]:
    """Every check with its verdict, those that failed and were repeated too."""
    where = {"campaign": campaign, "round": number, "page": page}
    return [
        where | {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(result).items()}
        for result in testbed.take_checks()
    ]


def _describe(result: LinkCheck) -> str:
    rtt = "no answer" if result.rtt_ms is None else f"{result.rtt_ms:.2f} ms"
    rates = " ".join(
        f"{name} {measured:.2f} of {nominal:.2f} Mbit/s"
        for name, measured, nominal in (
            ("down", result.down_mbit, result.nominal_down_mbit),
            ("up", result.up_mbit, result.nominal_up_mbit),
        )
        if measured is not None and nominal is not None
    )
    return f"  link {result.link:<10} RTT {rtt} of {result.nominal_rtt_ms:.2f} ms  {rates}  {result.verdict}"
