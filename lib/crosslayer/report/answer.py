"""The answer at the top of report and README: the cost of encrypted DNS, its evidence, and the paper's headlines.

Each study computes its part (`Study.answer`). `save_answer` stores this part with the facts of its campaign, and
`gathered` joins the parts of all studies in a folder.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import polars as pl

from crosslayer import claims, metrics, published, resources
from crosslayer.campaign.dataset import Dataset, Host
from crosslayer.claims import Verdict
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent, reach
from crosslayer.figures.style import page_title
from crosslayer.metrics import FurtherCampaign
from crosslayer.report.files import ANSWER, ReportError, saved_claims, write
from crosslayer.studies import DEFAULT, STUDIES
from crosslayer.study import ANSWER_RESOLUTION, TOPICS, AnswerNumber, Study, StudyAnswer

_BLOCK = re.compile(r"(<!-- answer -->\n).*?(\n<!-- /answer -->)", re.DOTALL)
_CLOCKS = {"virtual": "in virtual time", "wall": "in real time"}


class AnswerInterval(msgspec.Struct, frozen=True):
    """A number of the answer, with a prediction interval for a further campaign."""

    topic: str
    name: str
    unit: str
    values: dict[str, float]
    """Value by campaign."""
    mean: float
    low: float | None
    """Lower end of the interval. With a single campaign, `low`, `high` and `between` are None."""
    high: float | None
    between: float | None
    """Standard deviation of the campaigns' true values (`FurtherCampaign.between`)."""
    held_out: int
    """Number of campaigns whose value lies in the prediction interval that the other campaigns give."""


class CampaignAnswer(msgspec.Struct, frozen=True):
    """A study's part of the answer, as in `answer.json`: facts of its campaign, sentences and numbers."""

    study: str
    campaign: str
    clock: str
    """`virtual` or `wall`."""
    rounds: tuple[int, int]
    """Fewest and most rounds of a cell in any of the campaigns."""
    rtts_ms: tuple[float, ...]
    """Nominal RTT of each link, ascending."""
    machines: tuple[str, ...]
    """Processor of each machine: first the machine of the campaign, then the machines of its repeats.

    Each processor occurs once, even if several machines have it. The repeats are the campaigns that the function
    `repeats` returns.
    """
    revisions: tuple[str, ...]
    """Revision of the campaign, then those of its repeats; each once."""
    sentences: tuple[tuple[str, str], ...]
    increases: tuple[tuple[str, str, dict[str, str]], ...]
    """As `StudyAnswer.increases`."""
    headlines: tuple[tuple[str, str, str], ...]
    numbers: tuple[AnswerInterval, ...]

    @property
    def in_table(self) -> dict[tuple[str, str], AnswerInterval]:
        """The numbers of `increases`, by topic and name."""
        names = {(topic, name) for topic, _, pages in self.increases for name in pages.values()}
        by_name = {(number.topic, number.name): number for number in self.numbers}
        return {key: number for key, number in by_name.items() if key in names}

    @property
    def campaigns(self) -> int:
        """Number of campaigns over which the numbers are averaged."""
        return max((len(number.values) for number in self.numbers), default=1)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Row of the table `Whole.studies`."""
        fewest, most = self.rounds
        return (
            self.study,
            _CLOCKS[self.clock].removeprefix("in "),
            str(self.campaigns),
            str(most) if fewest == most else f"{fewest} to {most}",
            f"{len(self.rtts_ms)}, RTT {reach(pl.Series(self.rtts_ms), 0)} ms",
            ", ".join(self.machines),
            ", ".join(self.revisions),
        )


@dataclass(frozen=True, slots=True)
class Whole:
    """The complete answer, from the parts of all studies in a folder."""

    sentences: tuple[tuple[str, str], ...]
    """Topic and text of each sentence; sentences from campaigns in virtual time come first."""
    increases: tuple[tuple[str, ...], ...]
    """Table of the increases of the page load time compared with plain DNS.

    The first row is the header. Each further row is for one topic, clock and transport. Its first cell names them, and
    the other cells have the increase for each page.
    """
    evidence: str
    """Text on terms and intervals; empty if there is no part with sentences or increases."""
    studies: tuple[tuple[str, ...], ...]
    """Table of the studies with sentences or increases; the first row is the header."""
    headlines: tuple[tuple[str, str, str], ...]
    """For each headline: identifier of the claim, the paper's statement and our verdict, both in plain words."""
    headlines_of: str
    """Heading of the headlines: paper, and clock of the campaign that checked them; empty without headlines."""
    intervals: tuple[tuple[str, AnswerInterval], ...]
    """Topic and interval of each number of the answer.

    If the campaign was in real time, the topic ends with the words "in real time".
    """
    counts: str
    """Sentence with the number of published results for each verdict; empty if no result was measured."""


def save_answer(dataset: Dataset, verdicts: pl.DataFrame, folder: Path) -> None:
    """Write `folder/STUDY/answer.json`, or remove it if the campaign contributes nothing.

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
    campaigns = [dataset, *repeats(dataset)]
    numbers = _intervals(study, campaigns) if study else ()
    values = {(number.topic, number.name): number.mean for number in numbers}
    own = study.answer(values, by_claim) if study else StudyAnswer()
    if own == StudyAnswer():
        path.unlink(missing_ok=True)
        return
    rounds = [count for one in campaigns for count in one.rounds_per_cell]
    part = CampaignAnswer(
        campaign.study,
        campaign.campaign,
        campaign.clock,
        (min(rounds), max(rounds)),
        tuple(sorted(Inputs.of(dataset, published.load()).rtts.collect()["nominal_rtt_ms"])),
        tuple(dict.fromkeys(_processor(one.campaign.host) for one in campaigns)),
        tuple(dict.fromkeys((one.campaign.git_revision or "unknown")[:7] for one in campaigns)),
        own.sentences,
        tuple((topic, transport, dict(pages)) for topic, transport, pages in own.increases),
        own.headlines,
        numbers,
    )
    write(path, json.dumps(msgspec.to_builtins(part), ensure_ascii=False, indent=1).encode())


def _processor(host: Host) -> str:
    """Processor, e.g. `Intel Xeon`."""
    return " ".join(re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b|@.*", " ", host.cpu).split())


def _increase(number: AnswerInterval) -> str:
    """A percentage with half the width of its interval, e.g. `+34.3 ± 0.1 %`."""
    if number.low is None:
        return percent(number.mean, 0 if abs(number.mean) >= 2 else 1)
    digits = 1 if number.mean - number.low < 1 else 0
    half = math.ceil(round((number.mean - number.low) * 10**digits, 6)) / 10**digits
    percentage = percent(number.mean, digits)
    return percentage.replace(
        "\N{NO-BREAK SPACE}", f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{half:.{digits}f}\N{NO-BREAK SPACE}"
    )


def repeats(dataset: Dataset) -> list[Dataset]:
    """Campaigns in `data/repeats/STUDY`, which repeat `data/raw/STUDY`; empty if `dataset` is not `data/raw/STUDY`."""
    root = resources.checkout()
    if root is None or dataset.folder.resolve() != root / "data" / "raw" / dataset.campaign.study:
        return []
    folders = sorted((root / "data" / "repeats" / dataset.campaign.study).glob("*/"))
    return [Dataset.open(folder) for folder in folders]


def _intervals(study: Study, campaigns: Sequence[Dataset]) -> tuple[AnswerInterval, ...]:
    """The numbers of the first campaign's answer, each with its values in all campaigns."""
    tables = published.load()
    by_campaign = {}
    for dataset in campaigns:
        numbers = study.numbers(Inputs.of(dataset, tables))
        by_campaign[dataset.campaign.campaign] = {(number.topic, number.name): number for number in numbers}
    own = next(iter(by_campaign.values()))
    return tuple(
        _interval({name: numbers[key] for name, numbers in by_campaign.items() if key in numbers}) for key in own
    )


def _interval(of: Mapping[str, AnswerNumber]) -> AnswerInterval:
    """Mean and prediction interval of one number of the answer; `of` has the number by campaign."""
    numbers = list(of.values())
    further = _further(numbers)
    held_out = 0
    for left_out, number in enumerate(numbers):
        of_others = _further(numbers[:left_out] + numbers[left_out + 1 :])
        held_out += of_others is not None and of_others.holds(number.value)
    first = numbers[0]
    return AnswerInterval(
        first.topic,
        first.name,
        first.unit,
        {name: number.value for name, number in of.items()},
        further.mean if further else first.value,
        further.low if further else None,
        further.high if further else None,
        further.between if further else None,
        held_out,
    )


def _further(numbers: Sequence[AnswerNumber]) -> FurtherCampaign | None:
    errors = [number.error for number in numbers if number.error is not None]
    return (
        metrics.further_campaign(
            [number.value for number in numbers], errors, resolution=ANSWER_RESOLUTION[numbers[0].unit]
        )
        if numbers
        else None
    )


def gathered(folder: Path, verdicts: pl.DataFrame | None) -> Whole:
    """Join the parts of the answer that `save_answer` wrote to a folder.

    Parameters
    ----------
    folder
        E.g. `figures`.
    verdicts
        From `saved_claims`; None if no claim is checked.

    Raises
    ------
    ReportError
        If a part of the answer cannot be read.
    """
    parts = sorted(_saved(folder), key=lambda part: part.clock != "virtual")
    sentences = [(part, topic, sentence) for part in parts for topic, sentence in part.sentences]
    sentences.sort(key=lambda of: (of[0].clock != "virtual", TOPICS.index(of[1])))
    numbers = [(part, number) for part in parts for number in part.numbers]
    numbers.sort(key=lambda of: (of[0].clock != "virtual", TOPICS.index(of[1].topic)))
    shown = [part for part in parts if part.sentences or part.increases]
    return Whole(
        tuple((_topic(topic, part), sentence) for part, topic, sentence in sentences),
        _increases(parts),
        _evidence(shown),
        (_STUDY_COLUMNS, *(part.evidence for part in shown)) if shown else (),
        tuple(headline for part in parts for headline in part.headlines),
        next((_HEADLINES.format(_CLOCKS[part.clock]) for part in parts if part.headlines), ""),
        tuple((_topic(number.topic, part), number) for part, number in numbers),
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
                f"cannot be read ({error})",
                where=str(path),
                next_step=f"Delete it, and make the report of the study {name} again.",
            ) from error


def _topic(topic: str, part: CampaignAnswer) -> str:
    return topic if part.clock == "virtual" else f"{topic}, {_CLOCKS[part.clock]}"


def _increases(parts: Sequence[CampaignAnswer]) -> tuple[tuple[str, ...], ...]:
    of_parts = [(part, topic, transport, names) for part in parts for topic, transport, names in part.increases]
    pages = list(dict.fromkeys(page for _, _, _, names in of_parts for page in names))
    rows = []
    for part, topic, transport, names in of_parts:
        cells = {page: _increase(part.in_table[topic, name]) for page, name in names.items()}
        rows.append((f"{topic}, {_CLOCKS[part.clock]}: {transport}", *(cells.get(page, "–") for page in pages)))
    return (
        (("Page load time compared with plain DNS on the same visit", *map(page_title, pages)), *rows) if rows else ()
    )


def _evidence(parts: Sequence[CampaignAnswer]) -> str:
    if not parts:
        return ""
    virtual, real = (
        {topic for part in parts if part.clock == clock for topic, *_ in (*part.sentences, *part.increases)}
        for clock in _CLOCKS
    )
    both = [topic.lower() for topic in TOPICS if topic in virtual & real]
    missing = f" Real time: {', '.join(both)} only." if both and virtual - real else ""
    return (
        "A visit is a DNS exchange on a new connection plus a page load (returning: with early data) in Chromium on "
        "emulated links; resolver and web server share the RTT. Numbers are means of campaigns' medians; ranges "
        "are over links and pages (DSL: maximum); the table pools links. Virtual time excludes computing time, so "
        "the same delay is a larger percentage."
        f"{_expected(parts)}{missing}"
    )


_HEADLINES = "Headlines of Sengupta et al. (IEEE TNSM 2024), checked by one campaign {}"
_STUDY_COLUMNS = ("Study", "Time", "Campaigns", "Rounds", "Links", "Processors", "Revisions")


def _expected(parts: Sequence[CampaignAnswer]) -> str:
    """Sentence on how far, for each clock and unit, the numbers of a further campaign may differ from ours.

    The table has the limit of each of its numbers; the sentence has the largest limit of the other numbers. It is empty
    if no number has an interval.
    """
    by_clock: list[str] = []
    for clock, name in _CLOCKS.items():
        of_clock = [
            number
            for part in parts
            if part.clock == clock
            for number in part.numbers
            if (number.topic, number.name) not in part.in_table
        ]
        limits = []
        for unit, of_difference in _DIFFERENCES.items():
            widths = [number.mean - number.low for number in of_clock if number.unit == unit and number.low is not None]
            if widths:
                limits.append(f"{_rounded_up(max(0.0, *widths))} {of_difference}")
        if limits:
            by_clock.append(f"{' or '.join(limits)} {name}")
    if not by_clock:
        return ""
    return (
        f" ±: 95\N{NO-BREAK SPACE}% interval for a further campaign (outside the table at most {', '.join(by_clock)})."
    )


_DIFFERENCES = {"RTT": "RTT", "%": "points"}
"""For each unit of numbers: unit of the difference between two of them."""


def _rounded_up(value: float) -> str:
    """A value rounded up to two significant digits."""
    if value <= 0:  # every campaign gave the same number
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return f"{math.ceil(round(value / step, 6)) * step:.2g}"


def _counts(verdicts: pl.DataFrame | None) -> str:
    if verdicts is None:
        return ""
    results = verdicts.filter(pl.col("paper") != claims.OURS)
    measured = results.filter(pl.col("verdict") != Verdict.NOT_MEASURED)
    if measured.is_empty():
        return ""
    counts = {of: n for of, n in claims.counts(measured).items() if of != Verdict.NOT_MEASURED}
    return f"We measured {measured.height} of {results.height} published results: {counts_text(counts)}."


def counts_text(counts: Mapping[str, int]) -> str:
    """Number of claims for each verdict, as part of a sentence."""
    phrases = {
        Verdict.DIRECTION_ONLY.value: "reproduced in direction only",
        claims.FOLLOWING: "already determined by another result or the configuration",
    }
    return ", ".join(f"{count} {phrases.get(verdict, verdict)}" for verdict, count in counts.items())


def renew_readme(dataset: Dataset, folder: Path) -> None:
    """Update the answer in the README of a checkout.

    Parameters
    ----------
    dataset, folder
        Dataset and folder of the report. Nothing is done unless they are `data/raw/STUDY` and `figures` of a checkout.
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
    """The answer as Markdown for the README."""
    points = [_filled(f"- **{topic}:** {sentence}", "  ") for topic, sentence in whole.sentences]
    rows = [_filled(f"- *{statement}*: {verdict}.", "  ") for _, statement, verdict in whole.headlines]
    headlines = [f"{whole.headlines_of}:", "", *rows] if rows else []
    texts = [
        "\n".join(points),
        _table(whole.increases, "---:|"),
        _filled(whole.evidence),
        _table(whole.studies, "---|"),
        "\n".join(headlines),
        _filled(whole.counts),
    ]
    return "\n\n".join(text for text in texts if text)


def _table(rows: Sequence[Sequence[str]], rule: str) -> str:
    """Markdown of a table; the first row is the header, `rule` aligns all columns but the first."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines[1:1] = [f"|---|{rule * (len(row) - 1)}" for row in rows[:1]]
    return "\n".join(lines)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False, subsequent_indent=indent)
