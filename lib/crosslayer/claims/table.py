"""The table of verdicts: computed from a campaign and the published claims, and written as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import polars as pl

from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.rows import RowsOfClaim, Sources, rows_of
from crosslayer.claims.rules import Cause, Check, Outcome, Verdict, number, spaced
from crosslayer.claims.tolerances import VERSION
from crosslayer.metrics.resampling import LEVEL

CONTRADICTIONS = frozenset(
    ("T003", "T004", "T080", "T113", "T138", "T139", "T140", "T145", "T146", "T198", "S007", "I106")
)
"""Claims that are contradicted by their own paper, its figures or its talk; the notes of the claims have details."""

COLUMNS: dict[str, Any] = {
    "paper": pl.String,
    "claim_id": pl.String,
    "section_or_figure": pl.String,
    "quantity": pl.String,
    "scope": pl.String,
    "statistic": pl.String,
    "published": pl.String,
    "sentence": pl.String,
    "ours": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "unit": pl.String,
    "n": pl.Int64,
    "rounds": pl.Int64,
    "verdict": pl.String,
    "rules": pl.Int64,
    "round_trips_right": pl.String,
    "overhead_right": pl.String,
    "follows_from": pl.String,
    "why": pl.String,
    "cause": pl.String,
    "rounds_needed": pl.Int64,
    "would_decide": pl.String,
    "plain": pl.String,
    "criterion": pl.String,
    "note": pl.String,
    "tables": pl.String,
}
"""Columns of the table of verdicts."""

_RELATIONS = {
    "greater": "> ",
    "less": "< ",
    "much less": "≪ ",
    "less or equal": "≤ ",
    "greater or equal": "≥ ",
    "approximately": "≈ ",
}
OURS = "crosslayer"
"""Value of the column `paper` for claims of our own studies."""
_OWN = {"paper": OURS, "claim_id": "", "quantity": ""} | dict.fromkeys(
    ("section_or_figure", "scope", "statistic", "value", "unit", "expected_relation", "note"), ""
)
"""Values of the columns of `claims.csv` for a claim of our own studies; the file has no row for such a claim."""
_UNITS = {"RTT multiples": "RTT", "percent": "%", "percentage points": "points"}


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of one study, and what is needed to compare them with a campaign.

    Each study has one instance of this class: `CLAIMS` in the study's module `claims`.
    """

    checks: Mapping[str, Check]
    """Checks by claim identifier; a claim belongs to one study at most."""
    observed: Callable[..., Observed]
    """Function that constructs the observations; its keyword arguments are the tables by name."""
    tables: tuple[str, ...]
    """Names of the tables that `observed` takes."""
    sources: Sources = field(default_factory=dict)
    """Source of the rows of each series."""


class Tables(Protocol):
    """The part of a dataset's interface that claims use."""

    def table(self, name: str) -> pl.LazyFrame:
        """A complete table of the dataset."""
        ...


def check(
    dataset: Tables, claims: Claims | None, published_claims: pl.DataFrame, *, elsewhere: Mapping[str, str]
) -> pl.DataFrame:
    """Judge all published results, and a study's own claims, by the data of a campaign of this study.

    Parameters
    ----------
    dataset
        The campaign.
    claims
        Claims of the campaign's study; None if it has none. Results without a check are "not measured".
    published_claims
        `data/published/claims.csv`, every column as text.
    elsewhere
        For each claim that the study does not check, by claim identifier: the reason why it is not measured.

    Returns
    -------
    polars.DataFrame
        One row per claim of kind `result`, in the order of the claims, then the study's own claims. Columns:
        paper, claim_id, section_or_figure, quantity, scope, statistic;
        published (text), sentence (the claim in our words);
        ours, low and high (our value and its 95 % interval; for an ordering, the margin of the deciding comparison);
        unit, n (observations), rounds, verdict, rules (version of the rules);
        round_trips_right and overhead_right (`yes`, `no` or `inconclusive` for durations in RTT; else empty);
        follows_from (another claim or the configuration that determines this claim; else empty);
        why, cause (why the result deviates);
        rounds_needed and would_decide (rounds or experiment that would decide an inconclusive result);
        plain (verdict on a headline result of the paper in plain words);
        criterion, note, tables (tables of the dataset that the claim uses).
    """
    observed = claims.observed(**{name: dataset.table(name) for name in claims.tables}) if claims else None
    checks = claims.checks if claims else {}
    printed = set(published_claims["claim_id"])
    stated = [
        *published_claims.filter(kind="result").iter_rows(named=True),
        *(_OWN | {"claim_id": name, "quantity": own.sentence} for name, own in checks.items() if name not in printed),
    ]
    tables = ", ".join(claims.tables) if claims else ""
    rows = [
        (*_row(claim, chosen, observed, elsewhere), tables if chosen and chosen.rule else "")
        for claim in stated
        for chosen in [checks.get(claim["claim_id"])]
    ]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def rows_behind(dataset: Tables, claims: Claims, claim: str) -> list[RowsOfClaim]:
    """Rows of a dataset by which a claim of its study is judged, table by table.

    Raises
    ------
    NotMeasured
        If the campaign lacks data that the claim needs, or the claim is not judged by single rows.
    """
    [(_, rows)] = rows_behind_each(dataset, claims, [claim])
    return rows


def rows_behind_each(dataset: Tables, claims: Claims, names: Iterable[str]) -> Iterator[tuple[str, list[RowsOfClaim]]]:
    """Yield the name and the rows of each claim, as `rows_behind`; the dataset is read once for all claims.

    Raises
    ------
    NotMeasured
        As `rows_behind`.
    """
    observed = claims.observed(**{name: dataset.table(name) for name in claims.tables})
    for name in names:
        observed.forget_asked()
        claims.checks[name].run(observed, 1.0)  # the rows do not depend on the published value
        if not (rows := rows_of(observed.asked, claims.sources)):
            raise NotMeasured("the study computes each of its values from several rows")
        yield name, rows


FOLLOWING = Verdict.FOLLOWS.value
"""Key of `counts` for all measured results that follow from another claim or from the configuration."""


def counted_as(row: Mapping[str, Any]) -> str:
    """Key under which a row is counted: its verdict or `FOLLOWING`."""
    return FOLLOWING if row["follows_from"] and row["verdict"] != Verdict.NOT_MEASURED else str(row["verdict"])


def counts(verdicts: pl.DataFrame) -> dict[str, int]:
    """Number of claims for every verdict; claims that follow from others count as `FOLLOWING` only."""
    numbers = Counter(counted_as(row) for row in verdicts.select("verdict", "follows_from").iter_rows(named=True))
    return {verdict.value: numbers[verdict.value] for verdict in Verdict}


def expected_errors(verdicts: pl.DataFrame) -> float:
    """Upper bound of the expected number of verdicts that are wrong by chance, among those decided by an interval.

    If the true value lies on a border, the verdict is wrong with a probability of 2.5 %. The farther the true value is
    from the border, the smaller is this probability.
    """
    decided = pl.col("verdict").is_in([Verdict.REPRODUCED, Verdict.DIRECTION_ONLY, Verdict.NOT_REPRODUCED])
    return verdicts.filter(decided, pl.col("low").is_not_null()).height * (1 - LEVEL) / 2


def _row(
    claim: dict[str, str], chosen: Check | None, observed: Observed | None, elsewhere: Mapping[str, str]
) -> tuple[Any, ...]:
    identifier = claim["claim_id"]
    if chosen is None or observed is None:
        outcome = _not_measured(elsewhere.get(identifier, "no check is written for it"))
    else:
        try:
            outcome = chosen.run(observed, _plain(claim["value"]))
        except NotMeasured as reason:
            outcome = _not_measured(str(reason))
    ours = outcome.estimate
    low, high = ours.interval or (None, None) if ours else (None, None)
    failed = outcome.verdict in (Verdict.DIRECTION_ONLY, Verdict.INCONCLUSIVE, Verdict.NOT_REPRODUCED)
    return (
        claim["paper"],
        identifier,
        claim["section_or_figure"],
        claim["quantity"],
        claim["scope"],
        claim["statistic"],
        _published(claim),
        chosen.sentence if chosen else "",
        ours.value if ours else None,
        low,
        high,
        outcome.unit,
        ours.n if ours else None,
        ours.rounds if ours else None,
        outcome.verdict.value,
        VERSION,
        outcome.round_trips,
        outcome.overhead,
        _follows_from(chosen, outcome) if chosen else "",
        outcome.why,
        _filled(chosen.cause, observed) if chosen and observed and failed else "",
        outcome.rounds_needed,
        _sentence(outcome.would_decide) if outcome.would_decide else "",
        _description(chosen, observed) if chosen and observed else "",
        chosen.criterion if chosen else "",
        " ".join(_sentence(text) for text in (claim["note"], _remark(chosen, observed)) if text),
    )


def _filled(text: Cause | str, observed: Observed) -> str:
    return text if isinstance(text, str) else text.filled(observed)


def _remark(chosen: Check | None, observed: Observed | None) -> str:
    if chosen is None or observed is None:
        return chosen.remark if chosen and isinstance(chosen.remark, str) else ""
    return _filled(chosen.remark, observed)


def _follows_from(chosen: Check, outcome: Outcome) -> str:
    return chosen.given_by if outcome.verdict is Verdict.FOLLOWS else chosen.follows_from


def _description(chosen: Check, observed: Observed) -> str:
    try:
        return chosen.plain(observed) if chosen.plain else ""
    except NotMeasured:
        return ""


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
    """Published statement as a short text: value, unit and relation, or the ordering in words."""
    value, relation, unit = claim["value"], claim["expected_relation"], claim["unit"]
    if not value:
        return relation.removeprefix("ordering: ")
    text = f"{_RELATIONS.get(relation, '')}{value}{spaced(_UNITS.get(unit, unit), _plain(value) or 0.0)}"
    return f"{text}; {relation.removeprefix('ordering: ')}" if relation.startswith("ordering") else text


# Presentation

_HEADINGS = ("Claim", "Where", "What", "Published", "Ours", "95 % interval", "Verdict", "Why")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    """Cells of a row of the Markdown table, without the note."""
    what = ", ".join(row[name] for name in ("quantity", "scope", "statistic") if row[name] not in ("", "ordering"))
    where = row["section_or_figure"]
    return row["claim_id"], where, what, row["published"], ours(row), interval(row), row["verdict"], row["why"]


def ours(row: dict[str, Any]) -> str:
    """Our value with its unit, as text; empty if there is none."""
    return "" if row["ours"] is None else f"{number(row['ours'])}{spaced(row['unit'], row['ours'])}"


def interval(row: dict[str, Any]) -> str:
    """The 95 % interval of our value, as text; empty if there is none."""
    return "" if row["low"] is None else f"[{number(row['low'])}, {number(row['high'])}]"


def _summary(verdicts: pl.DataFrame) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in counts(verdicts).items())


def to_markdown(verdicts: pl.DataFrame, *, caption: str = "") -> str:
    """The verdicts as a Markdown document: counts, then one table per paper.

    Parameters
    ----------
    verdicts
        From `check`.
    caption
        Campaign, rounds, backend and host.
    """
    chance = (
        f"By chance alone at most {number(expected_errors(verdicts))} of the decided verdicts are expected to be wrong."
    )
    following = f'A claim that another claim determines is counted as "{FOLLOWING}", whatever its verdict.'
    lines = ["# Claims", "", f"{_summary(verdicts)}. {following} {chance}", ""]
    lines += [caption, ""] if caption else []
    for paper in verdicts["paper"].unique(maintain_order=True):
        of_paper = verdicts.filter(paper=paper)
        lines += [f"## {paper}", "", f"{_summary(of_paper)}.", ""]
        lines += [_markdown_row(_HEADINGS), _markdown_row(["---"] * len(_HEADINGS))]
        for row in of_paper.iter_rows(named=True):
            *cells, why = _cells(row)
            follows = f"Follows from {row['follows_from']}." if row["follows_from"] else ""
            cause = f"Cause: {row['cause']}" if row["cause"] else ""
            texts = (why, row["plain"], follows, cause, row["would_decide"], _note_heading(row), row["note"])
            lines.append(_markdown_row([*cells, " ".join(text for text in texts if text)]))
        lines.append("")
    return "\n".join(lines)


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _note_heading(row: dict[str, Any]) -> str:
    return "The paper contradicts itself:" if row["claim_id"] in CONTRADICTIONS else ""
