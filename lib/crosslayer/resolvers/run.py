"""`crosslayer compare`: check the request, ask for consent, measure, print and write."""

from __future__ import annotations

import contextlib
import json
import ssl
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
from crosslayer.resolvers.plan import HERE, ComparePlan
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.resolvers.visits import Visitor, needs_check
from crosslayer.testbed import outside
from crosslayer.vocabulary import Role

Say = Callable[[str], None]
_SYSTEM_CA = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


class CompareStatus(IntEnum):
    """Exit status of a comparison."""

    COMPLETE = 0
    DAY_LIMIT = 75
    """It continues on another day (EX_TEMPFAIL of sysexits.h)."""
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """A validated call."""

    plan: ComparePlan
    left_out: list[str]
    """Entries of lists that are not measured, each with its reason."""
    not_asked: Mapping[int, str]
    """Targets of the stop list by number, each with its reason."""
    queries_per_s: float
    per_day: int
    ca_file: Path | None
    dataset: Path
    resume: bool
    json_file: Path | None
    report_file: Path | None


def request(
    arguments: Sequence[str],
    *,
    protocols: Sequence[Protocol] = (),
    everything: bool = False,
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
) -> CompareRequest:
    """Validate a call before anything is sent; `CrosslayerError` for the first invalid part.

    Without `everything`, the first address of each resolver is measured, DoTCP only where `protocols` has it, and no
    resumed connection. With a `zone`, misses are measured by queries for new names below it. With `self_check`, the
    first resolver is measured twice, as if it were two (A/A).
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
    encrypted = any(target.protocol.transport.encrypted for target in targets)
    return CompareRequest(
        ComparePlan(name, rounds, seed, timeout_s, targets, everything, zone, (vantage(),)),
        listed.left_out,
        manners.stopped(targets),
        queries_per_s,
        per_day,
        (ca_file or _system_ca()) if encrypted else None,
        dataset,
        resume,
        json_file,
        report_file,
    )


def vantage() -> str:
    """Name of this vantage point: that of the machine in campaigns."""
    return provenance.this_host("").name or HERE


def _usual(targets: Sequence[ResolverTarget], protocols: Sequence[Protocol]) -> list[ResolverTarget]:
    """The first address of each resolver, and no DoTCP unless it is asked for or the only transport."""
    first: dict[str, str] = {}
    kept = [target for target in targets if first.setdefault(target.name, target.address) == target.address]
    others = {target.name for target in kept if target.protocol is not Protocol.DOTCP}
    return [
        target for target in kept if protocols or target.protocol is not Protocol.DOTCP or target.name not in others
    ]


def announce(request: CompareRequest, say: Say) -> None:
    """Print what will be sent at most, and to whom."""
    for entry in request.left_out:
        say(f"left out: {entry}")
    stopped = {request.plan.targets[number]: reason for number, reason in request.not_asked.items()}
    for line in dict.fromkeys(f"{target.name} {target.address}: {reason}" for target, reason in stopped.items()):
        say(f"not asked: {line}")
    visited: set[tuple[int, int]] = set()
    check = needs_check(request.plan, request.not_asked)
    if request.resume:
        with Journal.resume(request.dataset, request.plan) as journal:
            (progress,) = journal.progress.values()
            visited = {(visit.round, visit.target) for visit in journal.measured.visits}
            check = check and progress.check is None
    shares = manners.budget(request.plan, not_asked=request.not_asked, visited=visited, network_check=check)
    say(manners.budget_text(shares, request.plan.name, request.queries_per_s, request.per_day))


def consent(request: CompareRequest, *, given: bool, ask: Callable[[str], str]) -> None:
    """Obtain consent to the budget where an address is outside; `ResolversError` without it.

    `ask` receives a question and returns what the user typed.
    """
    addresses = _outside(request)
    if not addresses:
        return
    question = f"{len(addresses)} addresses are outside this machine. Type '{outside.SENTENCE}'"
    if not given and ask(question).strip() != outside.SENTENCE:
        raise ResolversError(
            "you did not consent; nothing was sent",
            where="compare",
            next_step=f"Type '{outside.SENTENCE}', or give --i-may-send-this in a script.",
        )
    outside.allow(addresses)


def _outside(request: CompareRequest) -> list[str]:
    """Addresses that are asked and need the user's consent."""
    asked = [target.address for number, target in enumerate(request.plan.targets) if number not in request.not_asked]
    if needs_check(request.plan, request.not_asked):
        asked.append(manners.NOBODY)
    return [address for address in dict.fromkeys(asked) if not outside.inside(address)]


def run(request: CompareRequest, *, say: Say, tell: Say) -> CompareStatus:
    """Measure, write the dataset, print the result and write it.

    `CrosslayerError` if a file cannot be written.
    """
    path = ledger.user_file() if _outside(request) else None
    paced = ledger.QueryLedger(request.queries_per_s, request.per_day, path)
    make = Journal.resume if request.resume else Journal.create
    status, ending = CompareStatus.INTERRUPTED, "Stopped. Give the same command with --resume."
    with make(request.dataset, request.plan) as journal:
        plan = journal.plan
        (progress,) = journal.progress.values()
        journal.describe(progress.vantage, provenance.this_host(progress.vantage), provenance.packages())
        visitor = Visitor(progress, paced, ca_file=request.ca_file, not_asked=request.not_asked)
        total = (len(plan.targets) - len(request.not_asked)) * plan.rounds
        done = len(journal.measured.visits)
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(total=total, initial=done, unit="visit", smoothing=0.05, dynamic_ncols=True) as bar,
        ):
            limited: dict[str, str] = {}
            for round_ in range(plan.rounds):
                for visit in visitor.round(round_):
                    bar.set_postfix_str(plan.targets[visit.target].label)
                    bar.update()
                limited |= visitor.limited
                if not visitor.limited:
                    journal.finish(progress.vantage, round_)
            status = CompareStatus.COMPLETE
            if limited:
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


def _write(file: Path, content: str, tell: Say) -> None:
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ResolversError(
            f"cannot be written ({error.strerror})", where=str(file), next_step="Name another file."
        ) from None
    tell(str(file))


def _system_ca() -> Path:
    """The system's file of trusted CAs; `ResolversError` if there is none."""
    for name in (ssl.get_default_verify_paths().cafile, *_SYSTEM_CA):
        if name and Path(name).is_file():
            return Path(name)
    raise ResolversError("this system has no file of trusted CAs", where="--ca", next_step="Name a PEM file with --ca.")
