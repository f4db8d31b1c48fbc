"""The interface of a study: a package `studies/NAME/` and a line of `studies/__init__.py`.

The package has `STUDY` in its `__init__`, and a module for each task: `measure` (`MEASURER`), `figures` (`FIGURES`),
`claims` (`CLAIMS`) and `answer` (`numbers`, `answer`). They are imported on use, so that analysis imports no browser
and measuring no charts.
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
"""Transports of studies that compare all of them; a new member of `Protocol` adds no condition by itself."""

SIZES = ("smoke", "quick", "paper")
"""Named sizes. `smoke` about 1 min, `quick` a quarter of an hour on two cores, `paper` the paper's sample size."""


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper, and how its claims are called."""

    name: str
    """Its name in the column `paper` of the claims."""
    citation: str
    doi: str = ""
    """Empty if it has none."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report and the notebook that explains it."""

    notebook: str
    """Its name without ending."""
    heading: str
    lead: str
    """A sentence under the heading."""


FIRST_VISIT, RETURNING_VISIT, ONE_CONNECTION = TOPICS = (
    "First visit",
    "Returning visit",
    "One connection for name and page",
)
"""Topics of the answer, in the order in which it gives them."""


ANSWER_RESOLUTION = {"%": 0.1, "RTT": 0.01}
"""Differences of the answer's numbers, by unit, below a step of the browser's clock (0.1 ms) on fiber."""


@dataclass(frozen=True, slots=True)
class AnswerNumber:
    """A number of the answer, as one campaign gives it."""

    topic: str
    """One of `TOPICS`."""
    name: str
    """What it is, unique within its topic."""
    unit: str
    """A key of `ANSWER_RESOLUTION`."""
    value: float
    error: float | None = None
    """Standard error over the rounds of the campaign; None if the campaign cannot tell, as in virtual time."""


AnswerValues = Mapping[tuple[str, str], float]
"""Numbers of the answer by topic and name; those of several campaigns as their means."""


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """What the campaign of a study adds to the answer, which opens the report and the README."""

    sentences: tuple[tuple[str, str], ...] = ()
    """One of `TOPICS` and its sentences."""
    increases: tuple[tuple[str, str, Mapping[str, str]], ...] = ()
    """One of `TOPICS`, a transport, and by page the increase of the page load time over plain DNS, as text."""
    headlines: tuple[tuple[str, str, str], ...] = ()
    """Claim, what the paper's abstract states, and our verdict, each as part of a sentence."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything that the engine, the figures, the claims, the report and the notebooks know of a study."""

    name: str
    package: str
    """Its package: `__name__` of the module that makes it."""
    lead: str
    """What it measures, a sentence or two."""
    sections: tuple[Section, ...]
    """Its parts in the report, each explained by a notebook."""
    sizes: Mapping[str, Plan]
    """Its plans by size: `smoke`, `quick` and `paper`."""
    paper: Paper | None = None
    """None if the study answers a question that the papers leave open."""
    options: type = NoOptions
    """Frozen dataclass of the study's own options: `[options]` of a plan file is checked against it."""
    headlines: Mapping[str, str] = field(default_factory=dict)
    """Claims whose numbers stand on top of the report, and how they are called there."""
    picture: str = ""
    """Name of the figure that shows its part of the answer; empty if none does."""
    primes_alias: bool = True
    """Its loads prime an alias of their page, which must have them."""
    measured_by: str = ""
    """Command that measures it; empty where that is `crosslayer measure`."""
    one_host: str = ""
    """Why it can only use pages of one host, as a clause; empty if it can use pages of several hosts."""
    browsers: tuple[Browser, ...] = (Browser.CHROMIUM,)
    """Browsers in which it can be measured."""
    own_links: Callable[[Plan], Mapping[str, Profile]] = lambda plan: {}
    """Links of a plan that this study makes itself, by name."""

    def profiles(self, plan: Plan) -> Mapping[str, Profile]:
        """Every link that a plan may name, by name."""
        known = load_profiles()
        made_for_plan = {name: made for name in plan.links if (made := rtt_alone(name) or swept(known, name))}
        return {**known, **made_for_plan, **self.own_links(plan)}

    @property
    def measurer(self) -> type[Measurer]:
        """What measures it; `CampaignError` if another command does."""
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
        """Its figures, those of the paper in the paper's order."""
        part: tuple[Figure, ...] = self._part("figures", "FIGURES", ())
        return part

    @property
    def claims(self) -> Claims | None:
        """Claims that its campaigns are compared with; None if it has none."""
        part: Claims | None = self._part("claims", "CLAIMS", None)
        return part

    @property
    def numbers(self) -> Callable[[Inputs], Sequence[AnswerNumber]]:
        """Computes the numbers of the answer from the tables of a campaign; none if it lacks one of them."""
        part: Callable[[Inputs], Sequence[AnswerNumber]] = self._part("answer", "numbers", lambda inputs: ())
        return part

    @property
    def answer(self) -> Callable[[AnswerValues, Mapping[str, Mapping[str, Any]]], StudyAnswer]:
        """Writes the answer from its numbers and the verdicts, rows of `claims.COLUMNS` by claim."""
        part: Callable[[AnswerValues, Mapping[str, Mapping[str, Any]]], StudyAnswer] = self._part(
            "answer", "answer", lambda values, verdicts: StudyAnswer()
        )
        return part

    @property
    def real_server(self) -> Any:
        """The module that measures a server of the user's over a real network; None if the study has none."""
        module = f"{self.package}.real_server"
        return import_module(module) if find_spec(module) else None

    @property
    def live_pages(self) -> Any:
        """The module that loads pages of the user's choice over a real network; None if the study has none."""
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
    """Make the `STUDY` of a package `studies/NAME/` that answers a question which the papers leave open.

    Parameters
    ----------
    package
        `__name__` of the package; the study has its name, with hyphens.
    asks
        The question.
    heading
        Heading of its section in the report.
    lead
        What it measures, a sentence or two.
    links, pages
        Those of its plans.
    rounds
        Repetitions of every cell in its plans `smoke`, `quick` and `paper`.
    smoke, quick, paper
        Further fields in which a plan differs, e.g. fewer links.
    options
        See `Study.options`.
    notebook
        Name of its notebook; `question_NAME` if empty.
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
