"""`index.html`: what a folder has of a campaign, joined on one page that needs no network."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import polars as pl
import vl_convert

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import CLASSES, Verdict
from crosslayer.figures import FIGURES
from crosslayer.figures.style import COLUMN_WIDTH
from crosslayer.report import facts
from crosslayer.report.files import ReportError, about, saved_claims, saved_figures, vegalite_version, write
from crosslayer.report.papers import PAPERS
from crosslayer.report.summary import summary

SECTIONS = {
    "link_check": (
        "The testbed",
        "Is the link what it claims to be, does the procedure measure what it should, and what failed?",
    ),
    "handshakes": (
        "Handshakes",
        "How long DoQ and HTTP/3 take to set up a connection, and when the first request can leave.",
    ),
    "dns_overhead": (
        "DNS exchanges",
        "What a lookup costs on each transport, in round-trips of the link and beyond them.",
    ),
    "page_loads": (
        "Page loads",
        "What the transport of DNS and the HTTP/3 handshake cost a page load together.",
    ),
    "single_query": (
        "Single queries",
        (
            "What one query costs on each transport, its handshake included, from vantage points near and far "
            "(Kosek et al., IMC 2022, section 3.1)."
        ),
    ),
    "web_performance": (
        "Web performance",
        (
            "What a user waits for when the browser itself resolves one name or many over each transport "
            "(Kosek et al., IMC 2022, section 3.2)."
        ),
    ),
    "authoritative": (
        "Resolver to authoritative server",
        "What every query takes on a connection that is kept (Batenburg, Twente 2022).",
    ),
}
"""Notebook to heading and lead of its part of the page."""

QUESTIONS = (
    "questions",
    "Open questions",
    "What the papers leave open, each answered by a campaign of its own, which is named under its figure.",
)
"""Identifier, heading and lead of the part for the figures of all other notebooks."""

_HOW = (
    "Each result that the papers print, held against this campaign with a tolerance written down before the data was "
    "looked at. Direction only: sign, order or number of round-trips are the published ones, the value is not."
)


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
    saved, verdicts = saved_figures(folder), saved_claims(dataset, folder)
    study, campaign = dataset.campaign.study, dataset.campaign.campaign
    own = {name for name, spec in saved.items() if FIGURES[name].study == study and about(spec)["campaign"] == campaign}
    specs = {name: spec for name, spec in saved.items() if name in own or FIGURES[name].study != study}
    if not own and verdicts is None:
        raise ReportError(
            f"there are no figures and no claims of campaign {campaign}",
            where=str(folder),
            next_step="Make them first: `crosslayer report`, or run the notebooks.",
        )
    notices = [text for text in (notice, facts.elsewhere(dataset)) if text]
    assets = resources.files(__package__)
    page = Template(assets.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=f"crosslayer: study {escape(study)}",
        style=assets.joinpath("page.css").read_text(encoding="utf-8"),
        notice="".join(f'<p class="notice" role="note">{escape(text)}</p>' for text in notices),
        about=_about(study),
        navigation=_navigation(specs),
        summary=summary(dataset, verdicts),
        claims=_claims(verdicts),
        sections=_sections(folder, specs),
        provenance=facts.provenance(dataset),
        specs=_as_script(specs),
        script=vl_convert.javascript_bundle(
            assets.joinpath("page.js").read_text(encoding="utf-8"), vl_version=vegalite_version()
        ),
    )
    path = folder / "index.html"
    write(path, page.encode())
    return path


def _about(study: str) -> str:
    """What is measured again here."""
    name, paper = f"Study <strong>{escape(study)}</strong>", PAPERS.get(study)
    if paper is None:
        return f"{name}: a question that the papers leave open, measured on emulated access links."
    doi = f', <a href="https://doi.org/{paper.doi}">doi {paper.doi}</a>' if paper.doi else ""
    return (
        f"{name}: {escape(paper.citation)} ({paper.name}{doi}), measured again on emulated access links: its claims "
        "held against the measurements, its figures drawn from them with the published curves and values beside."
    )


def _claims(verdicts: pl.DataFrame | None) -> str:
    if verdicts is None:
        return '<p class="lead">Not checked yet for this campaign: <code>crosslayer report</code> does it.</p>'
    counts = claims.counts(verdicts)
    by_verdict = [(CLASSES[verdict], f"{verdict.value} ({counts[verdict.value]})") for verdict in Verdict]
    papers = [(paper, f"{paper} ({count})") for paper, count in _per_paper(verdicts).items()]
    campaigns = verdicts["campaign"].unique(maintain_order=True).to_list()
    of_several = f" Campaigns: {', '.join(campaigns)}." if len(campaigns) > 1 else ""
    return (
        f'<p class="lead">{escape(_HOW + of_several)} <span class="hover">The tooltip of a verdict says how.</span></p>'
        '<form class="filter" hidden>'
        f"{_select('Verdict', 'verdict', by_verdict)}{_select('Paper', 'paper', papers)}"
        '<label>Words <input type="search" name="words" placeholder="DoQ fiber"></label>'
        '<label><input type="checkbox" name="contradiction"> the paper contradicts itself</label>'
        '<button type="reset">Show all</button><output></output></form>'
        '<div class="scroll" role="region" aria-label="Claims" tabindex="0">'
        f"{claims.to_html(verdicts)}</div>"
    )


def _per_paper(verdicts: pl.DataFrame) -> dict[str, int]:
    return dict(verdicts.group_by("paper", maintain_order=True).len().iter_rows())


def _select(label: str, name: str, options: Sequence[tuple[str, str]]) -> str:
    every = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options)
    return f'<label>{label} <select name="{name}"><option value="">all</option>{every}</select></label>'


def _parts(names: Iterable[str]) -> list[tuple[str, str, str, list[str]]]:
    """The parts of the page that have figures: identifier, heading, lead, names of the figures."""
    known = [(part, heading, lead) for part, (heading, lead) in SECTIONS.items()]
    of_part: dict[str, list[str]] = {part: [] for part, _, _ in (*known, QUESTIONS)}
    for name in names:
        of_part.get(FIGURES[name].notebook, of_part[QUESTIONS[0]]).append(name)
    return [(*part, of_part[part[0]]) for part in (*known, QUESTIONS) if of_part[part[0]]]


def _sections(folder: Path, specs: Mapping[str, dict[str, Any]]) -> str:
    return "".join(
        f'<section id="{part}"><h2>{escape(heading)}</h2><p class="lead">{escape(lead)}</p>'
        f"{''.join(_card(folder, name, about(specs[name]).get('verdict', '')) for name in figures)}</section>"
        for part, heading, lead, figures in _parts(specs)
    )


def _card(folder: Path, name: str, verdict: str) -> str:
    figure = FIGURES[name]
    picture = base64.b64encode((folder / figure.study / f"{name}.svg").read_bytes()).decode()
    kind = "column" if figure.width == COLUMN_WIDTH else "wide"
    heading = escape(figure.heading)
    answer = f"<p><strong>{escape(verdict)}</strong></p>" if verdict else ""
    # The picture has its title, what its marks mean and the provenance in it, so that it can stand alone.
    return (
        f'<figure id="{name}" class="{kind}"><div class="plot"><div class="chart" data-name="{name}">'
        f'<img alt="{heading}" src="data:image/svg+xml;base64,{picture}"></div></div>'
        f'<figcaption><h3 class="heard">{heading}</h3>{answer}<p>{escape(figure.caption)}</p>'
        f'<p class="get"><button data-csv="{name}">CSV</button> <button data-json="{name}">Vega-Lite</button></p>'
        "</figcaption></figure>"
    )


def _navigation(names: Iterable[str]) -> str:
    parts = []
    for part, heading, _, figures in _parts(names):
        links = "".join(
            f'<li><a href="#{name}">{escape(FIGURES[name].paper_figure or FIGURES[name].title)}</a></li>'
            for name in figures
        )
        parts.append(f'<li><a href="#{part}">{escape(heading)}</a><ul>{links}</ul></li>')
    return "".join(parts)


def _as_script(value: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
