"""Conditions of studies. Each has a name, a table for its rows, an instrument, and a way to make one observation.

An instrument is the object that makes observations, e.g. a browser or a set of DNS clients. Most studies need no
`Measurer` class of their own: they have a dictionary `CONDITIONS`, and `MEASURER = measuring(CONDITIONS)`.
"""

from __future__ import annotations

import contextlib
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from crosslayer import dns
from crosslayer.browser import KINDS, find_browser
from crosslayer.campaign.instruments import Exchanges, Loads, StubExchanges
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.pages import PageSpec
from crosslayer.vocabulary import Role

Row = dict[str, Any]


class Condition(ABC):
    """One condition of a study; its name is its key in the study's `CONDITIONS`."""

    __slots__ = ()

    table: ClassVar[str]
    """Name of the table for the condition's rows."""

    @property
    @abstractmethod
    def columns(self) -> Row:
        """Columns, with their values, that distinguish the condition's rows from those of other conditions."""

    @property
    @abstractmethod
    def tool(self) -> Hashable:
        """Key of the condition's instrument: conditions with the same key share one instrument."""

    @abstractmethod
    def open(self, context: RoundContext, sharing: Sequence[Any]) -> Any:
        """Open and return the instrument, an object with a method `close`.

        Parameters
        ----------
        context
            Plan and running testbed.
        sharing
            All conditions of the study with the same `tool`, including this one.
        """

    @abstractmethod
    def warm_up(self, tool: Any, page: PageSpec) -> None:
        """Use the instrument once without recording it."""

    @abstractmethod
    def observe(self, tool: Any, page: PageSpec, row: Row) -> Rows:
        """Make one observation; `row` has the columns that are known before the observation (`Measurer.row`)."""

    def supported(self, plan: Plan) -> bool:
        """Whether the browser of the plan can be measured in this condition."""
        return True

    def versions(self) -> dict[str, str]:
        """Versions, by name, of the programs that the condition uses and the plan does not name."""
        return {}


def _of_exchange(protocol: dns.Protocol, resumption: dns.Resumption, condition: str) -> Row:
    return {"protocol": protocol.value, "resumption": resumption.value, "condition": condition}


@dataclass(frozen=True, slots=True)
class Exchange(Condition):
    """A DNS exchange on a new connection, made by a client of `crosslayer.dns`."""

    protocol: dns.Protocol
    resumption: dns.Resumption = dns.Resumption.NONE
    condition: str = "main"
    """Value of the column `condition`: main, or the name of a variation of the client."""
    settings: dns.ClientSettings | None = None

    table: ClassVar[str] = "dns_exchanges"
    tool: ClassVar[str] = "exchanges"

    @property
    def columns(self) -> Row:
        """Values of `protocol`, `resumption` and `condition` in `dns_exchanges`."""
        return _of_exchange(self.protocol, self.resumption, self.condition)

    def open(self, context: RoundContext, sharing: Sequence[Any]) -> Exchanges:
        """Open the clients with their packet capture."""
        return Exchanges(context)

    def warm_up(self, tool: Exchanges, page: PageSpec) -> None:
        """Make one exchange."""
        self.observe(tool, page, {})

    def observe(self, tool: Exchanges, page: PageSpec, row: Row) -> Rows:
        """Make one exchange. If it resumes a session, make a priming exchange before it, whose row comes first."""
        return {self.table: tool.exchange(row, page.host, self.protocol, self.resumption, self.settings)}


@dataclass(frozen=True, slots=True)
class StubExchange(Condition):
    """A DNS exchange with a full handshake, made by the Go stub (quic-go, crypto/tls). Each condition has a stub."""

    protocol: dns.Protocol
    condition: str
    post_quantum: bool = False
    """Whether the stub's ClientHello has an X25519MLKEM768 key share."""

    table: ClassVar[str] = "dns_exchanges"
    tool: ClassVar[str] = "stubs"

    @property
    def columns(self) -> Row:
        """Values of `protocol`, `resumption` and `condition` in `dns_exchanges`."""
        return _of_exchange(self.protocol, dns.Resumption.NONE, self.condition)

    def open(self, context: RoundContext, sharing: Sequence[StubExchange]) -> StubExchanges[StubExchange]:
        """Start one stub for each condition in `sharing`."""
        return StubExchanges(context, {one: (one.protocol, {"post_quantum": one.post_quantum}) for one in sharing})

    def warm_up(self, tool: StubExchanges[StubExchange], page: PageSpec) -> None:
        """Make one exchange."""
        tool.exchange(self, page.host)

    def observe(self, tool: StubExchanges[StubExchange], page: PageSpec, row: Row) -> Rows:
        """Make one exchange."""
        return {self.table: [row | tool.exchange(self, page.host)]}


@dataclass(frozen=True, slots=True)
class TcpConnect(Condition):
    """A TCP connect to the server of the page."""

    table: ClassVar[str] = "tcp_rtts"
    tool: ClassVar[str] = Exchange.tool

    @property
    def columns(self) -> Row:
        """Empty: all rows of `tcp_rtts` are of this condition."""
        return {}

    def open(self, context: RoundContext, sharing: Sequence[Any]) -> Exchanges:
        """Open the clients."""
        return Exchanges(context)

    def warm_up(self, tool: Exchanges, page: PageSpec) -> None:
        """Do nothing: a connect needs no warm-up."""

    def observe(self, tool: Exchanges, page: PageSpec, row: Row) -> Rows:
        """Make one connect."""
        return {self.table: [row | tool.tcp_rtt(page.host)]}


@dataclass(frozen=True, slots=True)
class Load(Condition):
    """A page load over HTTP/3 in a browser that does not resolve names.

    The fields say how the load is primed, and which evidence the server log must have.
    """

    h3: str
    """Kind of the HTTP/3 handshake: `1-rtt` or `0-rtt`."""
    condition: str = "main"
    """Value of the column `condition`: main, or the name of a variation of browser or server."""
    role: Role = Role.MEASURED
    primed_alias: int | None = None
    """Index of the alias that serves the priming page (`PageSpec.aliases`).

    If it is None, the page's own host serves the priming page, so that the ticket of this host resumes the session.
    """
    token: bool = True
    """Whether the browser has an address-validation token besides the ticket; ignored if an alias is primed."""
    early_data: str = "on"
    """How the server treats early data, see `Server.set_early_data`."""
    refused: bool = False
    """Whether the server replaces its ticket keys after the priming, so that it refuses the ticket."""
    browser: str | None = None
    """Name of the browser; None: the plan's."""

    table: ClassVar[str] = "page_loads"

    @property
    def tool(self) -> Hashable:
        """Key of the browser: all conditions with this browser share one process."""
        return "browser", self.browser

    @property
    def columns(self) -> Row:
        """Columns of `page_loads`, with their values, that distinguish the load's rows."""
        columns = {"h3": self.h3, "condition": self.condition, "role": self.role.value, "coupling": "decoupled"}
        return columns if self.browser is None else columns | {"browser": self.browser}

    @property
    def resumed(self) -> bool:
        """Whether the server log must show a resumed session."""
        return self.primed_alias is None and not self.refused

    @property
    def validated(self) -> bool:
        """Whether the server log must show that a token proved the client's address."""
        return self.primed_alias is None and self.token

    @property
    def repeated(self) -> Load:
        """The second load of an A/A self-check. The first one is this load.

        If the first load primes an alias, the second load primes the next alias.
        """
        alias = None if self.primed_alias is None else self.primed_alias + 1
        return replace(self, role=Role.SELF_CHECK, primed_alias=alias)

    def open(self, context: RoundContext, sharing: Sequence[Any]) -> Loads:
        """Prepare the browser; the first load starts it."""
        return Loads(context, FULL_HANDSHAKE, browser=self.browser)

    def warm_up(self, tool: Loads, page: PageSpec) -> None:
        """Start the browser, which makes one load."""
        tool.open()

    def observe(self, tool: Loads, page: PageSpec, row: Row) -> Rows:
        """Make one load."""
        return tool.load(row, page, self)

    def supported(self, plan: Plan) -> bool:
        """Whether the browser can make this load.

        A load without a token requires a browser that discards a token if it has not received a ticket before.
        """
        return self.token or KINDS[self.browser or plan.browser].token_needs_ticket

    def versions(self) -> dict[str, str]:
        """Versions of the programs of `browser`; empty if `browser` is None."""
        return dict(find_browser(self.browser).versions) if self.browser else {}


FULL_HANDSHAKE = Load("1-rtt", primed_alias=0)
"""A page load over H3 1-RTT with a full handshake.

Every new browser process also makes this load first, as a warm-up without a row.
"""

REFUSED = Load("1-rtt", "refused", Role.CONTROL, refused=True)
"""The negative control: primed as for 0-RTT, but the server refuses the ticket and must log a full handshake."""


def self_checks(conditions: Mapping[str, Condition]) -> dict[str, Load]:
    """Self-checks of a study's loads, by name: an A/A self-check of each load, and the negative control."""
    loads = {name: one for name, one in conditions.items() if isinstance(one, Load)}
    return {f"A/A {name}": load.repeated for name, load in loads.items()} | {"Ticket refused": REFUSED}


class ConditionsMeasurer(Measurer):
    """Measures the conditions in a study's dictionary `CONDITIONS`; `measuring` makes the subclass of a study."""

    table: ClassVar[Mapping[str, Condition]]
    """Conditions of every round, by name."""
    checks: ClassVar[Mapping[str, Condition]]
    """Self-checks, by name; a round has at most one self-check."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        sharing: dict[Hashable, list[Condition]] = {}
        for one in (*self.table.values(), *self.checks.values()):
            sharing.setdefault(one.tool, []).append(one)
        with contextlib.ExitStack() as stack:
            self._tools = {
                tool: stack.enter_context(contextlib.closing(alike[0].open(context, alike)))
                for tool, alike in sharing.items()
            }
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close all instruments."""
        self._stack.close()

    @classmethod
    def versions(cls, plan: Plan) -> dict[str, str]:
        """Versions, by name, of the programs that the conditions use and the plan does not name."""
        return {name: version for one in cls.table.values() for name, version in one.versions().items()}

    def conditions(self, cell: Cell) -> list[str]:
        """Names of all conditions that the browser of the plan supports."""
        return self._supported(self.table)

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        """The self-check of this round, if any.

        Self-checks take turns. A cell repeats a self-check after `aa_period` rounds. If there are more than `aa_period`
        self-checks, it repeats a self-check after it has made all others. If `aa_period` is 0, no round has a
        self-check.
        """
        names = self._supported(self.checks)
        period = self.context.plan.options.aa_period if names else 0
        if not period:
            return []
        turn = (round_number + self.context.plan.cells.index(cell)) % max(period, len(names))
        return names[turn : turn + 1]

    def table_and_columns(self, condition: str) -> tuple[str, Row]:
        """Table of a condition's rows, and the columns and values that distinguish them from other conditions' rows."""
        one = self._condition(condition)
        return one.table, one.columns

    def warm_up(self) -> None:
        """Warm up every condition that the browser of the plan supports."""
        page = self.context.pages[self.context.plan.pages[0]]
        for name in self._supported(self.table):
            one = self.table[name]
            one.warm_up(self._tools[one.tool], page)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one observation."""
        one = self._condition(condition)
        row = self.row(condition, cell, round_number, position)
        return one.observe(self._tools[one.tool], self.context.pages[cell.page], row)

    def _condition(self, name: str) -> Condition:
        return self.table[name] if name in self.table else self.checks[name]

    def _supported(self, conditions: Mapping[str, Condition]) -> list[str]:
        return [name for name, one in conditions.items() if one.supported(self.context.plan)]


def measuring(conditions: Mapping[str, Condition], *, self_check: bool = False) -> type[ConditionsMeasurer]:
    """Make a measurer class for a study's conditions. The study's module must assign it to the name `MEASURER`.

    Parameters
    ----------
    conditions
        Conditions of every round, by name.
    self_check
        Whether rounds also have self-checks of the loads. The study's options must then have the field `aa_period`.
    """
    checks = self_checks(conditions) if self_check else {}
    # Workers of a cluster receive the class by its module and name.
    reference = {"__module__": sys._getframe(1).f_globals["__name__"], "__qualname__": "MEASURER"}
    return type("MEASURER", (ConditionsMeasurer,), {"table": conditions, "checks": checks} | reference)
