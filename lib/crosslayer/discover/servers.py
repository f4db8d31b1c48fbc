"""`crosslayer servers`: start every DNS server at the far end of a link and check its behaviour."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm.auto import tqdm

from crosslayer.decode import choice
from crosslayer.discover import DiscoverError, discover, emulated, matrix, table
from crosslayer.discover.behaviour import CHECKS, ExaminedServer, ServerFinding, absent, examine
from crosslayer.discover.run import Say, in_testbed
from crosslayer.dns import DEFAULT_PORTS, ClientSettings, Protocol, Question
from crosslayer.links import Profile
from crosslayer.testbed.testbed import Testbed

SERVERS = ("coalesce", "coredns", "dnsproxy", "knot", "knot-resolver", "unbound", "dnsdist", "bind9")
"""Names of the compared servers, from `emulated.IMPLEMENTATIONS`; the first one is crosslayer's server."""
FILES = ("servers.csv", "servers.parquet", "servers.json", "servers.html")

_TIMEOUT_S = 3.0
_PACKETS_PER_S = 2000.0


@dataclass(frozen=True, slots=True)
class ServersRequest:
    """Validated arguments of a call of `crosslayer servers`."""

    kinds: tuple[emulated.Implementation, ...]
    link: Profile
    backend: str
    rounds: int
    out: Path


def request(names: Sequence[str], *, link: Profile, backend: str, rounds: int, out: Path) -> ServersRequest:
    """Validate a call and create its output folder; `DiscoverError` for the first invalid part."""
    known = {kind.name: kind for kind in emulated.IMPLEMENTATIONS if kind.name in SERVERS}
    for name in names:
        if name not in known:
            raise DiscoverError(
                f"there is no server '{name}'", where="SERVERS", next_step=choice(name, SERVERS, say="There are")
            )
    if not link.rtt_ms:
        raise DiscoverError(
            "has no delay, but the table gives times in RTT",
            where=f"link {link.name}",
            next_step="Choose another link.",
        )
    if in_testbed():
        raise DiscoverError(
            "it makes its own link", where="crosslayer servers", next_step="Give that link with --link instead."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiscoverError(
            f"cannot be made ({error.strerror})", where=str(out), next_step="Choose another folder with --out."
        ) from error
    return ServersRequest(
        tuple(known[name] for name in SERVERS if not names or name in names), link, backend, rounds, out
    )


def run(request: ServersRequest, *, as_json: bool, say: Say, tell: Say) -> None:
    """Start the servers, check each of them, print the table and write `FILES`.

    `say` receives the result, and `tell` receives notes, e.g. on written files. `CrosslayerError` if the testbed is
    unavailable or a file cannot be written.
    """
    began_s = time.time()
    with contextlib.ExitStack() as stack:
        testbed = stack.enter_context(Testbed(request.backend if request.link.shaped else "plain"))
        check = testbed.set_link(request.link)
        if not check.passed or check.rtt_ms is None:
            tell(f"crosslayer: the link is not what its profile says: {check.verdict}")
        population = stack.enter_context(emulated.population(request.kinds))
        missing = [absent(one.name, f"{one.why}. {one.next_step}") for one in population.absent]
        findings = _examine_all(request, population, check.rtt_ms or request.link.rtt_ms)
    order = [kind.name for kind in request.kinds]
    findings = sorted([*findings, *missing], key=lambda finding: order.index(finding.server))
    results = matrix.interop(findings, request.kinds, began_s=began_s, ended_s=time.time())
    say(json.dumps(results, indent=2) if as_json else matrix.text(findings))
    about = f"{request.link.title}, RTT {check.rtt_ms or request.link.rtt_ms:.2f} ms"
    _write(request.out, findings, json.dumps(results, indent=1) + "\n", matrix.page(findings, about))
    for name in FILES:
        tell(str(request.out / name))


def _examine_all(request: ServersRequest, population: emulated.Population, rtt_ms: float) -> list[ServerFinding]:
    """Findings of every running server."""
    hosts = population.hosts([])
    question = Question(emulated.NAME)
    versions = {kind.name: kind.version() for kind in request.kinds if kind.name in population.addresses}
    spoken = {
        rows[0].target: {
            Protocol(row.transport): row for row in rows if row.port == DEFAULT_PORTS[Protocol(row.transport)]
        }
        for rows in discover(
            hosts, question=question, packets_per_s=_PACKETS_PER_S, timeout_s=_TIMEOUT_S, unanswered=True
        )
    }
    findings: list[ServerFinding] = []
    each = sum(len(check.transports) for check in CHECKS)
    with tqdm(total=each * len(hosts), unit="check", smoothing=0.05, dynamic_ncols=True) as bar:
        for host in hosts:
            bar.set_postfix_str(host.target)
            server = ExaminedServer(
                host.target,
                host.address,
                spoken[host.target],
                question,
                rtt_ms,
                request.rounds,
                ClientSettings(timeout_s=_TIMEOUT_S),
            )
            findings += examine(server, versions[host.target], bar.update)
    return findings


def _write(folder: Path, findings: list[ServerFinding], results: str, page: str) -> None:
    for name in FILES[:2]:
        table.write(findings, folder / name, ServerFinding, "servers")
    try:
        for name, text in zip(FILES[2:], (results, page), strict=True):
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiscoverError(
            f"cannot be written ({error.strerror})", where=str(folder), next_step="Choose another folder with --out."
        ) from error
