"""Run a campaign: rounds in, the store, the dataset out. Where the rounds come from is no matter here."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tqdm.auto import tqdm

from crosslayer.campaign import provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import export
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import Job, Part, Source, measured_here
from crosslayer.campaign.store import Store
from crosslayer.links import Profile

_ROOM_BYTES = 50_000_000


def measure(
    plan: Plan,
    folder: Path,
    measurer: type[Measurer],
    profiles: Mapping[str, Profile],
    *,
    backend: str = "auto",
    say: Callable[[str], None] = print,
    source: Source = measured_here,
    own_pages: tuple[Path, ...] = (),
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
    source
        Where the rounds come from: this process, which is in private namespaces then, or guests.
    own_pages
        Folders of pages beside the project's.

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
    with Store(folder, plan) as store:
        campaign, done = _identify(store, plan), store.done()
        todo = [
            (number, cell)
            for number in range(plan.rounds)
            for cell in plan.order(number)
            if (cell.link, cell.page, number) not in done
        ]
        if todo:
            _check_room(folder)
            job = Job(plan, campaign, todo, measurer, dict(profiles), backend, own_pages)
            failures = _keep_all(store, job, source, say)
            store.set_fact("ended", _now())
            if failures:
                say(f"{failures} observations failed; they are rows with their error, and figures count them.")
        else:
            say("Every round of this plan is measured already; exporting again.")
        export(store, folder)
    return folder


def _keep_all(store: Store, job: Job, source: Source, say: Callable[[str], None]) -> int:
    """Every part into the store when it comes, one transaction each; how many observations failed."""
    failures, known = 0, None
    with contextlib.closing(source(job, say)) as parts:
        first = next(parts)  # before there is a bar: what is missing is one line
        with tqdm(total=len(job.todo), unit="round", smoothing=0.05, dynamic_ncols=True) as bar:
            for part in itertools.chain((first,), parts):
                rows = {table: [{"clock": job.plan.clock, **row} for row in some] for table, some in part.rows.items()}
                if (part.backend, part.versions) != known:
                    known = part.backend, part.versions
                    _note(store, part)
                if part.cell is None:
                    store.add_rows(rows)
                    continue
                store.add_round(part.cell, part.number, rows)
                failures += part.failures
                at = f"{part.cell.link}, {part.cell.page}"
                bar.set_postfix_str(f"{at}, {failures} failed" if failures else at)
                bar.update()
    return failures


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


def _note(store: Store, part: Part) -> None:
    """Keep the backend and every version that takes part; a campaign continued with others says so in its notes."""
    store.set_fact("backend", part.backend)
    before = store.fact("versions")
    if before is not None and before != part.versions:
        differing = sorted(key for key in part.versions | before if before.get(key) != part.versions.get(key))
        notes = store.fact("notes") or []
        store.set_fact("notes", [*notes, f"continued on {_now()} with other versions of: {', '.join(differing)}"])
    store.set_fact("versions", part.versions)


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
