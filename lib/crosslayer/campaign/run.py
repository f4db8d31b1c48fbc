"""Run a campaign: the testbed, the rounds, the store. Inside private namespaces only."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from crosslayer import pages
from crosslayer.browser import BrowserPrograms, find_browser
from crosslayer.campaign import provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import export
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows, Store
from crosslayer.links import Profile
from crosslayer.testbed import LinkCheck, Testbed
from crosslayer.testbed.server import find_server_binary

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
    CrosslayerError
        Of the room that failed; finished rounds stay in the store.
    """
    spec_dir = pages.find_spec_dir()
    specs = pages.load_pages(spec_dir)
    programs = find_browser()
    with Store(folder, plan) as store:
        campaign = _identify(store, plan)
        done = store.done()
        todo = [
            (number, cell)
            for number in range(plan.rounds)
            for cell in plan.order(number)
            if (cell.link, cell.page, number) not in done
        ]
        if todo:
            _check_room(folder)
            served = [specs[name] for name in (*plan.pages, "warmup")]
            with (
                Testbed(backend) as testbed,
                testbed.serve(served, spec_dir=spec_dir, **measurer.server_options(plan)) as (server, addresses),
            ):
                store.set_fact("backend", testbed.backend.name)
                _note_versions(store, testbed, programs, measurer.versions(plan))
                bench = Bench(plan, campaign, specs, server, addresses, programs, testbed.folder)
                with measurer(bench) as study:
                    _rounds(plan, campaign, store, testbed, study, profiles, todo, say)
            store.set_fact("ended", _now())
        else:
            say("Every round of this plan is measured already; exporting again.")
        export(store, folder)
    return folder


def _rounds(
    plan: Plan,
    campaign: str,
    store: Store,
    testbed: Testbed,
    study: Measurer,
    profiles: Mapping[str, Profile],
    todo: list[tuple[int, Cell]],
    say: Callable[[str], None],
) -> None:
    over = f"{testbed.backend.name} ({testbed.backend.version})"
    say(f"Measuring over {over}: {len(plan.cells)} cells, {len(todo)} rounds of a cell to go.")
    study_ready = False
    for name in plan.links:
        first = testbed.set_link(profiles[name])
        store.add_rows({"link_checks": [_check_row(first, campaign, -1, None)]})
        say(_describe(first))
        if not study_ready:
            study.warm_up()
            study_ready = True
    failures = 0
    with tqdm(total=len(todo), unit="round", smoothing=0.05, dynamic_ncols=True) as bar:
        for number, cell in todo:
            bar.set_postfix_str(f"{cell.link}, {cell.page}" + (f", {failures} failed" if failures else ""))
            rows, failed = _round(plan, campaign, testbed, study, profiles[cell.link], number, cell)
            store.add_round(cell, number, rows)
            failures += failed
            bar.update()
    if failures:
        say(f"{failures} observations failed; they are rows with their error, and figures count them.")


def _round(
    plan: Plan, campaign: str, testbed: Testbed, study: Measurer, profile: Profile, number: int, cell: Cell
) -> tuple[Rows, int]:
    """One repetition of one cell: the link's check, then every condition once."""
    changed = testbed.profile is None or testbed.profile.name != profile.name
    result = testbed.set_link(profile) if changed else testbed.check_link()
    if not result.passed and not changed:
        result = testbed.set_link(profile)
    rows: dict[str, list[Any]] = {"link_checks": [_check_row(result, campaign, number, cell.page)]}
    failed = 0
    for position, condition in enumerate(plan.shuffled(number, cell, study.conditions(cell))):
        if result.passed:
            found = study.measure(condition, cell, number, position)
        else:
            found = study.failed(
                condition, cell, number, position, f"not measured: the link's check failed ({result.verdict})"
            )
        for table, some in found.items():
            rows.setdefault(table, []).extend(some)
            failed += sum(row.get("error") is not None for row in some)
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


def _note_versions(store: Store, testbed: Testbed, programs: BrowserPrograms, further: dict[str, str]) -> None:
    """Keep every version that takes part; a campaign continued with others says so in its notes."""
    versions = provenance.packages() | further
    versions |= {
        "chromium": programs.browser_version,
        "chromedriver": programs.driver_version,
        "server": provenance.server_version(find_server_binary()),
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
