"""`crosslayer drift`: compare a campaign's durations with new ones from the current code, kernel and browser."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crosslayer.commands.common import PATH, TEXT
from crosslayer.errors import CrosslayerError

if TYPE_CHECKING:
    import polars as pl

    from crosslayer.campaign.dataset import Dataset
    from crosslayer.campaign.plan import Plan

_SHOWN = 20


@click.command("drift")
@click.argument("folder", type=PATH)  # no default: the default dataset is in real time
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Rounds of each link and page. With 6 or more, each difference has a 95 % interval.",
)
@click.option("--links", type=TEXT, help="Only these links of the campaign, separated by commas.")
@click.option("--pages", type=TEXT, help="Only these pages of the campaign, separated by commas.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Parallel guests.  [default: one per core]")
@click.option("--out", type=PATH, help="JSON file to write.  [default: build/drift/NAME.json for a FOLDER called NAME]")
def command(
    folder: Path, rounds: int, links: str | None, pages: str | None, jobs: int | None, out: Path | None
) -> None:
    """Measure the first rounds of the campaign in FOLDER again, in virtual time, and compare new and stored rounds.

    The new rounds use the seeds of the stored rounds. In each round, the command subtracts every stored duration (e.g.
    the PLT of a link, page and condition) from the new one. The limit for these differences is 0.1 ms or 0.3 % of the
    stored median, whichever is larger. A duration is confirmed if the whole 95 % interval of its median difference lies
    within plus or minus this limit. It has drifted if the whole interval lies above this range, or below it. Every
    other duration is undecided; to decide it, increase --rounds. With fewer than six rounds, the smallest and the
    largest difference replace the ends of the interval, and no duration counts as drifted.

    Exit status 1: at least one duration has drifted, or the command failed. The command needs the kernel that `make
    guest` builds. A campaign in real time is refused, because its times differ between machines and days.

    \b
    crosslayer drift data/raw/key-share-virtual --rounds 1 --links fiber      takes about half a minute
    crosslayer drift data/raw/combinations                                    the first six rounds of each link and page
    """
    import polars as pl

    from crosslayer import metrics
    from crosslayer.campaign.dataset import Dataset

    committed = Dataset.open(folder)
    plan = _sample(committed, rounds, links, pages)
    with tempfile.TemporaryDirectory() as scratch:
        again = Dataset.open(_measured(plan, Path(scratch) / "again", jobs))
        frame = metrics.drift(committed.table, again.table)
        if frame.is_empty():
            raise CrosslayerError(
                "no duration can be compared: the rounds have other conditions today, or all failed",
                where=str(folder),
                next_step="Measure the study anew: `crosslayer measure --study " + committed.campaign.study + "`.",
            )
        counts = {verdict.value: frame.filter(verdict=verdict.value).height for verdict in metrics.Drift}
        result = {
            "study": committed.campaign.study,
            "campaign": committed.campaign.campaign,
            "campaign_revision": committed.campaign.git_revision,
            "campaign_versions": committed.campaign.versions,
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "revision": again.campaign.git_revision,
            "clean": again.campaign.git_clean,
            "versions": again.campaign.versions,
            "rounds": plan.rounds,
            "links": plan.links,
            "pages": plan.pages,
            "counts": counts,
            "not_confirmed": frame.filter(pl.col("verdict") != metrics.Drift.CONFIRMED.value).to_dicts(),
        }
    file = out or Path("build/drift") / f"{committed.folder.resolve().name}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CrosslayerError(
            f"cannot be written ({error.strerror})", where=str(file), next_step="Name another file with --out."
        ) from error
    _print(frame)
    changed = [
        f"{name} {committed.campaign.versions.get(name)} -> {now}"
        for name, now in again.campaign.versions.items()
        if committed.campaign.versions.get(name) != now
    ]
    click.echo(f"Versions that differ: {', '.join(changed) or 'none'}.")
    click.echo(f"{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}, of {frame.height} durations.")
    click.echo(str(file))
    sys.exit(1 if counts[metrics.Drift.DRIFTED.value] else 0)


def _sample(committed: Dataset, rounds: int, links: str | None, pages: str | None) -> Plan:
    """Plan that measures the first `rounds` rounds of a stored campaign again.

    `links` and `pages` list names of links and pages of the campaign, separated by commas; None means all of them.

    Raises
    ------
    CrosslayerError
        If the campaign is in real time, or does not have one of the links or pages.
    """
    from crosslayer.campaign.plan import changed
    from crosslayer.studies import sized

    campaign = committed.campaign
    where = str(committed.folder)
    if campaign.clock != "virtual":
        raise CrosslayerError(
            "was measured in real time, whose times depend on the machine",
            where=where,
            next_step="Name a campaign in virtual time, such as data/raw/key-share-virtual.",
        )
    chosen: dict[str, list[str]] = {}
    for key, text, known in (("links", links, campaign.links), ("pages", pages, campaign.pages)):
        names = text.split(",") if text else list(known)
        for name in names:
            if name not in known:
                raise CrosslayerError(
                    f"the campaign has no {name!r}", where=f"--{key}", next_step=f"Choose from {', '.join(known)}."
                )
        chosen[key] = names
    values = {name: campaign.plan[name] for name in ("study", "seed", "clock") if campaign.plan[name] is not None}
    values |= {"browser": campaign.browser, "options": campaign.options, "rounds": min(rounds, campaign.rounds)}
    values |= {"congestion_control": campaign.congestion_control} if campaign.congestion_control else {}
    plan = changed(sized(campaign.study, "quick"), {**values, **chosen}, where=where)
    return plan.resized(capture=())


def _measured(plan: Plan, folder: Path, jobs: int | None) -> Path:
    from crosslayer.campaign.guests import guest_executor
    from crosslayer.campaign.run import measure
    from crosslayer.guest import find_kernel, inside
    from crosslayer.studies import STUDIES

    if inside():
        raise CrosslayerError(
            "a guest cannot start another guest", where="crosslayer drift", next_step="Run it outside the guest."
        )
    find_kernel()
    study = STUDIES[plan.study]
    return measure(
        plan,
        folder,
        study.measurer,
        dict(study.profiles(plan)),
        say=partial(click.echo, err=True),
        source=guest_executor("virtual", jobs or len(os.sched_getaffinity(0))),
    )


def _print(frame: pl.DataFrame) -> None:
    """Print up to `_SHOWN` durations whose verdict is not "confirmed", the largest differences first."""
    import polars as pl

    apart = frame.filter(pl.col("verdict") != "confirmed").sort(pl.col("difference_ms").abs(), descending=True)
    for row in apart.head(_SHOWN).iter_rows(named=True):
        click.echo(
            f"{row['verdict']:<10} {row['link']}, {row['page']}, {row['condition']}, {row['measure']}: "
            f"{row['difference_ms']:+.3f} ms [{row['low_ms']:+.3f}, {row['high_ms']:+.3f}] "
            f"of {row['committed_ms']:.3f}, {row['limit_ms']:.3f} allowed"
        )
    if apart.height > _SHOWN:
        click.echo(f"and {apart.height - _SHOWN} more, see the file.")
