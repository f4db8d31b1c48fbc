"""`crosslayer compare`: check the request, ask for consent, measure, print and write."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from crosslayer.dns import ClientSettings, Protocol, Question, build_query
from crosslayer.resolvers import analysis
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import Listed, read
from crosslayer.resolvers.manners import SENTENCE, budget, budget_text, check_rate, outside_addresses
from crosslayer.resolvers.visits import ComparePlan, Journal, visits
from crosslayer.testbed import outside

Say = Callable[[str], None]
_SYSTEM_CA = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """A validated call."""

    plan: ComparePlan
    left_out: list[str]
    queries_per_s: float
    ca_file: Path | None
    out: Path
    resume: bool
    json_file: Path | None


def request(
    arguments: Sequence[str],
    *,
    protocols: Sequence[Protocol],
    name: str,
    rounds: int,
    seed: int,
    timeout_s: float,
    queries_per_s: float,
    ca_file: Path | None,
    out: Path,
    resume: bool,
    json_file: Path | None,
) -> CompareRequest:
    """Validate a call before anything is sent; `CrosslayerError` for the first invalid part."""
    listed: Listed = read(arguments, protocols)
    build_query(Question(name), Protocol.DOUDP, ClientSettings())
    check_rate(queries_per_s, listed.targets)
    for file in (out, json_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise ResolversError("is in a folder that does not exist", where=str(file), next_step="Create it first.")
    encrypted = any(target.protocol.transport.encrypted for target in listed.targets)
    return CompareRequest(
        ComparePlan(name, rounds, seed, timeout_s, listed.targets),
        listed.left_out,
        queries_per_s,
        (ca_file or _system_ca()) if encrypted else None,
        out,
        resume,
        json_file,
    )


def announce(request: CompareRequest, say: Say) -> None:
    """Print what will be sent at most, and to whom."""
    for entry in request.left_out:
        say(f"left out: {entry}")
    say(budget_text(budget(request.plan.targets, request.plan.rounds), request.plan.name, request.queries_per_s))


def consent(request: CompareRequest, *, given: bool, ask: Callable[[str], str]) -> None:
    """Obtain consent to the budget where an address is outside; `ResolversError` without it.

    `ask` receives a question and returns what the user typed.
    """
    addresses = outside_addresses(request.plan.targets)
    if not addresses:
        return
    if not given and ask(f"{len(addresses)} addresses are outside this machine. Type '{SENTENCE}'").strip() != SENTENCE:
        raise ResolversError(
            "you did not consent; nothing was sent",
            where="compare",
            next_step=f"Type '{SENTENCE}', or give --i-may-send-this in a script.",
        )
    outside.allow(addresses)


def run(request: CompareRequest, *, say: Say, tell: Say) -> bool:
    """Measure, print the result and write it; returns False if it was interrupted.

    `CrosslayerError` if a file cannot be written.
    """
    make = Journal.resume if request.resume else Journal.create
    journal = make(request.out, request.plan)
    plan, whole = journal.plan, False
    try:
        total = len(plan.targets) * plan.rounds
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(total=total, initial=len(journal.visits), unit="visit", smoothing=0.05, dynamic_ncols=True) as bar,
        ):
            for visit in visits(journal, ca_file=request.ca_file, queries_per_s=request.queries_per_s):
                bar.set_postfix_str(plan.targets[visit.target].label)
                bar.update()
            whole = True
    finally:
        journal.close()
    comparison = analysis.compare(plan, journal.visits)
    say(analysis.text(comparison, plan))
    if request.json_file is not None:
        try:
            request.json_file.write_text(json.dumps(comparison.record(plan), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise ResolversError(
                f"cannot be written ({error.strerror})", where=str(request.json_file), next_step="Name another file."
            ) from None
        tell(str(request.json_file))
    tell(str(request.out))
    if not whole:
        tell("Stopped. Give the same command with --resume to continue.")
    return whole


def _system_ca() -> Path:
    """The system's file of trusted CAs; `ResolversError` if there is none."""
    for name in (ssl.get_default_verify_paths().cafile, *_SYSTEM_CA):
        if name and Path(name).is_file():
            return Path(name)
    raise ResolversError("this system has no file of trusted CAs", where="--ca", next_step="Name a PEM file with --ca.")
