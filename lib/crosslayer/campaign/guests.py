"""The rounds of a plan, measured by guests side by side. They share nothing, so none disturbs another."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from itertools import groupby

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.rounds import Job, Part, Source
from crosslayer.campaign.worker import WORDS, from_json
from crosslayer.guest import LOOK_S, Clock, GuestDied, Machine, check_mappings, find_kernel

_CHUNK_BYTES = 1 << 15


def measured_in_guests(clock: Clock, guests: int) -> Source:
    """A source of rounds: this many guests, each with its share of them.

    A guest that dies costs the round it was at: another goes on from there.

    Parameters
    ----------
    clock
        Of the guests.
    guests
        How many, at most: one by the wall clock, by which they would disturb each other.
    """

    def source(job: Job, say: Callable[[str], None]) -> Generator[Part, None, None]:
        return _measured(job, say, clock, guests)

    return source


def shares(todo: list[tuple[int, Cell]], guests: int) -> list[list[tuple[int, Cell]]]:
    """The rounds that each guest measures.

    The pages of a link in a round stay together, since a change of link costs a check of its rates. Who measures what
    is settled before: a guest that asked for more would wait, and its clock run on meanwhile.
    """
    batches = [list(batch) for _, batch in groupby(todo, lambda entry: (entry[0], entry[1].link))]
    return [
        [entry for batch in batches[place::guests] for entry in batch] for place in range(min(guests, len(batches)))
    ]


def news(part: Part, checked: set[str]) -> bool:
    """Whether a campaign keeps these checks: each guest looks at its links; one of each is kept, and all that failed.

    `checked` has the links of which one is kept.
    """
    links = {row["link"] for row in part.rows["link_checks"]}
    passed = all(row["verdict"] == "pass" for row in part.rows["link_checks"])
    known = links <= checked
    checked |= links
    return not (known and passed)


def _measured(job: Job, say: Callable[[str], None], clock: Clock, guests: int) -> Generator[Part, None, None]:
    kernel = find_kernel().as_versions()
    if job.plan.browser == "firefox":
        check_mappings()
    cores = sorted(os.sched_getaffinity(0))
    checked: set[str] = set()
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as ready:
        workers: list[_Worker] = []
        for place, todo in enumerate(shares(job.todo, guests)):
            core = cores[place % len(cores)] if clock == "virtual" else None
            workers.append(_Worker(replace(job, todo=todo), clock, core, ready))
            stack.callback(workers[-1].close)
        look = time.monotonic() + LOOK_S
        while ready.get_map():
            if time.monotonic() >= look:
                for worker in workers:
                    worker.check(say)
                look = time.monotonic() + LOOK_S
            for key, _events in ready.select(LOOK_S)[:1]:  # one at a time: what is done for it may close others
                for part in key.data(say):
                    if part.cell is not None or news(part, checked):
                        yield replace(part, versions=part.versions | kernel)


class _Worker:
    """A guest and its share of the rounds, over as many guests as it takes."""

    def __init__(self, job: Job, clock: Clock, core: int | None, ready: selectors.BaseSelector) -> None:
        self._job, self._clock, self._core, self._ready = job, clock, core, ready
        self._todo = list(job.todo)
        self._measured = False
        self._vain = 0
        self._start()

    def _start(self) -> None:
        self._left = len(self._todo)
        self._input = pickle.dumps(replace(self._job, todo=self._todo))
        self._lines = {b"1": bytearray(), b"2": bytearray()}
        self._machine = Machine(WORDS, clock=self._clock, core=self._core)
        self._ready.register(self._machine.out, selectors.EVENT_READ, self._read)
        self._ready.register(self._machine.log, selectors.EVENT_READ, self._read_log)

    def _read_log(self, say: Callable[[str], None]) -> list[Part]:
        if not self._machine.read_log():
            self._ready.unregister(self._machine.log)
        return []

    def _read(self, say: Callable[[str], None]) -> list[Part]:
        """The parts that have come."""
        parts: list[Part] = []
        try:
            for kind, payload in self._machine.frames():
                if kind in (b"R", b"A"):
                    chunk, self._input = self._input[:_CHUNK_BYTES], self._input[_CHUNK_BYTES:]
                    self._machine.send(b"0", chunk)  # an empty one at the end
                elif kind in self._lines:
                    self._lines[kind] += payload
                    if b"\n" not in payload:  # a round with its captures is a line of megabytes
                        continue
                    *lines, self._lines[kind] = self._lines[kind].split(b"\n")
                    if kind == b"1":
                        for part in map(from_json, lines):
                            self._finish(part)
                            parts.append(part)
                    else:
                        for line in lines:
                            say(line.decode(errors="replace"))
                elif kind == b"X":
                    self.close()
                    if payload != b"0":
                        self._again(f"the guest's command ended with status {payload.decode()}", say, None)
        except GuestDied as died:
            self.close()
            self._again(str(died), say, died)
        return parts

    def check(self, say: Callable[[str], None]) -> None:
        """Another guest, where this one would never end."""
        if self._todo:
            try:
                self._machine.check_programs()
            except GuestDied as died:
                self.close()
                self._again(str(died), say, died)

    def _again(self, why: str, say: Callable[[str], None], fault: GuestDied | None) -> None:
        """Another guest for what is left, if this one got something done, or was killed as the first that did not."""
        self._vain = self._vain + 1 if self._left == len(self._todo) else 0
        most = 0 if fault is None else 1
        if self._vain > most:
            if fault is not None and not self._measured:
                raise fault
            raise CampaignError(
                f"a round cannot be measured: {why}",
                where=self._job.campaign,
                next_step="Mend the fault and give the same command again: it goes on from there.",
            ) from fault
        say(f"{why} Another guest measures the round in flight again.")
        self._start()

    def _finish(self, part: Part) -> None:
        if part.cell is not None:
            self._todo.remove((part.number, part.cell))
            self._measured = True

    def close(self) -> None:
        """End its guest."""
        for source in (self._machine.out, self._machine.log):
            with contextlib.suppress(KeyError, ValueError):
                self._ready.unregister(source)
        self._machine.close()
