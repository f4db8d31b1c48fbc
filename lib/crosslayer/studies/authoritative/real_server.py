"""Sends the queries of the study to a real server over a real network (Batenburg, section 4.3).

Stubs on this machine forward the queries over each transport that the server offers. There is neither an emulated link
nor our own BIND. Nothing is sent to a server outside this machine without consent.
"""

from __future__ import annotations

import contextlib
import ipaddress
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer import dns, metrics
from crosslayer.campaign import provenance, tables
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import FinishedRound, Job
from crosslayer.campaign.run import measure
from crosslayer.campaign.tables import PacedQueries
from crosslayer.dns import Protocol
from crosslayer.guest import inside
from crosslayer.resolvers import listed
from crosslayer.resolvers.run import vantage
from crosslayer.resolvers.target import ResolverTarget
from crosslayer.resolvers.visits import resolver_of, system_ca
from crosslayer.stub import Stub, StubSettings, stub_version
from crosslayer.studies.authoritative.measure import (
    STREAMS,
    Authoritative,
    LoadedQuery,
    PacedLoad,
    Stream,
    check_pace,
    check_streams,
    named,
    result,
)
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.testbed import outside

_BACKEND = "the path itself"
_TIMEOUT_S = 5.0
_QUERY_BYTES = 1_500
"""Upper estimate of the size of a query and its answer on a kept connection: IP packets in both directions, bytes."""
_CONNECTION_BYTES = 12_000
"""Upper estimate of the size of a new connection with a query and its answer: IP packets in both directions, bytes."""


@dataclass(frozen=True, slots=True)
class RealServer:
    """A real server and the plan of its measurement."""

    plan: Plan
    targets: dict[Protocol, ResolverTarget]
    """Target of each transport that the server offers."""
    ca_file: Path | None

    @property
    def address(self) -> str:
        """The server's address."""
        return next(iter(self.targets.values())).address

    @property
    def streams(self) -> list[Stream]:
        """Streams over the transports that the server offers."""
        return [stream for stream in STREAMS if stream.protocol in self.targets]

    @property
    def budget(self) -> str:
        """Number, size and rate of the queries, as text for the user."""
        options, rounds = self.plan.options, self.plan.rounds
        lasting = [stream for stream in self.streams if stream.connection == "kept"]
        kept = sum(options.queries * stream.clients(self.plan) for stream in lasting)
        new = len(lasting) + (options.queries + 1) * (len(self.streams) - len(lasting))
        total = rounds * (kept + new)
        clients = sum(stream.clients(self.plan) for stream in self.streams)
        size = rounds * (kept * _QUERY_BYTES + new * _CONNECTION_BYTES) / 1e6
        minutes = rounds * (options.queries + 1) * options.interval_ms / 60_000
        return (
            f"This sends {total} queries for '{options.name}' ({size:.1f} MB) to {self.address}, "
            f"{1000 * clients / options.interval_ms:.1f} a second, in {minutes:.1f} minutes. "
            "Queries without an answer are repeated.\n"
            "Only ask a server that is yours, or whose operator agreed to this rate."
        )


def real_server(plan: Plan, server: str, name: str, ca_file: Path | None) -> RealServer:
    """Make a `RealServer`; sends nothing. `CrosslayerError` for the first invalid argument.

    `server` is an IP address or a resolver as in `crosslayer compare`. With an IP address, all transports are measured
    on their default ports. `name` is the name in the queries.
    """
    targets = _targets(server)
    addresses = {target.address for target in targets}
    if len(addresses) > 1:
        raise CampaignError(
            f"has {len(addresses)} addresses", where=f"--server {server}", next_step="Name a list with one address."
        )
    if plan.options.proxy != "crosslayer":
        raise CampaignError(
            f"a real server is asked through our stub, not {plan.options.proxy}",
            where="plan, key 'proxy'",
            next_step="Leave it out.",
        )
    dns.build_query(dns.Question(name), Protocol.DOUDP, dns.ClientSettings())
    options = replace(plan.options, server=server, name=name)
    plan = replace(plan, links=(vantage(),), pages=plan.pages[:1], clock=inside() or "wall", options=options)
    encrypted = any(target.protocol.transport.encrypted for target in targets)
    asked = RealServer(
        plan, {target.protocol: target for target in targets}, (ca_file or system_ca()) if encrypted else None
    )
    check_streams(plan, sum(stream.clients(plan) for stream in asked.streams))
    return asked


def _targets(server: str) -> list[ResolverTarget]:
    try:
        address = str(ipaddress.ip_address(server))
    except ValueError:
        return listed.read([server]).targets
    hosts = {protocol: address if protocol.transport.encrypted else "" for protocol in SIX_TRANSPORTS}
    return [
        ResolverTarget(address, address, address, protocol, protocol.transport.port, host)
        for protocol, host in hosts.items()
    ]


def consent(server: RealServer, *, given: bool, ask: Callable[[str], str]) -> None:
    """Obtain consent to the queries if the server is outside this machine; `OutsideError` without consent.

    `given`: the user has consented on the command line. `ask` receives a question and returns what the user typed.
    """
    if outside.inside(server.address):
        return
    outside.obtain_consent(f"{server.address} is outside this machine.", "measure --server", given=given, ask=ask)
    outside.allow([server.address])


def run(server: RealServer, folder: Path, say: Callable[[str], None]) -> Path:
    """Measure the rounds that the folder lacks and write the dataset; returns the folder of the dataset."""
    return measure(server.plan, folder, Authoritative, {}, say=say, source=partial(_rounds, server))


def _rounds(server: RealServer, job: Job, _say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
    """An executor of rounds (`campaign.rounds.Executor`) that measures in this process's own network namespace."""
    query = dns.build_query(dns.Question(server.plan.options.name), Protocol.DOUDP, dns.ClientSettings())
    loaded = server.streams
    versions = provenance.packages() | {"stub": stub_version()}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stubs = [stack.enter_context(_stub(server, stream, folder / str(n))) for n, stream in enumerate(loaded)]
        near = [_socket_of(stub) for stub in stubs]
        load = stack.enter_context(PacedLoad(server.plan, loaded, near, stubs, query))
        for number, cell in job.todo:
            order = server.plan.shuffled(number, cell, [str(n) for n in range(len(loaded))])
            rtt_ms = _rtt_ms(server)
            queries = load.run(map(int, order))
            for stub in stubs:
                stub.raise_if_dead()
            check_pace([one.asked for one in queries], f"round {number}")
            common = {
                "campaign": job.campaign, "round": number, "link": cell.link, "study": server.plan.study, "page": None,
                "authority_ms": None, "path_rtt_ms": rtt_ms,
            }  # fmt: skip
            rows = [common | _row(load, loaded, one, order) for one in queries]
            failures = sum(row["error"] is not None for row in rows)
            yield FinishedRound(cell, number, {"paced_queries": rows}, failures, _BACKEND, versions)


def _row(load: PacedLoad, loaded: Sequence[Stream], query: LoadedQuery, order: Sequence[str]) -> dict[str, Any]:
    """The row of a query. `early_data_accepted` is from the stub, because there is no server log."""
    assert query.stream is not None, "no BIND of ours is asked"
    stream = loaded[query.stream]
    columns = {} if query.metrics is None else PacedQueries.taken(tables.STUB, query.metrics)
    if stream.connection == "0-rtt" and query.metrics is not None:
        columns["early_data_accepted"] = bool(query.metrics.early_data_accepted)
    row = named(stream, query.client, query.number) | {"position": order.index(str(query.stream))}
    return row | columns | result(query.asked, load.fault(query))


def _stub(server: RealServer, stream: Stream, folder: Path) -> Stub:
    far = resolver_of(server.targets[stream.protocol], server.ca_file)
    folder.mkdir()
    settings = StubSettings.towards(far, stream.protocol, stream.resumption, listen="127.0.0.1:0", timeout_s=_TIMEOUT_S)
    return Stub.start(subprocess.Popen, settings, folder)


def _socket_of(stub: Stub) -> tuple[str, int]:
    address, _, port = stub.listen.rpartition(":")
    return address, int(port)


def _rtt_ms(server: RealServer) -> float | None:
    """RTT of the path, ms, by TCP connect; None if no TCP port answers."""
    for protocol, target in server.targets.items():
        if protocol is Protocol.DOUDP or protocol.transport.over_quic:
            continue
        with contextlib.suppress(dns.DnsError):
            return dns.tcp_rtt(dns.Resolver(server.address), port=target.port, timeout_s=_TIMEOUT_S)
    return None


def summary(folder: Path) -> str:
    """Text table of mean response times and failures by transport and connection, and the RTT of the path."""
    table = Dataset.open(folder).table("paced_queries")
    every = table.collect()
    rows = [("transport", "connection", "queries", "mean, ms", "95 % interval", "failed")]
    for stream in STREAMS:
        of_stream = every.filter(protocol=stream.protocol.value, connection_mode=stream.connection)
        if of_stream.is_empty():
            continue
        failed = of_stream["error"].count()
        good = metrics.paced(table, stream.connection).filter(protocol=stream.protocol.value)
        means = metrics.moments(good, "response_ms", ["protocol"], "mean")
        if means.is_empty():
            rows.append((stream.protocol, stream.connection, "0", "-", "-", str(failed)))
            continue
        (mean,) = means.iter_rows(named=True)
        interval = "-" if mean["low"] is None else f"{mean['low']:.2f} to {mean['high']:.2f}"
        rows.append((stream.protocol, stream.connection, str(mean["n"]), f"{mean['value']:.2f}", interval, str(failed)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    rtt_ms = every.select(pl.col("path_rtt_ms").median().round(2)).item()
    return "\n".join([*lines, "" if rtt_ms is None else f"RTT of the path (TCP connect, median): {rtt_ms} ms"])
