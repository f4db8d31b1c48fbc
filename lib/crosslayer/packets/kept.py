"""A capture as it is kept: a pcapng file, and beside it, in JSON, what it is of."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crosslayer.checked import checked, read_json
from crosslayer.packets.pcapng import Frame, PacketsError, Recorded, read_pcapng, write_pcapng

PACKETS, ABOUT = ".pcapng", ".json"
"""How the names of both files end."""

_WHOLE_BYTES, _MOST_BYTES, _HEADERS_BYTES = 800_000, 980_000, 64
"""Frames are kept whole up to the first, then their headers up to the second: a load has less than 1 MB."""
_BLOCK_BYTES = 60
"""What a frame takes in the file besides itself, at most."""
_READ_MOST_BYTES = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a capture is of."""

    condition: str
    """As its study calls it; the command, where it is a user's own."""
    profile: dict[str, Any]
    """The link's."""
    table: str = ""
    """Of the rows that are the observation; empty for a command."""
    clock: str = "wall"
    missing: int = 0
    """Frames that there was no room for."""
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By table."""
    server: list[dict[str, Any]] = field(default_factory=list)
    """What the server reported meanwhile (`testbed.server`)."""


def kept_files(about: About, frames: list[Frame] | None, keys: str) -> dict[str, bytes]:
    """The contents of both files, by the ends of their names; of the second alone, where no frames were asked for."""
    files = {}
    if frames is not None:
        kept = _within(frames)
        about = About(**asdict(about) | {"missing": about.missing + len(frames) - len(kept)})
        comment = f"crosslayer: {about.condition}, on {about.profile.get('name')}"
        files[PACKETS] = write_pcapng(kept, keys=keys, comment=comment)
    return files | {ABOUT: json.dumps(asdict(about)).encode()}


def read_kept(file: Path) -> tuple[About | None, Recorded]:
    """A capture, and what it is of where that is kept beside it.

    Raises
    ------
    PacketsError
        Where a file is missing, too large or not what its name says.
    """
    try:
        if file.stat().st_size > _READ_MOST_BYTES:
            raise PacketsError(f"has more than {_READ_MOST_BYTES} bytes", where=str(file))
        recorded = read_pcapng(file.read_bytes(), where=str(file))
    except OSError as fault:
        raise PacketsError(
            f"cannot be read ({fault.strerror})",
            where=str(file),
            next_step="`crosslayer show DATASET` lists the loads that were captured.",
        ) from None
    return read_about(file), recorded


def read_about(file: Path) -> About | None:
    """What a capture is of, None where nothing is kept beside it; `PacketsError` where that is something else."""
    beside = file.with_name(file.name.removesuffix(PACKETS) + ABOUT)
    if not beside.exists():
        return None
    return checked(read_json(beside, PacketsError), About, where=str(beside), error=PacketsError)


def of_lines(lines: str) -> list[dict[str, Any]]:
    """What a file of JSON lines holds."""
    return [json.loads(line) for line in lines.splitlines()]


def _within(frames: list[Frame]) -> list[Frame]:
    """Frames as they are kept: whole, then only their headers, then none."""
    kept, total = [], 0
    for frame in frames:
        data = frame.data if total < _WHOLE_BYTES else frame.data[:_HEADERS_BYTES]
        total += len(data) + _BLOCK_BYTES
        if total > _MOST_BYTES:
            break
        kept.append(Frame(frame.at_ns, frame.interface, frame.sent, data, frame.bytes))
    return kept
