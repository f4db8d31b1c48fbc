"""The table of verdicts: made from a campaign and the published claims, and written as Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import polars as pl

from crosslayer.claims.checks import Check, Outcome, Verdict, number, spaced
from crosslayer.claims.observed import NotMeasured, Observed
from crosslayer.claims.studies import BY_STUDY, missing

_COLUMNS: dict[str, Any] = {
    "paper": pl.String,
    "claim_id": pl.String,
    "section_or_figure": pl.String,
    "quantity": pl.String,
    "scope": pl.String,
    "statistic": pl.String,
    "published": pl.String,
    "ours": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "unit": pl.String,
    "n": pl.Int64,
    "rounds": pl.Int64,
    "verdict": pl.String,
    "why": pl.String,
    "criterion": pl.String,
    "note": pl.String,
}

_RELATIONS = {
    "greater": "> ",
    "less": "< ",
    "much less": "≪ ",
    "less or equal": "≤ ",
    "greater or equal": "≥ ",
    "approximately": "≈ ",
}
_UNITS = {"RTT multiples": "RTT", "percent": "%", "percentage points": "points"}


def check(
    *,
    dns_exchanges: pl.LazyFrame,
    tcp_rtts: pl.LazyFrame,
    page_loads: pl.LazyFrame,
    link_checks: pl.LazyFrame,
    claims: pl.DataFrame,
    study: str = "coalescing",
) -> pl.DataFrame:
    """Hold every published result against a campaign.

    Parameters
    ----------
    dns_exchanges, tcp_rtts, page_loads, link_checks
        Tables of a dataset, whole.
    study
        The campaign's study: its claims are checked (`studies.BY_STUDY`), all others are not measured.
    claims
        `data/reference/claims.csv`, every column as text.

    Returns
    -------
    polars.DataFrame
        One row per claim of kind `result`, in the order of the claims: paper, claim_id, section_or_figure, quantity,
        scope, statistic, published (text), ours, low, high (95 % interval of ours; for an ordering the margin of the
        comparison that decides), unit, n (observations), rounds, verdict, why, criterion, note.
    """
    ours = BY_STUDY.get(study)
    checks: Mapping[str, Check] = ours.checks if ours else {}
    observed: Observed | None = None
    if ours:
        tables = {"dns_exchanges": dns_exchanges, "tcp_rtts": tcp_rtts, "page_loads": page_loads}
        observed = ours.observed(**tables, link_checks=link_checks)
    rows = [
        _row(claim, checks.get(claim["claim_id"]), observed)
        for claim in claims.filter(kind="result").iter_rows(named=True)
    ]
    return pl.DataFrame(rows, schema=_COLUMNS, orient="row")


def counts(verdicts: pl.DataFrame) -> dict[str, int]:
    """How many claims have each verdict, every verdict named."""
    return {verdict.value: verdicts.filter(verdict=verdict.value).height for verdict in Verdict}


def _row(claim: dict[str, str], chosen: Check | None, observed: Observed | None) -> tuple[Any, ...]:
    identifier = claim["claim_id"]
    if chosen is None or observed is None:
        outcome = _not_measured(missing(identifier, claim["paper"]))
    else:
        try:
            outcome = chosen.run(observed, _plain(claim["value"]))
        except NotMeasured as reason:
            outcome = _not_measured(str(reason))
    ours = outcome.estimate
    low, high = ours.interval or (None, None) if ours else (None, None)
    remark = chosen.remark if chosen else ""
    return (
        claim["paper"],
        identifier,
        claim["section_or_figure"],
        claim["quantity"],
        claim["scope"],
        claim["statistic"],
        _published(claim),
        ours.value if ours else None,
        low,
        high,
        outcome.unit,
        ours.n if ours else None,
        ours.rounds if ours else None,
        outcome.verdict.value,
        outcome.why,
        chosen.criterion if chosen else "",
        " ".join(_sentence(text) for text in (claim["note"], remark) if text),
    )


def _not_measured(reason: str) -> Outcome:
    return Outcome(Verdict.NOT_MEASURED, _sentence(reason))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _plain(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _published(claim: dict[str, str]) -> str:
    """The statement as a short text: value, unit and relation, or the ordering in words."""
    value, relation, unit = claim["value"], claim["expected_relation"], claim["unit"]
    if not value:
        return relation.removeprefix("ordering: ")
    text = f"{_RELATIONS.get(relation, '')}{value}{spaced(_UNITS.get(unit, unit))}"
    return f"{text}; {relation.removeprefix('ordering: ')}" if relation.startswith("ordering") else text


# How it is read

_HEADINGS = ("Claim", "Where", "What", "Published", "Ours", "Verdict", "Why")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """The columns of a reader's table."""
    what = ", ".join(row[name] for name in ("quantity", "scope", "statistic") if row[name] not in ("", "ordering"))
    why = f"{row['why']} {row['note']}" if row["note"] else row["why"]
    return (row["claim_id"], row["section_or_figure"], what, row["published"], ours(row), row["verdict"], why)


def ours(row: dict[str, Any]) -> str:
    """Our value with its interval and unit, as text; empty where there is none."""
    if row["ours"] is None:
        return ""
    text = number(row["ours"])
    if row["low"] is not None:
        text += f" [{number(row['low'])}, {number(row['high'])}]"
    return text + spaced(row["unit"])


def _summary(verdicts: pl.DataFrame) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts(verdicts).items())


def to_markdown(verdicts: pl.DataFrame, *, caption: str = "") -> str:
    """The verdicts as a Markdown document: counts, then one table per paper.

    Parameters
    ----------
    verdicts
        From `check`.
    caption
        Campaign, rounds, backend and host, for the reader.
    """
    lines = ["# Claims", "", f"{_summary(verdicts)}.", ""]
    lines += [caption, ""] if caption else []
    for paper in verdicts["paper"].unique(maintain_order=True):
        of_paper = verdicts.filter(paper=paper)
        lines += [f"## {paper}", "", f"{_summary(of_paper)}.", ""]
        lines += [_markdown_row(_HEADINGS), _markdown_row(["---"] * len(_HEADINGS))]
        lines += [_markdown_row(_cells(row)) for row in of_paper.iter_rows(named=True)]
        lines.append("")
    return "\n".join(lines)


def _markdown_row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


_CLASSES = {
    Verdict.REPRODUCED: "reproduced",
    Verdict.DIRECTION_ONLY: "direction",
    Verdict.NOT_REPRODUCED: "not-reproduced",
    Verdict.NOT_MEASURED: "not-measured",
}


def to_html(verdicts: pl.DataFrame, *, caption: str = "") -> str:
    """The verdicts as an HTML fragment: counts and one `<table class="claims">`, to be put into any page.

    Each row has the verdict as its class (`reproduced`, `direction`, `not-reproduced`, `not-measured`); how the check
    decides is the row's tooltip.
    """
    head = "".join(f"<th>{escape(heading)}</th>" for heading in _HEADINGS)
    body = []
    for row in verdicts.iter_rows(named=True):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row))
        kind = _CLASSES[Verdict(row["verdict"])]
        body.append(f'<tr class="{kind}" title="{escape(row["criterion"])}">{cells}</tr>')
    text = f"<p>{escape(_summary(verdicts))}.</p>\n"
    text += f"<p>{escape(caption)}</p>\n" if caption else ""
    return (
        f'{text}<table class="claims">\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody>\n</table>\n"
    )
