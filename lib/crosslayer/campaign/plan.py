"""What a campaign will measure, in which order, drawn from a seed. Pure: no clock, no files but the plan's own."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from crosslayer.campaign import vantage
from crosslayer.campaign.errors import CampaignError
from crosslayer.pages import PageSpec

STUDIES = ("coalescing", "single-query", "authoritative", "serialisation", "early-data", "key-share", "web")
_COUPLED = ("web",)
"""Studies whose browser resolves by itself: its loads prime nothing."""
_ALL_LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
_ALL_PAGES = ("example.org", "wikipedia.org", "instagram.com")
_WEB_LINKS = ("fiber", "4g")
_WEB_PAGES = ("login-form", "social-network", "search-engine", "video-portal", "software-maker")
_ALL_WEB_PAGES = (
    "login-form", "encyclopedia", "social-network", "shop", "professional-network", "device-maker", "search-engine",
    "news-portal", "video-portal", "software-maker",
)  # fmt: skip
_PROXIES = ("crosslayer", "dnsproxy")
_ALIASES = 2
"""Alias host names a page needs: one primed for H3 1-RTT, the other by the A/A self-check."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A link and a page: what a round repeats."""

    link: str
    page: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what is measured; two campaigns with equal plans are comparable row by row."""

    study: str = "coalescing"
    links: tuple[str, ...] = _ALL_LINKS
    """Names of link profiles."""
    pages: tuple[str, ...] = _ALL_PAGES
    """Names of pages."""
    rounds: int = 5
    """Repetitions of every cell."""
    seed: int = 1
    """Draws the order of cells and of the conditions in each round."""
    aa_cell: bool = True
    """Add the A/A self-check (two alias hosts, both 1-RTT) to every round of the first link and page."""
    clients: int = 4
    """Clients that ask at a steady pace on each kept connection; of the study `authoritative` only, as the next two."""
    interval_ms: int = 2000
    """Time from one query of a client to its next, ms."""
    queries: int = 4
    """Queries of each client in a round."""
    https_records: bool = False
    """Tell the browser of HTTP/3 by HTTPS records (RFC 9460) instead of a switch; only where it resolves by itself."""
    proxy: str = "crosslayer"
    """What stands at both ends of the link in the study `authoritative`: our server and stub, or `dnsproxy`."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Every link with every page."""
        return tuple(Cell(link, page) for link in self.links for page in self.pages)

    def order(self, round_number: int) -> list[Cell]:
        """Cells of one round: links in random order, the pages of a link in random order.

        The pages of a link stay together, since a change of link costs a check of its rates.
        """
        draw = self._draw(round_number)
        links = draw.sample(self.links, len(self.links))
        return [Cell(link, page) for link in links for page in draw.sample(self.pages, len(self.pages))]

    def shuffled(self, round_number: int, cell: Cell, conditions: list[str]) -> list[str]:
        """The conditions of one round of one cell in the order drawn for it, the same after a resume."""
        return self._draw(round_number, cell.link, cell.page).sample(conditions, len(conditions))

    def has_aa(self, cell: Cell) -> bool:
        """True for the cell that carries the A/A self-check."""
        return self.aa_cell and cell == self.cells[0]

    def _draw(self, *place: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *place))))

    def as_dict(self) -> dict[str, Any]:
        """The plan as plain values, as kept in the store and in `campaign.json`."""
        return {**asdict(self), "links": list(self.links), "pages": list(self.pages)}


SIZES = ("smoke", "quick", "paper")
"""Named sizes. `smoke` about 1 min, `quick` under 15 min on two cores (`web` 25), `paper` the paper's sample size."""

_UPLINKS = ("dsl", "dsl-uplink-x2", "dsl-uplink-x4", "dsl-uplink-x16")
_ONE_PAGE = ("example.org",)
_TWENTE = ("twente-local", "twente-eu", "twente-us", "twente-au", "twente-us-jitter", "twente-us-loss")
_ONE_LINK = ("fiber",)


def sized(study: str, size: str) -> Plan:
    """The plan of a study in one of the named sizes.

    Raises
    ------
    CampaignError
        For a study or size that does not exist.
    """
    for kind, name, known in (("study", study, STUDIES), ("size", size, SIZES)):
        if name not in known:
            raise CampaignError(f"there is no {kind} '{name}'", next_step=f"Choose one of: {', '.join(known)}.")
    match study:
        case "coalescing":
            whole, rounds = Plan(), {"smoke": 3, "quick": 8, "paper": 3830}
            few = replace(whole, links=("fiber", "4g"), pages=_ONE_PAGE)
        case "single-query":
            rounds = {"smoke": 3, "quick": 6, "paper": 84}  # paper: a week, every two hours
            resolvers = {"paper": vantage.RESOLVERS, "quick": 2}.get(size, 1)
            whole = Plan(study=study, links=vantage.links(resolvers), pages=_ONE_PAGE, aa_cell=False)
            few = replace(whole, links=whole.links[:2])
        case "serialisation":
            whole, rounds = Plan(study=study, links=_UPLINKS, pages=_ONE_PAGE, aa_cell=False), {"smoke": 3, "quick": 20}
            few = replace(whole, links=_UPLINKS[::2])
        case "web":
            whole = Plan(study=study, links=_ALL_LINKS, pages=_ALL_WEB_PAGES, aa_cell=False)
            rounds = {"smoke": 3, "quick": 6}
            few = replace(whole, links=_ONE_LINK, pages=_WEB_PAGES[::4])
            if size == "quick":
                whole = replace(whole, links=_WEB_LINKS, pages=_WEB_PAGES)
        case "authoritative":
            whole = Plan(study=study, links=_TWENTE, pages=_ONE_PAGE, aa_cell=False)
            rounds = {"smoke": 3, "quick": 8}  # paper: 100 rounds of 4 x 15 queries are its 6,000 data points
            few = replace(whole, links=_TWENTE[:2], queries=2)
            whole = replace(whole, queries=15) if size == "paper" else whole
        case _:
            whole, rounds = Plan(study=study, pages=_ONE_PAGE, aa_cell=False), {"smoke": 3, "quick": 20}
            few = replace(whole, links=("fiber", "dsl"))
    if size == "smoke":
        return replace(few, rounds=rounds[size])
    # The papers did not measure these studies; as many rounds as intervals of half a millisecond take.
    return replace(whole, rounds=rounds.get(size, 100))


def load_plan(file: Path) -> Plan:
    """Read a plan from a TOML file whose keys are the fields of `Plan`; those left out are as in `quick` of its study.

    Raises
    ------
    CampaignError
        Naming file and key.
    """
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError(
            f"cannot be read ({error.strerror})", where=str(file), next_step="Name a plan file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CampaignError(f"is not TOML: {error}", where=str(file), next_step="Mend that line.") from error
    return changed(sized(str(values.get("study", "coalescing")), "quick"), values, where=str(file))


def changed(plan: Plan, values: dict[str, Any], *, where: str = "plan") -> Plan:
    """`plan` with some fields set, each checked.

    Raises
    ------
    CampaignError
        For an unknown field or a value of the wrong type.
    """
    kinds = {f.name: f.type for f in fields(Plan)}
    clean: dict[str, Any] = {}
    for key, value in values.items():
        place = f"{where}, key '{key}'"
        if key not in kinds:
            raise CampaignError("is not a key of a plan", where=place, next_step=f"Keys are: {', '.join(kinds)}.")
        if key in ("links", "pages"):
            if not isinstance(value, (list, tuple)) or not value or not all(isinstance(v, str) for v in value):
                raise CampaignError("must be a list of names", where=place, next_step='Write e.g. ["fiber", "4g"].')
            if len(set(value)) != len(value):
                raise CampaignError("names something twice", where=place, next_step="Name each once.")
            clean[key] = tuple(value)
        elif key in ("aa_cell", "https_records"):
            if not isinstance(value, bool):
                raise CampaignError("must be true or false", where=place)
            clean[key] = value
        elif key in ("study", "proxy"):
            known = STUDIES if key == "study" else _PROXIES
            if value not in known:
                raise CampaignError(
                    f"there is no {key} {value!r}", where=place, next_step=f"Choose one of: {', '.join(known)}."
                )
            clean[key] = value
        else:
            if isinstance(value, bool) or not isinstance(value, int) or (key != "seed" and value < 1):
                raise CampaignError(
                    f"must be a whole number{' above 0' if key != 'seed' else ''}, is {value!r}", where=place
                )
            clean[key] = value
    return replace(plan, **clean)


def check_names(plan: Plan, *, links: Collection[str], pages: Mapping[str, PageSpec]) -> None:
    """Refuse a plan that names a link or page that does not exist, or a page that its loads cannot prime.

    Raises
    ------
    CampaignError
        Naming it and those there are.
    """
    for kind, wanted, known in (("link profile", plan.links, links), ("page", plan.pages, pages)):
        for name in wanted:
            if name not in known:
                raise CampaignError(
                    f"there is no {kind} '{name}'", where="plan", next_step=f"Choose from: {', '.join(sorted(known))}."
                )
    if plan.https_records and plan.study not in _COUPLED:
        raise CampaignError(
            f"'https_records' has no effect in the study '{plan.study}', whose browser is told every address",
            where="plan",
            next_step=f"Leave it out, or choose the study {', '.join(_COUPLED)}.",
        )
    if plan.proxy != _PROXIES[0] and plan.study != "authoritative":
        raise CampaignError(
            f"'proxy' has no effect in the study '{plan.study}'",
            where="plan",
            next_step="Leave it out, or choose the study authoritative.",
        )
    # Nor would priming an alias of a page of several origins make its load 1-RTT: the other origins have tickets then.
    fit = [name for name, page in pages.items() if len(page.aliases) >= _ALIASES and page.lookups == 1]
    for name in plan.pages if plan.study not in _COUPLED else ():
        if name not in fit:
            raise CampaignError(
                f"page '{name}' cannot be loaded as the study '{plan.study}' does: that takes {_ALIASES} aliases "
                "and no further origins",
                where="plan",
                next_step=f"Choose from: {', '.join(sorted(fit))}.",
            )
