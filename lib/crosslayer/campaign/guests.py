"""An executor that measures the rounds of a plan in parallel guests, which share nothing."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import selectors
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Final

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.guest_main import COMMAND, from_json
from crosslayer.campaign.plan import RoundBatch
from crosslayer.campaign.rounds import Executor, FinishedRound, Job, describe
from crosslayer.guest import LOOK_S, Clock, Guest, GuestDied, find_kernel

_KEPT: Final = frozenset({"HOME", "LANG", "PATH", "TZ"})
_KEPT_PREFIXES: Final = ("CROSSLAYER_", "FONTCONFIG_", "LC_", "LD_", "NIX_", "PYTHON", "SSL_CERT_", "XDG_")
_NO_RANDOM_INSTRUCTIONS: Final = "~0x4000000000000010:~0x40000"
"""Value of OPENSSL_ia32cap for OpenSSL and BoringSSL: do not use RDRAND, RDSEED and the time stamp counter.

The CPU executes these instructions without the guest's kernel, so the guest cannot determine their results.
"""


def guest_executor(clock: Clock, guests: int) -> Executor:
    """Make an executor that measures in guests: in virtual time one guest for each task of the plan, else one guest.

    In virtual time, on one machine, the rows depend only on the plan (`Plan.tasks`), to the last bit. If a guest dies,
    another guest measures the unfinished round again, with other random numbers.

    Parameters
    ----------
    clock
        Clock of the guests.
    guests
        Maximum number of guests at a time; one in real time, since several would disturb each other.
    """

    def source(job: Job, say: Callable[[str], None]) -> Generator[FinishedRound, None, None]:
        return _measured(job, say, clock, guests)

    return source


def _measured(job: Job, say: Callable[[str], None], clock: Clock, guests: int) -> Generator[FinishedRound, None, None]:
    kernel = find_kernel().as_versions()
    tasks = deque(left_of(job) if clock == "virtual" else [job.todo])
    cells = len({cell for _, cell in job.todo})
    say(f"Measuring in guests by the {clock} clock: {cells} cells, {len(job.todo)} rounds of a cell to go.")
    cores = sorted(os.sched_getaffinity(0))
    first = {cell.link: task for task in reversed(tasks) for _, cell in task}
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
        slots: list[_GuestSlot] = []
        for number in range(min(guests, len(tasks))):
            core = cores[number % len(cores)] if clock == "virtual" else None
            slots.append(_GuestSlot(job, tasks, first, clock, core, ready))
            stack.callback(slots[-1].close)
        look = time.monotonic() + LOOK_S
        while ready.get_map():
            if time.monotonic() >= look:
                for slot in slots:
                    slot.check(say)
                look = time.monotonic() + LOOK_S
            for key, _events in ready.select(LOOK_S)[:1]:  # one only: its handler may close the others
                for part in key.data(say):
                    if part.cell is None:
                        for row in part.rows["link_checks"]:
                            say(describe(row))
                    yield replace(part, versions=part.versions | kernel)


def left_of(job: Job) -> list[RoundBatch]:
    """Unfinished rounds of each task of the plan; finished tasks are left out."""
    todo = set(job.todo)
    left = ([entry for entry in task if entry in todo] for task in job.plan.tasks())
    return [task for task in left if task]


def _environment() -> dict[str, str]:
    """Environment of a guest, without the variables that differ between the user's shells and sessions."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    return kept | {"OPENSSL_ia32cap": _NO_RANDOM_INSTRUCTIONS}


def _packed(job: Job) -> bytes:
    """Pickle a job so that the bytes depend only on its values.

    An object that occurs repeatedly is written each time, not as a reference to its first occurrence.
    """
    packed = io.BytesIO()
    pickler = pickle.Pickler(packed)
    pickler.fast = True
    pickler.dump(job)
    return packed.getvalue()


class _GuestSlot:
    """Runs guests one after the other, each with the next task."""

    def __init__(
        self,
        job: Job,
        tasks: deque[RoundBatch],
        first: dict[str, RoundBatch],
        clock: Clock,
        core: int | None,
        ready: selectors.BaseSelector,
    ) -> None:
        self._job, self._tasks, self._first = job, tasks, first
        self._clock, self._core, self._ready = clock, core, ready
        self._measured = False
        self._next()

    def _next(self) -> None:
        self._task = self._tasks.popleft()
        self._todo = list(self._task)
        self._failed_attempts = 0
        self._start()

    def _start(self) -> None:
        self._left = len(self._todo)
        # The progress of the campaign is left out: the events in a guest must depend on its task only.
        given = _packed(replace(self._job, todo=self._todo, versions={}, quiet=True))
        self._lines = {b"1": bytearray(), b"2": bytearray()}
        self._machine = Guest(
            COMMAND,
            clock=self._clock,
            core=self._core,
            environment=_environment(),
            standard_input=given,
            seed=self._job.plan.seed_of(self._todo),
        )
        self._ready.register(self._machine.out, selectors.EVENT_READ, self._read)
        self._ready.register(self._machine.log, selectors.EVENT_READ, self._read_log)

    def _read_log(self, say: Callable[[str], None]) -> list[FinishedRound]:
        if not self._machine.read_log():
            self._ready.unregister(self._machine.log)
        return []

    def _read(self, say: Callable[[str], None]) -> list[FinishedRound]:
        """Read the guest's output; returns its finished parts that the campaign stores."""
        parts: list[FinishedRound] = []
        try:
            for kind, payload in self._machine.frames():
                if kind in self._lines:
                    self._lines[kind] += payload
                    if b"\n" not in payload:  # a round with its captures is a line of megabytes
                        continue
                    *lines, self._lines[kind] = self._lines[kind].split(b"\n")
                    if kind == b"1":
                        for part in map(from_json, lines):
                            self._finish(part)
                            if part.cell is not None or self._is_kept(part):
                                parts.append(part)
                    else:
                        for line in lines:
                            say(line.decode(errors="replace"))
                elif kind == b"X":
                    self.close()
                    self._again(f"the guest's command ended with status {payload.decode()}", say, None)
        except GuestDied as died:
            self.close()
            self._again(str(died), say, died)
        return parts

    def check(self, say: Callable[[str], None]) -> None:
        """Replace the guest if a program in it can no longer map memory, because such a guest never ends."""
        if self._todo:
            try:
                self._machine.check_programs()
            except GuestDied as died:
                self.close()
                self._again(str(died), say, died)

    def _again(self, why: str, say: Callable[[str], None], fault: GuestDied | None) -> None:
        """Start another guest for the rest of the task, or for the next task if this task is finished.

        Raises
        ------
        GuestDied
            If two guests in a row died without finishing a round, and no guest of this slot has ever finished a round.
        CampaignError
            If two guests in a row died without finishing a round, but an earlier guest of this slot has finished a
            round. Also if the command in a guest ended before the guest finished a round.
        """
        if not self._todo:
            if self._tasks:
                self._next()
            return
        self._failed_attempts = self._failed_attempts + 1 if self._left == len(self._todo) else 0
        most = 0 if fault is None else 1
        if self._failed_attempts > most:
            if fault is not None and not self._measured:
                raise fault
            raise CampaignError(
                f"a round cannot be measured: {why}",
                where=self._job.campaign,
                next_step="Correct the fault and give the same command again: it resumes the campaign.",
            ) from fault
        say(f"{why} Another guest measures the round in flight again.")
        self._start()

    def _is_kept(self, checks: FinishedRound) -> bool:
        """Whether the campaign stores the link checks `checks`.

        It stores the checks that the first task of a link makes, and all failed checks.
        """
        rows = checks.rows["link_checks"]
        return any(row["verdict"] != "pass" or self._first[row["link"]] is self._task for row in rows)

    def _finish(self, part: FinishedRound) -> None:
        if part.cell is not None:
            self._todo.remove((part.number, part.cell))
            self._measured = True

    def close(self) -> None:
        """End the guest of this slot."""
        for source in (self._machine.out, self._machine.log):
            with contextlib.suppress(KeyError, ValueError):
                self._ready.unregister(source)
        self._machine.close()
