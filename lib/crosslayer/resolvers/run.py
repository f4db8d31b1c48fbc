"""`crosslayer compare`: check the request, ask for consent, measure, print and write."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from tqdm import tqdm

from crosslayer.campaign import provenance
from crosslayer.dns import ClientSettings, Protocol, Question, build_query
from crosslayer.resolvers import analysis, ledger, manners
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.journal import Journal
from crosslayer.resolvers.listed import Listed, read
from crosslayer.resolvers.locations import AddressLocation, location_rows, look_up, positions
from crosslayer.resolvers.plan import HERE, ComparePlan, MissedRound
from crosslayer.resolvers.schedule import RoundTimes
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.resolvers.visits import Visitor, capture_here, needs_check, system_ca
from crosslayer.testbed import outside
from crosslayer.vocabulary import Role

Say = Callable[[str], None]


class CompareStatus(IntEnum):
    """Exit status of a comparison."""

    COMPLETE = 0
    DAY_LIMIT = 75
    """A daily limit was reached; the comparison continues on another day (EX_TEMPFAIL of sysexits.h)."""
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """A validated call of `crosslayer compare`."""

    plan: ComparePlan
    left_out: list[str]
    """Entries of the user's resolver lists that are not measured, each with the reason."""
    not_asked: Mapping[int, str]
    """Targets of the stop list by number, each with its reason."""
    queries_per_s: float
    per_day: int
    ca_file: Path | None
    ca_given: Path | None
    """File of CAs whose path the user gave; None if the user gave none, or if no transport is encrypted."""
    dataset: Path
    resume: bool
    json_file: Path | None
    report_file: Path | None
    hosts: Mapping[str, str]
    """SSH destination of each vantage point; empty if this machine measures."""
    locations: Mapping[str, AddressLocation]
    """Known location of each resolver address."""
    positions: Mapping[str, AddressLocation]
    """Known position of each vantage point."""


def request(
    arguments: Sequence[str],
    *,
    protocols: Sequence[Protocol] = (),
    everything: bool = False,
    idle_s: Sequence[float] = (),
    self_check: bool = False,
    name: str,
    zone: str = "",
    rounds: int,
    seed: int,
    timeout_s: float,
    queries_per_s: float = manners.QUERIES_PER_S,
    per_day: int = manners.QUERIES_PER_DAY,
    ca_file: Path | None = None,
    dataset: Path,
    resume: bool = False,
    json_file: Path | None = None,
    report_file: Path | None = None,
    every_s: float = 0.0,
    hosts: Mapping[str, str] | None = None,
    databases: Sequence[Path] = (),
    at: Sequence[str] = (),
) -> CompareRequest:
    """Validate a call before anything is sent; `CrosslayerError` for the first invalid part.

    Without `everything`, only the first address of each resolver is measured, and resumed connections are not measured.
    DoTCP is then measured only if `protocols` contains it or a resolver has no other transport.

    Parameters
    ----------
    idle_s
        Idle times of the first connection, s; a query follows each.
    self_check
        Measure the first resolver twice, as if it were two (A/A).
    zone
        Zone whose names miss the cache; empty if misses are not measured.
    every_s
        Time from the start of a round to the start of the next one, s; 0 without a schedule.
    hosts
        SSH destination of each vantage point; None if this machine measures.
    databases
        MMDB files with locations of resolvers.
    at
        Positions of vantage points, each `NAME=LATITUDE,LONGITUDE`.
    """
    listed: Listed = read(arguments, protocols)
    targets = listed.targets if everything else _usual(listed.targets, protocols)
    if self_check:
        first = targets[0].name
        targets = [*targets, *(replace(one, role=Role.SELF_CHECK) for one in targets if one.name == first)]
    for asked in (name, *([f"{seed:x}.{zone}"] if zone else [])):
        build_query(Question(asked), Protocol.DOUDP, ClientSettings())
    manners.check_limits(queries_per_s, per_day, targets)
    for file in (dataset, json_file, report_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise ResolversError("is in a folder that does not exist", where=str(file), next_step="Create it first.")
    vantages = tuple(hosts or (vantage(),))
    idle_s = tuple(sorted(set(idle_s)))
    plan = ComparePlan(name, rounds, seed, timeout_s, targets, everything, zone, vantages, every_s, idle_s)
    addresses = dict.fromkeys(target.address for target in targets)
    looked_up = look_up(addresses, databases)
    listed_at = {address: listed.locations.get(address, AddressLocation()) for address in addresses}
    located = {address: one.completed(looked_up.get(address, AddressLocation())) for address, one in listed_at.items()}
    locations = {address: one for address, one in located.items() if one != AddressLocation()}
    encrypted = any(target.protocol.transport.encrypted for target in targets)
    return CompareRequest(
        plan,
        listed.left_out,
        manners.stopped(targets),
        queries_per_s,
        per_day,
        (ca_file or system_ca()) if encrypted else None,
        ca_file if encrypted else None,
        dataset,
        resume,
        json_file,
        report_file,
        hosts or {},
        locations,
        positions(at, plan.vantages),
    )


def vantage() -> str:
    """Name of this machine as a vantage point in campaigns."""
    return provenance.this_host("").name or HERE


def vantages(text: str) -> dict[str, str]:
    """Parse a list of machines, `[NAME=]HOST` separated by commas; returns each HOST by the name of its vantage point.

    Default names are `host-1`, `host-2` etc. Raises `ResolversError` for an invalid name, and for a name or machine
    that occurs twice.
    """
    hosts: dict[str, str] = {}
    for number, part in enumerate(text.split(","), start=1):
        name, _, host = part.rpartition("=")
        name = name.strip() or f"host-{number}"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9-]{0,39}", name) or not host.strip():
            raise ResolversError(
                f"is no vantage point: {part!r}",
                where="--everywhere",
                next_step="Write HOST or NAME=HOST; a name has letters, digits and hyphens.",
            )
        if name in hosts or host.strip() in hosts.values():
            raise ResolversError(f"names {part!r} twice", where="--everywhere", next_step="Name it once.")
        hosts[name] = host.strip()
    return hosts


def _usual(targets: Sequence[ResolverTarget], protocols: Sequence[Protocol]) -> list[ResolverTarget]:
    """Targets of a call without `everything`: the first address of each resolver.

    Without `protocols`, DoTCP is left out if the resolver has another transport at this address.
    """
    first: dict[str, str] = {}
    kept = [target for target in targets if first.setdefault(target.name, target.address) == target.address]
    others = {target.name for target in kept if target.protocol is not Protocol.DOTCP}
    return [
        target for target in kept if protocols or target.protocol is not Protocol.DOTCP or target.name not in others
    ]


def announce(request: CompareRequest, say: Say) -> None:
    """Print which resolvers are left out, and upper limits of the queries and bytes for each operator."""
    for entry in request.left_out:
        say(f"left out: {entry}")
    stopped = {request.plan.targets[number]: reason for number, reason in request.not_asked.items()}
    for line in dict.fromkeys(f"{target.name} {target.address}: {reason}" for target, reason in stopped.items()):
        say(f"not asked: {line}")
    visited: set[tuple[int, int]] = set()
    check = needs_check(request.plan, request.not_asked)
    if request.resume:
        with Journal.resume(request.dataset, request.plan) as journal:
            # Visits that every vantage point has made.
            visited = set.intersection(*(progress.visits for progress in journal.progress.values()))
            check = check and any(progress.check is None for progress in journal.progress.values())
    apart = bool(request.hosts)
    shares = manners.budget(
        request.plan, not_asked=request.not_asked, visited=visited, network_check=check, apart=apart
    )
    say(manners.budget_text(shares, request.plan, request.queries_per_s, request.per_day, apart=apart))


def consent(request: CompareRequest, *, given: bool, ask: Callable[[str], str]) -> None:
    """Obtain consent if an address is outside the machine; `OutsideError` without consent.

    `ask` receives a question and returns what the user typed.
    """
    addresses = _outside(request)
    if not addresses:
        return
    outside.obtain_consent(f"{len(addresses)} addresses are outside this machine.", "compare", given=given, ask=ask)
    outside.allow(addresses)


def _outside(request: CompareRequest) -> list[str]:
    """Addresses to query that are outside this machine; the user must consent to the queries to them."""
    asked = [target.address for number, target in enumerate(request.plan.targets) if number not in request.not_asked]
    if needs_check(request.plan, request.not_asked):
        asked.append(manners.NOBODY)
    return [address for address in dict.fromkeys(asked) if not outside.inside(address)]


def run(request: CompareRequest, *, say: Say, tell: Say) -> CompareStatus:
    """Measure, write the dataset, and print and write the result.

    Raises `CrosslayerError` if a file cannot be written.
    """
    make = Journal.resume if request.resume else Journal.create
    status, ending = CompareStatus.INTERRUPTED, "Stopped. Give the same command with --resume."
    with make(request.dataset, request.plan) as journal:
        plan = journal.plan
        if not request.resume:
            journal.locate(location_rows(request.locations, request.positions))
        total = (len(plan.targets) - len(request.not_asked)) * plan.rounds * len(plan.vantages)
        done = sum(len(progress.visits) for progress in journal.progress.values())
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(total=total, initial=done, unit="visit", smoothing=0.05, dynamic_ncols=True) as bar,
        ):
            limited = (_everywhere if request.hosts else _here)(journal, request, bar, tell)
            status = CompareStatus.COMPLETE
            if limited and not plan.every_s:
                status, ending = CompareStatus.DAY_LIMIT, f"Left out: {' '.join(limited.values())}"
        journal.export()
        comparison = analysis.of(journal.measured, request.not_asked)
    say(analysis.text(comparison, plan))
    if request.json_file is not None:
        _write(request.json_file, json.dumps(comparison.record(plan), indent=2) + "\n", tell)
    if request.report_file is not None:
        from crosslayer.resolvers.page import page  # charts take a second to import

        _write(request.report_file, page(comparison, plan), tell)
    tell(str(request.dataset))
    if status is not CompareStatus.COMPLETE:
        tell(ending)
    return status


def _here(journal: Journal, request: CompareRequest, bar: tqdm, tell: Say) -> dict[str, str]:
    """Measure from this machine; returns the operators that reached their daily limit, each with a message."""
    plan = journal.plan
    (progress,) = journal.progress.values()
    vantage = progress.vantage
    journal.describe(vantage, provenance.this_host(vantage), provenance.packages())
    path = ledger.user_file() if _outside(request) else None
    paced = ledger.QueryLedger(request.queries_per_s, request.per_day, path)
    schedule = RoundTimes(journal.first_s, plan.every_s)
    limited: dict[str, str] = {}
    with capture_here() as capture:
        visitor = Visitor(progress, paced, ca_file=request.ca_file, not_asked=request.not_asked, capture=capture)
        for round_ in range(plan.rounds):
            if journal.finished(vantage, round_):
                continue
            if not schedule.wait(round_):
                tell(f"round {round_} is missed")
                progress.add(MissedRound(round_, "nothing measured at its time", time.time()))
                journal.finish(vantage, round_)
                continue
            for visit in visitor.round(round_):
                bar.set_postfix_str(plan.targets[visit.target].label)
                bar.update()
            limited |= visitor.limited
            if not visitor.limited or plan.every_s:
                journal.finish(vantage, round_)
    return limited


def _everywhere(journal: Journal, request: CompareRequest, bar: tqdm, tell: Say) -> dict[str, str]:
    """Measure from other machines; returns the operators that reached their daily limit, each with a message."""
    from crosslayer.resolvers.everywhere import measure  # Dask takes a second to import

    return measure(
        journal,
        request.hosts,
        queries_per_s=request.queries_per_s,
        per_day=request.per_day,
        consent=tuple(_outside(request)),
        ca=request.ca_given.read_bytes() if request.ca_given else None,
        not_asked=request.not_asked.keys(),
        say=tell,
        done=bar.update,
    )


def _write(file: Path, content: str, tell: Say) -> None:
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ResolversError(
            f"cannot be written ({error.strerror})", where=str(file), next_step="Name another file."
        ) from None
    tell(str(file))
