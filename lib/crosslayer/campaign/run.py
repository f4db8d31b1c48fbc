"""Run a campaign: the testbed, the rounds, the store. Inside private namespaces only."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from crosslayer import pages, places
from crosslayer.browser import BrowserPrograms, find_browser
from crosslayer.campaign import provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import export
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows, Store
from crosslayer.links import Profile
from crosslayer.process import ProcessDied
from crosslayer.testbed import LinkCheck, Testbed
from crosslayer.testbed.errors import TestbedError

_ROOM_BYTES = 50_000_000


def measure(
    plan: Plan,
    folder: Path,
    measurer: type[Measurer],
    profiles: Mapping[str, Profile],
    *,
    backend: str = "auto",
    say: Callable[[str], None] = print,
) -> Path:
    """Measure what the plan asks for and is not in the folder yet, then export it.

    A program of the testbed that dies costs the round in flight: the testbed is made anew and the round measured again.

    Parameters
    ----------
    plan
        What to measure.
    folder
        Folder of the dataset; a campaign that is there and was made by the same plan is continued.
    measurer
        What measures the plan's study.
    profiles
        Every link that the plan may name, by name.
    backend
        `netem`, `uml` or `auto`.
    say
        Takes lines for the user.

    Returns
    -------
    Path
        The dataset folder, with Parquet tables and `campaign.json`.

    Raises
    ------
    TestbedError
        Where this machine cannot provide the testbed; nothing was measured then.
    CrosslayerError
        Of the room that failed; finished rounds stay in the store.
    """
    spec_dir = pages.find_spec_dir()
    specs = pages.load_pages(spec_dir)
    programs = find_browser()
    with Store(folder, plan) as store:
        run = _Run(plan, _identify(store, plan), store, profiles, say)
        if run.todo:
            _check_room(folder)
            served = [specs[name] for name in (*plan.pages, "warmup")]
            with tqdm(total=len(run.todo), unit="round", smoothing=0.05, dynamic_ncols=True) as bar:
                while run.todo:
                    left = len(run.todo)
                    try:
                        with (
                            Testbed(backend) as testbed,
                            testbed.serve(served, spec_dir=spec_dir, **measurer.server_options(plan)) as far_end,
                        ):
                            _note(store, testbed, programs, measurer.versions(plan))
                            bench = Bench(plan, run.campaign, specs, *far_end, programs, testbed.folder)
                            with measurer(bench) as measuring:
                                run.rounds(testbed, measuring, bar)
                    except (ProcessDied, TestbedError) as died:
                        if not run.measured:
                            raise
                        if left == len(run.todo):
                            raise CampaignError(
                                f"a round cannot be measured: {died}",
                                where=str(folder),
                                next_step="Mend the fault and give the same command again: it goes on from there.",
                            ) from died
                        say(f"{died} The testbed is made anew and the round in flight measured again.")
            store.set_fact("ended", _now())
            if run.failures:
                say(f"{run.failures} observations failed; they are rows with their error, and figures count them.")
        else:
            say("Every round of this plan is measured already; exporting again.")
        export(store, folder)
    return folder


class _Run:
    """The rounds of a plan that are still to be measured, over as many testbeds as it takes."""

    def __init__(
        self, plan: Plan, campaign: str, store: Store, profiles: Mapping[str, Profile], say: Callable[[str], None]
    ) -> None:
        done = store.done()
        self.campaign = campaign
        self.failures = 0
        self.measured = False
        """True once a round of this run is in the store: the machine can measure."""
        self.todo = deque(
            (number, cell)
            for number in range(plan.rounds)
            for cell in plan.order(number)
            if (cell.link, cell.page, number) not in done
        )
        self._plan, self._store, self._profiles, self._say = plan, store, profiles, say

    def rounds(self, testbed: Testbed, measuring: Measurer, bar: tqdm[Any]) -> None:
        """Measure one after the other; each leaves `todo` when it is in the store."""
        self._check_links(testbed, measuring)
        while self.todo:
            number, cell = self.todo[0]
            bar.set_postfix_str(f"{cell.link}, {cell.page}" + (f", {self.failures} failed" if self.failures else ""))
            rows, failed = self._round(testbed, measuring, number, cell)
            testbed.raise_if_dead()  # what it measured last is not to be believed then
            self._store.add_round(cell, number, rows)
            self.todo.popleft()
            self.measured = True
            self.failures += failed
            bar.update()

    def _check_links(self, testbed: Testbed, measuring: Measurer) -> None:
        """Every link once, so that its delay is calibrated, and everything once without recording it."""
        if not self.measured:
            over = f"{testbed.backend.name} ({testbed.backend.version})"
            self._say(f"Measuring over {over}: {len(self._plan.cells)} cells, {len(self.todo)} rounds of a cell to go.")
        for place, name in enumerate(self._plan.links):
            first = testbed.set_link(self._profiles[name])
            if not self.measured:
                self._store.add_rows({"link_checks": [_check_row(first, self.campaign, -1, None)]})
                self._say(_describe(first))
            if place == 0:
                measuring.warm_up()

    def _round(self, testbed: Testbed, measuring: Measurer, number: int, cell: Cell) -> tuple[Rows, int]:
        """One repetition of one cell: the link's check, then every condition once."""
        profile = self._profiles[cell.link]
        changed = testbed.profile is None or testbed.profile.name != profile.name
        result = testbed.set_link(profile) if changed else testbed.check_link()
        if not result.passed and not changed:
            result = testbed.set_link(profile)
        rows: dict[str, list[Any]] = {"link_checks": [_check_row(result, self.campaign, number, cell.page)]}
        failed = 0
        for position, condition in enumerate(self._plan.shuffled(number, cell, measuring.conditions(cell))):
            if result.passed:
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
            failed += faults
        return rows, failed


def _check_row(result: LinkCheck, campaign: str, number: int, page: str | None) -> dict[str, Any]:
    row = asdict(result)
    row["rtt_samples_ms"] = list(result.rtt_samples_ms)
    return {"campaign": campaign, "round": number, "page": page} | row


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


def _identify(store: Store, plan: Plan) -> str:
    """The campaign's identifier, made once; provenance that is fixed at its start."""
    if (known := store.fact("campaign")) is None:
        now = datetime.now(UTC)
        known = f"{plan.study}-{now:%Y%m%dT%H%M%S}-{plan.seed}"
        store.set_fact("campaign", known)
        store.set_fact("started", _now())
        store.set_fact("host", provenance.host())
        store.set_fact("git", provenance.revision())
    return str(known)


def _note(store: Store, testbed: Testbed, programs: BrowserPrograms, further: dict[str, str]) -> None:
    """Keep the backend and every version that takes part; a campaign continued with others says so in its notes."""
    store.set_fact("backend", testbed.backend.name)
    versions = provenance.packages() | further
    versions |= {
        "chromium": programs.browser_version,
        "chromedriver": programs.driver_version,
        "server": provenance.server_version(places.find("server").path),
        "link_kernel": testbed.backend.version,
    }
    before = store.fact("versions")
    if before is not None and before != versions:
        differing = sorted(key for key in versions | before if before.get(key) != versions.get(key))
        notes = store.fact("notes") or []
        store.set_fact("notes", [*notes, f"continued on {_now()} with other versions of: {', '.join(differing)}"])
    store.set_fact("versions", versions)


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ROOM_BYTES:
        raise CampaignError(
            f"only {free / 1e6:.0f} MB are free",
            where=str(folder),
            next_step="Make room, or choose another folder with --out.",
        )


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
