"""`index.html`: what a folder has of a campaign, joined on one page that needs no network.

What the page says is gathered here; how it says it stands in `templates/`, where all is escaped unless told otherwise.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import polars as pl
import vl_convert

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.claims.rules import RULES, VERSION
from crosslayer.claims.table import CONTRADICTIONS
from crosslayer.figures import clocks
from crosslayer.figures.figure import vegalite_version
from crosslayer.figures.hosts import HOSTS
from crosslayer.figures.style import COLUMN_WIDTH
from crosslayer.report import facts
from crosslayer.report.answer import gathered, in_words
from crosslayer.report.files import ReportError, Saved, saved_beside, saved_claims, saved_figures, write
from crosslayer.report.loads import saved_loads
from crosslayer.studies import STUDIES
from crosslayer.study import Section

_CLOCKS = Section(
    clocks.NOTEBOOK,
    "Two clocks",
    "What the network takes of each time, by the virtual clock, and what computing adds by the wall's.",
)
_HOSTS = Section(HOSTS.notebook, "Hosts", "The machines that measured this campaign, beside each other.")


def write_index(dataset: Dataset, folder: Path, *, notice: str = "") -> Path:
    """Write `folder/index.html` from the figures and claims saved in the folder.

    Those of the dataset's study are shown where they are of this very campaign; those of other studies as they are.

    Parameters
    ----------
    dataset
        Whose page it is.
    folder
        E.g. `figures`.
    notice
        Printed on top of the page; that a dataset was measured on another machine is said without being told.

    Returns
    -------
    Path
        `folder/index.html`.

    Raises
    ------
    ReportError
        Where there is neither figure nor claim, one cannot be read, or the page cannot be written.
    """
    campaign, study = dataset.campaign.campaign, STUDIES.get(dataset.campaign.study)
    figures = [saved for saved in saved_figures(folder) if saved.study is not study or saved.campaign == campaign]
    own = [saved for saved in figures if saved.study is study]
    verdicts = saved_claims(dataset, folder)
    beside = None if verdicts is None else saved_beside(verdicts, folder)
    if not own and verdicts is None:
        raise ReportError(
            f"there are no figures and no claims of campaign {campaign}",
            where=str(folder),
            next_step="Make them first: `crosslayer report`, or run the notebooks.",
        )
    page = _templates().get_template("page.html")
    path = folder / "index.html"
    content = page.render(
        dataset=dataset,
        study=study,
        notices=[text for text in (notice, facts.elsewhere(dataset)) if text],
        answer=gathered(folder, verdicts),
        figure_answers=[text for saved in own for text in _said(saved)],
        verdicts=None if verdicts is None else verdicts.rows(named=True),
        campaigns=[] if verdicts is None else verdicts["campaign"].unique(maintain_order=True).to_list(),
        beside=_by_claim(beside),
        compared=_compared(verdicts, beside),
        by_paper=_by_paper(verdicts),
        counted=list(next(iter(_by_paper(verdicts).values()), {})),
        rules=_rules(),
        headlines=_headlines(dataset, verdicts),
        parts=_parts(figures),
        loads=saved_loads(dataset, folder),
        facts=facts,
        specs={saved.figure.name: _slim(saved.spec) for saved in figures if not saved.error},
        script=script(),
    )
    write(path, content.encode())
    return path


@cache
def script() -> str:
    """The page's script with the libraries that draw its charts, which is most of it."""
    source, _, _ = _loader().get_source(_templates(), "page.js")
    bundled: str = vl_convert.javascript_bundle(source, vl_version=vegalite_version())
    return bundled


@cache
def _loader() -> jinja2.PackageLoader:
    return jinja2.PackageLoader("crosslayer.report")


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(loader=_loader(), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    templates.filters |= {
        "ours": claims.ours,
        "interval": claims.interval,
        "css": _css,
        "counted": claims.counted_as,
        "in_words": in_words,
        "picture": _picture,
    }
    templates.globals |= {
        "VERDICTS": list(claims.counts(pl.DataFrame(schema=claims.COLUMNS))),
        "CONTRADICTIONS": CONTRADICTIONS,
        "NOT_MEASURED": Verdict.NOT_MEASURED,
        "COLUMN": COLUMN_WIDTH,
    }
    return templates


def _css(verdict: str) -> str:
    """Class of a verdict."""
    return verdict.replace(" ", "-")


def _picture(svg: str) -> str:
    """A picture as the address of itself: shorter than in base64."""
    return f"data:image/svg+xml;charset=utf-8,{quote(svg, safe=' =:/;,()<>+@?!|*$')}"


def _slim(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart whose rows are columns, so that no name is written more than once; the page's script turns them back."""
    tables = {
        name: {column: [row.get(column) for row in rows] for column in rows[0]} if rows else {}
        for name, rows in spec.get("datasets", {}).items()
    }
    return spec | {"datasets": tables}


def _by_paper(verdicts: pl.DataFrame | None) -> dict[str, dict[str, int]]:
    """How many claims have each verdict, by paper."""
    if verdicts is None:
        return {}
    return {
        str(paper): claims.counts(of_paper) for (paper,), of_paper in verdicts.group_by(["paper"], maintain_order=True)
    }


def _said(saved: Saved) -> list[str]:
    """The answer of a figure by its campaign's clock, and by the virtual one where that has been asked too."""
    virtual = [f"By the virtual clock: {saved.verdict_virtual}"] if saved.verdict_virtual else []
    return [saved.verdict, *virtual] if saved.verdict and saved.figure.notebook != clocks.NOTEBOOK else []


def _by_claim(beside: pl.DataFrame | None) -> dict[str, list[dict[str, Any]]]:
    """What other campaigns say of each claim that they measured."""
    if beside is None:
        return {}
    rows = beside.partition_by("claim_id", as_dict=True, maintain_order=True)
    return {str(claim): of_claim.rows(named=True) for (claim,), of_claim in rows.items()}


def _compared(verdicts: pl.DataFrame | None, beside: pl.DataFrame | None) -> list[dict[str, Any]]:
    """Each two campaigns of a study: names, clocks and verdicts on the claims that both measured, and what differs."""
    if verdicts is None or beside is None:
        return []
    found = []
    for (mine,), others in beside.group_by("beside", maintain_order=True):
        of_campaign = verdicts.filter(campaign=mine)
        tables = [(f"{mine}", of_campaign)]
        for (name, clock), of_other in others.group_by("campaign", "clock", maintain_order=True):
            tables.append((f"{name} ({clock} clock)", of_other))
        for (first, one), (second, other) in combinations(tables, 2):
            both = claims.compared(one, other)
            counted = {"claims": both.height, "changed": int(both["changed"].sum())}
            verdicts_of = {
                side: in_words({of.value: n for of in Verdict if (n := both.filter(pl.col(column) == of).height)})
                for side, column in (("first_verdicts", "verdict"), ("second_verdicts", "verdict_beside"))
            }
            found.append({"first": first, "second": second} | verdicts_of | counted)
    return found


def _rules() -> dict[str, Any]:
    """The rules that judge, in words."""
    date, _, text = RULES[VERSION].partition(". ")
    return {"version": VERSION, "date": date, "text": " ".join(text.split())}


def _headlines(dataset: Dataset, verdicts: pl.DataFrame | None) -> list[dict[str, Any]]:
    """The headline claims that this study checks, and those that another one here has measured, with their titles."""
    if verdicts is None:
        return []
    titles = {claim: title for study in STUDIES.values() for claim, title in study.headlines.items()}
    study = STUDIES.get(dataset.campaign.study)
    own = study.claims if study else None
    return [
        row | {"title": titles[row["claim_id"]]}
        for row in verdicts.filter(pl.col("claim_id").is_in(list(titles))).iter_rows(named=True)
        if row["verdict"] != Verdict.NOT_MEASURED or (own and row["claim_id"] in own.checks)
    ]


def _parts(figures: list[Saved]) -> list[tuple[Section, list[Saved]]]:
    """The parts of the page that have figures."""
    sections = [*(section for study in STUDIES.values() for section in study.sections), _CLOCKS, _HOSTS]
    parts = [(part, [saved for saved in figures if saved.figure.notebook == part.notebook]) for part in sections]
    return [(part, of_part) for part, of_part in parts if of_part]
