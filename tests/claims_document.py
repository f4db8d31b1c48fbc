"""The verdicts in `docs/findings/claims.md`; `python -m tests.claims_document` computes and writes them again."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import polars as pl

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset, paired_campaigns
from crosslayer.studies import STUDIES, owners
from tests import committed

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "findings" / "claims.md"
_CONCLUSIONS = "## Conclusions of our own studies"
_SUMMARY = re.compile(r"(?<=<!-- summary -->\n).*?(?=<!-- /summary -->)", re.DOTALL)
_TABLE = re.compile(r"(?<=\| claims \| what is judged \| verdict \|\n\|---\|---\|---\|\n)(?:\|.*\|\n)+")
_ROW = re.compile(r"^\| ([A-Z]+\d+(?:, [A-Z]+\d+)*) \| (.*) \| ([^|]*) \|$", re.MULTILINE)
_TITLE = re.compile(r"^## (.*)$", re.MULTILINE)


def verdicts() -> dict[str, str]:
    """Verdict of each claim, by the claim's identifier, from the committed campaign of its study.

    If the study's campaign in virtual time gives another verdict, "; in virtual time VERDICT" is appended. The verdict
    "not measured" in virtual time is ignored.
    """
    results: dict[str, str] = {}
    for name in STUDIES:
        if own := [claim for claim, owner in owners().items() if owner == name]:
            dataset = Dataset.open(ROOT / "data" / "raw" / name)
            is_own = pl.col("claim_id").is_in(own)
            of_study = committed.verdicts(name).filter(is_own)
            results.update(of_study.select("claim_id", "verdict").iter_rows())
            for virtual in paired_campaigns(dataset)[:1]:
                other = committed.verdicts(virtual.folder.name).filter(is_own)
                for claim, verdict in other.select("claim_id", "verdict").iter_rows():
                    if verdict not in (results[claim], claims.Verdict.NOT_MEASURED):
                        results[claim] += f"; in virtual time {verdict}"
    return results


def rows(text: str) -> list[tuple[str, str, str]]:
    """Claim, judged statement and verdict from the table rows of a Markdown text, one tuple per claim of a row."""
    return [(claim, what, verdict) for claims, what, verdict in _ROW.findall(text) for claim in claims.split(", ")]


def renewed(text: str, now: dict[str, str]) -> str:
    """The document `text` with new tables, conclusions and summary. `now` has the verdicts by claim."""

    def table(match: re.Match[str]) -> str:
        groups: dict[tuple[str, str], list[str]] = {}
        for claim, what, _ in rows(match[0]):
            groups.setdefault((what, now[claim]), []).append(claim)
        return "".join(f"| {', '.join(ids)} | {what} | {verdict} |\n" for (what, verdict), ids in groups.items())

    whole = _TABLE.sub(table, text.partition(_CONCLUSIONS)[0]) + conclusions(now)
    return _SUMMARY.sub(lambda _: summary(whole), whole)


def conclusions(now: dict[str, str]) -> str:
    """Markdown section with the claims of our own studies: one table per study. `now` has the verdicts by claim."""
    published = set(pl.read_csv(ROOT / "data" / "published" / "claims.csv")["claim_id"])
    lines = [_CONCLUSIONS, ""]
    for name, study in STUDIES.items():
        own = [check for check in study.claims.checks.values() if check.claim not in published] if study.claims else []
        if own:
            lines += [f"### {name}", "", "| claim | sentence | verdict |", "|---|---|---|"]
            lines += [f"| {check.claim} | {check.sentence} | {now[check.claim]} |" for check in own] + [""]
    return "\n".join(lines)


def summary(text: str) -> str:
    """Markdown table with the number of claims per section of the document `text` and verdict.

    A claim with different verdicts in real and virtual time counts with its verdict in real time.
    """
    columns = list(claims.Verdict)
    lines = [f"| section | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    titles = list(_TITLE.finditer(text))
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        section = rows(text[title.end() : following.start() if following else None])
        counts = Counter(verdict.partition(";")[0] for _, _, verdict in section)
        cells = " | ".join(str(counts[verdict] or "") for verdict in columns)
        anchor = re.sub(r"[^a-z0-9 -]", "", title[1].lower()).replace(" ", "-")
        lines.append(f"| [{title[1]}](#{anchor}) | {cells} |")
    return "\n".join(lines) + "\n"


def renew() -> None:
    """Compute the verdicts and write them into `docs/findings/claims.md`."""
    DOCUMENT.write_text(renewed(DOCUMENT.read_text(encoding="utf-8"), verdicts()), encoding="utf-8")


if __name__ == "__main__":
    renew()
