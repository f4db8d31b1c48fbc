"""The HTML pages of a folder: the answer, the claims, and one page per study. None needs a network.

This module collects their content. The templates in `templates/` render it and escape all text not marked as safe.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import polars as pl
import vl_convert

from crosslayer import claims, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.claims.table import CONTRADICTIONS
from crosslayer.claims.tolerances import RULES
from crosslayer.figures import clocks
from crosslayer.figures.figure import vegalite_version
from crosslayer.figures.hosts import HOSTS
from crosslayer.figures.style import COLUMN_WIDTH, FONT_WEIGHTS, woff
from crosslayer.report import facts
from crosslayer.report.answer import counts_text, gathered
from crosslayer.report.files import (
    ReportError,
    Saved,
    saved_claims,
    saved_figures,
    saved_other_verdicts,
    study_verdicts,
    write,
)
from crosslayer.report.loads import saved_loads
from crosslayer.studies import STUDIES, owners
from crosslayer.study import Section, Study

_CLOCKS = Section(
    clocks.NOTEBOOK,
    "Real and virtual time",
    "What the network takes of each time (virtual time), and what computing adds (real time).",
)
_CLOCK_NAMES = {"wall": "real time", "virtual": "virtual time"}
_HOSTS = Section(HOSTS.notebook, "Hosts", "The machines that measured this campaign, beside each other.")


def write_index(dataset: Dataset, folder: Path, *, notice: str = "") -> Path:
    """Write the pages of a folder from the figures, claims and answers saved in it.

    `index.html` has the answer with its figure, the verdicts grouped by paper, and the questions of the studies.
    `claims.html` has every claim. `STUDY/index.html` has the figures of a study, whose charts `report.js` draws. No
    file needs a network. Figures and claims of the dataset's study are shown only if they are from this campaign; those
    of other studies are all shown.

    Parameters
    ----------
    dataset
        Dataset that the pages report.
    folder
        E.g. `figures`.
    notice
        Notice at the top of the pages. A dataset from another machine has a further notice.

    Returns
    -------
    Path
        `folder/index.html`.

    Raises
    ------
    ReportError
        If the folder has neither a figure nor a claim of the campaign. Also if a file cannot be read or a page cannot
        be written.
    """
    content = _Content(dataset, folder, notice)
    facts.save(dataset, folder)
    for name, figures in content.by_study.items():
        write(folder / name / "index.html", _study_page(content, STUDIES[name], figures).encode())
    write(folder / "claims.html", _render("claims_page.html", content.common(_from_here)).encode())
    _renew_script(folder / "report.js")
    path = folder / "index.html"
    write(path, _render("index.html", _index(content)).encode())
    return path


def whole(dataset: Dataset, folder: Path) -> str:
    """Report of a dataset as one self-contained page for printing.

    Raises
    ------
    ReportError
        As for `write_index`.
    """
    content = _Content(dataset, folder, "")
    figures = [saved for saved in content.figures if saved.study is content.study]
    return _render(
        "paper.html",
        content.common(_on_this_page)
        | {
            "about": facts.about(dataset),
            "figure_parts": _parts(figures),
            "specs": _specs(figures),
            "script": script(),
            "claims_page": "",
        },
    )


class _Content:
    """Figures, claims and notices of the pages: those of a campaign, and those that the folder has of other studies."""

    def __init__(self, dataset: Dataset, folder: Path, notice: str) -> None:
        campaign = dataset.campaign.campaign
        self.dataset, self.folder, self.study = dataset, folder, STUDIES.get(dataset.campaign.study)
        self.figures = [
            saved for saved in saved_figures(folder) if saved.study is not self.study or saved.campaign == campaign
        ]
        self.verdicts = saved_claims(dataset, folder)
        own = [saved for saved in self.figures if saved.study is self.study]
        if not own and self.verdicts is None:
            raise ReportError(
                f"there are no figures and no claims of campaign {campaign}",
                where=str(folder),
                next_step="Make them first: `crosslayer report`, or run the notebooks.",
            )
        self.others = None if self.verdicts is None else saved_other_verdicts(self.verdicts, folder)
        self.notices = [text for text in (notice, facts.elsewhere(dataset)) if text]
        self.by_study = {
            name: of_study
            for name, study in STUDIES.items()
            if (of_study := [saved for saved in self.figures if saved.study is study]) or study is self.study
        }
        self.figure_answers = [text for saved in own for text in _answers(saved)]

    def common(self, link: Callable[[str, str], str]) -> dict[str, Any]:
        """Template values that several pages share; `link` returns the address of a figure from its study and name."""
        verdicts, others = self.verdicts, self.others
        by_paper = _by_paper(verdicts)
        answer = gathered(self.folder, verdicts)
        own = self.study and (self.study.lead if self.study.paper else self.study.sections[-1].lead)
        return {
            "dataset": self.dataset,
            "study": self.study,
            "notices": self.notices,
            "answer": answer,
            "heading": _PROJECT if answer.sentences or not own else own,
            "figure_answers": self.figure_answers,
            "verdicts": None if verdicts is None else verdicts.rows(named=True),
            "campaigns": [] if verdicts is None else verdicts["campaign"].unique(maintain_order=True).to_list(),
            "others_by_claim": _by_claim(others),
            "compared": _compared(verdicts, others),
            "by_paper": by_paper,
            "counted": list(next(iter(by_paper.values()), {})),
            "rules": _rules(),
            "sources": _sources(verdicts, self.figures, self.folder, link),
            "headlines": _headlines(self.dataset, verdicts),
            "claims_script": _loader().get_source(_templates(), "claims.js")[0],
            "claims_page": "claims.html",
        }


def _render(template: str, values: dict[str, Any]) -> str:
    return _templates().get_template(template).render(**values)


def _from_here(study: str, figure: str) -> str:
    """Address of a figure, relative to pages at the top of the folder; that of the study if `figure` is empty."""
    return f"{study}/index.html#{figure}" if figure else f"{study}/index.html"


def _on_this_page(study: str, figure: str) -> str:
    return f"#{figure}"


def _index(content: _Content) -> dict[str, Any]:
    """Template values of `index.html`."""
    shown = [saved for saved in content.figures if not saved.error]
    pictures = [saved for saved in shown if saved.figure.name == saved.study.picture]
    own = [saved for saved in shown if saved.study is content.study]
    studies = [
        {
            "study": STUDIES[name],
            "question": STUDIES[name].sections[-1].lead,
            "figures": len(figures),
            "about": facts.saved(content.folder, name),
        }
        for name, figures in content.by_study.items()
    ]
    overall: dict[str, int] = {}
    if content.verdicts is not None:
        results = content.verdicts.filter(
            pl.col("paper") != claims.OURS, pl.col("verdict") != Verdict.NOT_MEASURED.value
        )
        overall = claims.counts(results) if results.height else {}
    return content.common(_from_here) | {
        "picture": next(iter([*pictures, *own]), None),
        "studies": studies,
        "overall": overall,
    }


def _study_page(content: _Content, study: Study, figures: list[Saved]) -> str:
    own = None if content.verdicts is None else study_verdicts(study, content.folder)
    judged = [] if own is None else own.rows(named=True)
    on_claims_page: set[tuple[str, str]] = set()
    if content.verdicts is not None:
        on_claims_page = set(content.verdicts.select("claim_id", "campaign").iter_rows())
    by_paper = _by_paper(content.verdicts)
    return _render(
        "study.html",
        {
            "study": study,
            "notices": content.notices if study is content.study else [],
            "counts": by_paper.get(study.paper.name) if study.paper else None,
            "of_paper": _judging(study),
            "figure_parts": _parts(figures),
            "verdicts": judged,
            "on_claims_page": on_claims_page,
            "loads": saved_loads(content.dataset, content.folder) if study is content.study else [],
            "about": facts.saved(content.folder, study.name),
            "specs": _specs(figures),
        },
    )


def _judging(study: Study) -> list[str]:
    """Names of the studies that judge results of the paper that a study reproduces."""
    of_claim = owners()
    papers = dict(published.load().claims.select("claim_id", "paper").iter_rows())
    judging = {name for claim, name in of_claim.items() if study.paper and papers.get(claim) == study.paper.name}
    return [name for name in STUDIES if name in judging]


def _specs(figures: Sequence[Saved]) -> dict[str, Any]:
    return {saved.figure.name: _slim(saved.spec) for saved in figures if not saved.error}


_PROJECT = "What encrypted DNS costs a web user, and what sharing QUIC with HTTP/3 saves"
_SHORT = 200
"""Maximum number of characters of a figure's answer that is printed in bold."""
_IN_PAPER = re.compile(r"(Fig\.|Table) ?(\w+)")
"""Pattern of names of figures and tables in the column `section_or_figure` of a claim."""


def _sources(
    verdicts: pl.DataFrame | None, figures: Sequence[Saved], folder: Path, link: Callable[[str, str], str]
) -> dict[str, dict[str, str]]:
    """For each claim: its study, the address of the figure that shows it, and the address of that figure's CSV.

    If no figure shows the claim, the address is that of the study.
    """
    if verdicts is None:
        return {}
    of_claim = owners()
    drawn = [saved for saved in figures if not saved.error]
    studies = {saved.study.name for saved in drawn}
    sources = {}
    for claim, section in verdicts.select("claim_id", "section_or_figure").iter_rows():
        if (name := of_claim.get(claim)) not in studies:
            continue
        study = STUDIES[name]
        names = {f"{kind} {number}" for kind, number in _IN_PAPER.findall(section or "")}
        of_study = [saved for saved in drawn if saved.study is study]
        matching = [
            saved
            for saved in of_study
            if names & {f"{kind} {number}" for kind, number in _IN_PAPER.findall(saved.figure.paper_figure)}
        ]
        shown = next(iter(matching or (of_study if len(of_study) == 1 else [])), None)
        name = shown.figure.name if shown else ""
        rows = f"{study.name}/{name}.csv" if shown and (folder / study.name / f"{name}.csv").is_file() else ""
        sources[claim] = {"study": study.name, "href": link(study.name, name), "rows": rows}
    return sources


def _renew_script(path: Path) -> None:
    """Write the script of the charts, unless the file was made from the current source and library versions."""
    made_of = hashlib.sha256(
        f"{importlib.metadata.version('vl-convert-python')} {vegalite_version()} {_charts_source()}".encode()
    ).hexdigest()
    head = f"/* {made_of} */"
    if path.is_file() and path.read_text(encoding="utf-8").startswith(head):
        return
    write(path, f"{head}\n(() => {{{script()}}})();\n".encode())


@cache
def script() -> str:
    """The script of the charts, bundled with the libraries that draw them."""
    bundled: str = vl_convert.javascript_bundle(_charts_source(), vl_version=vegalite_version())
    return bundled


def _charts_source() -> str:
    source, _, _ = _loader().get_source(_templates(), "charts.js")
    return f"const fonts = {json.dumps({weight: woff(name) for name, weight in FONT_WEIGHTS.items()})};\n{source}"


@cache
def _loader() -> jinja2.PackageLoader:
    return jinja2.PackageLoader("crosslayer.report")


@cache
def _templates() -> jinja2.Environment:
    templates = jinja2.Environment(loader=_loader(), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    templates.filters |= {
        "ours": claims.ours,
        "interval": _interval,
        "css": _css,
        "counted": claims.counted_as,
        "in_words": counts_text,
        "picture": _picture,
    }
    templates.globals |= {
        "VERDICTS": list(claims.counts(pl.DataFrame(schema=claims.COLUMNS))),
        "CONTRADICTIONS": CONTRADICTIONS,
        "NOT_MEASURED": Verdict.NOT_MEASURED,
        "COLUMN": COLUMN_WIDTH,
        "SHORT": _SHORT,
    }
    return templates


def _css(verdict: str) -> str:
    """CSS class of a verdict."""
    return verdict.replace(" ", "-")


def _picture(svg: str) -> str:
    """Data URL of an SVG picture; percent-encoding is shorter than base64."""
    return f"data:image/svg+xml;charset=utf-8,{quote(svg, safe=' =:/;,()<>+@?!|*$')}"


def _slim(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart with its rows stored by column, so each column name occurs once.

    The script of the page restores the rows.
    """
    tables = {
        name: {column: [row.get(column) for row in rows] for column in rows[0]} if rows else {}
        for name, rows in spec.get("datasets", {}).items()
    }
    return spec | {"datasets": tables}


def _by_paper(verdicts: pl.DataFrame | None) -> dict[str, dict[str, int]]:
    """Number of claims for each verdict, by paper."""
    if verdicts is None:
        return {}
    return {
        str(paper): claims.counts(of_paper) for (paper,), of_paper in verdicts.group_by(["paper"], maintain_order=True)
    }


def _answers(saved: Saved) -> list[str]:
    """Answers of a figure: first that of its own campaign, then that of a second campaign, if it is in virtual time.

    Figures that compare clocks have no answers here.
    """
    virtual = [f"In virtual time: {saved.verdict_virtual}"] if saved.verdict_virtual else []
    return [saved.verdict, *virtual] if saved.verdict and saved.figure.notebook != clocks.NOTEBOOK else []


def _by_claim(others: pl.DataFrame | None) -> dict[str, list[dict[str, Any]]]:
    """Verdicts of other campaigns, by claim."""
    if others is None:
        return {}
    rows = others.partition_by("claim_id", as_dict=True, maintain_order=True)
    return {str(claim): of_claim.rows(named=True) for (claim,), of_claim in rows.items()}


def _compared(verdicts: pl.DataFrame | None, of_others: pl.DataFrame | None) -> list[dict[str, Any]]:
    """Comparison of each pair of campaigns, with the names of both (`first`, `second`).

    `claims` is the number of claims that both campaigns measured. `first_verdicts` and `second_verdicts` are texts.
    They state, for each verdict, on how many of these claims the campaign has it. `changed` is the number of these
    claims whose verdicts differ.
    """
    if verdicts is None or of_others is None:
        return []
    comparisons = []
    for (mine,), others in of_others.group_by("compared_with", maintain_order=True):
        of_campaign = verdicts.filter(campaign=mine)
        tables = [(f"{mine}", of_campaign)]
        for (name, clock), of_other in others.group_by("campaign", "clock", maintain_order=True):
            tables.append((f"{name} ({_CLOCK_NAMES[clock]})", of_other))
        for (first, one), (second, other) in combinations(tables, 2):
            both = claims.compared(one, other)
            counted = {"claims": both.height, "changed": int(both["changed"].sum())}
            verdicts_of = {
                side: counts_text({of.value: n for of in Verdict if (n := both.filter(pl.col(column) == of).height)})
                for side, column in (("first_verdicts", "verdict"), ("second_verdicts", "verdict_other"))
            }
            comparisons.append({"first": first, "second": second} | verdicts_of | counted)
    return comparisons


def _rules() -> list[dict[str, Any]]:
    """Number, date and text of each version of the rules for verdicts, the latest first."""
    parts = {version: text.partition(". ") for version, text in RULES.items()}
    return [
        {"version": version, "date": date, "text": " ".join(text.split())}
        for version, (date, _, text) in sorted(parts.items(), reverse=True)
    ]


def _interval(row: dict[str, Any]) -> str:
    """Interval of a claim as text; a phrase replaces it if both ends are equal after rounding."""
    text = claims.interval(row)
    ends = re.fullmatch(r"\[(.+), (.+)\]", text)
    return "narrower than its last digit" if ends and ends[1] == ends[2] else text


def _headlines(dataset: Dataset, verdicts: pl.DataFrame | None) -> list[dict[str, Any]]:
    """Verdicts on headline claims, with the titles of the claims.

    Headline claims are included if the dataset's study checks them or another study measured them.
    """
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
    """Sections of the page that have figures, with these figures."""
    sections = [*(section for study in STUDIES.values() for section in study.sections), _CLOCKS, _HOSTS]
    parts = [(part, [saved for saved in figures if saved.figure.notebook == part.notebook]) for part in sections]
    return [(part, of_part) for part, of_part in parts if of_part]
