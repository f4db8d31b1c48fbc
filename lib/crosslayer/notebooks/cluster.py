"""Measure from a notebook on the workers of a Dask cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crosslayer import metrics
from crosslayer.campaign.cluster import dask_executor
from crosslayer.campaign.plan import OWN_CAMPAIGNS, Plan, check_names
from crosslayer.campaign.run import measure as run
from crosslayer.notebooks import session
from crosslayer.notebooks.campaign_view import CampaignView, open_campaign
from crosslayer.notebooks.paths import fresh
from crosslayer.pages import find_spec_dir, load_pages
from crosslayer.studies import STUDIES

if TYPE_CHECKING:
    from distributed import Client


def measure(
    plan: Plan,
    *,
    client: Client,
    out: str | Path | None = None,
    batch: int | None = None,
    allow_mixed_versions: bool = False,
) -> CampaignView:
    """Measure a campaign on a cluster, or continue one: `crosslayer.measure(plan, client=client)`.

    The measurement can be stopped at any time; repeating the call measures the missing rounds.

    Parameters
    ----------
    plan
        Plan of the campaign, e.g. `crosslayer.studies.sized(STUDY, "smoke").resized(clock="virtual")`.
    client
        Any `dask.distributed.Client` whose workers offer a resource `testbed` (docs/howto/cluster.md).
    out
        Folder of the dataset; by default `data/local/STUDY-cluster`.
    batch, allow_mixed_versions
        As `crosslayer measure --batch` and `--allow-mixed-versions`.

    Returns
    -------
    CampaignView
        As returned by `crosslayer.open`.

    Raises
    ------
    CrosslayerError
        If no worker can measure, or if measuring fails; finished rounds are stored.
    """
    session.begin()
    study = STUDIES[plan.study]
    profiles = study.profiles(plan)
    specs = load_pages(find_spec_dir())
    check_names(
        plan,
        links=profiles,
        pages=specs,
        primes_alias=study.primes_alias,
        one_host=study.one_host,
        browsers=study.browsers,
    )
    folder = fresh(out or OWN_CAMPAIGNS / f"{plan.study}-cluster")
    source = dask_executor(client, clock=plan.clock, batch=batch, allow_mixed_versions=allow_mixed_versions)
    run(plan, folder, study.measurer, profiles, source=source)
    opened = open_campaign(folder)
    notice = metrics.disagreement(opened.tables.page_loads) if plan.clock == "virtual" else ""
    return open_campaign(folder, notice=notice) if notice else opened
