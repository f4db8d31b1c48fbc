"""The top of the page: what was measured, what became of the claims, and a handful of numbers with their intervals."""

from __future__ import annotations

from html import escape

import polars as pl

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import CLASSES, Verdict
from crosslayer.report import facts
from crosslayer.report.papers import PAPERS, Paper
from crosslayer.studies import STUDIES

HEADLINES = {
    "T077": "DNS exchange on a new connection, DoUDP",
    "T079": "DNS exchange, DoQ",
    "T082": "DNS exchange, DoH",
    "T196": "PLT over the baseline, DoQ + H3 0-RTT (coalescing, emulated)",
    "T197": "PLT over the baseline, DoQ + H3 1-RTT",
    "T198": "PLT over the baseline, DoH + H3 1-RTT",
    "T203": "PLT that H3 0-RTT saves",
    "I093": "Handshake, DoTCP and DoQ against DoH and DoT",
    "I103": "Single query, gain of DoQ over DoT and DoH",
    "I123": "PLT of pages with one lookup, gain of DoQ over DoH",
    "I130": "PLT of pages with many lookups, loss of DoQ over DoUDP",
}
"""Claims whose numbers stand on top, and how they are called there."""

_LEGEND = (
    "T: medians, of exchanges over all links in multiples of the link's RTT, of PLT over the cells; the baseline is "
    "DoUDP + H3 1-RTT. I: IMC 2022."
)


def summary(dataset: Dataset, verdicts: pl.DataFrame | None) -> str:
    """The summary as HTML; without verdicts only what was measured.

    Parameters
    ----------
    dataset
        Whose summary it is.
    verdicts
        From `crosslayer.claims.check`.
    """
    overview = facts.overview(dataset)
    if verdicts is None:
        return overview
    paper = PAPERS.get(dataset.campaign.study)
    return (
        f"{_result(paper, verdicts) if paper else ''}{_verdicts(verdicts)}"
        f"{_headlines(dataset.campaign.study, verdicts)}{overview}"
    )


def _result(paper: Paper, verdicts: pl.DataFrame) -> str:
    """How many of a paper's claims have each verdict, as a sentence and as a bar."""
    of_paper = verdicts.filter(paper=paper.name)
    counts = claims.counts(of_paper)
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    bar = "".join(
        f'<span class="{CLASSES[verdict]}" style="flex:{counts[verdict.value]}"></span>'
        for verdict in Verdict
        if counts[verdict.value]
    )
    return (
        f'<p class="result">Of the {of_paper.height} results that {paper.name} prints: '
        f"<strong>{escape(words)}</strong>.</p>"
        f'<div class="bar" role="img" aria-label="{escape(words)}">{bar}</div>'
    )


def _verdicts(verdicts: pl.DataFrame) -> str:
    """How many claims have each verdict: a table by paper."""
    head = "".join(
        f'<th scope="col" class="{CLASSES[verdict]}"><span class="key"></span>{verdict.value}</th>'
        for verdict in Verdict
    )
    rows = [_counts(paper, verdicts.filter(paper=paper)) for paper in verdicts["paper"].unique(maintain_order=True)]
    return (
        f'<div class="table"><table class="counts"><thead><tr><th scope="col">Claims of</th>{head}'
        f'<th scope="col">all</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _counts(paper: str, verdicts: pl.DataFrame) -> str:
    cells = "".join(
        f"<td>{_filtered(paper, CLASSES[Verdict(verdict)], count) if count else count}</td>"
        for verdict, count in claims.counts(verdicts).items()
    )
    return f'<tr><th scope="row">{escape(paper)}</th>{cells}<td>{_filtered(paper, "", verdicts.height)}</td></tr>'


def _filtered(paper: str, verdict: str, count: int) -> str:
    """A count as a link to its claims."""
    return f'<a href="#claims" data-paper="{escape(paper)}" data-verdict="{verdict}">{count}</a>'


def _headlines(study: str, verdicts: pl.DataFrame) -> str:
    """The headline numbers that this study checks, and those that another one here has measured."""
    own = STUDIES[study].claims if study in STUDIES else None
    checked = [claim for claim in HEADLINES if own and claim in own.checks]
    measured = pl.col("claim_id").is_in(list(HEADLINES)) & (pl.col("verdict") != Verdict.NOT_MEASURED)
    shown = verdicts.filter(pl.col("claim_id").is_in(checked) | measured)
    if shown.is_empty():
        return ""
    rows = []
    for row in shown.iter_rows(named=True):
        kind = CLASSES[Verdict(row["verdict"])]
        rows.append(
            f'<tr class="{kind}"><th scope="row">{escape(HEADLINES[row["claim_id"]])}</th>'
            f"<td>{escape(claims.ours(row)) or '–'}</td><td>{escape(claims.interval(row)) or '–'}</td>"
            f"<td>{escape(row['published'])}</td>"
            f'<td class="verdict"><span class="key"></span>{escape(row["verdict"])}</td>'
            f'<td><a href="#{escape(row["claim_id"])}">{escape(row["claim_id"])}</a></td></tr>'
        )
    head = "".join(
        f'<th scope="col">{name}</th>' for name in ("", "Ours", "95 % interval", "Published", "Verdict", "Claim")
    )
    return (
        f'<div class="table"><table class="headlines"><thead><tr>{head}</tr></thead>'
        f'<tbody>{"".join(rows)}</tbody></table></div><p class="small">{escape(_LEGEND)}</p>'
    )
