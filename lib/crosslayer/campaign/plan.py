"""Plan of a campaign: cells, options, and the random orders that its seed determines.

This module reads no clock and no file.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from msgspec import Meta

from crosslayer.campaign.errors import CampaignError
from crosslayer.decode import checked, choice
from crosslayer.links import MADE
from crosslayer.pages import PageSpec
from crosslayer.vocabulary import BROWSERS, Browser

OWN_CAMPAIGNS: Final = Path("data/local")
"""Folder of the campaigns that a user measures in a checkout; git ignores this folder.

The committed campaigns are in `data/raw`.
"""

_ALIASES = 2
"""Number of alias host names that a page needs.

One alias is primed for a load over H3 1-RTT, the other for the second load of the A/A self-check of H3 1-RTT.
"""

CUBIC = "cubic"
"""Default congestion control of TCP, as in Linux. quic-go and Chromium use the same algorithm over QUIC."""

RoundBatch = list[tuple[int, "Cell"]]
"""Rounds of a cell that are measured one after the other in one testbed."""

MOST_ROUNDS = 100_000
"""Maximum number of rounds of each cell of a plan, 26 times the number in TNSM24.

It is limited because a list of all rounds of all cells is held in memory.
"""

_OF_A_GUEST = 8
"""Maximum number of rounds per guest: enough to amortise its start, few enough that all guests finish together."""

Kind = Literal["pcap", "qlog", "netlog"]
"""Kind of capture of a load: packets with their keys (`pcap`), qlog, or Chromium's netlog."""

_Names = Annotated[tuple[str, ...], Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class Cell:
    """A pair of a link and a page; each round measures one cell."""

    link: str
    page: str


@dataclass(frozen=True)
class NoOptions:
    """Options of a study that has none of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that decides what is measured; two campaigns with equal plans are comparable row by row."""

    study: str
    """Name of the study; `crosslayer studies` lists them."""
    links: _Names
    """Names of link profiles."""
    pages: _Names
    """Names of pages."""
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] = 5
    """Number of rounds of every cell."""
    seed: int = 1
    """Seed of all random choices, such as the order of the cells and of the conditions in each round."""
    clock: Literal["wall", "virtual"] = "wall"
    """`wall`: real time; `virtual`: a guest's clock, which stops while anything computes (docs/reference/clocks.md)."""
    browser: str = Browser.CHROMIUM.value
    """Browser of page loads: a name in `vocabulary.BROWSERS` that the study accepts."""
    congestion_control: Annotated[str, Meta(pattern=r"^[a-z0-9_]{1,15}$")] = CUBIC
    """Congestion control of TCP at both ends of the link, by its name in Linux."""
    capture: tuple[Kind, ...] = ()
    """Kinds of captures that are kept in addition to the rows of the loads (docs/howto/packets.md)."""
    capture_rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)] = 1
    """Captures are kept for this number of rounds of each cell, from the cell's first round on."""
    options: Any = NoOptions()
    """Options of the study: an instance of its `Study.options`."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells of the plan: every link with every page."""
        return tuple(Cell(link, page) for link in self.links for page in self.pages)

    def order(self, round_number: int) -> list[Cell]:
        """Cells in the order in which they are measured with this round number.

        The links are in random order, and for each link the pages are in random order. The pages of a link stay
        together, since each change of link costs a check of its rates.
        """
        draw = self._draw(round_number)
        links = draw.sample(self.links, len(self.links))
        return [Cell(link, page) for link in links for page in draw.sample(self.pages, len(self.pages))]

    def shuffled(self, round_number: int, cell: Cell, conditions: list[str]) -> list[str]:
        """Conditions of one round of a cell in random order; the order is the same if the campaign is resumed."""
        return self._draw(round_number, cell.link, cell.page).sample(conditions, len(conditions))

    def trace_position(self, round_number: int, cell: Cell) -> float:
        """Position in the link's trace at which a round of a cell begins, as a share of the trace's length."""
        return self._draw("trace", round_number, cell.link, cell.page).random()

    def tasks(self) -> list[RoundBatch]:
        """Divide all rounds into tasks, one for each guest of a campaign in virtual time, in the order of their start.

        Tasks depend only on the plan. The events in a guest depend only on the guest's task. So, on one machine, the
        same plan gives the same rows with any number of guests.
        """
        parts = -(-self.rounds // _OF_A_GUEST)
        bounds = [self.rounds * part // parts for part in range(parts + 1)]
        return [
            [(number, cell) for number in range(first, end)]
            for first, end in pairwise(bounds)
            for cell in self.order(first)
        ]

    def seed_of(self, task: RoundBatch) -> int:
        """Seed (64 bits) of the guest that measures a task in virtual time."""
        number, cell = task[0]
        return self._draw("guest", number, cell.link, cell.page).getrandbits(64)

    def _draw(self, *key: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *key))))

    def resized(self, **values: Any) -> Self:
        """Copy of the plan with other values for some fields; these values are not checked."""
        return replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """The plan as a dictionary, as in the store and in `campaign.json`."""
        return {**asdict(self), "links": list(self.links), "pages": list(self.pages)}


def changed(
    plan: Plan, values: Mapping[str, Any], *, where: str = "plan", next_step: str = "Give it another value."
) -> Plan:
    """Copy of `plan` with other values for some fields. Values are checked, also those of the study's options.

    `where` (source of the values) and `next_step` (advice for a value out of range) become part of the error.

    Raises
    ------
    CampaignError
        For an unknown field or browser, a value of the wrong type or out of range, or a repeated link or page.
    """
    own = [field.name for field in fields(plan.options)]
    for key in (key for key in values if key in own):
        raise CampaignError(
            "belongs to the table [options]",
            where=f"{where}, key '{key}'",
            next_step="Move it below [options].",
        )
    known = plan.as_dict()
    new = checked({**known, **values, "options": None}, Plan, where=where, error=CampaignError, next_step=next_step)
    if new.browser not in BROWSERS:
        raise CampaignError(
            f"there is no browser '{new.browser}'",
            where=f"{where}, key 'browser'",
            next_step=choice(new.browser, BROWSERS),
        )
    for key in ("links", "pages"):
        names = getattr(new, key)
        if len(set(names)) != len(names):
            raise CampaignError("names something twice", where=f"{where}, key '{key}'", next_step="Name each once.")
    options_given = values.get("options", {})
    if isinstance(options_given, Mapping):
        options_given = {**known["options"], **options_given}
    options = checked(
        options_given,
        type(plan.options),
        where=f"{where}, [options] of {plan.study}",
        error=CampaignError,
        next_step=next_step,
    )
    return replace(new, options=options)


def check_names(
    plan: Plan,
    *,
    links: Collection[str],
    pages: Mapping[str, PageSpec],
    primes_alias: bool,
    one_host: str = "",
    browsers: Collection[str] = (Browser.CHROMIUM,),
) -> None:
    """Refuse a plan with a name that is unknown or that its study cannot use. Parameters as in `unusable`.

    Raises
    ------
    CampaignError
        For an unknown link or page, a browser or page that the study cannot use, or a netlog without Chromium. If the
        fault is a link, page or browser, the error states the faulty name and the possible names.
    """
    for kind, wanted, known, further in (
        ("link profile", plan.links, links, MADE),
        ("page", plan.pages, pages, "; or a folder that `crosslayer page` made"),
    ):
        for name in wanted:
            if name not in known:
                raise CampaignError(
                    f"there is no {kind} '{name}'", where="plan", next_step=choice(name, sorted(known), further)
                )
    if plan.browser not in browsers:
        raise CampaignError(
            f"the study '{plan.study}' cannot be measured in {BROWSERS[plan.browser].title}",
            where="plan, key 'browser'",
            next_step=choice(plan.browser, browsers),
        )
    if plan.browser != Browser.CHROMIUM and "netlog" in plan.capture:
        raise CampaignError("only Chromium writes a netlog", where="plan, key 'capture'", next_step="Leave it out.")
    reasons = {name: unusable(page, primes_alias=primes_alias, one_host=one_host) for name, page in pages.items()}
    for name in plan.pages:
        if reasons[name]:
            raise CampaignError(
                f"page '{name}' cannot be loaded as the study '{plan.study}' does: {reasons[name]}",
                where="plan",
                next_step=choice(name, sorted(page for page, reason in reasons.items() if not reason)),
            )


def unusable(page: PageSpec, *, primes_alias: bool, one_host: str) -> str:
    """Reason why a study cannot measure a page; empty if it can. Parameters are fields of `crosslayer.study.Study`."""
    if one_host and page.origins:
        return f"it has {page.lookups} host names; {one_host}"
    return f"it has fewer than {_ALIASES} aliases" if primes_alias and len(page.aliases) < _ALIASES else ""
