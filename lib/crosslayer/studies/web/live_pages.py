"""Live pages (Kosek et al., IMC 2022, section 3.2): pages of the user's choice, over the real network.

An unmodified Chromium loads each page through our stub, over each transport of each resolver. Before each measured
load, a load of the same page fills the resolver's cache. Then the stub closes its connection and keeps the session, and
the browser opens a new context without caches. No packet leaves this machine without the user's consent.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.browser import Browser, BrowserError, PageLoad, find_browser, launch
from crosslayer.browser.chromium import trust
from crosslayer.campaign import provenance
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.instruments import LOADS_PER_PROCESS, load_columns, resource_rows
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import FinishedRound, Job
from crosslayer.campaign.run import measure
from crosslayer.campaign.store import FILE_NAME, Store
from crosslayer.campaign.tables import Lookups
from crosslayer.guest import inside
from crosslayer.resolvers import listed, manners
from crosslayer.resolvers.ledger import FORBIDDING, SLOWING, QueryLedger, user_file
from crosslayer.resolvers.run import vantage
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.resolvers.visits import resolver_of, system_ca
from crosslayer.stub import QueryMetrics, Stub, StubError, StubSettings, stub_version
from crosslayer.studies.web.measure import Web, lookup_columns, lookup_summary, shared_connections
from crosslayer.studies.web.sites import ListedSite, read_sites
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.testbed import namespaces, outside
from crosslayer.vocabulary import Browser as BrowserName
from crosslayer.vocabulary import Coupling, Http3, Protocol, Role

_BACKEND = "the paths themselves"
_LISTEN = "127.0.53.1"
"""Address of the stub, which resolv.conf names as the resolver."""
_PORT = 53
_QUERIES_OF_NAME = 6
"""Number of queries for one host name: A, AAAA and HTTPS, each in the cache-filling and in the measured load."""
_LEFT_ALONE = "left alone: "
"""Prefix of a skipped load's error, if the operator of the resolver asked to stop."""
_STARTED_S = 3.0
"""Wait after the start of Chromium, s. After about one second Chromium detects its network and restarts lookups."""
_NAVIGATION = "net::ERR_"
"""Part of Chromium's error if a page failed to load but the browser itself still works."""
_SILENT_LOADS = 3
"""A target that answers no query in this many successive loads gets no more queries until the campaign resumes."""


@dataclass(frozen=True, slots=True)
class LivePages:
    """Validated arguments of `crosslayer measure --sites`."""

    plan: Plan
    sites: Mapping[str, ListedSite]
    """Pages by name."""
    targets: Mapping[str, ResolverTarget]
    """Targets by name of the condition. This name consists of the names of resolver and transport."""
    not_asked: Sequence[str]
    """Named resolvers that are not measured, each with the reason: it is on the stop list, or cannot be measured."""
    ca_file: Path | None
    """File of CAs that the user named, or None."""

    @property
    def addresses(self) -> list[str]:
        """Addresses of those resolvers that are outside this machine."""
        return [a for a in dict.fromkeys(t.address for t in self.targets.values()) if not outside.inside(a)]

    @property
    def budget(self) -> str:
        """Text for the user: number of loads, number of queries to each operator, and minimum duration."""
        rounds, pages = self.plan.rounds, len(self.sites)
        loads = rounds * pages * len(self.targets)
        operators = Counter(target.operator for target in self.targets.values())
        share = {operator: _QUERIES_OF_NAME * rounds * pages * count for operator, count in operators.items()}
        rows = [("operator", "queries", "transports of its resolvers")]
        for operator, queries in share.items():
            own = [name for name, target in self.targets.items() if target.operator == operator]
            rows.append((operator, str(queries), ", ".join(own)))
        minutes = max(share.values()) / manners.QUERIES_PER_S / 60
        text = [f"not asked: {line}" for line in self.not_asked]
        text.append(
            f"This loads {pages} pages in {rounds} rounds over {len(self.targets)} targets: {loads} measured loads, "
            "and as many before them that fill caches."
        )
        text += [f"  {site.url}" for site in self.sites.values()]
        text.append(
            "The browser also fetches everything that the pages name, from any host.\n"
            f"Pages with one host name need about {_QUERIES_OF_NAME * loads} queries, {_QUERIES_OF_NAME} for each "
            "measured load. A page with N host names needs N times as many."
        )
        text += _table(rows)
        if self.addresses:
            text.append(
                f"On average each operator gets at most {manners.QUERIES_PER_S:g} query/s, and "
                f"{manners.QUERIES_PER_DAY} a day. It takes at least {minutes:.0f} minutes."
            )
        if not outside.private() and os.geteuid() == 0:
            text.append("You are root, so Chromium runs without its sandbox. An ordinary user is safer.")
        return "\n".join(text)


def live_pages(plan: Plan, sites_file: Path, resolvers: Sequence[str], ca_file: Path | None) -> LivePages:
    """Check the arguments of `crosslayer measure --sites` before any packet is sent.

    The first invalid argument raises `CrosslayerError`. Only the first address of each resolver is used.
    """
    if plan.browser != BrowserName.CHROMIUM:
        raise CampaignError(
            f"live pages are loaded in Chromium, not in {plan.browser}", where="--browser", next_step="Leave it out."
        )
    if plan.options.resolver != "stub" or plan.options.https_records or plan.options.resolver_like:
        raise CampaignError(
            "live pages are resolved through the stub, with the records that exist",
            where="plan, [options]",
            next_step="Leave resolver, https_records and resolver_like out.",
        )
    sites = {site.name: site for site in read_sites(sites_file)}
    known = listed.read(resolvers)
    first: dict[str, str] = {}
    measured = [t for t in known.targets if first.setdefault(t.name, t.address) == t.address]
    stopped = manners.stopped(measured)
    left_out = [f"{measured[number].label}: {reason}" for number, reason in stopped.items()]
    measured = [target for number, target in enumerate(measured) if number not in stopped]
    measured.sort(key=lambda target: (list(first).index(target.name), SIX_TRANSPORTS.index(target.protocol)))
    targets = {f"{target.name} {target.protocol}": target for target in measured}
    if len(targets) < len(measured):
        twice = next(name for name, count in Counter(f"{t.name} {t.protocol}" for t in measured).items() if count > 1)
        raise CampaignError(
            f"there are two of the name '{twice}'", where="--resolver", next_step="Give resolvers names of their own."
        )
    if not targets:
        raise CampaignError("every resolver is on the stop list", where="--resolver", next_step="Name another one.")
    asked = dict.fromkeys(f"{target.name} {target.address}" for target in measured)
    options = replace(plan.options, live_resolvers=tuple(asked))
    plan = replace(plan, links=(vantage(),), pages=tuple(sites), clock=inside() or "wall", options=options)
    return LivePages(plan, sites, targets, [*known.left_out, *left_out], ca_file)


def consent(live: LivePages, *, given: bool, ask: Callable[[str], str]) -> None:
    """Obtain the user's consent to send packets, if packets can leave this machine; `OutsideError` without consent.

    `ask` receives a question and returns what the user typed.
    """
    if outside.private():
        return
    outside.obtain_consent("Pages and resolvers are outside this machine.", "measure --sites", given=given, ask=ask)
    outside.allow(live.addresses)
    outside.allow_any_name()


def run(live: LivePages, folder: Path, say: Callable[[str], None]) -> Path:
    """Measure the rounds that `folder` lacks and write the dataset; return the folder of the dataset.

    The process must have its own resolv.conf (`namespaces.enter`).
    """
    try:
        with outside.open_socket(_LISTEN, socket.SOCK_DGRAM) as trial:
            trial.bind((_LISTEN, _PORT))
    except OSError as error:
        raise CampaignError(
            f"cannot be bound ({error.strerror}), and the browser asks there",
            where=f"{_LISTEN}:{_PORT}",
            next_step=f"Allow it: `sudo sysctl net.ipv4.ip_unprivileged_port_start={_PORT}`.",
        ) from error
    if live.ca_file is not None:
        trust(live.ca_file)
    with _resolv_conf(_LISTEN):
        return measure(live.plan, folder, Web, {}, say=say, source=partial(_rounds, live, _left_alone(live, folder)))


@contextlib.contextmanager
def _resolv_conf(address: str) -> Generator[None, None, None]:
    """Use `address` as the resolver in resolv.conf during the `with` block.

    Afterwards, the earlier resolver is restored, because later commands in the same box use it.
    """
    before = Path("/etc/resolv.conf").read_text(encoding="utf-8").split()
    namespaces.use_resolver(address)
    try:
        yield
    finally:
        if "nameserver" in before:
            namespaces.use_resolver(before[before.index("nameserver") + 1])


def _left_alone(live: LivePages, folder: Path) -> dict[str, str]:
    """Operators that asked to stop in an earlier part of the campaign, each with an error text.

    The text is that in the rows of loads which were skipped for this reason. Rows of further loads get the same text.
    """
    if not (folder / FILE_NAME).exists():
        return {}
    operators = {target.name: target.operator for target in live.targets.values()}
    with Store(folder) as store:
        rows = list(store.rows("page_loads", live.plan.links[0]))
    return {
        operators[row["resolver"]]: row["error"]
        for row in rows
        if (row["error"] or "").startswith(_LEFT_ALONE) and row["resolver"] in operators
    }


def _rounds(
    live: LivePages, left_alone: dict[str, str], job: Job, say: Callable[[str], None]
) -> Generator[FinishedRound, None, None]:
    """Measure the rounds of a job in the network of this process, as a `campaign.rounds.Executor` does."""
    programs = find_browser(live.plan.browser)
    versions = provenance.packages() | programs.versions | {"stub": stub_version()}
    say(f"Measuring over {_BACKEND}: {len(job.todo)} rounds of a page to go.")
    with contextlib.closing(_Loader(live, left_alone)) as loader:
        for number, cell in job.todo:
            rows: dict[str, list[Any]] = {"page_loads": [], "resources": [], "lookups": []}
            for position, name in enumerate(live.plan.shuffled(number, cell, list(live.targets))):
                target = live.targets[name]
                row = {
                    "campaign": job.campaign, "round": number, "link": cell.link, "study": live.plan.study,
                    "page": cell.page, "h3": Http3.ONE_RTT, "coupling": Coupling.COUPLED, "condition": "main",
                    "role": Role.MEASURED, "browser": live.plan.browser, "position": position,
                    "dns_protocol": target.protocol, "resolver": target.name,
                }  # fmt: skip
                for table, some in loader.load(row, live.sites[cell.page], target).items():
                    rows[table] += some
            failures = sum(row.get("error") is not None for row in rows["page_loads"])
            yield FinishedRound(cell, number, rows, failures, _BACKEND, versions)


class _Loader:
    """Loads pages in one browser and keeps the query limits for each operator of resolvers."""

    def __init__(self, live: LivePages, left_alone: dict[str, str]) -> None:
        self._live, self._left_alone = live, left_alone
        limits = (manners.QUERIES_PER_S, manners.QUERIES_PER_DAY) if live.addresses else (1e6, 10**9)
        self._ledger = QueryLedger(*limits, user_file() if live.addresses else None)
        self._silent: Counter[str] = Counter()
        self._most = _QUERIES_OF_NAME
        """Maximum number of queries of a load so far, cache-filling load included."""
        encrypted = any(target.protocol.transport.encrypted for target in live.targets.values())
        self._ca_file = (live.ca_file or system_ca()) if encrypted else None
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._browser: Browser | None = None
        self._numbers = itertools.count()

    def close(self) -> None:
        """End the browser and remove its files."""
        self._end_browser()
        self._stack.close()

    def _end_browser(self) -> None:
        if self._browser is not None:
            self._browser.close()
            self._browser = None

    def _open_browser(self) -> Browser:
        if self._browser is not None and self._browser.loads >= LOADS_PER_PROCESS:
            self._end_browser()
        if self._browser is None:
            self._browser = launch(
                find_browser(self._live.plan.browser),
                folder=self._folder / f"browser-{next(self._numbers)}",
                addresses={},
                certificates=None,
                resolves=["*"],
                force_h3=False,
                few_processes=self._live.plan.clock == "virtual",
            )
            time.sleep(_STARTED_S)
        return self._browser

    def load(self, row: dict[str, Any], site: ListedSite, target: ResolverTarget) -> dict[str, list[dict[str, Any]]]:
        """Load a page through a resolver as soon as its operator's limits allow; return the rows by table."""
        operator = target.operator
        if (reason := self._left_alone.get(operator) or self._left_alone.get(target.label)) is not None:
            return {"page_loads": [row | {"started_s": time.time(), "error": reason}]}
        self._await_turn(operator)
        started, warming, measured = time.time(), list[QueryMetrics](), list[QueryMetrics]()
        load: PageLoad | None = None
        fault: str | None = None
        try:
            load = self._load(site, target, warming, measured)
        except (BrowserError, StubError) as error:
            fault = error.what
            if _NAVIGATION not in fault:
                self._end_browser()
        queries = [*warming, *measured]
        self._most = max(self._most, len(queries))
        self._ledger.charge(operator, len(queries) - 1)
        self._heed(target, queries)
        fault = _fault(fault, load, measured or warming, site)
        row = row | {"started_s": started} | ({"error": fault} if fault else {})
        if load is None:
            return {"page_loads": [row]}
        row |= load_columns(load) | lookup_summary(measured, site.host)
        lookups = [Lookups.identity(row) | {"resolver": target.name} | columns for columns in lookup_columns(measured)]
        return {"page_loads": [row], "resources": resource_rows(row, load, ()), "lookups": lookups}

    def _load(
        self, site: ListedSite, target: ResolverTarget, warming: list[QueryMetrics], measured: list[QueryMetrics]
    ) -> PageLoad:
        """Make the cache-filling and the measured load; append their queries to the lists, return the measured load."""
        settings = StubSettings.towards(
            resolver_of(target, self._ca_file),
            target.protocol,
            listen=f"{_LISTEN}:{_PORT}",
            connections=shared_connections(self._live.plan, target.protocol),
        )
        with Stub.start(subprocess.Popen, settings, self._folder / f"stub-{next(self._numbers)}") as stub:

            def reset() -> None:
                stub.reset_sessions()
                warming.extend(stub.metrics())

            try:
                return self._open_browser().load_url(site.url, reset_sessions=reset)
            finally:
                stub.reset_sessions()  # waits for queries in flight
                (measured if warming else warming).extend(stub.metrics())

    def _await_turn(self, operator: str) -> None:
        """Wait until an operator may get the next query; `CampaignError` if its limit of today is reached."""
        if self._ledger.left(operator) < self._most:
            raise CampaignError(
                f"has got its {manners.QUERIES_PER_DAY} queries of today (UTC)",
                where=operator,
                next_step="Give the same command tomorrow: it resumes.",
            )
        while at_s := self._ledger.take(operator):
            time.sleep(max(0.0, at_s - time.time()))

    def _heed(self, target: ResolverTarget, queries: Sequence[QueryMetrics]) -> None:
        """React to the outcomes of a load's queries.

        After an error in `SLOWING`, the operator gets no queries for some time. If it asks to stop, it gets no more
        queries (`QueryLedger.heed`). A target that answers no query in `_SILENT_LOADS` successive loads gets no more
        queries.
        """
        if not queries:
            return
        errors = [query.error or (f"rcode {query.rcode}" if query.rcode == "REFUSED" else "") for query in queries]
        asks = next((error for error in errors if error.startswith((*FORBIDDING, *SLOWING))), None)
        if (reason := self._ledger.heed(target.operator, asks)) is not None:
            self._left_alone[target.operator] = f"{_LEFT_ALONE}{reason}"
        self._silent[target.label] = self._silent[target.label] + 1 if all(query.error for query in queries) else 0
        if self._silent[target.label] == _SILENT_LOADS:
            self._left_alone[target.label] = f"not asked again: no answer in {_SILENT_LOADS} successive loads"


def _fault(fault: str | None, load: PageLoad | None, queries: Sequence[QueryMetrics], site: ListedSite) -> str | None:
    """Error of a load, with the reason from the stub's log if the lookup of its host failed; None without an error."""
    own = [query for query in queries if query.name.rstrip(".") == site.host]
    if load is not None and fault is None:
        status = load.navigation["responseStatus"]
        if not 200 <= status < 400:
            fault = f"http status {status}" if status else "no response"
        elif not own:
            fault = f"the stub was not asked for {site.host}"
    wrong = (query.error or f"rcode {query.rcode}" for query in own if query.error or query.rcode != "NOERROR")
    failed = next(wrong, "")
    return f"{fault} (lookup: {failed})" if fault and failed else fault


def summary(folder: Path) -> str:
    """Text table by page, resolver and transport: medians of lookup time, PLT, and difference of the PLT.

    The difference is the PLT minus the PLT over DoUDP in the same round.
    """
    table = Dataset.open(folder).table("page_loads")
    good = metrics.page_loads(table)
    every = table.select("page", "resolver", "dns_protocol", "error").collect()
    rows = [("page", "resolver", "transport", "loads", "failed", "lookup, ms", "PLT, ms", "PLT - DoUDP, ms", "95 %")]
    by = ("page", "resolver")
    for page, resolver in sorted(every.select(by).unique().iter_rows()):
        of_cell = good.filter(page=page, resolver=resolver)
        for protocol in SIX_TRANSPORTS:
            loads = every.filter(page=page, resolver=resolver, dns_protocol=protocol)
            if loads.is_empty():
                continue
            of_protocol = of_cell.filter(pl.col("dns_protocol") == protocol)
            medians = of_protocol.select(pl.median("stub_lookup_ms"), pl.median("plt_ms")).collect().row(0)
            pairs = metrics.paired(of_cell, "plt_ms", "dns_protocol", protocol, Protocol.DOUDP)
            difference, interval = "", ""
            if protocol != Protocol.DOUDP:
                for one in metrics.medians(pairs, "difference", metrics.CELL).iter_rows(named=True):
                    difference = f"{one['median']:+.1f}"
                    interval = "" if one["low"] is None else f"{one['low']:+.1f} to {one['high']:+.1f}"
            values = ("" if value is None else f"{value:.1f}" for value in medians)
            counts = (str(loads.height), str(loads["error"].count()))
            rows.append((page, resolver, protocol, *counts, *values, difference, interval))
    reasons = every.drop_nulls("error").group_by("page", "error").len().sort("page", "error")
    failed = [f"{page}: {count} failed: {error}" for page, error, count in reasons.iter_rows()]
    return "\n".join([*_table(rows), *failed])


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
