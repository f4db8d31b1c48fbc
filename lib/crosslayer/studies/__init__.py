"""The list of all studies. Each study is a package of this folder, see `crosslayer.study`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from crosslayer.campaign import CampaignError, Plan
from crosslayer.campaign.plan import changed, unusable
from crosslayer.decode import choice, read_toml
from crosslayer.pages import PageSpec
from crosslayer.study import SIZES, Study

_PACKAGES = (
    "coalescing",
    "single_query",
    "authoritative",
    "serialisation",
    "early_data",
    "key_share",
    "address_token",
    "one_connection",
    "server_stacks",
    "gateway",
    "certificates",
    "combinations",
    "composition",
    "loss",
    "path_quality",
    "idle_connection",
    "browsers",
    "https_records",
    "fallback",
    "web",
    "resolvers",
)

STUDIES: dict[str, Study] = {
    study.name: study for study in (import_module(f"{__name__}.{package}").STUDY for package in _PACKAGES)
}
"""Studies by name; the first one is the default."""

DEFAULT = next(iter(STUDIES))


def owners() -> dict[str, str]:
    """For each claim, the name of the study that decides it: the first study in `STUDIES` that has the claim."""
    judged: dict[str, str] = {}
    for study in STUDIES.values():
        for claim in study.claims.checks if study.claims else ():
            judged.setdefault(claim, study.name)
    return judged


def refusals(page: PageSpec) -> tuple[list[str], dict[str, list[str]]]:
    """Names of the studies that can measure a page; and, by reason, names of the studies that cannot."""
    fit: list[str] = []
    unfit: dict[str, list[str]] = {}
    for study in STUDIES.values():
        if reason := unusable(page, primes_alias=study.primes_alias, one_host=study.one_host):
            unfit.setdefault(reason, []).append(study.name)
        else:
            fit.append(study.name)
    return fit, unfit


def sized(study: str, size: str) -> Plan:
    """The plan of a study in one of the sizes `SIZES`.

    Raises
    ------
    CampaignError
        For a study or size that does not exist.
    """
    for kind, name, known in (("study", study, tuple(STUDIES)), ("size", size, SIZES)):
        if name not in known:
            raise CampaignError(f"there is no {kind} '{name}'", next_step=choice(name, known))
    return STUDIES[study].sizes[size]


def load_plan(file: Path) -> Plan:
    """Read a plan from a TOML file with the fields of `Plan`. Missing fields are as in the study's size `quick`.

    Raises
    ------
    CampaignError
        If the plan is invalid; the error names file and key.
    """
    values = read_toml(file, CampaignError, "Name a plan file.")
    study = values.get("study", DEFAULT)
    if study not in tuple(STUDIES):
        where = f"{file}, key 'study'"
        raise CampaignError(f"there is no study {study!r}", where=where, next_step=choice(str(study), STUDIES))
    return changed(sized(study, "quick"), values, where=str(file), next_step="Correct the file.")
