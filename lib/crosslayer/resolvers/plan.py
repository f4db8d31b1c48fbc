"""What a comparison measures, and what it measured, in one file that is whole after every visit."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from crosslayer.decode import checked
from crosslayer.dns import Protocol
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import ResolverTarget

LEFT_ALONE_AFTER = 3
"""A target that fails in so many visits in succession is not asked again, nor an address that never answers."""
SILENT = "timeout"
"""Error of a query without an answer."""


@dataclass(frozen=True, slots=True)
class TargetVisit:
    """One visit of a target: a row of the file. Times are in ms, None where they were not measured."""

    round: int
    target: int
    """Number of the target in the plan, from 0."""
    started_s: float
    """Start, seconds since the Unix epoch."""
    first_ms: float | None = None
    """First query on a new connection without a ticket, from its first packet to the answer."""
    handshake_ms: float | None = None
    """The handshake of that connection; 0 for DoUDP."""
    next_ms: float | None = None
    """Next query on the same connection; None for DoUDP, which has none."""
    resumed_ms: float | None = None
    """Query on a new connection with a session ticket."""
    miss_ms: float | None = None
    """Query on the first connection for a name that nobody asked for before; None without a zone."""
    rtt_ms: float | None = None
    """RTT of the path: TCP connect."""
    site: str | None = None
    """Name server identifier of the server that answered (RFC 5001)."""
    error: str | None = None
    """Why the first query failed; None if it succeeded."""
    next_error: str | None = None
    miss_error: str | None = None
    resumed_error: str | None = None


@dataclass(frozen=True, slots=True)
class OperatorStop:
    """An operator that asked to stop: a row of the file. It is left alone for the rest of the comparison."""

    operator: str
    reason: str
    stopped_s: float
    """Seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class NetworkCheck:
    """A query over UDP to an address where nobody is: a row of the file."""

    address: str
    intercepted: bool
    """It was answered."""
    site: str | None
    """Name server identifier of the answer."""
    checked_s: float
    """Seconds since the Unix epoch."""


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """What a comparison measures: the first row of its file."""

    name: str
    """Domain name of the queries (type A)."""
    rounds: int
    seed: int
    """Seed of the order in each round."""
    timeout_s: float
    targets: list[ResolverTarget]
    resumed: bool = False
    """Resumed connections are measured too."""
    zone: str = ""
    """Zone in which every name exists: misses are measured with names below it; empty: they are not."""

    def order(self, round_: int) -> list[int]:
        """Numbers of the targets in the order of a round."""
        order = list(range(len(self.targets)))
        random.Random(f"{self.seed} {round_}").shuffle(order)
        return order


@dataclass(slots=True)
class Journal:
    """The JSON Lines file of a comparison: its plan and its rows, each written as soon as it exists."""

    plan: ComparePlan
    visits: list[TargetVisit]
    _stream: TextIO
    stops: dict[str, str] = field(default_factory=dict)
    """Operators that asked to stop, each with the reason."""
    check: NetworkCheck | None = None

    @classmethod
    def create(cls, path: Path, plan: ComparePlan) -> Journal:
        """A new file; `ResolversError` if it exists or cannot be written."""
        try:
            stream = path.open("x", encoding="utf-8")
        except FileExistsError:
            raise ResolversError(
                "exists already",
                where=str(path),
                next_step="Continue it with --resume, or name another file with --visits.",
            ) from None
        except OSError as error:
            raise _unusable(path, error) from None
        journal = cls(plan, [], stream)
        journal._write(asdict(plan))
        return journal

    @classmethod
    def resume(cls, path: Path, plan: ComparePlan) -> Journal:
        """Continue a file, which has the same plan except for its rounds and its seed.

        An incomplete last line is removed. `ResolversError` if the file is missing or is of another comparison.
        """
        kept, visits, stops, check, size = read_file(path)
        same = replace(plan, seed=kept.seed)
        if replace(kept, rounds=plan.rounds) != same or any(not 0 <= v.target < len(plan.targets) for v in visits):
            raise ResolversError(
                "is of another comparison (resolvers, transports, --all, --name or --timeout)",
                where=str(path),
                next_step="Give the same arguments as before, or name another file with --visits.",
            )
        try:
            if size < path.stat().st_size:
                os.truncate(path, size)
            stream = path.open("a", encoding="utf-8")
        except OSError as error:
            raise _unusable(path, error) from None
        return cls(same, visits, stream, stops, check)

    def add(self, visit: TargetVisit) -> None:
        """Write a visit; it is in the file when this returns, also if the process is killed afterwards."""
        self._write(asdict(visit))
        self.visits.append(visit)

    def stop(self, row: OperatorStop) -> None:
        """Write that an operator asked to stop."""
        self._write(asdict(row))
        self.stops[row.operator] = row.reason

    def add_check(self, row: NetworkCheck) -> None:
        """Write the check of the network."""
        self._write(asdict(row))
        self.check = row

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def visited(self) -> set[tuple[int, int]]:
        """Round and target of every visit."""
        return {(visit.round, visit.target) for visit in self.visits}

    def left_alone(self, target: int) -> bool:
        """Whether a target is not asked again.

        Its operator asked to stop, its latest visits failed, or nothing at its address ever answered.
        """
        if self.plan.targets[target].operator in self.stops:
            return True
        errors = [visit.error for visit in self.visits if visit.target == target][-LEFT_ALONE_AFTER:]
        if len(errors) == LEFT_ALONE_AFTER and None not in errors:
            return True
        return self._silent(self.plan.targets[target].address)

    def _silent(self, address: str) -> bool:
        """Whether an address answered no visit, over UDP and TCP as far as it is listed with them."""
        listed = {
            number: target.protocol.transport.over_quic or target.protocol is Protocol.DOUDP
            for number, target in enumerate(self.plan.targets)
            if target.address == address
        }
        visits = [visit for visit in self.visits if visit.target in listed]
        tried = {listed[visit.target] for visit in visits}
        return (
            len(visits) >= LEFT_ALONE_AFTER
            and tried == set(listed.values())
            and all(visit.error == SILENT for visit in visits)
        )

    def _write(self, row: dict[str, Any]) -> None:
        self._stream.write(json.dumps(row) + "\n")
        self._stream.flush()


def stopped_targets(plan: ComparePlan, stops: Mapping[str, str]) -> dict[int, str]:
    """Targets whose operator asked to stop, by number, each with the reason."""
    return {
        number: f"left alone: {stops[target.operator]}"
        for number, target in enumerate(plan.targets)
        if target.operator in stops
    }


def read_file(path: Path) -> tuple[ComparePlan, list[TargetVisit], dict[str, str], NetworkCheck | None, int]:
    """Plan, visits, stops, check of the network, and the size of the complete lines of a file."""
    try:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        first, *rest = map(json.loads, whole.decode("utf-8").splitlines())
    except OSError as error:
        raise _unusable(path, error) from None
    except ValueError:
        raise ResolversError(
            "is not a file of `crosslayer compare`", where=str(path), next_step="Name the file of --visits."
        ) from None
    plan = checked(first, ComparePlan, where=f"{path}, line 1", error=ResolversError, json_file=True)
    visits: list[TargetVisit] = []
    stops: dict[str, str] = {}
    check: NetworkCheck | None = None
    for number, row in enumerate(rest, start=2):
        where = f"{path}, line {number}"
        if isinstance(row, dict) and "operator" in row:
            stop = checked(row, OperatorStop, where=where, error=ResolversError, json_file=True)
            stops[stop.operator] = stop.reason
        elif isinstance(row, dict) and "intercepted" in row:
            check = checked(row, NetworkCheck, where=where, error=ResolversError, json_file=True)
        else:
            visits.append(checked(row, TargetVisit, where=where, error=ResolversError, json_file=True))
    return plan, visits, stops, check, len(whole)


def _unusable(path: Path, error: OSError) -> ResolversError:
    return ResolversError(
        f"cannot be used ({error.strerror})", where=str(path), next_step="Name another file with --visits."
    )
