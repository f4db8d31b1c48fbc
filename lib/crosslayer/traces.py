"""Traces of a link's rate and delay over time, read from external files and checked.

Three formats: Mahimahi's delivery opportunities, steps of rate and RTT, and speed tests with ERRANT's columns.
`testbed.trace_replay` replays the traces. docs/reference/links.md defines the formats.
"""

from __future__ import annotations

import csv
import functools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Final

from msgspec import Meta

from crosslayer.decode import FieldError, read_text
from crosslayer.errors import CrosslayerError

OPPORTUNITY_BYTES: Final = 1504
"""Bytes that Mahimahi delivers per opportunity: an IP packet of 1500 bytes and the 4-byte header of a TUN device."""
LONGEST_MS: Final = 7 * 86_400_000
"""Maximum length of a trace and of a step: a week."""
MOST_RTT_MS: Final = 60_000.0
"""Maximum RTT of a link: a minute, longer than the timeouts of clients."""
MOST_MBIT: Final = 1e5
"""Maximum rate of a link: 100 Gbit/s."""
_MAHIMAHI_OVERHEAD = -10
"""Size that Mahimahi counts for a packet, minus the size of its Ethernet frame, bytes.

Mahimahi counts a header of 4 bytes; the Ethernet header has 14.
"""
_STEPS = ("duration_ms", "rtt_ms", "download_mbit", "upload_mbit")
_TESTS = ("operator", "country", "access_technology", "rssi", "download_mbps", "upload_mbps", "rtt_ms")
_FEWEST_TESTS = 10
_DRAWS = 100
_QUALITIES = {"4g": (-75.0, -85.0), "3g": (-85.0, -100.0), "2g": (-85.0, -100.0)}
"""RSSI above which the signal is good, and RSSI above which it is medium, dBm, by technology."""


class TraceError(CrosslayerError):
    """A trace file that cannot be used."""


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes that one direction can deliver over time: a piecewise linear function, repeated after its end."""

    at_ms: tuple[float, ...]
    """Times of the points, from 0 to the end of the trace; a jump has two points at the same time."""
    delivered_bytes: tuple[float, ...]
    """Bytes that could be delivered until each point."""
    overhead_bytes: int = 0
    """Bytes counted per packet in addition to its Ethernet frame; may be negative."""


@dataclass(frozen=True, slots=True)
class Course:
    """Rates and RTT over time from a trace. A direction without a line has the rate of its link profile."""

    down: Line | None = None
    up: Line | None = None
    rtts: tuple[tuple[float, float], ...] = ()
    """Durations, ms, each with the RTT of the link, ms; empty if the RTT does not change."""

    @property
    def length_ms(self) -> float:
        """Length of the longest of the trace's parts (downlink, uplink, RTT), ms; each part repeats after its end."""
        ends = [line.at_ms[-1] for line in (self.down, self.up) if line]
        return max([*ends, sum(duration for duration, _ in self.rtts)])

    @property
    def least_rtt_ms(self) -> float | None:
        """Minimum RTT, ms; None for a trace without RTTs."""
        return min((rtt for _, rtt in self.rtts), default=None)


@dataclass(frozen=True, slots=True)
class Trace:
    """Source of a trace: one or two Mahimahi files, a file of steps, or speed tests for random draws."""

    down: str | None = None
    """Mahimahi file of the delivery opportunities towards the client."""
    up: str | None = None
    """Mahimahi file of the delivery opportunities towards the server."""
    steps: str | None = None
    """CSV with a column `duration_ms` and some of `rtt_ms`, `download_mbit`, `upload_mbit`."""
    errant: str | None = None
    """CSV of speed tests with ERRANT's columns."""
    of: str = ""
    """Origin of the speed tests: operator, country, technology, signal quality, separated by commas."""
    every_s: Annotated[float, Meta(gt=0)] = 10.0
    """Duration of a randomly drawn step, seconds."""

    def __post_init__(self) -> None:
        kinds = [bool(self.down or self.up), bool(self.steps), bool(self.errant)]
        if sum(kinds) != 1:
            raise FieldError(
                "is not exactly one kind of trace", next_step="Give down and up, or steps, or errant with of."
            )
        if bool(self.errant) != bool(self.of):
            raise FieldError("and errant go together", key="of", next_step="Give both or neither.")

    @property
    def files(self) -> dict[str, Path]:
        """Files of the trace, by the field that names them."""
        named = {"down": self.down, "up": self.up, "steps": self.steps, "errant": self.errant}
        return {field: Path(path) for field, path in named.items() if path}

    def moved(self, files: Mapping[str, Path]) -> Trace:
        """The same trace with other files. `files` has the new path of each file, by the field that names the file."""
        return replace(self, **{field: str(file) for field, file in files.items()})  # type: ignore[arg-type]

    def at(self, folder: Path) -> Trace:
        """The same trace, with relative paths resolved in `folder`; absolute paths are kept."""
        return self.moved({field: folder.absolute() / file for field, file in self.files.items()})

    def course(self) -> Course:
        """Read the files; returns rates and RTT over time.

        Raises
        ------
        TraceError
            If a file cannot be read or has a wrong format. The error names the file and, for a fault in a single line,
            this line.
        """
        return _course(self, tuple(file.stat().st_mtime_ns for file in self.files.values() if file.is_file()))


@functools.cache
def _course(trace: Trace, _changed_ns: tuple[int, ...]) -> Course:
    if trace.steps:
        return _steps(Path(trace.steps))
    if trace.errant:
        return _drawn(Path(trace.errant), trace.of, trace.every_s)
    down, up = (_opportunities(Path(path)) if path else None for path in (trace.down, trace.up))
    return Course(down, up)


def from_text(text: str) -> Trace:
    """Parse the notation of a trace on the command line: `FILE.down[,FILE.up]`, or `FILE.csv` with steps."""
    first, _, second = text.partition(",")
    if first.endswith(".csv") and not second:
        return Trace(steps=first).at(Path())
    return Trace(down=first or None, up=second or None).at(Path())


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs of position (file and line number) and text, for each line that is neither empty nor a comment."""
    text = read_text(path, TraceError, "Name a trace that is there.")
    for number, line in enumerate(text.splitlines(), 1):
        if (line := line.strip()) and not line.startswith("#"):
            yield f"{path}, line {number}", line


def _opportunities(path: Path) -> Line:
    """Parse Mahimahi's format: each line is the time of a delivery opportunity, in ms.

    The trace repeats after the last opportunity.
    """
    times: list[int] = []
    for where, line in _lines(path):
        if not (line.isascii() and line.isdigit()):
            raise TraceError(
                f"is {line[:40]!r}",
                where=where,
                next_step="Write only the time of a delivery opportunity: a whole number of ms.",
            )
        if len(line) > len(str(LONGEST_MS)) or int(line) > LONGEST_MS:
            raise TraceError(
                f"is {line[:40]}, and a trace has at most {LONGEST_MS} ms",
                where=where,
                next_step="Shorten the trace.",
            )
        if times and int(line) < times[-1]:
            raise TraceError(f"goes back from {times[-1]} ms to {line}", where=where, next_step="Sort the lines.")
        times.append(int(line))
    if not times or not times[-1]:
        raise TraceError(
            "has no delivery opportunity after 0 ms", where=str(path), next_step="Name a trace of Mahimahi's."
        )
    at, delivered = [0.0], [0.0]
    for number, time_ms in enumerate(times, 1):
        if time_ms > at[-1] or number == 1:
            at += [float(time_ms)] * 2
            delivered += [delivered[-1]] * 2
        delivered[-1] = float(number * OPPORTUNITY_BYTES)
    return Line(tuple(at), tuple(delivered), _MAHIMAHI_OVERHEAD)


def _rows(path: Path, known: tuple[str, ...], required: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Pairs of position (file and line number) and values by column, for each row of a CSV file with a header."""
    lines = list(_lines(path))
    header = [name.strip() for name in lines[0][1].split(",")] if lines else []
    if missing := [name for name in required if name not in header]:
        raise TraceError(
            f"has no column {missing[0]!r}", where=str(path), next_step=f"Begin it with the line {','.join(known)}."
        )
    for where, line in lines[1:]:
        values = [value.strip() for value in next(csv.reader([line]))]
        if len(values) != len(header):
            raise TraceError(
                f"has {len(values)} values for {len(header)} columns", where=where, next_step="Correct that line."
            )
        yield where, dict(zip(header, values, strict=True))


def _number(word: str, where: str, column: str, accepts: Callable[[float], bool], expected: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and accepts(value)):
        raise TraceError(f"has {word!r} as {column}", where=where, next_step=f"Write {expected}.")
    return value


def _duration(value: float) -> bool:
    return 0 < value <= LONGEST_MS


def _at_most(most: float) -> Callable[[float], bool]:
    return lambda value: 0 <= value <= most


def _steps(path: Path) -> Course:
    """Parse crosslayer's format: a line for each step, with its duration, and its RTT, its rates or both.

    A rate of 0 holds packets until the step ends.
    """
    durations: list[float] = []
    columns: dict[str, list[float]] = {}
    for where, row in _rows(path, _STEPS, _STEPS[:1]):
        if other := next((name for name in row if name not in _STEPS), None):
            raise TraceError(f"has a column {other!r}", where=str(path), next_step=f"Columns are: {', '.join(_STEPS)}.")
        expected = f"a time above 0, at most {LONGEST_MS} ms"
        durations.append(_number(row.pop("duration_ms"), where, "duration_ms", _duration, expected))
        for name, word in row.items():
            most = MOST_RTT_MS if name == "rtt_ms" else MOST_MBIT
            value = _number(word, where, name, _at_most(most), f"a number from 0 to {most:g}")
            columns.setdefault(name, []).append(value)
    if not columns:
        raise TraceError("has no steps", where=str(path), next_step="Add one line per step, with an RTT or rates.")
    return _stepped(path, durations, columns)


def _stepped(path: Path, durations: list[float], columns: dict[str, list[float]]) -> Course:
    at = (0.0, *accumulate(durations))
    lines: list[Line | None] = []
    for name in ("download_mbit", "upload_mbit"):
        rates = columns.get(name)
        if rates is not None and not any(rates):
            raise TraceError(
                f"has no {name} above 0", where=str(path), next_step="Set a rate above 0 in at least one step."
            )
        amounts = accumulate(rate * ms * 125 for rate, ms in zip(rates or (), durations, strict=False))
        lines.append(Line(at, (0.0, *amounts)) if rates else None)
    down, up = lines
    return Course(down, up, tuple(zip(durations, columns.get("rtt_ms", ()), strict=False)))


def _drawn(path: Path, of: str, every_s: float) -> Course:
    """Steps drawn from ERRANT's distribution of rates and RTT: a kernel density of the speed tests of one origin.

    Each draw is a test plus Gaussian noise. The covariance of the noise is that of the tests times the square of
    Silverman's factor, as in Trevisan et al. (Computer Networks 176, 2020, 107289) and in ERRANT's `model_creation`.
    A draw in which a value is 0 or negative is discarded, and a new draw is made.
    """
    wanted = tuple(word.strip().casefold() for word in of.split(","))
    groups: dict[tuple[str, ...], list[tuple[float, ...]]] = {}
    for where, row in _rows(path, _TESTS, _TESTS):
        numbers = [_number(row[name], where, name, math.isfinite, "a number") for name in _TESTS[3:]]
        technology = row["access_technology"].casefold()
        if technology not in _QUALITIES:
            raise TraceError(f"has {technology!r} as access_technology", where=where, next_step="Write 2G, 3G or 4G.")
        good, medium = _QUALITIES[technology]
        quality = "good" if numbers[0] > good else "medium" if numbers[0] > medium else "bad"
        group = (row["operator"].casefold(), row["country"].casefold(), technology, quality)
        groups.setdefault(group, []).append(tuple(numbers[1:]))
    tests = groups.get(wanted, [])
    if len(tests) < _FEWEST_TESTS:
        there = [",".join(group) for group, some in sorted(groups.items()) if len(some) >= _FEWEST_TESTS]
        raise TraceError(
            f"has {len(tests)} tests of {of!r}, which is too few",
            where=str(path),
            next_step=f"Choose one of: {'; '.join(there) or f'none has {_FEWEST_TESTS}'}.",
        )
    draws = list(_draws(tests, random.Random(of)))
    values = {
        name: [draw[column] for draw in draws] for column, name in enumerate(("download_mbit", "upload_mbit", "rtt_ms"))
    }
    return _stepped(path, [every_s * 1e3] * len(draws), values)


def _draws(tests: list[tuple[float, ...]], draw: random.Random) -> Iterator[tuple[float, ...]]:
    kinds = len(tests[0])
    factor = (len(tests) * (kinds + 2) / 4) ** (-1 / (kinds + 4))
    means = [math.fsum(column) / len(tests) for column in zip(*tests, strict=True)]
    made = 0
    while made < _DRAWS:
        # A sum of the tests' deviations with independent normal weights has the covariance of the tests.
        weights = [draw.gauss(0, 1) * factor / math.sqrt(len(tests) - 1) for _ in tests]
        chosen = draw.choice(tests)
        values = tuple(
            chosen[column]
            + math.fsum(weight * (test[column] - means[column]) for weight, test in zip(weights, tests, strict=True))
            for column in range(kinds)
        )
        if min(values) > 0:
            made += 1
            yield values
