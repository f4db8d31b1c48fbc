"""`crosslayer discover`: validate the request, probe the targets, print and write the results."""

from __future__ import annotations

import contextlib
import json
import math
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm.auto import tqdm

from crosslayer.discover import (
    DiscoverError,
    ProbedHost,
    Support,
    Target,
    checks,
    discover,
    emulated,
    parse_targets,
    read_targets,
    table,
)
from crosslayer.discover.pace import Pace
from crosslayer.dns import ClientSettings, Protocol, Question, build_query
from crosslayer.testbed import namespaces, network, outside, stop_list
from crosslayer.testbed.testbed import Testbed

Say = Callable[[str], None]

_WRITE_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class DiscoverRequest:
    """Validated arguments of a call of `crosslayer discover`."""

    targets: list[Target]
    outside: bool
    packets_per_s: float
    timeout_s: float
    question: Question
    out: Path | None


def request(
    arguments: Sequence[str],
    *,
    file: Path | None,
    outside: bool,
    packets_per_s: float,
    timeout_s: float,
    name: str,
    out: Path | None,
) -> DiscoverRequest:
    """Validate a call before anything is sent; `CrosslayerError` for the first invalid part."""
    targets = list(dict.fromkeys([*parse_targets(arguments), *(read_targets(file) if file else [])]))
    if not targets and (outside or file):
        raise DiscoverError(
            "there is no target", where=str(file or "--allow-external"), next_step="List addresses or names."
        )
    if outside and in_testbed():
        raise DiscoverError(
            "hosts outside cannot be reached from a link",
            where="--allow-external",
            next_step="Run it without `crosslayer link`, or without --allow-external.",
        )
    Pace(packets_per_s)
    if not (timeout_s > 0 and math.isfinite(timeout_s)):
        raise DiscoverError(f"{timeout_s:g} s is not a timeout", where="--timeout", next_step="Give a number above 0.")
    question = Question(name)
    build_query(question, Protocol.DOUDP, ClientSettings())
    if out is not None:
        table.check_path(out)
    return DiscoverRequest(targets, outside, packets_per_s, timeout_s, question, out)


def in_testbed() -> bool:
    """Whether this process is in the client's namespace of a link, where `crosslayer link` runs its command."""
    return namespaces.in_namespace(network.CLIENT) and outside.private()


def run(request: DiscoverRequest, *, as_json: bool, say: Say, tell: Say) -> bool:
    """Probe the targets, print the results, and write them if a file is given.

    `say` receives the result, and `tell` receives notes, e.g. on missing resolvers and written files. Returns False if
    the user interrupted it; the results so far are then printed and written. `CrosslayerError` if the testbed is
    unavailable, a target is not in it, or the file cannot be written.
    """
    absent: list[emulated.Absent] = []
    with contextlib.ExitStack() as stack:
        if request.outside:
            hosts = _not_stopped(resolve(request.targets), tell)
            outside.allow(host.address for host in hosts)
        else:
            if not in_testbed():
                stack.enter_context(Testbed("plain"))
            population = stack.enter_context(emulated.population())
            absent = population.absent
            for missing in absent:
                tell(f"not emulated: {missing.name}: {missing.why}. {missing.next_step}")
            hosts = population.hosts(request.targets)
        rows, whole = _probe_hosts(request, hosts)
    if as_json:
        result = {"outside": request.outside, "absent": [asdict(a) for a in absent], "support": table.records(rows)}
        say(json.dumps(result, indent=2))
    else:
        say(table.text(rows))
    if request.out is not None:
        tell(str(request.out))
    if not whole:
        tell(f"Stopped: {len({(row.target, row.address) for row in rows})} of {len(hosts)} addresses were examined.")
    return whole


def _probe_hosts(request: DiscoverRequest, hosts: list[ProbedHost]) -> tuple[list[Support], bool]:
    """Probe the hosts; returns their rows in order, and whether all were probed.

    The output file is updated meanwhile.
    """
    rows_by_host: dict[ProbedHost, list[Support]] = {}
    written_s = -math.inf
    try:
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(total=checks(hosts), unit="check", smoothing=0.05, dynamic_ncols=True) as bar,
            contextlib.closing(
                discover(
                    hosts,
                    question=request.question,
                    packets_per_s=request.packets_per_s,
                    timeout_s=request.timeout_s,
                    progress=bar.update,
                )
            ) as finding,
        ):
            for rows in finding:
                rows_by_host[ProbedHost(rows[0].target, rows[0].address)] = rows
                bar.set_postfix_str(rows[0].target)
                if request.out is not None and time.monotonic() - written_s > _WRITE_EVERY_S:
                    table.write(_in_order(hosts, rows_by_host), request.out)
                    written_s = time.monotonic()
    finally:
        if request.out is not None:
            table.write(_in_order(hosts, rows_by_host), request.out)
    return _in_order(hosts, rows_by_host), len(rows_by_host) == len(hosts)


def _not_stopped(hosts: list[ProbedHost], tell: Say) -> list[ProbedHost]:
    """The hosts that are not on the stop list; `tell` receives a line for each host that is."""
    stops = stop_list.load()
    reasons = {host: stops.reason(host.address, host.target) for host in hosts}
    for host, reason in reasons.items():
        if reason is not None:
            tell(f"not asked: {host.target} {host.address}: stop list: {reason}")
    return [host for host, reason in reasons.items() if reason is None]


def _in_order(hosts: list[ProbedHost], rows_by_host: dict[ProbedHost, list[Support]]) -> list[Support]:
    return [row for host in hosts for row in rows_by_host.get(host, [])]


def resolve(targets: Sequence[Target]) -> list[ProbedHost]:
    """Look up external targets; returns a host for each address. `DiscoverError` for a name without an address."""
    hosts: dict[ProbedHost, None] = {}
    for target in targets:
        if target.address:
            hosts[ProbedHost(target.text, target.address)] = None
            continue
        try:
            known = socket.getaddrinfo(target.text, None, type=socket.SOCK_DGRAM)
        except OSError as error:
            raise DiscoverError(
                f"has no address ({error.strerror})", where=target.text, next_step="Check the name, or leave it out."
            ) from None
        for *_rest, address in known:
            hosts[ProbedHost(target.text, str(address[0]))] = None
    return list(hosts)
