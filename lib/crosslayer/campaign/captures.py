"""Captures of page loads, if the plan asks for them: packets with their TLS keys, qlogs, Chromium's netlog.

Environment variables make the testbed's programs write these files. With SSLKEYLOGFILE, the server, our clients and
Chromium write their TLS keys. With QLOGDIR, the server, the stub and our clients write qlogs. With NETLOGDIR, which is
crosslayer's own variable, Chromium writes its netlog. The keys belong to a finished run, so they need no protection.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.links import Profile
from crosslayer.packets import About, Frame, Ring, kept_files, of_lines
from crosslayer.vocabulary import Role

FOLDER = "captures"
"""Name of the folder of captures in a dataset.

It has LINK/PAGE/ROUND/CONDITION.pcapng for each load. The description (JSON), qlogs and netlog of the load have the
same name with other endings.
"""

_VARIABLES = {"pcap": "SSLKEYLOGFILE", "qlog": "QLOGDIR", "netlog": "NETLOGDIR"}
_NETLOG_BYTES = 800_000
"""Maximum size of a load's part of the netlog, bytes, without the constants that Chromium writes first."""
_EVENTS = b'"events": [\n'
_CHUNK_BYTES = 65_536
_BEFORE_NS = 5_000_000
"""Packets that precede the start of a load by at most this time, ns, are kept too.

Chromium begins a connection up to 3 ms before its navigation.
"""


@dataclass(frozen=True, slots=True)
class CaptureFiles:
    """Contents of the captured files of one load, by the endings of their names."""

    condition: str
    files: Mapping[str, bytes]


@dataclass(slots=True)
class LoadCapture:
    """A load that is being captured."""

    condition: str
    table: str = ""
    rows: Rows = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    missing: int = 0
    keys: str = ""
    events: str = ""
    qlogs: set[Path] = field(default_factory=set)
    netlogs: dict[str, bytes] = field(default_factory=dict)


class Captures:
    """Captures the loads of a plan's first rounds. The testbed's programs must start inside this context manager."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder / FOLDER
        self._keys, self._qlogs = self._folder / "keys.log", self._folder / "qlog"
        self._netlogs = self._folder / "netlog"
        self._events: Path | None = None
        self._ring: Ring | None = None
        self._taken: list[LoadCapture] = []

    def __enter__(self) -> Self:
        self._forget()  # variables of the user's shell are not part of a plan
        if not self._plan.capture:
            return self
        for folder in (self._qlogs, self._netlogs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._keys.touch(mode=0o600)
        for kind, target in (("pcap", self._keys), ("qlog", self._qlogs), ("netlog", self._netlogs)):
            if kind in self._plan.capture:
                os.environ[_VARIABLES[kind]] = str(target)
        return self

    def __exit__(self, *_fault: object) -> None:
        self._forget()
        if self._ring is not None:
            self._ring.close()

    def _forget(self) -> None:
        for name in _VARIABLES.values():
            os.environ.pop(name, None)

    def ready(self, events: Path) -> None:
        """Start capturing packets, if the plan has packet captures.

        This process must be in the client's namespace. `events` is the server log.
        """
        self._events = events
        if "pcap" in self._plan.capture:
            self._ring = Ring()

    @contextlib.contextmanager
    def load(self, measuring: Measurer, condition: str, round_number: int) -> Iterator[LoadCapture]:
        """Capture the load that the block makes, if the plan captures loads of this round.

        The block must set `rows` of the yielded object. If Chromium wrote a netlog, this method then adds the handshake
        time from the netlog to the rows of `page_loads`, as the column `netlog_handshake_ms`.
        """
        load = LoadCapture(condition)
        if not self._plan.capture or round_number >= self._plan.capture_rounds or self._events is None:
            yield load
            return
        load.table = measuring.table_and_columns(condition)[0]
        begun = {file: file.stat().st_size for file in (self._keys, self._events)}
        known = set(self._qlogs.iterdir())
        sizes = {file: file.stat().st_size for file in self._netlogs.iterdir()}
        if self._ring is not None:
            self._ring.start()
        try:
            yield load
        finally:
            if self._ring is not None:
                load.frames, load.missing = self._ring.take()
        load.keys, load.events = (_from(file, size) for file, size in begun.items())
        load.qlogs = set(self._qlogs.iterdir()) - known
        for file in self._netlogs.iterdir():
            with file.open("rb") as log:
                more = netlog_part(log, sizes.get(file, 0))
            if more:
                load.netlogs[f".{file.name}"] = more
                updated = [
                    {**row, "netlog_handshake_ms": handshake_ms(more, measuring.context.pages[row["page"]].host)}
                    for row in load.rows.get("page_loads", ())
                ]
                load.rows = {**load.rows, "page_loads": updated}
        self._taken.append(load)

    def take(self, profile: Profile) -> tuple[CaptureFiles, ...]:
        """Files of the loads since the last call. Call this method after a round, when the round's rows are final."""
        taken, self._taken = self._taken, []
        files = tuple(CaptureFiles(load.condition, self._files(load, profile)) for load in taken)
        for file in self._qlogs.glob("*"):
            file.unlink()
        return files

    def _files(self, load: LoadCapture, profile: Profile) -> dict[str, bytes]:
        own = [row for row in load.rows.get(load.table, ()) if row.get("role") != Role.PRIMING]
        start_ns = round(min((row["started_s"] for row in own), default=0.0) * 1e9) - _BEFORE_NS
        about = About(
            condition=load.condition,
            table=load.table,
            clock=self._plan.clock,
            profile=asdict(profile),
            missing=load.missing,
            rows={table: [dict(row) for row in rows] for table, rows in load.rows.items()},
            server=[event for event in of_lines(load.events) if event["time"] >= start_ns],
        )
        frames = None if self._ring is None else [frame for frame in load.frames if frame.at_ns >= start_ns]
        logs = {f".{file.name}": file.read_bytes() for file in sorted(load.qlogs)}
        return logs | load.netlogs | kept_files(about, frames, load.keys)


def netlog_part(file: BinaryIO, start: int) -> bytes:
    """Events of Chromium's netlog from the offset `start` on, as a complete netlog; empty if there are no such events.

    If the events have more than `_NETLOG_BYTES`, only the last ones are kept, because the measured load is at the end.
    Only the constants and these events are read: the whole file may exceed the memory of a process in a guest.
    """
    head = b""
    while _EVENTS not in head and (more := file.read(_CHUNK_BYTES)):
        head += more
    head, events, _ = head.partition(_EVENTS)
    if not events:
        return b""
    file.seek(max(start, len(head) + len(events)) - 1)
    log, ended, _ = file.read().partition(b'],\n"polledData"')  # if Chromium has ended
    log += b",\n" if ended else b""
    first = max(1, len(log) - _NETLOG_BYTES)
    begin = first if log[first - 1 : first] == b"\n" else log.find(b"\n", first) + 1
    whole = log[begin : max(0, log.rfind(b",\n"))] if begin else b""
    return head + events + whole + b"\n]}\n" if whole else b""


def handshake_ms(log: bytes, host: str) -> float | None:
    """Time from the first Initial to the last Handshake packet of Chromium's newest QUIC connection to a host, ms.

    Only packets that Chromium sent count. The netlog has whole milliseconds, and its beginning may be cut off. None if
    the netlog has no such connection, lacks one of the two packets, or has another format.
    """
    if not log:
        return None
    try:
        document = json.loads(log)
        names = {number: name for name, number in document["constants"]["logEventTypes"].items()}
        events = [(names[event["type"]], event) for event in document["events"]]
    except (ValueError, KeyError, TypeError, AttributeError):  # another format: the load counts, its time is unknown
        return None
    connection, levels = None, dict[str, list[int]]()
    for name, event in events:
        params = event.get("params", {})
        if name == "QUIC_SESSION" and params.get("host") == host:
            connection, levels = event["source"]["id"], {}
        elif name == "QUIC_SESSION_PACKET_SENT" and event["source"]["id"] == connection:
            levels.setdefault(params.get("encryption_level"), []).append(int(event["time"]))
    first, last = (levels.get(f"ENCRYPTION_{level}") for level in ("INITIAL", "HANDSHAKE"))
    return float(last[-1] - first[0]) if first and last else None


def keep(folder: Path, cell: Cell, round_number: int, captured: tuple[CaptureFiles, ...]) -> None:
    """Write the captures of a round into a dataset's folder, replacing those of the same round.

    Raises
    ------
    CampaignError
        If the folder cannot be written or the disk is full.
    """
    target = folder / FOLDER / named(cell.link) / named(cell.page) / str(round_number)
    try:
        shutil.rmtree(target, ignore_errors=True)
        for load in captured:
            target.mkdir(parents=True, exist_ok=True)
            for ending, content in load.files.items():
                (target / f"{named(load.condition)}{ending}").write_bytes(content)
    except OSError as error:
        raise CampaignError(
            f"captures cannot be written ({error.strerror})",
            where=str(target),
            next_step="Free disk space, or measure without --capture; finished rounds are stored.",
        ) from error


def named(text: str) -> str:
    """Convert a text to a part of a file name that needs no quotes in a shell."""
    return re.sub(r"[^a-z0-9.+]+", "-", text.lower()).strip("-.") or "-"


def _from(file: Path, size: int) -> str:
    """Complete lines of a file from the offset `size` on."""
    with file.open("rb") as opened:
        opened.seek(size)
        whole, end, _ = opened.read().rpartition(b"\n")
        return (whole + end).decode()
