"""Facts of a campaign as names and values: times, machine and configuration of the measurement."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crosslayer import resources
from crosslayer.campaign import provenance as machine
from crosslayer.campaign.dataset import Campaign, Dataset
from crosslayer.report.confirmations import confirmations
from crosslayer.report.files import ReportError, write

_BACKENDS = {"netem": "netem in the host's kernel", "uml": "netem in a User-Mode Linux guest"}


_FILE = "about.json"


def about(dataset: Dataset) -> dict[str, Any]:
    """All facts as plain values, by key: `campaign`, `overview`, `provenance`, `confirmations`, `versions`, `whole`.

    `whole` is the text of `campaign.json`.
    """
    return {
        "campaign": dataset.campaign.campaign,
        "overview": overview(dataset),
        "provenance": provenance(dataset),
        "confirmations": confirmations(dataset.campaign.study) if _is_committed(dataset) else {},
        "versions": dict(dataset.campaign.versions),
        "whole": whole(dataset),
    }


def save(dataset: Dataset, folder: Path) -> None:
    """Write `folder/STUDY/about.json`, so the page of the study can be made again without the dataset.

    Raises
    ------
    ReportError
        If the folder cannot be written.
    """
    content = json.dumps(about(dataset), ensure_ascii=False, indent=1).encode()
    write(folder / dataset.campaign.study / _FILE, content)


def saved(folder: Path, study: str) -> dict[str, Any] | None:
    """The facts that `save` wrote for a study; None if there are none.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    path = folder / study / _FILE
    if not path.is_file():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(
            f"cannot be read ({error})", where=str(path), next_step="Write it again: `crosslayer report`."
        ) from error
    return record


def elsewhere(dataset: Dataset) -> str:
    """Sentence that states that a dataset was measured on another machine than this one; empty if it was not.

    Also empty for campaigns in `data/raw` of a checkout, whose pages must be the same on every machine.
    """
    if _is_committed(dataset):
        return ""
    host, here = dataset.campaign.host, machine.host()
    if all(getattr(host, name) == here[name] for name in ("cpu", "cores", "kernel", "os")):
        return ""
    return (
        f"Measured elsewhere: this page was made on another machine than the campaign's, {host_text(dataset.campaign)}."
    )


def _is_committed(dataset: Dataset) -> bool:
    root = resources.checkout()
    return root is not None and dataset.folder.resolve().is_relative_to(root / "data" / "raw")


def overview(dataset: Dataset) -> dict[str, str]:
    """The main facts of the campaign: times, cells, rounds, method, host and notes."""
    campaign = dataset.campaign
    fewest, most = dataset.rounds_per_cell
    links, pages = len(campaign.links), len(campaign.pages)
    confirmed = confirmations(campaign.study) if _is_committed(dataset) else {}
    rows = {
        "Campaign": campaign.campaign,
        "Measured": _when(campaign.started, campaign.ended),
        "Cells": f"{_plural(links, 'link')} ({', '.join(campaign.links)}) × "
        f"{_plural(pages, 'page')} ({', '.join(campaign.pages)})",
        "Rounds per cell": f"{most if fewest == most else f'{fewest} to {most}'} of {campaign.rounds} planned",
        **{name.capitalize(): text for name, text in campaign.method.items()},
        "Host": host_text(campaign),
        "Last confirmed": _last_confirmed(dataset, confirmed),
        "Notes": " ".join(campaign.notes),
    }
    return {name: value for name, value in rows.items() if value}


def _last_confirmed(dataset: Dataset, confirmed: dict[str, str]) -> str:
    """When a committed campaign was last measured again, or why it was not; empty for other campaigns."""
    if not _is_committed(dataset):
        return ""
    if dataset.campaign.clock == "wall":
        return "real time: not comparable round by round (only virtual time is)"
    return confirmed.get(dataset.folder.resolve().name, "not measured again yet")


def provenance(dataset: Dataset) -> dict[str, str]:
    """Provenance of the campaign: times, seed, plan, rows, revision, host, link backend and notes."""
    campaign = dataset.campaign
    clean = {True: " (clean)", False: " (with uncommitted changes)", None: ""}[campaign.git_clean]
    counted = json.loads(whole(dataset)).get("rows") or {}
    return {
        "Campaign": campaign.campaign,
        "Started": campaign.started,
        "Ended": campaign.ended or "not finished",
        "Seed": "none" if campaign.seed is None else str(campaign.seed),
        "Plan": "; ".join(
            f"{name}: {_plain(value)}" for name, value in campaign.plan.items() if value not in ("", [], (), None)
        ),
        "Rows": "; ".join(f"{name}: {count}" for name, count in counted.items() if count) or "not recorded",
        "Git revision": f"{campaign.git_revision or 'unknown'}{clean}",
        "Host": host_text(campaign),
        "Link emulated by": _link(campaign),
        "Schema version": str(campaign.schema_version),
        "Notes": " ".join(campaign.notes) or "none",
    }


def _link(campaign: Campaign) -> str:
    """What emulated the link, as text. In virtual time, the campaign ran in a guest with a kernel of its own."""
    if campaign.clock == "virtual" and campaign.backend == "netem":
        return "netem in the kernel of the guest (User-Mode Linux)"
    return _BACKENDS.get(campaign.backend, campaign.backend)


def whole(dataset: Dataset) -> str:
    """The text of `campaign.json`, indented."""
    raw = json.loads((dataset.folder / "campaign.json").read_text(encoding="utf-8"))
    return json.dumps(raw, indent=1, ensure_ascii=False)


def host_text(campaign: Campaign) -> str:
    """The host as text: processor, cores, memory, system and kernel."""
    host = campaign.host
    if not host.cores:
        return host.cpu
    memory = f"{host.memory_bytes / 2**30:.1f} GiB"
    return f"{host.cpu}, {_plural(host.cores, 'core')}, {memory}, {host.os}, Linux {host.kernel}"


def _when(started: str, ended: str) -> str:
    if not ended:
        return f"{started}, not finished"
    try:
        times = [datetime.fromisoformat(text) for text in (started, ended)]
    except ValueError:
        return f"{started} to {ended}"
    if any(time.tzinfo is None for time in times):
        return f"{started} to {ended}"  # the times of an imported campaign have no time zone
    times = [time.astimezone(UTC) for time in times]
    minutes = (times[1] - times[0]).total_seconds() / 60
    span = _plural(round(minutes), "minute") if minutes < 180 else f"{minutes / 60:.0f} hours"
    return f"{times[0]:%Y-%m-%d %H:%M} to {times[1]:%Y-%m-%d %H:%M} UTC, {span}"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
