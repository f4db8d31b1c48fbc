"""The answer that opens report and README: the cost of encrypted DNS, its evidence, and the headlines of the paper.

Each study computes its part (`Study.answer`), `save_answer` keeps it with the facts of its campaign,
and `gathered` joins the parts of all studies in a folder.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from crosslayer import claims, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.figures import Inputs
from crosslayer.figures.style import page_title
from crosslayer.report.files import ANSWER, ReportError, saved_claims, write
from crosslayer.studies import DEFAULT, STUDIES
from crosslayer.study import TOPICS, StudyAnswer

_BLOCK = re.compile(r"(<!-- answer -->\n).*?(\n<!-- /answer -->)", re.DOTALL)
_CLOCKS = {"virtual": "in virtual time", "wall": "in real time"}


class CampaignAnswer(msgspec.Struct, frozen=True):
    """The part of one campaign, as `answer.json` keeps it."""

    study: str
    campaign: str
    clock: str
    """`virtual` or `wall`."""
    rounds: tuple[int, int]
    """Fewest and most rounds of a link and page."""
    links: int
    machine: str
    revision: str
    sentences: tuple[tuple[str, str], ...]
    increases: tuple[tuple[str, str, dict[str, str]], ...]
    headlines: tuple[tuple[str, str, str], ...]

    @property
    def evidence(self) -> str:
        """Campaign, clock, rounds and revision of the sentences."""
        fewest, most = self.rounds
        rounds = str(most) if fewest == most else f"{fewest} to {most}"
        clock = _CLOCKS[self.clock].removeprefix("in ")
        return f"{self.study} ({clock}, {rounds} rounds, {self.links} links, {self.revision[:7]})"


@dataclass(frozen=True, slots=True)
class Whole:
    """The parts of all studies in a folder."""

    sentences: tuple[tuple[str, str], ...]
    """Topic and its sentences: virtual time first, then what real time gives."""
    increases: tuple[tuple[str, ...], ...]
    """Table of the increases of the page load time over plain DNS: header, then a row for each topic and transport."""
    evidence: str
    """What was measured, where, with which revision; empty if there are no sentences."""
    headlines: tuple[tuple[str, str, str], ...]
    """Claim, statement of the paper, verdict in plain words."""
    counts: str
    """Number of published results for each verdict; empty if none was checked."""


def save_answer(dataset: Dataset, verdicts: pl.DataFrame, folder: Path) -> None:
    """Write `folder/STUDY/answer.json`; where the campaign contributes nothing, remove an earlier one.

    Parameters
    ----------
    dataset
        The campaign.
    verdicts
        From `crosslayer.claims.check`.
    folder
        E.g. `figures`.

    Raises
    ------
    ReportError
        If the folder cannot be written.
    """
    campaign, path = dataset.campaign, folder / dataset.campaign.study / ANSWER
    study = STUDIES.get(campaign.study)
    by_claim = {row["claim_id"]: row for row in verdicts.iter_rows(named=True)}
    own = study.answer(Inputs.of(dataset, published.load()), by_claim) if study else StudyAnswer()
    if own == StudyAnswer():
        path.unlink(missing_ok=True)
        return
    part = CampaignAnswer(
        campaign.study,
        campaign.campaign,
        campaign.clock,
        dataset.rounds_per_cell,
        len(campaign.links),
        f"{campaign.host.cpu}, {campaign.host.cores} cores" if campaign.host.cores else campaign.host.cpu,
        campaign.git_revision or "unknown",
        own.sentences,
        tuple((topic, transport, dict(shares)) for topic, transport, shares in own.increases),
        own.headlines,
    )
    write(path, json.dumps(msgspec.to_builtins(part), ensure_ascii=False, indent=1).encode())


def gathered(folder: Path, verdicts: pl.DataFrame | None) -> Whole:
    """The answer of every study in a folder.

    Parameters
    ----------
    folder
        E.g. `figures`.
    verdicts
        From `saved_claims`; None if no claim is checked.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    parts = sorted(_saved(folder), key=lambda part: part.clock != "virtual")
    sentences = [(part, topic, sentence) for part in parts for topic, sentence in part.sentences]
    sentences.sort(key=lambda of: (of[0].clock != "virtual", TOPICS.index(of[1])))
    return Whole(
        tuple((_topic(topic, part), sentence) for part, topic, sentence in sentences),
        _increases(parts),
        _evidence([part for part in parts if part.sentences or part.increases]),
        tuple(headline for part in parts for headline in part.headlines),
        _counts(verdicts),
    )


def _saved(folder: Path) -> Iterable[CampaignAnswer]:
    for name in STUDIES:
        path = folder / name / ANSWER
        if not path.is_file():
            continue
        try:
            yield msgspec.json.decode(path.read_bytes(), type=CampaignAnswer)
        except (OSError, msgspec.MsgspecError) as error:
            raise ReportError(
                f"cannot be read ({error})", where=str(path), next_step="Write it again: `crosslayer report`."
            ) from error


def _topic(topic: str, part: CampaignAnswer) -> str:
    return topic if part.clock == "virtual" else f"{topic}, {_CLOCKS[part.clock]}"


def _increases(parts: Sequence[CampaignAnswer]) -> tuple[tuple[str, ...], ...]:
    of_parts = [(_topic(topic, part), name, shares) for part in parts for topic, name, shares in part.increases]
    pages = list(dict.fromkeys(page for _, _, shares in of_parts for page in shares))
    rows = [(f"{topic}: {name}", *(shares.get(page, "–") for page in pages)) for topic, name, shares in of_parts]
    return (("Page load time over plain DNS", *map(page_title, pages)), *rows) if rows else ()


def _evidence(parts: Sequence[CampaignAnswer]) -> str:
    if not parts:
        return ""
    virtual, real = (
        {topic for part in parts if part.clock == clock for topic, *_ in (*part.sentences, *part.increases)}
        for clock in _CLOCKS
    )
    only = [topic.lower() for topic in TOPICS if topic in virtual - real]
    missing = f" Measured in virtual time only: {', '.join(only)}." if only else ""
    machines = ", ".join(dict.fromkeys(part.machine for part in parts))
    return (
        "A visit opens a new resolver connection; its time is a DNS exchange and a page load. Percentages: medians of "
        "all rounds. Ranges: emulated links and pages. In virtual time, computing takes no time. "
        f"{machines}: {', '.join(part.evidence for part in parts)}.{missing}"
    )


def _counts(verdicts: pl.DataFrame | None) -> str:
    if verdicts is None:
        return ""
    measured = verdicts.filter(pl.col("verdict") != Verdict.NOT_MEASURED, pl.col("paper") != claims.OURS)
    if measured.is_empty():
        return ""
    counts = {of: n for of, n in claims.counts(measured).items() if of != Verdict.NOT_MEASURED}
    return f"Of {measured.height} published results: {counts_text(counts)}."


def counts_text(counts: Mapping[str, int]) -> str:
    """Number of claims for each verdict, as part of a sentence."""
    phrases = {claims.FOLLOWING: "that follow from another"}
    return ", ".join(f"{count} {phrases.get(verdict, verdict)}" for verdict, count in counts.items())


def renew_readme(dataset: Dataset, folder: Path) -> None:
    """Put the answer into the README of a checkout, where the figures of a committed campaign were made in `figures/`.

    Parameters
    ----------
    dataset, folder
        What was reported and where to; for any other than `data/raw/STUDY` and `figures` nothing is done.
    """
    root = folder.resolve().parent
    readme = root / "README.md"
    committed = (root / "figures", root / "data" / "raw" / dataset.campaign.study)
    if (folder.resolve(), dataset.folder.resolve()) != committed or not readme.is_file():
        return
    default = Dataset.open(root / "data" / "raw" / DEFAULT)
    whole = as_markdown(gathered(folder, saved_claims(default, folder)))
    text = readme.read_text(encoding="utf-8")
    write(readme, _BLOCK.sub(lambda block: f"{block[1]}{whole}{block[2]}", text).encode())


def as_markdown(whole: Whole) -> str:
    """The answer as it stands in the README."""
    points = [_filled(f"- **{topic}:** {sentence}", "  ") for topic, sentence in whole.sentences]
    rows = [f"- *{statement}*: {verdict}." for _, statement, verdict in whole.headlines]
    headlines = ["The paper's headlines:", "", *rows] if rows else []
    table = [f"| {' | '.join(row)} |" for row in whole.increases]
    table[1:1] = [f"|---|{'---:|' * (len(row) - 1)}" for row in whole.increases[:1]]
    texts = ["\n".join(points), "\n".join(table), _filled(whole.evidence), "\n".join(headlines), _filled(whole.counts)]
    return "\n\n".join(text for text in texts if text)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False, subsequent_indent=indent)
