"""The interface of a study: a package `studies/NAME/` and a line of `studies/__init__.py`.

The package has `STUDY` in its `__init__`, and a module for each task: `measure` (`MEASURER`), `figures` (`FIGURES`),
`claims` (`CLAIMS`) and `answer` (`numbers`, `answer`). A module is imported when it is used. So an analysis does not
import browser code, and a measurement does not import the chart library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import NoOptions, Plan
from crosslayer.links import Profile, load_profiles, rtt_alone, swept
from crosslayer.vocabulary import Browser, Protocol

if TYPE_CHECKING:
    from crosslayer.campaign.measurer import Measurer
    from crosslayer.claims import Claims
    from crosslayer.figures import Figure, Inputs


SIX_TRANSPORTS = (Protocol.DOUDP, Protocol.DOTCP, Protocol.DOT, Protocol.DOH, Protocol.DOH3, Protocol.DOQ)
"""Transports of studies that compare all six. A new member of `Protocol` does not change these studies."""

SIZES = ("smoke", "quick", "paper")
"""Names of campaign sizes.

`smoke` takes about 1 min and `quick` about 15 min on two cores. `paper` has the most rounds.
"""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper whose claims are checked."""

    name: str
    """Name in the column `paper` of the claims."""
    citation: str
    doi: str = ""
    """DOI; empty if the paper has none."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report, with the notebook that explains this part."""

    notebook: str
    """File name of the notebook without its ending."""
    heading: str
    lead: str
    """A sentence under the heading."""


FIRST_VISIT, RETURNING_VISIT, ONE_CONNECTION = TOPICS = (
    "First visit",
    "Returning visit",
    "One connection for name and page",
)
"""Topics of the answer, in their order."""


ANSWER_RESOLUTION = {"%": 0.1, "RTT": 0.01}
"""Resolution of the answer's numbers, by unit.

On the link `fiber`, a smaller difference is less than 0.1 ms, one step of the browser's clock.
"""


@dataclass(frozen=True, slots=True)
class AnswerNumber:
    """A number in the answer at the top of the report, from one campaign."""

    topic: str
    """One of `TOPICS`."""
    name: str
    """Name, unique within the topic."""
    unit: str
    """A key of `ANSWER_RESOLUTION`."""
    value: float
    error: float | None = None
    """Standard error over the rounds of the campaign; None if it cannot be computed, as in virtual time."""


AnswerValues = Mapping[tuple[str, str], float]
"""Numbers of the answer by topic and name: means over the campaign and its repeats."""


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """A study's contribution to the answer at the top of the report and the README."""

    sentences: tuple[tuple[str, str], ...] = ()
    """Pairs: one of `TOPICS`, and its sentences."""
    increases: tuple[tuple[str, str, Mapping[str, str]], ...] = ()
    """Triples: one of `TOPICS`, a transport, and for each page the name of the number with its PLT increase."""
    headlines: tuple[tuple[str, str, str], ...] = ()
    """Triples: identifier of a claim, statement of the paper's abstract, and our verdict.

    Statement and verdict are no full sentences: the report joins them by a colon.
    """


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study: all its properties that the campaign engine, figures, claims, report and notebooks use."""

    name: str
    package: str
    """Package of the study: `__name__` of the module that defines it."""
    lead: str
    """One or two sentences on what the study measures."""
    sections: tuple[Section, ...]
    """Sections of the report, each with a notebook that explains it."""
    sizes: Mapping[str, Plan]
    """Plans by size: `smoke`, `quick` and `paper`."""
    paper: Paper | None = None
    """Paper that the study reproduces; None if it answers a question that the papers leave open."""
    options: type = NoOptions
    """Frozen dataclass of the study's own options; `[options]` of a plan file is checked against it."""
    headlines: Mapping[str, str] = field(default_factory=dict)
    """Title of each claim whose numbers are at the top of the report, by the claim's identifier."""
    picture: str = ""
    """Name of the figure that illustrates the study's part of the answer; empty if there is none."""
    condition_titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of conditions in figures that compare real and virtual time, by value of the column `condition`."""
    primes_alias: bool = True
    """Whether priming loads use an alias, i.e. another host name of the page.

    If so, each page must have two aliases.
    """
    measured_by: str = ""
    """Command that measures the study; empty for `crosslayer measure`."""
    one_host: str = ""
    """Reason, as a clause, why the study can only use pages of one host; empty if it can use any page."""
    browsers: tuple[Browser, ...] = (Browser.CHROMIUM,)
    """Browsers in which the study can be measured."""
    own_links: Callable[[Plan], Mapping[str, Profile]] = lambda plan: {}
    """Function that returns the study's own links for a plan, by name."""

    def profiles(self, plan: Plan) -> Mapping[str, Profile]:
        """Every link that the plan may use, by name."""
        known = load_profiles()
        made_for_plan = {name: made for name in plan.links if (made := rtt_alone(name) or swept(known, name))}
        return {**known, **made_for_plan, **self.own_links(plan)}

    @property
    def measurer(self) -> type[Measurer]:
        """Class that measures the study; `CampaignError` if the study has another command than `crosslayer measure`."""
        if self.measured_by:
            raise CampaignError(
                f"the study '{self.name}' measures no testbed",
                where="--study",
                next_step=f"Use `{self.measured_by}`; `crosslayer {self.measured_by.split()[-1]} --help` explains it.",
            )
        part: type[Measurer] = self._part("measure", "MEASURER", None)
        return part

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Figures of the study, those of the paper in the paper's order."""
        part: tuple[Figure, ...] = self._part("figures", "FIGURES", ())
        return part

    @property
    def claims(self) -> Claims | None:
        """Claims with which campaigns of the study are compared; None if there are none."""
        part: Claims | None = self._part("claims", "CLAIMS", None)
        return part

    @property
    def numbers(self) -> Callable[[Inputs], Sequence[AnswerNumber]]:
        """Function that computes the answer's numbers from a campaign.

        It returns no numbers at all if the campaign lacks the data for one of them.
        """
        part: Callable[[Inputs], Sequence[AnswerNumber]] = self._part("answer", "numbers", lambda inputs: ())
        return part

    @property
    def answer(self) -> Callable[[AnswerValues, Mapping[str, Mapping[str, Any]]], StudyAnswer]:
        """Function that writes the answer from its numbers and the verdicts (rows of `claims.COLUMNS` by claim)."""
        part: Callable[[AnswerValues, Mapping[str, Mapping[str, Any]]], StudyAnswer] = self._part(
            "answer", "answer", lambda values, verdicts: StudyAnswer()
        )
        return part

    @property
    def real_server(self) -> Any:
        """Module that measures a server of the user over a real network; None if the study has none."""
        module = f"{self.package}.real_server"
        return import_module(module) if find_spec(module) else None

    @property
    def live_pages(self) -> Any:
        """Module that loads pages of the user's choice over a real network; None if the study has none."""
        module = f"{self.package}.live_pages"
        return import_module(module) if find_spec(module) else None

    def _part(self, module: str, name: str, default: Any) -> Any:
        if find_spec(f"{self.package}.{module}") is None:
            return default
        return getattr(import_module(f"{self.package}.{module}"), name)


def question(
    package: str,
    *,
    asks: str,
    heading: str,
    lead: str,
    links: tuple[str, ...],
    pages: tuple[str, ...],
    rounds: tuple[int, int, int],
    smoke: Mapping[str, Any] | None = None,
    quick: Mapping[str, Any] | None = None,
    paper: Mapping[str, Any] | None = None,
    options: type = NoOptions,
    notebook: str = "",
    **others: Any,
) -> Study:
    """Make the `STUDY` of a package `studies/NAME/` for a question that the papers leave open.

    Parameters
    ----------
    package
        `__name__` of the package. The study has the package's name, with hyphens.
    asks
        The question.
    heading
        Heading of the study's section in the report.
    lead
        One or two sentences on what the study measures.
    links, pages
        Links and pages of the plans.
    rounds
        Rounds of every cell in the plans `smoke`, `quick` and `paper`.
    smoke, quick, paper
        Fields of `Plan` with other values in the plan of this size, e.g. fewer links.
    options
        See `Study.options`.
    notebook
        Name of the notebook; by default `question_NAME`.
    others
        Further fields of `Study`.
    """
    name = package.rpartition(".")[2]
    plan = Plan(study=name.replace("_", "-"), links=links, pages=pages, options=options())
    changes = zip(SIZES, rounds, (smoke, quick, paper), strict=True)
    return Study(
        name=plan.study,
        package=package,
        lead=lead,
        sections=(Section(notebook or f"question_{name}", heading, asks),),
        sizes={size: plan.resized(rounds=number, **(further or {})) for size, number, further in changes},
        options=options,
        **others,
    )
