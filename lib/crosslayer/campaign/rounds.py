"""Measure the rounds of a plan one after the other in this process, which must be in private namespaces."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crosslayer import pages, resources
from crosslayer.browser import BrowserPrograms, find_browser
from crosslayer.campaign import provenance
from crosslayer.campaign.captures import CaptureFiles, Captures
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.campaign.tables import TABLES
from crosslayer.cpu_load import Meter
from crosslayer.links import Profile
from crosslayer.process import ProcessDied
from crosslayer.resources import ResourceError
from crosslayer.stub import stub_version
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.check import LinkCheck
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.testbed import Testbed


@dataclass(frozen=True, slots=True)
class Job:
    """The rounds that an executor measures: all that a campaign lacks, or the part for one guest or worker."""

    plan: Plan
    campaign: str
    """Identifier of the campaign."""
    todo: list[tuple[int, Cell]]
    """Number and cell of each round, in the order of measurement."""
    measurer: type[Measurer]
    profiles: dict[str, Profile]
    """Link profiles, by the link's name: every link that a plan may name."""
    backend: str
    own_pages: tuple[Path, ...] = ()
    """Folders of the user's own pages."""
    versions: dict[str, str] = field(default_factory=dict)
    """Versions of the programs that have measured the campaign so far, by name; empty for a new campaign."""
    quiet: bool = False
    """Whether the executor omits the lines that it otherwise prints when it starts: link backend and link checks.

    This is set in a guest, because the process that started the guest reports the start and the link checks.
    """


@dataclass(frozen=True, slots=True)
class FinishedRound:
    """A finished part of a job: one round of a cell, or link checks before the first round."""

    cell: Cell | None
    """Cell of the round; None for link checks before the first round."""
    number: int
    """Number of the round; -1 for link checks before the first round."""
    rows: Rows
    failures: int
    """Number of observations that failed."""
    backend: str
    versions: dict[str, str]
    """Versions of all programs that took part, by name."""
    host: provenance.MeasuringHost | None = None
    """Machine that measured this part; None for the machine of this process."""
    captured: tuple[CaptureFiles, ...] = ()
    """Capture files of the round's loads; empty if the plan has no captures."""


_STEP_NS = 1_000_000
"""If the difference between Unix time and the monotonic clock changes by more than this (ns), Unix time was set.

Gradual corrections (slewing) change both clocks, so they do not change the difference.
"""
_READINGS = 5
_ROUND_ATTEMPTS = 3

Executor = Callable[[Job, Callable[[str], None]], Generator[FinishedRound, None, None]]
"""A function that measures a job and yields each part once, in any order.

Its second argument is a function that shows the user a line.
"""


def local_executor(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
    """Executor that measures the rounds of a job in this process.

    If a program of the testbed dies, a new testbed measures the current round again. The same happens if this machine's
    clock is set after the current testbed has finished a round. A round whose link fails a check is measured again at
    most twice; after that, its rows have the error.

    Parameters
    ----------
    job
        What to measure.
    say
        Receives lines for the user.

    Yields
    ------
    FinishedRound
        The checks of the links, then each finished round.

    Raises
    ------
    TestbedError
        If this machine cannot provide the testbed, or its clock is set during the first round. In both cases, no round
        was measured.
    ProcessDied
        If programs of the testbed die repeatedly before the first round is measured.
    CampaignError
        If a later round cannot be measured.
    """
    specs = pages.load_pages(pages.find_spec_dir(), *job.own_pages)
    programs = find_browser(job.plan.browser)
    versions = versions_here(job, programs)
    rtts_ms = {name: job.profiles[name].rtt_ms for name in job.plan.links}
    todo = deque(job.todo)
    measured, failed_attempts = False, 0
    while todo:
        left = len(todo)
        try:
            with (
                Captures(job.plan, namespaces.ROOT) as captures,
                Testbed(job.backend, congestion_control=job.plan.congestion_control) as testbed,
                testbed.serve(
                    specs, resolved=(*job.plan.pages, pages.WARMUP), **job.measurer.server_options(job.plan)
                ) as far_end,
                job.measurer(
                    RoundContext(job.plan, job.campaign, specs, *far_end, programs, testbed.folder, rtts_ms)
                ) as measuring,
            ):
                captures.ready(far_end[0].events_file)
                over = testbed.backend
                in_force = {
                    "link_kernel": over.version,
                    "tcp_congestion_control": network.congestion_control(),
                }
                constants = over.name, versions | in_force
                checks_reported = measured or job.quiet
                if not checks_reported:
                    cells = len({cell for _, cell in todo})
                    say(f"Measuring over {over.name} ({over.version}): {cells} cells, {left} rounds of a cell to go.")
                links = {cell.link for _, cell in todo}
                checks = _prepare(testbed, measuring, [job.profiles[name] for name in job.plan.links if name in links])
                for result in checks:
                    if not checks_reported:
                        say(describe(asdict(result)))
                    yield FinishedRound(
                        None, -1, {"link_checks": _check_rows(testbed, job.campaign, -1, None)}, 0, *constants
                    )
                while todo:
                    number, cell = todo[0]
                    with _clock_unset():
                        rows, failures = _proved_round(job, testbed, measuring, captures, number, cell, say)
                    testbed.raise_if_dead()  # if so, its last results are not valid
                    captured = captures.take(job.profiles[cell.link])
                    yield FinishedRound(cell, number, rows, failures, *constants, captured=captured)
                    todo.popleft()
                    measured = True
        except (ProcessDied, TestbedError) as died:
            failed_attempts = failed_attempts + 1 if left == len(todo) else 0
            if not measured and (isinstance(died, TestbedError) or failed_attempts > 1):
                raise
            if failed_attempts > (1 if isinstance(died, ProcessDied) else 0):
                raise CampaignError(
                    f"a round cannot be measured: {died}",
                    where=job.campaign,
                    next_step="Correct the fault and give the same command again: it resumes the campaign.",
                ) from died
            say(f"{died} The testbed is made anew, and the round in flight measured again.")


def versions_here(job: Job, programs: BrowserPrograms) -> dict[str, str]:
    """Versions of all programs and packages that take part on this machine, by name.

    Raises
    ------
    ResourceError
        If the server's program is missing.
    """
    server = resources.locate("server").path
    versions = provenance.packages() | job.measurer.versions(job.plan)
    versions |= programs.versions | {
        "server": provenance.server_version(server),
        "quic-go": provenance.quic_go_version(server),
    }
    with contextlib.suppress(ResourceError):  # most studies need no stub
        versions["stub"] = stub_version()
    return versions


@contextlib.contextmanager
def _clock_unset() -> Iterator[None]:
    """Raise `TestbedError` if this machine's clock was set during the block, e.g. by a time service."""
    before_ns = _clock_offset_ns()
    yield
    step_ns = _clock_offset_ns() - before_ns
    if abs(step_ns) > _STEP_NS:
        raise TestbedError(f"this machine's clock was set by {step_ns / 1e9:+.3f} s", where="the round in flight")


def _clock_offset_ns() -> int:
    """Difference between Unix time and the monotonic clock, ns, from the fastest of several readings."""
    readings = []
    for _ in range(_READINGS):
        before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after_ns - before_ns, unix_ns - before_ns))
    return min(readings)[1]


def _prepare(testbed: Testbed, measuring: Measurer, links: list[Profile]) -> Iterator[LinkCheck]:
    """Apply the profile of each link once, which calibrates the link's delay, and yield the check of this link.

    The measurer is warmed up on the first link.
    """
    for index, profile in enumerate(links):
        yield testbed.set_link(profile)
        if index == 0:
            measuring.warm_up()


def _proved_round(
    job: Job,
    testbed: Testbed,
    measuring: Measurer,
    captures: Captures,
    number: int,
    cell: Cell,
    say: Callable[[str], None],
) -> tuple[Rows, int]:
    """Measure a round; if its link fails a check, measure the round again, at most twice.

    Returns the rows of the last attempt and its number of failed observations. The rows also have the checks of all
    earlier attempts.
    """
    checks: list[Any] = []
    for again in reversed(range(_ROUND_ATTEMPTS)):
        rows, failures = _round(job, testbed, measuring, captures, number, cell)
        checks += rows["link_checks"]
        verdict = checks[-1]["verdict"]
        if verdict == "pass" or not again:
            break
        testbed.raise_if_dead()
        captures.take(job.profiles[cell.link])
        say(f"Round {number} of {cell.link}, {cell.page} is measured again: the link's check failed ({verdict}).")
    return {**rows, "link_checks": checks}, failures


def _round(
    job: Job, testbed: Testbed, measuring: Measurer, captures: Captures, number: int, cell: Cell
) -> tuple[Rows, int]:
    """Measure one round of a cell: check the link, measure every condition once, and check the link again.

    If the first check fails, no condition is measured, and the row of each condition has an error. If the second check
    fails, the measured rows get an error that excludes them from results. Returns the rows and the number of failed
    observations. The rows include those of the link checks and of the CPU load.
    """
    meter = Meter()
    profile = job.profiles[cell.link]
    if (course := profile.course) is not None:
        testbed.begin_trace_at(round(job.plan.trace_position(number, cell) * course.length_ms, 3))
    changed = testbed.profile is None or testbed.profile.name != profile.name
    result = testbed.set_link(profile) if changed else testbed.check_link()
    if not result.passed and not changed:
        result = testbed.set_link(profile)
    where = {"campaign": job.campaign, "round": number, "link": cell.link, "study": job.plan.study, "page": cell.page}
    checks = _check_rows(testbed, job.campaign, number, cell.page)
    rows: dict[str, list[Any]] = {"link_checks": checks}
    failures, before = 0, network.carrier_changes() if result.passed else 0
    conditions = [*measuring.conditions(cell), *measuring.occasional_conditions(cell, number)]
    with testbed.cross_traffic() as cross:
        for position, condition in enumerate(job.plan.shuffled(number, cell, conditions)):
            if result.passed:
                time.sleep(profile.rtt_ms / 1e3)  # else packets of the last connection's close are still on the link
                testbed.rewind()  # so that every condition of a round begins at the same point of a trace
                with testbed.measuring_delay() as late, captures.load(measuring, condition, number) as load:
                    load.rows = measuring.measure(condition, cell, number, position)
                observation = load.rows
                rows.setdefault("forwarding_delay", []).extend(
                    where | {"position": position} | asdict(extra) for extra in late
                )
            else:
                why = f"not measured: the link's check failed ({result.verdict})"
                observation = measuring.failed(condition, cell, number, position, why)
            faults = 0
            for table, some in observation.items():
                rows.setdefault(table, []).extend(some)
                faults += sum(row.get("error") is not None for row in some)
            if faults:
                testbed.raise_if_dead()  # at once, because all further observations would fail too
            failures += faults
    checks[-1]["cross_mbit"] = cross.mbit
    if result.passed and not (ending := testbed.confirm_link(before)).passed:
        observed = [row for table, some in rows.items() if TABLES[table].observed for row in some]
        for row in (row for row in observed if row.get("error") is None):
            row["error"] = f"the link's check after it failed ({ending.verdict})"
            failures += 1
        testbed.profile = None  # the next round sets the link anew
    rows["link_checks"] += _check_rows(testbed, job.campaign, number, cell.page)
    rows["host_load"] = [where | asdict(meter.usage())]
    return rows, failures


def _check_rows(testbed: Testbed, campaign: str, number: int, page: str | None) -> list[dict[str, Any]]:
    """Rows of `link_checks` for all checks since the last call, including checks that failed and were repeated."""
    where = {"campaign": campaign, "round": number, "page": page}
    return [
        where | {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(result).items()}
        for result in testbed.take_checks()
    ]


def describe(check: Mapping[str, Any]) -> str:
    """Line for the user about a link check; `check` is its row of `link_checks`."""
    rtt = "no answer" if check["rtt_ms"] is None else f"{check['rtt_ms']:.2f} ms"
    rates = " ".join(
        f"{name} {measured:.2f} of {nominal:.2f} Mbit/s"
        for name, measured, nominal in (
            ("down", check["down_mbit"], check["nominal_down_mbit"]),
            ("up", check["up_mbit"], check["nominal_up_mbit"]),
        )
        if measured is not None and nominal is not None
    )
    return f"  link {check['link']:<10} RTT {rtt} of {check['nominal_rtt_ms']:.2f} ms  {rates}  {check['verdict']}"
