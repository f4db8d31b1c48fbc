"""Run a campaign: store the rounds that an executor measures, then export the dataset."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tqdm import tqdm

from crosslayer.campaign import captures, provenance
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.export import check_kept, export
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import Executor, FinishedRound, Job, local_executor
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
    source: Executor = local_executor,
    own_pages: tuple[Path, ...] = (),
) -> Path:
    """Measure all rounds of a plan that are not stored yet, then export the dataset.

    Parameters
    ----------
    plan
        Plan of the campaign.
    folder
        Folder of the dataset. If it contains a campaign of the same plan, that campaign is continued.
    measurer
        Measurer of the plan's study.
    profiles
        Link profiles, by the link's name: every link that a plan may name.
    backend
        Link backend: `netem`, `uml`, or `auto` for netem if the kernel has it, otherwise uml.
    say
        Receives lines for the user.
    source
        Executor of the rounds: guests, a cluster or, by default, this process, which must be in private namespaces.
    own_pages
        Folders of the user's own pages.

    Returns
    -------
    Path
        The dataset folder, with Parquet tables and `campaign.json`.

    Raises
    ------
    TestbedError
        If this machine cannot provide the testbed; nothing was measured then.
    CrosslayerError
        If measuring fails; finished rounds stay in the store.
    """
    with Store(folder, plan) as store:
        campaign, done = identify(store, plan), store.done()
        check_kept(store, folder)
        todo = [
            (number, cell)
            for number in range(plan.rounds)
            for cell in plan.order(number)
            if (cell.link, cell.page, number) not in done
        ]
        if todo:
            _check_room(folder)
            versions = store.fact("versions") or {}
            job = Job(plan, campaign, todo, measurer, dict(profiles), backend, own_pages, versions)
            failures = _keep_all(store, folder, job, source, say)
            store.set_fact("ended", now())
            if failures:
                on = ", ".join(f"{number} on {host}" for host, number in failures.most_common())
                where = f" ({on})" if len(store.fact("hosts")) > 1 else ""
                total = failures.total()
                say(f"{total} observations failed{where}; they are rows with their error, and figures count them.")
        else:
            say("Every round of this plan is measured already; exporting again.")
        export(store, folder)
    return folder


def _keep_all(store: Store, folder: Path, job: Job, source: Executor, say: Callable[[str], None]) -> Counter[str]:
    """Store every part of a job as soon as the executor yields it, in one transaction for each part.

    Returns, for each host, the number of its failed observations.
    """
    failures: Counter[str] = Counter()
    hosts = Hosts(store, job.campaign)
    with contextlib.closing(source(job, say)) as parts:
        first = next(parts)  # before the progress bar starts, so that an error is one line
        with tqdm(total=len(job.todo), unit="round", smoothing=0.05, dynamic_ncols=True) as bar:
            for part in itertools.chain((first,), parts):
                origin = {"clock": job.plan.clock, "host": hosts.named(part)}
                rows = {table: [{**origin, **row} for row in some] for table, some in part.rows.items()}
                if part.cell is None:
                    store.add_rows(rows)
                    continue
                if part.captured:
                    captures.keep(folder, part.cell, part.number, part.captured)
                store.add_round(part.cell, part.number, rows)
                at = f"{part.cell.link}, {part.cell.page}"
                if part.failures:
                    failures[origin["host"]] += part.failures
                bar.set_postfix_str(f"{at}, {failures.total()} failed" if failures else at)
                bar.update()
    return failures


def identify(store: Store, plan: Plan) -> str:
    """Return the campaign's identifier.

    If the store has none, generate it, and store it with the start time and the git revision.
    """
    if (known := store.fact("campaign")) is None:
        known = f"{plan.study}-{datetime.now(UTC):%Y%m%dT%H%M%S}-{plan.seed}"
        store.set_fact("campaign", known)
        store.set_fact("started", now())
        store.set_fact("git", provenance.revision())
    return str(known)


class Hosts:
    """The machines of a campaign: their names in rows, and the versions of the programs on them.

    If a machine's versions differ from the stored ones, a note is added to the campaign. The note names the programs
    whose versions differ.
    """

    def __init__(self, store: Store, campaign: str) -> None:
        self._store = store
        self._here = provenance.this_host(campaign)
        self._hosts: dict[str, dict[str, Any]] = store.fact("hosts") or {}
        self._names: dict[str, str] = store.fact("host_marks") or {}
        self._seen: dict[str, tuple[str, dict[str, str]]] = {}

    def named(self, part: FinishedRound) -> str:
        """Return the name of the machine that measured a part; store the machine and its versions if they are new."""
        host = part.host or self._here
        name = self._names.get(host.mark) or host.name or f"host-{len(self._names) + 1}"
        versions = part.versions | host.code
        if self._seen.get(name) != (part.backend, versions):
            self._seen[name] = part.backend, versions
            self._note(host, name, part.backend, versions)
        return name

    def _note(self, host: provenance.MeasuringHost, name: str, backend: str, versions: dict[str, str]) -> None:
        campaign = self._store.fact("versions") or {}
        before = campaign | self._hosts.get(name, {}).get("other_versions", {})
        alone = not campaign or set(self._hosts) <= {name}
        if campaign and (changed := _differing(before, versions)):
            on = "" if alone else f", on {name},"
            notes = self._store.fact("notes") or []
            note = f"continued on {now()}{on} with other versions of: {', '.join(changed)}"
            self._store.set_fact("notes", [*notes, note])
        if alone:
            campaign = versions
            self._store.set_fact("versions", campaign)
            self._store.set_fact("backend", backend)
        if self._store.fact("host") is None:
            self._store.set_fact("host", host.machine)
        self._names[host.mark] = name
        self._hosts[name] = host.machine | {
            "other_versions": {key: versions.get(key) for key in _differing(campaign, versions)}
        }
        self._store.set_fact("host_marks", self._names)
        self._store.set_fact("hosts", self._hosts)


def _differing(some: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {**some, **others} if some.get(key) != others.get(key))


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _ROOM_BYTES:
        raise CampaignError(
            f"only {free / 1e6:.0f} MB are free",
            where=str(folder),
            next_step="Free disk space, or choose another folder with --out.",
        )


def now() -> str:
    """Current time, UTC, in the format of `campaign.json`."""
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")
