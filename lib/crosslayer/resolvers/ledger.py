"""Limit the queries to each operator: rate, daily limit and pauses.

For operators outside the machine, the counts are in a file of the user. They therefore persist from run to run, and
runs at the same time share them. Each change of a count rewrites the whole file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crosslayer import resources
from crosslayer.decode import checked
from crosslayer.resolvers.errors import ResolversError

FILE = "operators.json"
"""Name of the file with the states of operators, in the user's state folder."""
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 300.0
SLOWING = ("http status 429", "http status 503", "rcode REFUSED", "timeout")
"""Errors after which an operator gets a pause."""
FORBIDDING = ("http status 403", "http status 451")
"""Errors by which an operator asks to stop."""
REFUSALS_UNTIL_STOP = 3
"""Number of consecutive refused queries, each followed by a pause, that also count as a request to stop."""
_PROHIBITED = 18
"""Code of the extended DNS error by which an operator asks to stop (RFC 8914, section 4.19).

The error Blocked (15) is no such request, because it concerns only the name.
"""
_REFUSED = "rcode REFUSED"


class DayLimitError(ResolversError):
    """An operator reached its daily limit of queries."""


@dataclass(slots=True)
class OperatorState:
    """Queries and pauses of one operator."""

    day: str = ""
    """UTC date of the day to which the number `queries` refers."""
    queries: int = 0
    """Number of queries on that day."""
    ready_s: float = 0.0
    """Unix time before which no further query may leave."""
    pause_s: float = 0.0
    """Latest pause; 0 after a successful query."""
    refusals: int = 0
    """Number of consecutive refused queries."""
    burst_s: float = 0.0
    """Length of the latest pause that `QueryLedger.charge` set, seconds; 0 if it was never called."""


@dataclass(frozen=True, slots=True)
class _StateFile:
    operators: dict[str, OperatorState] = field(default_factory=dict)


def user_file() -> Path:
    """The user's file with the states of operators outside the machine."""
    return resources.user_folder("state") / FILE


class QueryLedger:
    """Counts and paces the queries to each operator.

    Parameters
    ----------
    queries_per_s, per_day
        Limits for each operator. Days are in UTC.
    path
        File of the states, created if it is missing. With None, the states are in memory only. If the file cannot be
        used, `ResolversError` is raised, so that no query is sent.
    """

    def __init__(self, queries_per_s: float, per_day: int, path: Path | None) -> None:
        self.per_day = per_day
        self._interval_s = 1 / queries_per_s
        self._path = path
        self._kept = _StateFile()
        if path is not None:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise _unusable(path, error) from None
            with self._states():
                pass

    def left(self, operator: str) -> int:
        """Number of queries that the operator may still get today."""
        with self._states() as states:
            return self.per_day - _today(states.operators.get(operator) or OperatorState()).queries

    def take(self, operator: str) -> float:
        """Count a query and return 0 if it may leave now; otherwise return the Unix time, s, of the next attempt.

        Raises `DayLimitError` if the daily limit is reached.
        """
        with self._states() as states:
            state = _today(states.operators.setdefault(operator, OperatorState()))
            if state.queries >= self.per_day:
                raise DayLimitError(
                    f"got {state.queries} queries on {state.day} (UTC), its limit for a day",
                    where=operator,
                    next_step="Continue tomorrow with --resume.",
                )
            now = time.time()
            # If the clock was set back, the comparison must not wait longer than the latest pause.
            state.ready_s = min(state.ready_s, now + max(state.pause_s, state.burst_s, self._interval_s))
            if state.ready_s > now:
                return state.ready_s
            state.ready_s = now + self._interval_s
            state.queries += 1
            return 0.0

    def charge(self, operator: str, queries: int) -> None:
        """Count queries that another program has sent without the pauses of `take`.

        The next query waits for the time that these queries would have taken at the allowed rate.
        """
        with self._states() as states:
            state = _today(states.operators.setdefault(operator, OperatorState()))
            state.queries += queries
            now = time.time()
            state.ready_s = max(state.ready_s, now) + queries * self._interval_s
            state.burst_s = state.ready_s - now

    def heed(self, operator: str, error: str | None, extended_error: int | None = None) -> str | None:
        """Apply the outcome of a query; returns why the operator must not be queried again, else None.

        After an error of `SLOWING`, the operator gets a pause. Each pause is twice the previous one, from
        `FIRST_PAUSE_S` to `LONGEST_PAUSE_S`, until a query succeeds.
        """
        with self._states() as states:
            state = states.operators.setdefault(operator, OperatorState())
            if error is None:
                state.pause_s, state.refusals = 0.0, 0
            elif error.startswith(SLOWING):
                state.pause_s = min(max(2 * state.pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
                state.ready_s = max(state.ready_s, time.time() + state.pause_s)
                state.refusals = state.refusals + 1 if error.startswith(_REFUSED) else 0
            if extended_error == _PROHIBITED:
                return "it answered with the extended error Prohibited"
            if error is not None and error.startswith(FORBIDDING):
                return f"it answered with {error}"
            if state.refusals >= REFUSALS_UNTIL_STOP:
                state.refusals = 0
                return f"it refused {REFUSALS_UNTIL_STOP} queries in succession, with pauses between them"
            return None

    @contextlib.contextmanager
    def _states(self) -> Iterator[_StateFile]:
        """Yield the states under a lock, and write them at the end if they changed."""
        if self._path is None:
            yield self._kept
            return
        try:
            with self._path.with_suffix(".lock").open("w", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
                states = self._read(before)
                yield states
                after = json.dumps(asdict(states), indent=1) + "\n"
                if after != before:
                    new = self._path.with_suffix(".new")
                    new.write_text(after, encoding="utf-8")
                    new.replace(self._path)
        except OSError as error:
            raise _unusable(self._path, error) from None

    def _read(self, text: str) -> _StateFile:
        assert self._path is not None
        try:
            values = json.loads(text or "{}")
        except ValueError as error:
            raise ResolversError(
                f"is not JSON ({error})",
                where=str(self._path),
                next_step="Remove the file tomorrow (UTC): today's counts are lost, so nothing is sent today.",
            ) from None
        return checked(values, _StateFile, where=str(self._path), error=ResolversError, json_file=True)


def _today(state: OperatorState) -> OperatorState:
    """Reset the count of queries if a new day (UTC) has begun; returns the state."""
    today = time.strftime("%Y-%m-%d", time.gmtime(time.time()))
    if state.day != today:
        state.day, state.queries = today, 0
    return state


def _unusable(path: Path, error: OSError) -> ResolversError:
    return ResolversError(
        f"cannot be used ({error.strerror}), and without it nothing is sent",
        where=str(path),
        next_step="Make the folder writable, or name another one with XDG_STATE_HOME.",
    )
